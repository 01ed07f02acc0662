"""Stream trainers against the float64 oracle in every unit of time, products fused or not."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import pytest
from fused import MultiplyAdd
from stream_tiny import tiny_events, tiny_task

from dgbench.systems.base.registry import get_system
from dgbench.systems.base.stream import stream_data
from dgbench.systems.gnnflow.experiments.trainer_checks import trainer_checks

UNITS = {"1e-3": 1e-3, "day": 1.0, "second": 86400.0, "1e9": 1e9, "ns": 8.64e13}
ARITHMETIC = {"torch": nullcontext, "fused": lambda: MultiplyAdd(fused=True),
              "unfused": lambda: MultiplyAdd(fused=False)}  # fmt: skip


@pytest.mark.parametrize("arithmetic", ARITHMETIC)
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("model", ["tgat", "tgn"])
def test_the_unit_of_time_does_not_make_a_result_wrong(model, unit, arithmetic) -> None:
    task = tiny_task(model)
    events = tiny_events(120, 20, bipartite=True)
    data = stream_data(replace(events, t=(events.t - 100) * UNITS[unit]), task)
    with ARITHMETIC[arithmetic]():
        trainers = {name: get_system(name).open(task, data=data) for name in ("gnnflow", "tgl")}
        for trainer in trainers.values():
            trainer.insert(120)
            for frame in range(3):
                trainer.step(frame)
        checks = trainer_checks(trainers, task, data)
    assert [check.words for check in checks if not check.passed] == []
