"""Merging the shards of a submission into one run: all of them, or nothing."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from dgbench.harness.cluster import checks
from dgbench.harness.cluster.submission import Submission
from dgbench.harness.machine.provenance import provenance
from dgbench.harness.plan import Plan, read_plan
from dgbench.harness.runner.nodes import make_of
from dgbench.harness.runner.outcome import blank_row
from dgbench.harness.runner.summary import RunSummary
from dgbench.harness.store import LACKING, Row, Store, runs_root
from dgbench.harness.store.files import cannot_write, new_folder
from dgbench.runtime.errors import DgbenchError, InvalidInputError, StoreError

LOST = "crash"
"""Status of a process whose job was lost: it runs again with `--retry failed`, and no claim may
count it as the end of memory or time."""


def collect(
    submission: Submission,
    lost: Mapping[int, str],
    *,
    out: Path | None = None,
    now: datetime | None = None,
) -> tuple[Path, RunSummary]:
    """Merge the shards of a submission into one run.

    What a lost job did not measure becomes rows that say why. Nothing is written unless every shard
    is whole and fits the submission.

    Args:
        lost: why a group is not whole, by number of its shard.
        out: folder for runs; None: what the submission says.
        now: time of the collecting host, None for its clock.

    Returns:
        The run's folder and its summary.

    Raises:
        StoreError: a shard does not match; the hint has what else does not.
        InvalidInputError: the submission was collected before.
    """
    if submission.info.collected:
        raise InvalidInputError(
            f"{submission.path} was collected before",
            hint=f"its run: {submission.info.collected}",
        )
    now = now or datetime.now(timezone.utc)
    stores, found = _open_shards(submission, lost)
    found += checks.copied(submission, stores)
    for number, store in stores.items():
        found += checks.problems(submission, number, store, now)
    if submission.info.into and not found:
        found += checks.left_beside(submission, stores, Store.open(Path(submission.info.into)))
    if found:
        more = "\n".join(found[1:4]) + (f"\nand {len(found) - 4} more" if len(found) > 4 else "")
        raise StoreError(f"nothing is merged: {found[0]}", hint=more)
    plan = checks.settled_plan(submission, {n: read_plan(s) for n, s in stores.items()})
    if submission.info.into:
        with Store.open(Path(submission.info.into), writable=True) as store:
            plan = _with_rounds(read_plan(store), plan)
            summary = _Merge(submission, plan, store).run(stores, lost)
            path = store.path
    else:
        path, summary = _new_run(submission, plan, stores, lost, out)
    summary.path = path
    submission.keep(collected=str(path.resolve()))
    return path, summary


def _open_shards(
    submission: Submission, lost: Mapping[int, str]
) -> tuple[dict[int, Store], list[str]]:
    """Stores of all shards that have a run, and sentences on those that cannot be read."""
    stores: dict[int, Store] = {}
    found: list[str] = []
    known = {submission.shard_folder(n).name for n in range(len(submission.info.groups))}
    for path in sorted((submission.path / "shards").iterdir()):
        if path.name not in known:
            found.append(f"{path.name} is no shard of this submission")
    for number in range(len(submission.info.groups)):
        name = submission.shard_name(number)
        run = submission.shard_run(number)
        if run is None:
            if number not in lost:
                found.append(f"{name} has no run, and its job is not known to be lost")
            continue
        try:
            store = Store.open(run)
            store.provenance()
        except DgbenchError as error:
            found.append(f"{name} is damaged: {error}")
            continue
        if store.info.get("state") != "done" and number not in lost:
            found.append(f"{name} is not whole, and its job is not known to be lost")
        stores[number] = store
    return stores, found


def _new_run(
    submission: Submission,
    plan: Plan,
    stores: Mapping[int, Store],
    lost: Mapping[int, str],
    out: Path | None,
) -> tuple[Path, RunSummary]:
    """A run that appears with all of its rows, or not at all."""
    root = out or (Path(submission.info.out) if submission.info.out else runs_root())
    try:
        root.mkdir(parents=True, exist_ok=True)
        with new_folder(root, ".collect-") as folder:
            with Store.create(folder, submission.info.settings, plan) as store:
                summary = _Merge(submission, plan, store).run(stores, lost)
            return _settle(store.path, root), summary
    except OSError as error:
        raise cannot_write(root, error) from error


def _settle(folder: Path, root: Path) -> Path:
    """Move a run to the first name below a folder that is free."""
    number = 1
    while True:
        path = root / (folder.name if number == 1 else f"{folder.name}-{number}")
        number += 1
        if not path.exists():
            try:
                os.rename(folder, path)
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                    raise
                continue  # another run has taken the name in between
            return path


def _with_rounds(plan: Plan, other: Plan) -> Plan:
    """A plan with the rounds of another one that has some of its cells."""
    cells = {planned.hash: planned for planned in other.cells}
    plan.cells = [cells.get(planned.hash, planned) for planned in plan.cells]
    return plan


class _Merge:
    """Writes the rows of shards into a run."""

    def __init__(self, submission: Submission, plan: Plan, store: Store) -> None:
        self.submission, self.plan, self.store = submission, plan, store
        self._last_round: dict[str, int] = defaultdict(int)
        for row in store.written():
            self._last_round[row.cell_hash] = max(self._last_round[row.cell_hash], row.round)

    def run(self, stores: Mapping[int, Store], lost: Mapping[int, str]) -> RunSummary:
        """Merge, and return the numbers of the whole run."""
        starts_not = any(planned.status for planned in self.plan.cells)
        # First: what reads a run's machine takes the newest.
        here = self.store.add_provenance(provenance({})) if lost or starts_not else ""
        for store in stores.values():
            for facts in store.provenance().values():
                self.store.add_provenance(facts)
        for store in stores.values():
            self._take(store)
        self._missing(lost, here)
        self.store.write_plan(self.plan)
        summary = RunSummary(run=self.store.run, path=self.store.path, cells=len(self.plan.cells))
        rows = self.store.written()
        summary.count(self.plan, rows)
        summary.rows = len(rows)
        infos = [store.info for store in stores.values()]
        began = min((str(i["started"]) for i in infos), default=self.submission.info.submitted)
        ended = max((str(i["ended"]) for i in infos if i.get("ended")), default=began)
        span = datetime.fromisoformat(ended) - datetime.fromisoformat(began)
        summary.seconds = max(0.0, span.total_seconds())
        count = len(self.submission.info.groups)
        last = infos[-1] if infos else {}
        kept = {key: last[key] for key in ("threads", "budget_s", "seed") if key in last}
        self.store.update(
            state="done",
            note=f"{len(lost)} of {count} groups were lost" if lost else "",
            preset=self.plan.preset,
            device=self.plan.device,
            started=self.store.info["started"] if self.submission.info.into else began,
            ended=ended,
            nodes=self._nodes(rows),
            **kept,
        )
        return summary

    def _take(self, store: Store) -> None:
        """Rows of a shard, with ids that are theirs alone and the logs that they name."""
        rows = store.written(latest=False)
        shift = {row.cell_hash: self._last_round[row.cell_hash] for row in rows if row.paper == "-"}
        # Both sides of an A/A pair move alike, or they would not meet any more.
        most = {
            (row.experiment, row.group): max(
                shift[one.cell_hash] for one in rows
                if (one.paper, one.experiment, one.group) == ("-", row.experiment, row.group)
            )
            for row in rows if row.paper == "-"
        }  # fmt: skip
        for row in rows:
            if row.paper == "-":
                row.round += most[row.experiment, row.group]
            self._last_round[row.cell_hash] = max(self._last_round[row.cell_hash], row.round)
            log = row.log
            name = f"{row.cell_hash[:8]}-r{row.round}{'i' if row.instrumented else ''}"
            earlier = self.store.attempts(name)
            row.id = f"{name}.{earlier + 1}" if earlier else name
            row.run = self.store.run
            if log:
                row.log = f"logs/{row.id}.log"
                with contextlib.suppress(FileNotFoundError):  # the row says all that counts
                    shutil.copyfile(store.path / log, self.store.path / row.log)
            self.store.append(row)

    def _missing(self, lost: Mapping[int, str], here: str) -> None:
        """Rows of cells that never start, and of those that a lost job did not measure."""
        rows = self.store.written()
        done = {(row.cell_hash, row.round, row.instrumented) for row in rows}
        lacking = {row.cell_hash for row in rows if row.status in LACKING}
        groups = {tuple(self.submission.info.groups[n]): reason for n, reason in lost.items()}
        for planned in self.plan.cells:
            if planned.status and (planned.hash, 1, False) not in done:
                self._blank(planned, 1, False, planned.status, planned.reason, here)
        said: set[str] = set()
        for step in self.plan.steps:
            planned = self.plan.cells[step.index]
            reason = groups.get(self.plan.group_of(step))
            key = planned.hash, step.round, step.instrumented
            if reason and key not in done and planned.hash not in said | lacking:
                said.add(planned.hash)
                self._blank(planned, step.round, step.instrumented, LOST, reason, here)

    def _blank(
        self, planned: Any, number: int, instrumented: bool, status: str, reason: str, here: str
    ) -> None:
        self.store.append(
            blank_row(
                self.plan, self.store, planned.cell, planned.hash, number, instrumented,
                status=status, reason=reason, provenance=here,
            )
        )  # fmt: skip

    def _nodes(self, rows: Sequence[Row]) -> dict[str, str]:
        """Make of every node by its label."""
        known = self.store.provenance()
        return {
            row.node: make_of(known.get(row.provenance, {}).get("machine") or {})
            for row in rows
            if row.node
        }
