"""A/A pairs of each race: a claim's noise floor is measured where the claim is (`lab.noise`)."""

from __future__ import annotations

from typing import Any

import pytest

from dgbench.lab.compare import (
    AGAIN,
    CONTROL_RATIO,
    take_control,
    with_control,
)
from dgbench.lab.experiment import Measurement, RunContext
from dgbench.lab.noise import MIN_PAIRS
from dgbench.systems.base.registry import get_paper

TURNED = {
    "esdg": ("fig4", "table2", "preparation"),
    "dgc": ("fig15", "fig18"),
    "gnnflow": ("fig12", "fig14", "table7", "cache_ablation"),
    "tgcn": ("fig7", "fig8", "table2", "partition", "ablation"),
}
"""Races whose contenders take turns in one process: the plan cannot give them a control."""
CONTROLLED = {
    f"{paper.name}/{one.name}": one
    for paper in map(get_paper, TURNED)
    for one in paper.experiments
    if one.control is not None
}


def controlled_cells(experiment: Any) -> list[Any]:
    return [cell for cell in experiment.cells("quick", "cpu") if experiment.controls(cell)]


def test_races_in_turns_are_controlled() -> None:
    assert {f"{p}/{name}" for p, names in TURNED.items() for name in names} <= set(CONTROLLED)


@pytest.mark.parametrize("name", CONTROLLED)
def test_quick_has_enough_pairs_of_its_own(name: str) -> None:
    cells = controlled_cells(CONTROLLED[name])
    processes = sum(cell.repeats for cell in cells)
    per_process = {"dgc/fig18": 5}.get(name, 1)
    assert processes * per_process >= MIN_PAIRS
    assert len(cells) == 1, "one cheap cell of a race is enough"


@pytest.mark.parametrize("name", CONTROLLED)
def test_controlled_cell_observes_a_pair_and_no_other_contender(name: str) -> None:
    experiment = CONTROLLED[name]
    cell = controlled_cells(experiment)[0]
    found = experiment.run(cell, RunContext("cpu", "smoke", 1, budget_s=0.02))
    pairs = [one for one in found.observations if one.metric == CONTROL_RATIO]
    assert pairs
    assert all(one.value > 0 for one in pairs)
    told = {value for one in found.observations for value in one.dims.values()}
    assert AGAIN not in told
    assert all(check.passed for check in found.checks)


def test_pair_is_taken_out_of_the_contenders() -> None:
    sides = with_control({"slow": [4.0, 4.0], "fast": [2.0, 2.0]}, pair="fast")
    assert list(sides) == ["slow", "fast", AGAIN]
    assert with_control({"slow": 1}, on=False) == {"slow": 1}
    seconds = {"slow": [4.0, 4.0], "fast": [2.0, 2.0], AGAIN: [1.0, 1.0]}
    found = Measurement()
    take_control(found, seconds, pair="fast")
    assert list(seconds) == ["slow", "fast"]
    (one,) = found.observations
    assert (one.metric, one.value, one.dims) == (CONTROL_RATIO, 2.0, {"setting": "fast"})
    take_control(found, seconds)
    assert len(found.observations) == 1, "without a second side there is no pair"


def test_what_quick_leaves_out_decides_no_claim() -> None:
    left = [
        one
        for paper in map(get_paper, (*TURNED, "pipad"))
        for one in paper.experiments
        if "quick" not in one.presets
    ]
    speed = [one for one in left if "full" in one.presets]
    assert speed
    assert not [one.name for one in speed if one.claims]
