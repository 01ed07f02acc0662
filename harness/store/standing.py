"""Standing of rows: which of them may decide anything. Every reader of a store gets rows judged.

A row stands where its own process compared its result with a reference, and it passed. It is void
where

- dgbench made no comparison (a check that a plugin formed is its own), unless it was kept when one
  process compared for all of its cell (`Row`);
- an old row tells its deviation alone, or that it was excused;
- all that it measured is of contenders that gave a wrong result on its workload in the run.

The subject of a failed check is a contender on a workload. The contender is the one that the check
names (`ResultCheck.system`), else the one that the cell's params name. The workload is all other
params, and the dimensions that the check names (`ResultCheck.workload`). Numbers of that contender
on that workload fall wherever they stand in the run, ratios over them included; those of other
contenders of the same cell stay. Where neither names a contender, the cell is its own subject:
its other rounds fall, and nothing else.

A failed check stays with the run. An attempt that failed one is a failure whatever a later attempt
of its process says, after a retry, a resumption or a commit: the later one carries it
(`Row.failed_before`). Who has mended a system begins a new run.

Of a disturbed round and the later one that repeats it, the less disturbed counts; rows of the other
are marked `replaced` and take no part in ratios.

A void row keeps its place and its reason and loses its numbers, so that no verdict, figure, table,
race or comparison can use them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from dgbench.harness.store.row import FAILED, VOID, FailedBefore, Row
from dgbench.lab.arena import DIVISION
from dgbench.lab.compare import CONTROL
from dgbench.lab.result_checks import LIVENESS
from dgbench.lab.table import Observation

CHECK = "check"
"""Parameter of old cells that only compared, for the cell with the same other parameters."""

CONTENDERS: Final = ("system", "contender", "setting", "method", "format", "baseline")
"""Params and dimensions that name a contender; params name one by the first that they have."""
NO_WORKLOAD: Final = frozenset({*CONTENDERS, CONTROL, CHECK, "seed"})
"""Params that make no other workload: a contender, or a repetition."""
OF_EXPERIMENT: Final = frozenset({"part", "what", "kind", "case", "definition"})
"""Params whose values mean something inside their experiment alone."""
ACROSS: Final = (frozenset({"dataset", "model"}), frozenset({"operator"}))
"""Params of which two experiments must name one of these sets to share a workload."""

NAMED: Final = ("operator", "dataset", "graphs", "model")
"""Params and dimensions that name a workload in a sentence."""

UNCOMPARED = "its result was not compared with a reference"
OWN_ONLY = "its result was compared by its plugin alone, which is no check of the harness"
EARLIER = "an earlier version kept its deviation, and not what was compared or allowed"
EXCUSED = "its deviation from the reference was excused"


@dataclass(frozen=True, slots=True)
class Failure:
    """A wrong result: a contender on a workload.

    Attributes:
        row: where it was found. reason: what was wrong.
        contender: its name in rows; "" where none is named and the cell is its own subject.
        workload: params of the cell, and dimensions that the check names.
        attempt: id of the earlier attempt that failed, "" where it is `row` itself.
    """

    row: Row
    reason: str
    contender: str
    workload: Mapping[str, Any]
    attempt: str = ""

    @property
    def words(self) -> str:
        """Reason of what falls with it."""
        who = self.contender or f"{self.row.paper}/{self.row.experiment}"
        if self.attempt:
            return f"{who} {in_earlier(self)}"
        return f"{who} gave a wrong result ({self.row.id}: {self.reason})"

    def covers(self, row: Row, dims: Mapping[str, Any]) -> bool:
        """Return True if a number of a row with these dimensions is on its workload."""
        if row.params.get(DIVISION) != self.row.params.get(DIVISION):
            return False  # other settings
        place = {**row.params, **dims}
        shared = (self.workload.keys() & place.keys()) - NO_WORKLOAD
        if (row.paper, row.experiment) == (self.row.paper, self.row.experiment):
            if (row.params.keys() ^ self.row.params.keys()) - NO_WORKLOAD:
                return False
        elif any(names <= shared for names in ACROSS):
            shared -= OF_EXPERIMENT
        else:
            return False
        return all(place[name] == self.workload[name] for name in shared)


def in_earlier(failed: Failure | FailedBefore) -> str:
    """Sentence on a check that an earlier attempt failed."""
    return f"failed a check in an earlier attempt ({failed.attempt}: {failed.reason})"


def judged(rows: Sequence[Row]) -> list[Row]:
    """The rows in their order, without what is not known to be right.

    Of several attempts of a process the last one stays, see `last_attempts`.
    """
    rows = mark_replaced(last_attempts(rows))
    failures = [one for row in rows for one in failures_of(row)]
    compared = {_cell(row) for row in rows if row.status == "ok" and _compared(row)}
    return [_judged(row, failures, compared) for row in rows]


def process_of(row: Row) -> tuple[str, str, int, bool]:
    """Key that attempts of one process of a run share."""
    return row.run, row.cell_hash or row.id, row.round, row.instrumented


def last_attempts(rows: Sequence[Row]) -> list[Row]:
    """The last attempt of each process in order, each with the checks that earlier ones failed."""
    last = {process_of(row): row for row in rows}
    if len(last) == len(rows):
        return list(rows)
    failed: dict[tuple, list[FailedBefore]] = defaultdict(list)
    for row in rows:
        if row is not last[process_of(row)]:
            failed[process_of(row)] += [
                FailedBefore(
                    one.attempt or row.id, one.contender, one.reason, dict(one.workload)
                )
                for one in failures_of(row)
            ]  # fmt: skip
    return [
        msgspec.structs.replace(row, failed_before=[*row.failed_before, *failed[process_of(row)]])
        if process_of(row) in failed else row
        for row in rows if row is last[process_of(row)]
    ]  # fmt: skip


def failed_attempts(rows: Sequence[Row]) -> list[Row]:
    """Attempts that failed a check, of processes that were started again afterwards."""
    last = {process_of(row): row for row in rows}
    return [row for row in rows if row is not last[process_of(row)] and failures_of(row)]


def contender_of(row: Any) -> str:
    """The contender that the params of a row name, or ""."""
    named = (row.params.get(name) for name in CONTENDERS)
    return next((one for one in named if isinstance(one, str) and one), "")


def failures_of(row: Row) -> list[Failure]:
    """Wrong results that a row tells of, each contender and workload once."""
    if row.paper == "-" or not (row.status == "check" or row.dropped or row.failed_before):
        return []
    own = contender_of(row)
    found: dict[tuple, Failure] = {}
    for before in row.failed_before:
        key = before.contender, repr(before.workload)
        found.setdefault(
            key,
            Failure(row, before.reason, before.contender, before.workload, before.attempt),
        )
    if not (row.status == "check" or row.dropped):
        return list(found.values())
    for check in row.checks:
        if not check.passed:
            who, where = check.system or own, {**row.params, **check.workload}
            found.setdefault((who, repr(where)), Failure(row, check.words, who, where))
    refused = not found or (not own and not row.observed)  # or its numbers cannot be told apart
    if row.status == "check" and refused:
        found.setdefault((own, repr(row.params)), Failure(row, row.reason, own, row.params))
    return list(found.values())


def wrong_results(rows: Iterable[Any]) -> list[str]:
    """A sentence for each contender and workload whose result was wrong, in order of rows."""
    found: dict[tuple, str] = {}
    for row in rows:
        for one in failures_of(row):
            where = [str(one.workload[name]) for name in NAMED if name in one.workload]
            who = one.contender or f"{row.paper}/{row.experiment}"
            name = " on ".join([who, "/".join(where)] if where else [who])
            found.setdefault((who, *where), f"{name}: {one.reason}")
    return list(found.values())


def void_reasons(row: Any) -> list[str]:
    """Why a row, or numbers of it, are void; empty where all of it stands."""
    if row.status == VOID:
        return [row.reason]
    return list(dict.fromkeys(getattr(row, "dropped", {}).values()))


def cell_states(rows: Iterable[Any]) -> dict[str, str]:
    """`ok`, `missing`, `void` or `failed` of each cell; the worst of its processes decides."""
    order = ("ok", "missing", "void", "failed")
    found: dict[str, str] = {}
    for row in rows:
        now = "ok" if row.status == "ok" else "failed" if row.status in FAILED else "missing"
        if void_reasons(row):
            wrong = row.status == "ok" and failures_of(row)
            now = "failed" if wrong or row.failed_before else "void"
        key = row.cell_hash or row.id
        found[key] = max(found.get(key, "ok"), now, key=order.index)
    return found


def of_others(row: Row) -> list[Observation]:
    """Numbers of a row with failed checks that are of contenders without one.

    Empty where they cannot be told apart.
    """
    row = _with_dropped(row, failures_of(row))
    for one in failures_of(row):
        kept = _without(row, one)
        if kept is None or len(kept) == len(row.observed):
            return []
        row = _with_numbers(row, kept)
    return row.observed


def _rest(row: Row) -> Row:
    """A row with failed checks as one of the contenders that `of_others` left; else as it is."""
    failures = failures_of(row)
    rest = _with_dropped(row, failures)
    left = [_without(rest, one) for one in failures]
    if not row.checks or any(one is None or len(one) < len(row.observed) for one in left):
        return row
    return msgspec.structs.replace(rest, status="ok", reason="")


def _without(row: Row, failure: Failure) -> list[Observation] | None:
    """The numbers of a row that a failure leaves; None where they name no contender."""
    every, who = row.observed, failure.contender
    if not who:
        same = _cell(row)[:2] == _cell(failure.row)[:2] and _cell(row)[3] == _cell(failure.row)[3]
        return None if same else every
    covered = [one for one in every if failure.covers(row, one.dims)]
    fallen = [one for one in covered if who in _names(row, one)]
    if not fallen and who not in row.dropped and any(c.system == who for c in row.checks):
        fallen = [one for one in covered if not _names(row, one)]
    if not every:
        return None if contender_of(row) == who and failure.covers(row, {}) else every
    if not fallen:
        return every
    gone = set(map(id, fallen))
    kept = [one for one in every if id(one) not in gone]
    return kept if any(_names(row, one) for one in kept) else None


def _names(row: Row, one: Observation) -> set[Any]:
    """Contenders that a number is of."""
    place = {**row.params, **one.dims}
    return {place[name] for name in CONTENDERS if place.get(name)}


def _with_dropped(row: Row, failures: Iterable[Failure]) -> Row:
    """The row with a note of each contender that lost its numbers."""
    said = {one.contender: one.words for one in failures}
    notes = [*row.notes, *(words for words in said.values() if words not in row.notes)]
    return msgspec.structs.replace(row, dropped={**row.dropped, **said}, notes=notes)


def _with_numbers(row: Row, kept: list[Observation]) -> Row:
    found = msgspec.structs.replace(row)
    found.observed = []
    found.observed = kept
    return found


def mark_replaced(rows: Sequence[Row]) -> Sequence[Row]:
    """The rows, marked where another round of their group counts in place of theirs.

    A repeat counts where all processes of the round ran again and fewer of them were disturbed;
    else the round itself does.
    """
    if not any(row.repeats for row in rows):
        return rows
    rounds: dict[tuple, list[Row]] = defaultdict(list)
    for row in rows:
        if not row.instrumented:
            rounds[_group(row), row.round].append(row)
    replaced: set[str] = set()
    for group, number, first in {
        (_group(row), row.round, row.repeats) for row in rows if row.repeats
    }:
        again, before = rounds[group, number], rounds[group, first]
        whole = {row.cell_hash for row in before} <= {row.cell_hash for row in again}
        better = whole and _disturbed(again) < _disturbed(before)
        replaced.update(row.id for row in (before if better else again))
    return [
        msgspec.structs.replace(row, replaced=True) if row.id in replaced else row for row in rows
    ]


def _disturbed(rows: Sequence[Row]) -> int:
    """Number of disturbed processes."""
    return sum(bool(row.disturbed) for row in rows)


def _group(row: Row) -> tuple[str, str, str]:
    return row.paper, row.experiment, row.group


def _judged(row: Row, failures: Sequence[Failure], compared: set[tuple]) -> Row:
    if row.status == "check" and row.observed:
        row = _rest(row)
    if row.status != "ok" or row.paper == "-":
        return row
    for one in failures:
        kept = _without(row, one)
        if kept is None:
            return _void(row, one.words)
        if len(kept) < len(row.observed):
            row = _with_dropped(_with_numbers(row, kept), [one])
    if row.failed_before and not row.dropped:  # its contender cannot be told apart
        return _void(row, in_earlier(row.failed_before[0]))
    if _compared(row) or (row.rests_on_cell and not row.checks and _cell(row) in compared):
        return row
    if any(note.startswith("rounding: ") for note in row.notes):
        return _void(row, EXCUSED)
    if row.checks and all(check.own for check in row.checks):
        return _void(row, OWN_ONLY)
    return _void(row, EARLIER if row.deviation and not row.checks else UNCOMPARED)


def _compared(row: Row) -> bool:
    """Return True if its own process compared its result, and all that is left of it passed."""
    mine = [check for check in row.checks if check.passed or check.system not in row.dropped]
    results = [check for check in mine if check.of != LIVENESS]
    return not all(check.own for check in results) and all(check.passed for check in mine)


def _void(row: Row, reason: str) -> Row:
    found = msgspec.structs.replace(row, status=VOID, reason=reason, series={})
    found.observed = []
    return found


def _cell(row: Row) -> tuple:
    """Key shared by the rows of one cell: its place and parameters, whatever the round."""
    params = tuple(sorted((k, repr(v)) for k, v in row.params.items() if k not in (CHECK, CONTROL)))
    return row.paper, row.experiment, row.device, params
