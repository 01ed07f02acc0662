"""Training races: what is counted does not depend on how long a process trained."""

from __future__ import annotations

import pytest
from tiny_data import serve, tiny_sequence, tiny_workload

from dgbench.runtime.meter import Meter
from dgbench.runtime.steady import measure_steady
from dgbench.systems.base import race
from dgbench.systems.base.experiment import RunContext


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
        context = RunContext("cpu", "smoke", 1, meter=Meter())
        found.append(race.timed(system, tiny_workload(model="evolvegcn"), context))
        assert len(found[-1].samples) + found[-1].warmup == steps
        left = {k: v for k, v in context.meter.counters.items() if k not in found[-1].counters}
        assert not left  # the harness adds what a cell leaves in its meter
    brief, long = (one.counters for one in found)
    assert brief == long
    assert brief["counted_steps"] == race.COUNTED_STEPS
    assert brief["edges_aggregated"] > 0
