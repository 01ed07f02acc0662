"""Runs on a cluster, for `--cluster` and `dgbench collect`."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import typer

from dgbench.harness.cli.values import path_argument, path_option


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("collect", short_help="Merge what a cluster measured into one run.")(collect)


def collect(
    submission: Path = path_argument("SUBMISSION", "Folder that 'dgbench run --cluster' printed."),
    lost: bool = typer.Option(
        False, "--lost", help="Count groups whose jobs have not ended as lost."
    ),
    out: Path = path_option("--out", "Folder for runs (default: as it was submitted)."),
) -> None:
    """Merge the groups that jobs of a cluster measured into one run, and report.

    Every shard must be of the same commit, preset, seed and plan, and each group of nodes of one
    make; otherwise nothing is merged. A lost group becomes rows that say why.

    Example: dgbench collect results/cluster/2026-01-31T1200
    """
    from dgbench.harness.cluster import Jobs, Submission

    found = Submission.open(submission)
    _collect(found, _lost(found, Jobs.of(found), count=lost), out)


def run_on_cluster(
    plan: Any, papers: list[Any], settings: dict[str, Any], options: Any, into: Path | None
) -> None:
    """Submit the groups of a plan, wait for their jobs, merge, report and end the command.

    Args:
        into: run to go on with; groups of which something is left are measured again as a whole.
    """
    from dgbench.harness.cluster import Submission, read_cluster, submit
    from dgbench.harness.cluster.jobs import submitit
    from dgbench.harness.terminal.planning import plan_head
    from dgbench.harness.terminal.text import columns, say

    submitit()  # or nothing is written
    submission = Submission.create(
        read_cluster(options.cluster), plan, settings,
        groups=_groups_left(plan, into, options.retry) if into is not None else None,
        rounds=plan.rounds is not None, out=options.out, into=into,
    )  # fmt: skip
    say(plan_head(plan, papers, None, width=columns(sys.stderr)), sys.stderr)
    jobs = submit(submission)
    say(f"submitted {len(submission.info.groups)} groups: {submission.path}", sys.stderr)

    def tell(text: str) -> None:
        say(f"{time.strftime('%H:%M:%S')}  {text}", sys.stderr)

    try:
        lost = jobs.wait(tell)
    except KeyboardInterrupt:
        slurm = submission.info.cluster.executor == "slurm"
        text = "Not waiting, the jobs go on; later:" if slurm else "Its jobs stop, too; keep them:"
        say(f"{text} dgbench collect {submission.path}", sys.stderr)
        raise
    _collect(submission, lost, None)


def _groups_left(plan: Any, run: Path, retry: Any) -> list[Any]:
    """Groups of a run of which a process has no row, or one that is tried again.

    Raises:
        InvalidInputError: there are none.
    """
    from dgbench.harness.runner.run import kept_rows
    from dgbench.harness.store import LACKING, Store
    from dgbench.runtime.errors import InvalidInputError

    rows = {(r.cell_hash, r.round, r.instrumented): r for r in Store.open(run).written()}
    done = kept_rows(rows, retry)
    lacking = {row.cell_hash for row in done.values() if row.status in LACKING}
    left: dict[Any, None] = {}
    for step in plan.steps:
        key = plan.cells[step.index].hash, step.round, step.instrumented
        if key not in done and key[0] not in lacking:
            left[plan.group_of(step)] = None
    if not left:
        raise InvalidInputError(
            f"nothing is left to run of {run}", hint="run failed cells again: --retry failed"
        )
    return list(left)


def _lost(submission: Any, jobs: Any, *, count: bool) -> dict[int, str]:
    """Why groups are lost, by the number of their shard.

    Raises:
        InvalidInputError: some have not ended, and are not to be counted as lost.
    """
    from dgbench.runtime.errors import InvalidInputError

    states = {**jobs.unsubmitted(), **jobs.states(time.monotonic())}
    going = sorted(number for number, reason in states.items() if reason is None)
    if going and not count:
        raise InvalidInputError(
            f"{len(going)} of {len(states)} groups have not ended, such as "
            f"{submission.shard_name(going[0])}",
            hint="wait for their jobs, or count them as lost: --lost",
        )
    gone = dict.fromkeys(going, "its job had not ended when the run was collected")
    return gone | {number: reason for number, reason in states.items() if reason}


def _collect(submission: Any, lost: dict[int, str], out: Path | None) -> None:
    """Merge, report and end the command."""
    from dgbench.harness.cli.running import finish, plan_of
    from dgbench.harness.cluster import collect as merge
    from dgbench.harness.store import Store

    folder, summary = merge(submission, lost, out=out)
    _, papers = plan_of(folder)
    with Store.open(folder, writable=True) as store:
        code = finish(store, papers, summary)
    if code:
        raise typer.Exit(code)
