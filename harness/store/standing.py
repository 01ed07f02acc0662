"""Standing of rows: which of them may decide anything. Every reader of a store gets rows judged.

A row stands where its own process compared its result with a reference, and it passed. It is void
where

- no comparison was made, unless it was kept when one process compared for all of its cell (`Row`);
- its system gave a wrong result on this dataset and model anywhere in the run;
- an old row tells its deviation alone, or that it was excused.

A row of a disturbed round that a later round of its group repeats is marked `replaced` and takes no
part in ratios.

A void row keeps its place and its reason and loses its numbers, so that no verdict, figure, table,
race or comparison can use them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from dgbench.harness.store.row import VOID, Row
from dgbench.lab.compare import CONTROL

CHECK = "check"
"""Parameter of old cells that only compared, for the cell with the same other parameters."""

BOUND = ("dataset", "model", "operator")
"""Parameters that tell one workload of a system from another."""

UNCOMPARED = "its result was not compared with a reference"
EARLIER = "an earlier version kept its deviation, and not what was compared or allowed"
EXCUSED = "its deviation from the reference was excused"


def judged(rows: Sequence[Row]) -> list[Row]:
    """The rows in their order, void where their result is not known to be right."""
    rows = mark_replaced(rows)
    wrong: dict[str, list[Row]] = defaultdict(list)
    compared: set[tuple] = set()
    for row in rows:
        if row.status == "check" and row.paper != "-":
            wrong[subject(row)].append(row)
        elif row.status == "ok" and _compared(row):
            compared.add(_cell(row))
    return [_judged(row, wrong[subject(row)], compared) for row in rows]


def subject(row: Any) -> str:
    """The system whose result a row is: its parameter `system`, else the paper's own."""
    named = row.params.get("system")
    return named if isinstance(named, str) and named else row.paper


def wrong_results(rows: Iterable[Any]) -> list[str]:
    """A sentence for each system and workload whose result was found wrong, in order of rows."""
    found: dict[tuple, str] = {}
    for row in rows:
        if row.status == "check" and row.paper != "-":
            where = [str(row.params[name]) for name in BOUND if name in row.params]
            name = " on ".join([subject(row), "/".join(where)] if where else [subject(row)])
            found.setdefault((subject(row), *where), f"{name}: {row.reason}")
    return list(found.values())


def mark_replaced(rows: Sequence[Row]) -> Sequence[Row]:
    """The rows, marked where a later round of their group repeats theirs."""
    again = {(*_group(row), row.repeats) for row in rows if row.repeats}
    if not again:
        return rows
    return [
        msgspec.structs.replace(row, replaced=True)
        if not row.instrumented and (*_group(row), row.round) in again
        else row
        for row in rows
    ]


def _group(row: Row) -> tuple[str, str, str]:
    return row.paper, row.experiment, row.group


def _judged(row: Row, wrong: list[Row], compared: set[tuple]) -> Row:
    if row.status != "ok" or row.paper == "-":
        return row
    for other in wrong:
        if _same_workload(row, other):
            return _void(row, f"{subject(row)} gave a wrong result ({other.id}: {other.reason})")
    if _compared(row) or (row.rests_on_cell and not row.checks and _cell(row) in compared):
        return row
    if any(note.startswith("rounding: ") for note in row.notes):
        return _void(row, EXCUSED)
    return _void(row, EARLIER if row.deviation and not row.checks else UNCOMPARED)


def _compared(row: Row) -> bool:
    """Return True if its own process compared its result, and all of it passed."""
    return bool(row.checks) and all(check.passed for check in row.checks)


def _void(row: Row, reason: str) -> Row:
    found = msgspec.structs.replace(row, status=VOID, reason=reason, series={})
    found.drop_numbers()
    return found


def _same_workload(row: Row, other: Row) -> bool:
    """Return True if the rows agree on every dataset and model that both name."""
    return all(
        row.params[name] == other.params[name]
        for name in BOUND
        if name in row.params and name in other.params
    )


def _cell(row: Row) -> tuple:
    """Key shared by the rows of one cell: its place and parameters, whatever the round."""
    params = tuple(sorted((k, repr(v)) for k, v in row.params.items() if k not in (CHECK, CONTROL)))
    return row.paper, row.experiment, row.device, params
