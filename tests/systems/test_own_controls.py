"""A/A pairs of each race: a claim's noise floor is measured where the claim is (`lab.noise`)."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from dgbench.harness.store import Row
from dgbench.harness.store.standing import CONTENDERS, contender_of, of_others
from dgbench.lab.compare import AGAIN, CONTROL_RATIO, take_control, with_control
from dgbench.lab.experiment import Measurement, RunContext
from dgbench.lab.noise import MIN_PAIRS
from dgbench.lab.result_checks import ResultCheck
from dgbench.systems.base.registry import get_paper, system_names

HOSTED = ("stream-training", "temporal-sampling", "graph-update", "weighted-draw")
TURNED = {
    "esdg": ("fig4", "table2", "preparation"),
    "dgc": ("fig15", "fig18"),
    "gnnflow": ("fig12", "fig14", "table7", "cache_ablation"),
    "tgcn": ("fig7", "fig8", "table2", "partition", "ablation"),
    "operators": ("weighted",),
    "arena": ("timeline-training", *HOSTED),
}
"""Races whose contenders take turns in one process: the plan cannot give them a control."""
CONTROLLED = {
    f"{paper.name}/{one.name}": one
    for paper in map(get_paper, TURNED)
    for one in paper.experiments
    if one.control is not None
}


NAMES = [
    pytest.param(n, marks=pytest.mark.nightly) if n == "esdg/table2" else n for n in CONTROLLED
]


def controlled_cells(experiment: Any) -> list[Any]:
    """Those that run: a contender that is absent has a cell of the same params with its reason."""
    contender = getattr(experiment.arena_task, "contender", None)
    return [
        cell
        for cell in experiment.cells("quick", "cpu")
        if experiment.controls(cell) and contender not in cell.params
    ]


@pytest.mark.parametrize("name", CONTROLLED)
def test_quick_has_enough_pairs_of_its_own(name: str) -> None:
    cells = controlled_cells(CONTROLLED[name])
    processes = sum(cell.repeats for cell in cells)
    per_process = {"dgc/fig18": 5}.get(name, 1)
    assert processes * per_process >= MIN_PAIRS
    assert len(cells) == 1, "one cheap cell of a race is enough"


@cache
def measured(name: str) -> tuple[Any, Measurement]:
    """The controlled cell and what it measures; of a task of the arena, whose workloads are frozen,
    the cell of smoke with the same declaration."""
    experiment = CONTROLLED[name]
    with pytest.MonkeyPatch.context() as patch:
        if experiment.arena_task is None:
            cell = controlled_cells(experiment)[0]
        else:
            cell = experiment.cells("smoke", "cpu")[0]
            patch.setattr(type(experiment), "control", {"case": cell.params["case"]})
        return cell, experiment.run(cell, RunContext("cpu", "smoke", 1, budget_s=0.02))


@pytest.mark.parametrize("name", NAMES)
def test_controlled_cell_observes_a_pair_and_no_other_contender(name: str) -> None:
    _, found = measured(name)
    pairs = [one for one in found.observations if one.metric == CONTROL_RATIO]
    assert pairs
    assert all(one.value > 0 for one in pairs)
    told = {value for one in found.observations for value in one.dims.values()}
    assert AGAIN not in told
    assert all(check.passed for check in found.checks)


def parts_of(check: Any) -> set[str]:
    """Names of the subject of a check: all its words, or those before a comma."""
    return {check.part, check.part.partition(",")[0]}


@pytest.mark.parametrize("name", NAMES)
def test_checks_name_the_contender_that_they_are_of(name: str) -> None:
    cell, found = measured(name)
    raced = {
        value
        for one in found.observations
        for dimension, value in one.dims.items()
        if dimension in CONTENDERS
    }
    named = {check.system for check in found.checks if check.system}
    assert named <= {*raced, *system_names(), AGAIN, contender_of(cell)}
    unnamed = [check for check in found.checks if not check.system]
    assert not [check for check in unnamed if parts_of(check) & raced]
    # A wrong one loses its numbers, and the others keep theirs.
    for who in raced & named:
        wrong = ResultCheck(
            of="outputs", against="o", gap=1.0, tolerance=0.0, compared=1, system=who
        )
        row = Row(id="w", paper=cell.paper, experiment=cell.experiment, params=cell.params,
                  status="check", checks=[wrong], observed=found.observations)  # fmt: skip
        left = of_others(row)
        assert left
        assert not [one for one in left if who in one.dims.values()]


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
