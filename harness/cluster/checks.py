"""Checks of shards before they are merged: each finding is one sentence, and any refuses all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from dgbench.harness.cluster.submission import Submission
from dgbench.harness.plan import Plan, read_plan
from dgbench.harness.runner.nodes import make_of, nodes_of_rounds
from dgbench.harness.runner.run import SEED
from dgbench.harness.store import Row, Store
from dgbench.runtime.errors import StoreError

TOLERANCE: Final = timedelta(seconds=2)
"""Most that clocks may differ by: stamps of runs have whole seconds, and time servers keep the
hosts of a cluster within milliseconds."""


def problems(submission: Submission, number: int, store: Store, now: datetime) -> Iterator[str]:
    """Sentences on what forbids to merge a shard.

    Args:
        store: of the shard's run. now: when it is collected, UTC.
    """
    name = submission.shard_name(number)
    if store.torn or store.damaged:
        torn = [f"line {one.line} of rows.jsonl: {one.reason}" for one in store.torn]
        yield f"{name} is damaged: {(torn or store.damaged)[0]}"
        return
    try:
        plan = read_plan(store)
    except StoreError as error:
        yield f"{name}: {error}"
        return
    rows = store.written(latest=False)
    yield from _settings(name, submission, store)
    yield from _plans(name, submission.plan_of(number), plan)
    yield from _rows(name, plan, store, rows)
    yield from _nodes(name, store, rows)
    yield from _clocks(name, submission.submitted, store, rows, now)


def copied(submission: Submission, stores: Mapping[int, Store]) -> Iterator[str]:
    """Sentences on shards that are the same run."""
    first: dict[str, int] = {}
    for number, store in stores.items():
        if store.run in first:
            other = submission.shard_name(first[store.run])
            yield f"{submission.shard_name(number)} is a copy of {other}: both are run {store.run}"
        first.setdefault(store.run, number)


def _settings(name: str, submission: Submission, store: Store) -> Iterator[str]:
    wanted = {"preset": submission.plan.preset, "device": submission.plan.device, "seed": SEED}
    for key, value in wanted.items():
        if (found := store.info.get(key)) is not None and found != value:
            yield f"{name} ran with {key} '{found}', the submission has '{value}'"
    for facts in store.provenance().values():
        if facts.get("dgbench") != submission.info.dgbench:
            yield (
                f"{name} ran dgbench {facts.get('dgbench')}, the submission is of "
                f"{submission.info.dgbench}"
            )
        code = facts.get("code") or {}
        mine, theirs = _commit(submission.info.code), _commit(code)
        if mine != theirs:
            yield f"{name} ran commit {theirs}, the submission is of {mine}"


def _commit(code: Mapping[str, Any]) -> str:
    """A commit in words; two trees with changes of the same commit are not told apart."""
    return f"{code.get('commit') or 'unknown'}{' with changes' if code.get('dirty') else ''}"


def _plans(name: str, wanted: Plan, found: Plan) -> Iterator[str]:
    """Rounds may have been added; all else is as it was submitted."""
    cells = [one.hash for one in wanted.cells], [one.hash for one in found.cells]
    same = ("preset", "device", "budget_s", "rounds", "own_data")
    differ = [key for key in same if getattr(wanted, key) != getattr(found, key)]
    if cells[0] != cells[1]:
        missing = len(set(cells[0]) ^ set(cells[1]))
        yield f"{name} ran another plan: {missing} cells are in one of both only"
    elif differ:
        yield f"{name} ran another plan: its {differ[0]} is not that of the submission"
    elif any(a.cell.repeats > b.cell.repeats
             for a, b in zip(wanted.cells, found.cells, strict=True)):  # fmt: skip
        yield f"{name} ran another plan: it has fewer rounds than the submission"


def _rows(name: str, plan: Plan, store: Store, rows: list[Row]) -> Iterator[str]:
    cells = {planned.hash: planned.cell for planned in plan.cells}
    known = store.provenance()
    twice = [id_ for id_, count in Counter(row.id for row in rows).items() if count > 1]
    if twice:
        yield f"{name} holds row {twice[0]} twice"
    for row in rows:
        cell = cells.get(row.cell_hash)
        if row.run != store.run or (row.paper != "-" and cell is None):
            yield f"{name} holds row {row.id} of another run"
        elif row.preset != plan.preset:
            yield f"{name} holds row {row.id} of preset '{row.preset}'"
        elif cell is not None and (row.group, row.params) != (cell.group, cell.params):
            yield f"{name} holds row {row.id}, whose params are not those of its cell"
        elif row.provenance not in known:
            yield f"{name} holds row {row.id}, and nothing says where that comes from"
        elif not row.node:
            yield f"{name} holds row {row.id}, which names no node"
        else:
            continue
        return


def _nodes(name: str, store: Store, rows: list[Row]) -> Iterator[str]:
    makes = sorted(_makes(rows, store.provenance()))
    if len(makes) > 1:
        yield (
            f"{name} ran on nodes of another make than the rest of its group: "
            f"{makes[0]}, and {makes[1]}"
        )
    last = {(row.cell_hash, row.round, row.instrumented): row for row in rows}
    for (_, number), nodes in nodes_of_rounds(last.values()).items():
        if len(nodes) > 1:
            yield f"{name} ran round {number} on {len(nodes)} nodes: {', '.join(sorted(nodes))}"


def _makes(rows: Iterable[Row], known: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """Makes of the nodes that rows of a paper ran on."""
    keys = {row.provenance for row in rows if row.paper != "-"}
    return {make_of(known[key].get("machine") or {}) for key in keys if key in known}


def _clocks(
    name: str, submitted: datetime, store: Store, rows: list[Row], now: datetime
) -> Iterator[str]:
    try:
        began = _stamp(store.info.get("started"))
        ended = _stamp(store.info["ended"]) if store.info.get("ended") else None
        starts = [_stamp(row.started) for row in rows]
        ends = [a + timedelta(seconds=row.seconds) for a, row in zip(starts, rows, strict=True)]
    except (TypeError, ValueError, OverflowError):
        yield f"{name} has a time stamp that is none"
        return
    clock = f"the clocks of {name} cannot be right"
    if ended is not None and ended < began - TOLERANCE:
        yield f"{clock}: it ended at {ended:%F %T}, before it began at {began:%F %T}"
    elif began < submitted - TOLERANCE:
        yield f"{clock}: it began at {began:%F %T}, before it was submitted at {submitted:%F %T}"
    elif max([*ends, began, *([ended] if ended else [])]) > now + TOLERANCE:
        yield f"{clock}: its last stamp is after it was collected at {now:%F %T}"
    else:
        before = began
        for row, start, end in zip(rows, starts, ends, strict=True):
            if start < before - TOLERANCE:
                yield (
                    f"{clock}: row {row.id} began at {start:%F %T}, before what was written "
                    f"ahead of it had ended at {before:%F %T}"
                )
                return
            before = max(before, end)
        whole = store.info.get("state") == "done"
        if whole and ended is not None and before > ended + TOLERANCE:
            yield f"{clock}: its last row ended at {before:%F %T}, its run at {ended:%F %T}"


def _stamp(text: Any) -> datetime:
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError("a stamp without a zone")
    return found


def left_beside(submission: Submission, stores: Mapping[int, Store], into: Store) -> Iterator[str]:
    """Sentences on groups of which rows of another make of node would stay in the run."""
    kept = {(row.cell_hash, row.round, row.instrumented): row for row in into.written()}
    for number, store in stores.items():
        mine = tuple(submission.info.groups[number])
        fresh = store.written()
        replaced = {(row.cell_hash, row.round, row.instrumented) for row in fresh}
        stay = [
            row for key, row in kept.items()
            if key not in replaced and row.ok and (row.paper, row.experiment, row.group) == mine
        ]  # fmt: skip
        if len(_makes(stay, into.provenance()) | _makes(fresh, store.provenance())) > 1:
            yield (
                f"{submission.shard_name(number)} ran on nodes of another make than "
                f"{len(stay)} rows of its group that the run keeps"
            )


def settled_plan(submission: Submission, plans: Mapping[int, Plan]) -> Plan:
    """The submission's plan with the rounds that its shards added."""
    added = {planned.hash: planned for plan in plans.values() for planned in plan.cells}
    cells = [added.get(planned.hash, planned) for planned in submission.plan.cells]
    return msgspec.structs.replace(submission.plan, cells=cells)
