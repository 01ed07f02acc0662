"""Training races: what is counted does not depend on how long a process trained."""

from __future__ import annotations

import time

import pytest
from tiny_data import serve, tiny_sequence, tiny_workload

from dgbench.lab.catalogue import METER_METRICS
from dgbench.lab.experiment import RunContext
from dgbench.lab.metrics import metric
from dgbench.runtime.errors import CheckFailed
from dgbench.runtime.meter import Meter
from dgbench.runtime.readback import Readback
from dgbench.runtime.steady import measure_steady
from dgbench.systems.base import get_system, race


@pytest.mark.parametrize("system", ["reference", "pygt", "pipad"])
def test_counters_are_the_same_however_long_a_process_trains(monkeypatch, system) -> None:
    if system == "pygt":
        pytest.importorskip("torch_geometric_temporal")
    serve(monkeypatch, tiny_sequence(nodes=15, edges=50, snapshots=8))
    found = []
    for steps in (4, 11):  # a clock decides on this otherwise

        def steady(step, *, steps=steps, **options):
            options |= {"budget_s": 60.0, "max_iters": steps}
            return measure_steady(step, **options)

        monkeypatch.setattr(race, "measure_steady", steady)
        context = RunContext("cpu", "smoke", 1, meter=Meter(), budget_s=0.01)
        found.append(race.timed(system, tiny_workload(model="evolvegcn"), context))
        assert len(found[-1].steady) + found[-1].warmup == steps
        told = {one.metric for one in found[-1].observations}
        left = {METER_METRICS.get(name, name) for name in context.meter.counters}
        assert left <= told  # the harness adds what a cell leaves in its meter
    brief, long = (
        {one.metric: one.value for one in measured.observations if metric(one.metric).exact}
        for measured in found
    )
    assert brief == long
    assert brief["counted_steps"] == race.COUNTED_STEPS
    assert brief["edges_aggregated"] > 0


@pytest.fixture
def reference(monkeypatch):
    """The class of the reference's trainers, for a test to change."""
    serve(monkeypatch, tiny_sequence(nodes=15, edges=50, snapshots=8))
    opened = get_system("reference").open(tiny_workload(model="evolvegcn"), device="cpu")
    return type(opened)


def go():
    context = RunContext("cpu", "smoke", 1, meter=Meter(), budget_s=0.01)
    return race.timed("reference", tiny_workload(model="evolvegcn"), context)


def test_a_loss_that_is_no_number_has_no_time(monkeypatch, reference) -> None:
    enqueue = reference.enqueue
    losses = map(Readback, [1.0, 1.0, float("nan")])
    monkeypatch.setattr(reference, "enqueue", lambda self, i: next(losses, enqueue(self, i)))
    with pytest.raises(CheckFailed, match=r"the loss of step 3 of \d+ is nan"):
        go()


def test_work_that_is_put_off_until_the_end_is_told(monkeypatch, reference) -> None:
    assert not any("put off" in note for note in go().notes)
    monkeypatch.setattr(reference, "close", lambda self: time.sleep(0.3))
    assert any("it may have put off work" in note for note in go().notes)
    assert race._put_off(0.3, 4.0) == []
