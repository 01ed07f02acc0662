"""Kept runs decide and number what was recorded, and two runs of the same cells are compared."""

from __future__ import annotations

import msgspec
import pytest

from dgbench.harness.store import Row
from dgbench.lab.table import Observation
from tests.golden import rows
from tests.golden.record import PAPERS, differences


@pytest.mark.slow
@pytest.mark.parametrize("paper", PAPERS)
def test_kept_runs_decide_what_was_recorded(paper: str) -> None:
    """A change that is meant is recorded by `python -m tests.golden write PAPER`."""
    found, _ = differences(paper, words=False, sample=True)
    assert not found, "\n".join(found[:20])


@pytest.mark.nightly
@pytest.mark.parametrize("paper", PAPERS)
def test_kept_runs_decide_it_in_every_variant(paper: str) -> None:
    found, _ = differences(paper, words=False)
    assert not found, "\n".join(found[:20])


def row(*observed: Observation, **params: str) -> Row:
    return Row(id="a-r1", paper="p", experiment="e", params=params, observed=list(observed))


COUNTED = Observation(metric="host_to_device", value=100)
TIMED = Observation(metric="step_time", value=0.5, samples=[0.4, 0.5, 0.6])
PHASE = Observation(metric="phase_time", value=0.1, dims={"phase": "gnn"})


def test_times_may_differ_and_counts_may_not() -> None:
    faster = msgspec.structs.replace(TIMED, value=0.1, samples=[0.1])
    assert rows.differences([row(COUNTED, TIMED)], [row(COUNTED, faster)]) == []
    more = msgspec.structs.replace(COUNTED, value=101)
    assert len(rows.differences([row(COUNTED, TIMED)], [row(more, TIMED)])) == 1


@pytest.mark.parametrize(
    "new",
    [
        row(TIMED),
        row(TIMED, PHASE, Observation(metric="phase_time", value=0.1, dims={"phase": "rnn"})),
        row(msgspec.structs.replace(TIMED, samples=[]), PHASE),
        row(msgspec.structs.replace(TIMED, low=0.4, high=0.6), PHASE),
        row(TIMED, PHASE, system="other"),
    ],
    ids=["metric left out", "dimension more", "no samples", "interval", "another cell"],
)
def test_what_is_observed_must_be_the_same(new: Row) -> None:
    old = row(TIMED, PHASE)
    assert rows.differences([old], [old]) == []
    assert rows.differences([old], [new])


def test_failed_rows_and_controls_are_left_out() -> None:
    failed = msgspec.structs.replace(row(COUNTED), status="oom", reason="out of memory")
    assert rows.differences([row(COUNTED)], [row(COUNTED), failed, row(TIMED, control="aa")]) == []
