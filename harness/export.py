"""A run's rows and verdicts as flat tables, for programs other than dgbench.

Rows keep their names: a field that holds a mapping becomes one column a key (`values.loss`,
`params.dataset`). Nothing is derived but `time_s`, the median of a row's samples,
and `void`, why it or numbers of it do not count.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dgbench.harness.claims import evaluate
from dgbench.harness.claims.plain import as_plain
from dgbench.harness.store.files import cannot_write, write_whole
from dgbench.harness.store.standing import void_reasons
from dgbench.lab.metrics import metric
from dgbench.runtime.errors import InvalidInputError

if TYPE_CHECKING:
    import pandas as pd

TABLES: Final = ("observations", "rows", "claims")
PLAIN: Final = (
    "id", "run", "paper", "experiment", "group", "round", "device", "preset", "instrumented",
    "status", "reason", "void", "seconds", "started", "cell_hash", "provenance", "warmup",
)  # fmt: skip
MAPPINGS: Final = ("params", "deviation", "data", "probes")
OF_ROW: Final = (
    "run", "id", "paper", "experiment", "group", "round", "device", "preset", "instrumented",
)  # fmt: skip
OF_OBSERVATION: Final = ("metric", "kind", "unit", "value", "low", "high", "samples")
CLAIMS: Final = (
    "paper", "id", "where", "statement", "verdict", "measured", "low", "high", "printed", "unit",
    "strength", "agreement", "source", "device", "data", "void", "reason", "rows",
)  # fmt: skip
PRINTED: Final = ("where", "statement", "printed", "measured", "unit", "verdict")
"""Columns of the claims that fit a page."""


def rows_table(rows: Sequence[Any]) -> pd.DataFrame:
    """One line per process of a run, in the order of its rows."""
    import pandas as pd

    lines = []
    for row in rows:
        void = "; ".join(void_reasons(row))
        line = {name: void if name == "void" else _cell(getattr(row, name)) for name in PLAIN}
        line["time_s"] = row.time
        for name in MAPPINGS:
            line |= {f"{name}.{key}": _cell(v) for key, v in getattr(row, name).items()}
        line["notes"] = "; ".join(row.notes)
        lines.append(line)
    return pd.DataFrame(lines, columns=None if lines else [*PLAIN, "time_s"])


def observations_table(rows: Sequence[Any]) -> pd.DataFrame:
    """One line per observation: where it was made, its dimensions, metric, unit and value.

    Dimensions and params of its cell have the same columns: `dims.dataset`, `dims.setting`.
    """
    import pandas as pd

    lines = []
    for row in rows:
        place = {name: _cell(getattr(row, name)) for name in OF_ROW}
        for one in row.observed:
            known = metric(one.metric)
            dims = {f"dims.{k}": _cell(v) for k, v in {**row.params, **one.dims}.items()}
            number = {"value": _cell(one.value), "low": one.low, "high": one.high}
            samples = json.dumps(one.samples) if one.samples else ""
            what = {"metric": one.metric, "kind": known.kind, "unit": known.unit}
            lines.append({**place, **dims, **what, **number, "samples": samples})
    return pd.DataFrame(lines, columns=None if lines else [*OF_ROW, *OF_OBSERVATION])


def claims_table(papers: Sequence[Any], rows: Sequence[Any]) -> pd.DataFrame:
    """One line per claim of some papers with its verdict on these rows."""
    import pandas as pd

    lines = []
    for paper in papers:
        found = evaluate(paper, rows)
        for claim, verdict in zip(found.claims, found.verdicts, strict=True):
            plain = as_plain(claim, verdict)
            line = plain | {"paper": paper.name, "printed": plain["paper"]}
            lines.append({name: _cell(line[name]) for name in CLAIMS})
    return pd.DataFrame(lines, columns=list(CLAIMS))


def write_table(table: pd.DataFrame, path: Path) -> None:
    """Write a table in the form that the file's ending names, whole or not at all.

    Raises:
        InvalidInputError: an ending other than .csv, .parquet and .tex.
        StoreError: the file cannot be written.
    """
    if path.suffix not in FORMATS:
        raise InvalidInputError(
            f"out is '{path}', allowed are files that end in {', '.join(FORMATS)}"
        )
    data = FORMATS[path.suffix](table)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(path, error) from error
    write_whole(path, data)


def _csv(table: pd.DataFrame) -> bytes:
    return table.to_csv(index=False, lineterminator="\n").encode()


def _parquet(table: pd.DataFrame) -> bytes:
    # A column may hold words in one row and numbers in the next; Parquet has one type a column.
    mixed = [c for c in table if table[c].map(type).nunique() > 1 and table[c].dtype == object]
    table = table.assign(**{c: table[c].map(_word).astype("string") for c in mixed})
    out = io.BytesIO()
    table.to_parquet(out, index=False)
    return out.getvalue()


def _latex(table: pd.DataFrame) -> bytes:
    """A longtable over several pages; of claims only what fits a page."""
    if list(table.columns) == list(CLAIMS):
        table = table[list(PRINTED)]
    table = table.map(_word)
    columns = "".join("p{0.35\\linewidth}" if c == "statement" else "l" for c in table)
    style = table.style.hide(axis="index").format(escape="latex")
    style = style.format_index(escape="latex", axis="columns")
    return style.to_latex(environment="longtable", hrules=True, column_format=columns).encode()


FORMATS: Final[dict[str, Callable[[Any], bytes]]] = {
    ".csv": _csv,
    ".parquet": _parquet,
    ".tex": _latex,
}


def _word(value: Any) -> str:
    if value is None or value != value:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _cell(value: Any) -> Any:
    """Scalars as they are, all else as JSON; whole numbers beyond 64 bits as words."""
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return json.dumps(value, sort_keys=True)
