"""Experiments that measure the CPU are planned there, whatever device a run is asked for."""

from __future__ import annotations

import pytest

from dgbench.harness.plan import Plan
from dgbench.systems.base.registry import get_paper

ON_THE_HOST = {
    "gnnflow": ("fig12", "fig14", "fig15", "table7", "sampling_ablation", "cache_ablation"),
    "tgcn": ("fig7",),
}
"""Experiments that time the host: rows of theirs once said 'cuda'."""


@pytest.mark.parametrize("name", ON_THE_HOST)
def test_experiments_that_time_the_host_are_planned_there(name: str) -> None:
    wanted = ON_THE_HOST[name]
    plans = {
        device: Plan.build([get_paper(name)], wanted, "quick", device, control="none", gpus=1)
        for device in ("cpu", "cuda")
    }
    assert {planned.cell.device for planned in plans["cuda"].cells} == {"cpu"}
    assert {planned.cell.experiment for planned in plans["cuda"].cells} == set(wanted)
    hashes = {device: [planned.hash for planned in plan.cells] for device, plan in plans.items()}
    assert hashes["cpu"] == hashes["cuda"]  # the same cells, whatever the run was asked for
    assert plans["cuda"].on_cpu == len(plans["cuda"].runnable)
