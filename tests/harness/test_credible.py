"""Plausibility of a plugin's own measurements against the harness's."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgbench.harness.runner.child import complaints
from dgbench.harness.runner.credible import SHARE, against_loops, against_wall, without_witness
from dgbench.lab.table import Observation
from dgbench.runtime import steady as steady_module
from dgbench.runtime.steady import measure_steady, seen_loops
from dgbench.systems.base import Measurement
from tests.observed import observations


class Clock:
    """Each step takes what `steps` says, on a clock that only `pass_` moves."""

    def __init__(self, monkeypatch, rate=1.0):
        self.now = 0.0
        monkeypatch.setattr(steady_module, "_clock", lambda: self.now)
        self.read = steady_module._clock if rate == 1.0 else lambda: rate * self.now
        monkeypatch.setattr(steady_module, "gc", SimpleNamespace(collect=lambda: 0))
        steady_module._LOOPS.clear()

    def run(self, steps):
        left = iter(steps)

        def step():
            self.now += next(left)

        return measure_steady(
            step, budget_s=1e9, min_iters=1, max_iters=len(steps), clock=self.read,
            warmup_rule=lambda samples: 1,
        )  # fmt: skip


def told(samples, phases=None):
    """Measurement of a process with these samples and phases."""
    found = Measurement()
    found.observe("step_time", sum(samples) / len(samples), samples=samples)
    for phase, seconds in (phases or {}).items():
        found.observe("phase_time", seconds, phase=phase)
    return found


def doubts(samples, phases=None, instrumented=False):
    return against_loops(told(samples, phases), seen_loops(), instrumented=instrumented)


@given(st.floats(0.5, 2.0))
def test_samples_of_another_length_are_doubted(factor):
    with pytest.MonkeyPatch.context() as patch:
        steady = Clock(patch).run([1.0] * 6)
        found = doubts([factor * s for s in steady.samples])
    if abs(factor - 1) > SHARE + 1e-4:
        assert len(found) == 1
        assert f"({100 * (1 / factor - 1):+.0f} %)" in found[0]
    elif abs(factor - 1) < SHARE - 1e-4:
        assert found == []


def test_other_clocks_overlaps_and_choices_are_found_out(monkeypatch):
    steady = Clock(monkeypatch, rate=0.9).run([1.0] * 6)
    assert doubts(steady.samples)
    steady = Clock(monkeypatch).run([1.0] * 6)
    phases = {"gnn": 5.0, "rnn": 5.0}
    assert doubts(steady.samples, phases, instrumented=True)
    assert doubts(steady.samples, phases) == []  # phases of a process that has other parts, too
    assert len(without_witness(told(steady.samples[:2]), seen_loops())) == 1
    steady_module._LOOPS.clear()
    assert without_witness(told([1.0]), seen_loops()) == []


def test_nothing_lasts_longer_than_its_process():
    inside = told([0.5, 0.5], {"gnn": 0.4, "rnn": 0.6})
    assert against_wall(inside, 1.0) == []
    assert len(against_wall(inside, 0.99)) == 2


def test_what_cannot_be_kept_is_refused():
    assert not complaints(told([1.0]))
    for seen in (
        observations(phases={"gnn": -0.1}), observations({"step tme": 1.0}),
        [Observation(metric="loss", value=1.0, dims={"to": 1})], observations(samples=[0.0]),
    ):  # fmt: skip
        assert complaints(Measurement(observations=seen))
    assert complaints(Measurement(warmup=-1))
