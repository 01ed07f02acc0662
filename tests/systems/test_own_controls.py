"""A/A pairs of each race: a claim's noise floor is measured where the claim is (`lab.noise`)."""

from __future__ import annotations

from typing import Any

import pytest

from dgbench.harness.store import Row
from dgbench.harness.store.standing import CONTENDERS, contender_of, of_others
from dgbench.lab.compare import AGAIN, CONTROL_RATIO, Ratio
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


SLOW = ("esdg/table2", "esdg/fig4", "dgc/fig18", "tgcn/ablation", "tgcn/table2", "gnnflow/table7",
        "arena/stream-training", "arena/timeline-training")  # fmt: skip
NAMES = [pytest.param(n, marks=[pytest.mark.nightly] * (n in SLOW)) for n in CONTROLLED]


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


def measured(experiment: Any) -> tuple[Any, Measurement]:
    """The controlled cell and what it measures; of a task of the arena, whose workloads are frozen,
    the cell of smoke with the same declaration."""
    with pytest.MonkeyPatch.context() as patch:
        if experiment.arena_task is None:
            cell = controlled_cells(experiment)[0]
        else:
            cell = experiment.cells("smoke", "cpu")[0]
            patch.setattr(type(experiment), "control", {"case": cell.params["case"]})
        return cell, experiment.run(cell, RunContext("cpu", "smoke", 1, budget_s=0.02))


@pytest.mark.parametrize("name", NAMES)
def test_a_controlled_cell_observes_a_pair_and_names_contenders(name: str) -> None:
    """A contender that is wrong loses its numbers, and the others keep theirs."""
    cell, found = measured(CONTROLLED[name])
    pairs = [one for one in found.observations if one.metric == CONTROL_RATIO]
    assert min(one.value for one in pairs) > 0
    dims = [item for one in found.observations for item in one.dims.items()]
    assert AGAIN not in {value for _, value in dims}
    assert all(check.passed for check in found.checks)
    raced = {value for dimension, value in dims if dimension in CONTENDERS}
    named = {check.system for check in found.checks if check.system}
    assert named <= {*raced, *system_names(), AGAIN, contender_of(cell)}
    unnamed = [check.part for check in found.checks if not check.system]
    assert not {*unnamed, *(part.partition(",")[0] for part in unnamed)} & raced
    for who in raced & named:
        wrong = ResultCheck(
            of="outputs", against="o", gap=1.0, tolerance=0.0, compared=1, system=who
        )
        row = Row(id="w", paper=cell.paper, experiment=cell.experiment, params=cell.params,
                  status="check", checks=[wrong], observed=found.observations)  # fmt: skip
        left = of_others(row)
        assert left
        assert not [one for one in left if who in one.dims.values()]


def test_what_quick_leaves_out_decides_no_claim() -> None:
    every = [one for paper in map(get_paper, (*TURNED, "pipad")) for one in paper.experiments]
    speed = [one for one in every if "full" in one.presets and "quick" not in one.presets]
    assert speed
    assert not [one.name for one in speed if one.claims]


def test_sides_and_orders_need_whole_intervals() -> None:
    """An end at 1 decides nothing, as no interval does, nor do intervals that meet."""
    sides = {(1.1, 1.3): 1, (0.7, 0.9): -1, (0.9, 1.2): 0, (1.0, 1.2): 0, (None, None): 0}
    for ends, side in sides.items():
        assert Ratio(1.0, *ends, 5).side == side
    orders = {(3, 4, 1, 2): 1, (1, 2, 3, 4): -1, (1, 3, 2, 4): 0, (1, 2, 2, 3): 0}
    for ends, order in orders.items():
        first, second = Ratio(1.0, *ends[:2], 5), Ratio(1.0, *ends[2:], 5)
        assert (first.against(second), second.against(first)) == (order, -order)
        assert first.against(Ratio(10.0, None, None, 1)) == 0
