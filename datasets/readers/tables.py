"""Tables of events: text, plain or packed, with columns by their roles."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from dgbench.datasets.catalogue import ReaderSpec, VertexSpec
from dgbench.datasets.readers.columns import RawColumns, to_events
from dgbench.datasets.readers.raw import RawEvents
from dgbench.datasets.readers.text import TextTable
from dgbench.datasets.readers.times import MAX_EXACT, fraction_digits
from dgbench.runtime.errors import DataError, unknown_key

_ROLES: Final = ("src", "dst", "t", "weight", "label", "feature", "skip", "rest")
_VERTEX_ROLES: Final = ("id", "label", "feature", "skip", "rest")


def read_table(paths: Sequence[Path], spec: ReaderSpec) -> RawEvents:
    """Read a table of events, and a table of its vertices where there is a second file.

    Raises:
        DataError: for a wrong number of columns, a field that is no number, a missing value, a
            negative id, or times out of order, each with the line.
    """
    table = TextTable.open(paths[0], spec)
    names = _names(table, _ROLES)
    found = table.columns({name: _kind(name, spec) for name in names})
    if spec.time == "number" and "t" in found:
        found["t"] = _exact_times(table, names, found["t"])
    features = [v for k, v in found.items() if k.startswith("feature")]
    columns = RawColumns(
        src=found["src"],
        dst=found["dst"],
        t=found.get("t"),
        weight=found.get("weight"),
        label=found.get("label"),
        edge_feat=np.stack(features, 1) if features else None,
    )
    vertices = None
    if spec.vertices is not None and len(paths) > 1:
        vertices = read_vertices(paths[1], spec.vertices, named=spec.ids.startswith("names"))
    return to_events(columns, spec, table.fault, vertices)


def read_vertices(path: Path, spec: VertexSpec, *, named: bool) -> tuple[Any, Any, Any, TextTable]:
    """Ids, labels (int64[V] or None), features (float32[V, D] or None) and the table itself."""
    import pyarrow as pa

    table = TextTable.open(path, spec)
    names = _names(table, _VERTEX_ROLES)
    types = {"id": pa.string() if named else pa.int64(), "label": pa.int64()}
    found = table.columns(
        {name: None if name.startswith("skip") else types.get(name, pa.float32()) for name in names}
    )
    if "id" not in found:
        raise DataError(f"{path}: no column has the role `id`")
    features = [v for k, v in found.items() if k.startswith("feature")]
    return found["id"], found.get("label"), np.stack(features, 1) if features else None, table


def read_amlsim(paths: Sequence[Path], spec: ReaderSpec) -> RawEvents:
    """Read AMLSim's `transactions.csv` and `nodes.csv` (in this order).

    The initial balance, as log(1 + balance), becomes the one vertex feature; whether an account is
    fraudulent its label.
    """
    transactions, nodes = paths
    events = read_table([transactions], spec)
    layout = VertexSpec(columns=("id", "label", "feature", "skip"), skip=1)
    accounts, fraud, balances, table = read_vertices(nodes, layout, named=False)
    size = accounts.size
    if size != events.num_nodes or not np.array_equal(accounts, np.arange(size)):
        raise DataError(
            f"{nodes} lists {size} accounts; 0 .. {events.num_nodes - 1} in order are needed"
        )
    low = ~(balances[:, 0] >= 0)
    if low.any():
        raise table.fault(int(low.argmax()), "a balance is negative or missing")
    events.node_feat = np.log1p(balances)
    events.node_label = fraud
    return events


def _kind(name: str, spec: ReaderSpec) -> Any:
    """The arrow type of a column by its role, None where it is skipped."""
    import pyarrow as pa

    if name.startswith("skip"):
        return None
    if name in ("src", "dst"):
        return pa.string() if spec.ids.startswith("names") else pa.int64()
    if name == "t":
        return pa.string() if spec.time in ("date", "timestamp") else pa.float64()
    return pa.int64() if name == "label" else pa.float32()


def _names(table: TextTable, roles: Sequence[str]) -> list[str]:
    """A unique name for every column of the file, checked against its first data line."""
    layout = table.layout
    unknown = [role for role in layout.columns if role not in roles]
    if unknown:
        error = unknown_key("column role", unknown[0], roles)
        raise DataError(f"{table.path}: {error}", hint=error.hint)
    names = [
        role if role not in ("skip", "feature") else f"{role}{place}"
        for place, role in enumerate(layout.columns)
        if role != "rest"
    ]
    rows = table.head(layout.skip + 1)
    if len(rows) <= layout.skip:
        return names
    count = len(rows[layout.skip])
    if layout.columns and layout.columns[-1] == "rest":
        names += [f"feature{place}" for place in range(len(names), count)]
    if count != len(names):
        raise DataError(
            f"{table.path} has {count} columns in its first row; its card says {len(names)}: "
            f"{', '.join(layout.columns)}"
        )
    return names


def _exact_times(table: TextTable, names: list[str], read: np.ndarray) -> Any:
    """Times without rounding: float64 where that holds them, else int64 or decimals."""
    import pyarrow as pa

    if not read.size:
        return read
    kind = None
    if np.isfinite(read).all() and np.abs(read).max() >= MAX_EXACT:
        kind = pa.int64()
    else:
        place = names.index("t")
        rows = table.head(table.layout.skip + 100)[table.layout.skip :]
        digits = fraction_digits(row[place] for row in rows if len(row) > place)
        kind = pa.decimal128(38, digits) if digits else None
    if kind is None:
        return read
    try:
        found = table.columns({name: kind if name == "t" else None for name in names})["t"]
    except DataError:  # larger than int64, more digits than elsewhere, or an exponent
        found = read
    if found.dtype == object and len(set(found.tolist())) == np.unique(read).size:
        return read
    if found.dtype == np.float64 and np.abs(read).max() >= MAX_EXACT:
        row = int((np.abs(read) >= MAX_EXACT).argmax())
        raise table.fault(row, f"t = {float(read[row])!r} is beyond 2**53, where float64 has gaps")
    return found
