"""A shard: one whole group of a plan, run on the node that its job was given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from dgbench.harness.cluster.submission import Submission
from dgbench.harness.machine import machine_facts
from dgbench.harness.plan import read_plan
from dgbench.harness.runner import run_plan
from dgbench.harness.runner.nodes import make_of, node_label
from dgbench.harness.store import Store
from dgbench.harness.terminal.progress import ProgressListener
from dgbench.runtime.errors import SignalExit
from dgbench.systems.base.registry import get_paper


@dataclass(frozen=True)
class Shard:
    """Callable that a job of a cluster runs; requeued, it goes on with the run that it began.

    Attributes:
        folder: of the submission. number: of its group.
        lookup: module-level function from a paper's name to its `Paper`.
    """

    folder: str
    number: int
    lookup: Callable[[str], Any] = get_paper

    def __call__(self) -> str:
        """Run the group, or what is left of it; returns the summary in a sentence."""
        submission = Submission.open(Path(self.folder))
        with open_run(submission, self.number) as store:
            plan = read_plan(store)
            if plan.own_data is not None:
                from dgbench.harness.plan.own_data import restore

                restore(plan.own_data, store.run)
            summary = run_plan(
                plan,
                store,
                listener=ProgressListener(),  # into the job's log
                look=self._look(plan) if submission.info.rounds else None,
                lookup=self.lookup,
                node=node_label(salt=submission.info.salt),
            )
        if summary.interrupted:  # no result, or its job would count as done
            raise SignalExit(128 + (summary.signal or 2))
        return summary.sentence

    def checkpoint(self) -> Any:
        """The same shard, for submitit to start when the job was preempted or out of time."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)

    def _look(self, plan: Any) -> Callable[..., Any]:
        from dgbench.harness import plugins
        from dgbench.harness.claims.open_groups import open_groups

        described = plugins.get_paper if self.lookup is get_paper else self.lookup
        names = dict.fromkeys(planned.cell.paper for planned in plan.cells)
        return partial(open_groups, [described(name) for name in names])


def open_run(submission: Submission, number: int) -> Store:
    """The run of a shard, open for writing: the one that was begun, or a new one.

    A group stays on nodes of one make: on another one it is begun anew.
    """
    root = submission.shard_folder(number)
    begun = submission.shard_run(number)
    if begun is not None:
        store = Store.open(begun, writable=True)
        makes = {make_of(facts.get("machine") or {}) for facts in store.provenance().values()}
        if makes <= {make_of(machine_facts())}:
            return store
        store.close()
    return Store.create(root, submission.info.settings, submission.plan_of(number))
