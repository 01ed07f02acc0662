"""Estimates of the time that is left, shares of checks, and output that nobody reads."""

from __future__ import annotations

import errno
import io

import fake_run
import pytest

from dgbench.harness.plan import Plan
from dgbench.harness.store import Row
from dgbench.harness.terminal.estimate import TimeEstimate
from dgbench.harness.terminal.progress import ProgressListener
from dgbench.harness.terminal.verdicts import check_shares


def _plan(tmp_path):
    return Plan.build([fake_run.toy_paper(tmp_path)], ["fig1"], "quick", "cpu", control="none")


def test_the_rest_is_learned_from_what_has_run(tmp_path):
    plan = _plan(tmp_path)
    for planned in plan.cells:
        planned.estimate_s, planned.known = 1.0, False
    estimate = TimeEstimate(plan)
    assert not estimate.learned
    for planned in plan.cells[:3]:
        estimate.ended(planned.hash, False, 4.0)
    assert not estimate.learned
    for planned in plan.cells[3:-3]:
        estimate.ended(planned.hash, False, 4.0)
    assert estimate.learned
    new = {planned.hash for planned in plan.cells[-3:]}
    other = sum(plan.cells[step.index].hash in new for step in plan.steps)
    again = estimate.left - other
    # cells that have run take what they took, the others between one and four times their plan
    assert 4 * again + other < estimate.left_s < 4 * estimate.left
    before = estimate.left_s
    estimate.between(1.0 * (len(plan.cells) - 3))
    assert estimate.left_s == pytest.approx(before + estimate.left)
    dropped = estimate.drop(plan.cells[0].hash)
    assert dropped > 0
    assert estimate.drop(plan.cells[0].hash) == 0


@pytest.mark.parametrize("live", [True, False])
def test_progress_that_nobody_reads_does_not_end_the_run(live):
    class Closed(io.StringIO):
        def write(self, text):
            raise BrokenPipeError(errno.EPIPE, "gone")

    shown = ProgressListener(Closed(), live=live)
    shown.on_note("the fork server died")
    shown.on_end()


def test_the_share_of_checks_is_that_of_processes_and_counts_no_row_of_the_machine() -> None:
    def row(paper, seconds, check_s=None):
        probes = {} if check_s is None else {"check_s": check_s}
        return Row(id="r", paper=paper, experiment="e", seconds=seconds, probes=probes)

    rows = [row("-", 50.0, 9.0), row("toy", 6.0, 3.0), row("toy", 4.0), row("other", 10.0, 1.0)]
    assert check_shares(rows) == {"": 0.2, "toy": 0.3, "other": 0.1}
    assert check_shares([row("toy", 4.0)]) == {}
