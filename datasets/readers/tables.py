"""Tables of events: CSV, space- or tab-separated text, plain or gzipped, by way of pyarrow."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from dgbench.datasets.catalogue import ReaderSpec
from dgbench.datasets.readers.raw import RawEvents, read_bytes
from dgbench.runtime.errors import DataError, unknown_key

_DELIMITERS: Final = {"comma": ",", "space": " ", "tab": "\t"}
_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
"""Of pyarrow: a comment that ends with a lone return must not take a row with it."""
_YEAR_1: Final = -719_162
"""1 January 1 in days since 1970."""
_LARGE: Final = 1 << 20
_ROLES: Final = ("src", "dst", "t", "weight", "label", "feature", "skip", "rest")


def read_table(paths: Sequence[Path], spec: ReaderSpec) -> RawEvents:
    """Read one table of events.

    Raises:
        DataError: for a wrong number of columns, a field that is no number, a missing value,
            or a negative id, each with the row (counted from 1 after the header).
    """
    (path,) = paths
    columns = _columns(path, spec)
    src, dst, num_nodes, num_src = _number(path, columns["src"], columns["dst"], spec)
    features = [v for k, v in columns.items() if k.startswith("feature")]
    return RawEvents(
        src=src,
        dst=dst,
        t=_time(path, columns.get("t"), spec, src.size),
        num_nodes=num_nodes,
        num_src=num_src,
        weight=columns.get("weight"),
        label=columns.get("label"),
        edge_feat=np.stack(features, 1) if features else None,
    )


def read_amlsim(paths: Sequence[Path], spec: ReaderSpec) -> RawEvents:
    """Read AMLSim's `transactions.csv` and `nodes.csv` (in this order).

    The initial balance, as log(1 + balance), becomes the one vertex feature.
    """
    transactions, nodes = paths
    events = read_table([transactions], spec)
    accounts = _columns(
        nodes, ReaderSpec(format="table", columns=("src", "skip", "weight", "skip"), skip=1)
    )
    size = accounts["src"].size
    if size != events.num_nodes or not np.array_equal(accounts["src"], np.arange(size)):
        raise DataError(
            f"{nodes} lists {size} accounts; 0 .. {events.num_nodes - 1} in order are needed"
        )
    balance = accounts["weight"]
    if balance.size and not balance.min() >= 0:
        raise DataError(f"{nodes} has a negative or missing balance")
    events.node_feat = np.log1p(balance)[:, None]
    return events


def _columns(path: Path, spec: ReaderSpec) -> dict[str, Any]:
    """The columns of a table by role; `feature` columns are numbered."""
    import pyarrow as pa
    from pyarrow import csv

    data = read_bytes(path)
    if spec.comment:
        data = _drop_comments(data, spec.comment.encode())
    names = _names(path, data, spec)
    ids = pa.string() if spec.ids == "names" else pa.int64()
    types = {"t": pa.string() if spec.time == "date" else pa.float64(), "label": pa.int64()}
    kinds = {
        name: ids if name in ("src", "dst") else types.get(name, pa.float32())
        for name in names
        if not name.startswith("skip")
    }
    if not data.strip():
        return {name: np.zeros(0, kind.to_pandas_dtype()) for name, kind in kinds.items()}
    try:
        table = csv.read_csv(
            pa.BufferReader(data),
            read_options=csv.ReadOptions(
                column_names=names, skip_rows=spec.skip, use_threads=len(data) > _LARGE
            ),
            parse_options=csv.ParseOptions(delimiter=_DELIMITERS[spec.delimiter]),
            convert_options=csv.ConvertOptions(
                column_types=kinds, include_columns=list(kinds), strings_can_be_null=False
            ),
        )
    except pa.ArrowInvalid as error:
        raise DataError(
            f"{path} is not the table its card describes: {error}",
            hint=f"columns by the card: {', '.join(spec.columns)}",
        ) from None
    out: dict[str, Any] = {}
    for name in kinds:
        column = table.column(name)
        if column.null_count:
            row = column.is_null().to_numpy(zero_copy_only=False).argmax()
            raise DataError(f"{path}, row {row + 1}: the column `{name}` is empty or not a number")
        keep = pa.types.is_string(kinds[name])
        out[name] = column if keep else column.to_numpy()
    return out


def _names(path: Path, data: bytes, spec: ReaderSpec) -> list[str]:
    """A unique name for every column of the file, checked against its first data line."""
    names = [
        role if role not in ("skip", "feature") else f"{role}{place}"
        for place, role in enumerate(spec.columns)
        if role != "rest"
    ]
    unknown = [role for role in spec.columns if role not in _ROLES]
    if unknown:
        error = unknown_key("column role", unknown[0], _ROLES)
        raise DataError(str(error), hint=error.hint)
    lines = _LINE_END.split(data[:1_000_000], spec.skip + 1)
    if len(lines) <= spec.skip or not lines[spec.skip].strip():
        return names
    found = lines[spec.skip].count(_DELIMITERS[spec.delimiter].encode()) + 1
    if spec.columns and spec.columns[-1] == "rest":
        names += [f"feature{place}" for place in range(len(names), found)]
    if found != len(names):
        raise DataError(
            f"{path} has {found} columns in its first row; its card says {len(names)}: "
            f"{', '.join(spec.columns)}"
        )
    return names


def _drop_comments(data: bytes, mark: bytes) -> bytes:
    start = 0
    while data.startswith(mark, start):
        end = _LINE_END.search(data, start)
        if end is None:
            return b""
        start = end.end()
    return data[start:]


def _time(path: Path, column: Any, spec: ReaderSpec, events: int) -> np.ndarray:
    if spec.time == "none" or column is None:
        return np.zeros(events)
    if spec.time == "number":
        return column
    import pyarrow as pa
    from pyarrow import compute

    if events == 0:
        return np.zeros(0)
    try:
        days = compute.cast(column, pa.date32()).cast(pa.int32()).to_numpy()
    except pa.ArrowInvalid as error:
        raise DataError(f"{path}: a date is not written as YYYY-MM-DD: {error}") from None
    if days.min() < _YEAR_1:
        row = int(days.argmin()) + 1
        raise DataError(f"{path}, row {row}: a date is not written as YYYY-MM-DD: before year 1")
    return days.astype(np.float64) * 86_400.0


def _number(
    path: Path, src: Any, dst: Any, spec: ReaderSpec
) -> tuple[np.ndarray, np.ndarray, int, int | None]:
    """Dense ids of both columns, N, and the size of the source side if there is one."""
    if spec.ids == "names":
        src, sources = _encode(src)
        dst, destinations = _encode(dst)
        return src, dst + sources, sources + destinations, sources
    for name, column in (("src", src), ("dst", dst)):
        if column.size and column.min() < 0:
            row = int((column < 0).argmax())
            raise DataError(f"{path}, row {row + 1}: {name} = {column[row]}; ids must be >= 0")
    if spec.ids == "keep":
        nodes = spec.nodes
        if nodes is None:
            nodes = int(max(src.max(initial=-1), dst.max(initial=-1))) + 1
        return src, dst, nodes, None
    if spec.ids == "bipartite":
        src, sources = compact(src)
        dst, destinations = compact(dst)
        return src, dst + sources, sources + destinations, sources
    both, nodes = compact(np.concatenate([src, dst]))
    return both[: src.size], both[src.size :], nodes, None


def _encode(column: Any) -> tuple[np.ndarray, int]:
    """Numbers of strings in order of appearance, and how many there are."""
    if isinstance(column, np.ndarray):  # an empty table
        return np.zeros(0, np.int64), 0
    coded = column.combine_chunks().dictionary_encode()
    coded = coded.combine_chunks() if hasattr(coded, "combine_chunks") else coded
    return coded.indices.to_numpy().astype(np.int64), len(coded.dictionary)


def compact(ids: np.ndarray) -> tuple[np.ndarray, int]:
    """Renumber ids to 0 .. k - 1, keeping their order; int64 in, int64 out, with k."""
    if ids.size == 0:
        return ids.astype(np.int64), 0
    top = int(ids.max())
    if top >= 8 * ids.size + 1_000_000:  # too sparse for a table of flags
        distinct, place = np.unique(ids, return_inverse=True)
        return place.astype(np.int64), distinct.size
    present = np.zeros(top + 1, dtype=bool)
    present[ids] = True
    rank = np.cumsum(present, dtype=np.int64) - 1
    return rank[ids], int(rank[-1]) + 1
