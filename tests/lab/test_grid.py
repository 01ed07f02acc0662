"""Grids: cells as the product of axes; races of systems on each workload."""

from __future__ import annotations

import pytest

from dgbench.lab.grid import Grid, TrainingRace
from dgbench.runtime.errors import UnknownKeyError


class Sizes(Grid):
    paper, name, title, question = "toy", "sizes", "Sizes", "How large?"
    axes = {"dataset": {"smoke": ("g",), None: ("g", "h")}, "width": (2, 4)}
    fixed = {"system": "ours"}
    group = "{dataset}/{width}"
    repeats = {"smoke": 1, None: 5}
    timeout_s = 7.0

    def run(self, cell, context):
        raise NotImplementedError


class Trainings(TrainingRace):
    paper, name, title, question = "toy", "race", "Race", "How fast?"
    axes = {"dataset": ("g", "h"), "model": ("a",)}
    repeats = {"smoke": 2, None: 5}
    watched = {"dataset": "h", "model": "a"}

    def contenders(self, preset, device):
        return ("base", "ours")

    def run(self, cell, context):
        raise NotImplementedError


def test_cells_are_the_product_of_axes_in_their_order() -> None:
    cells = Sizes().cells("quick", "cpu")
    assert [cell.params for cell in cells] == [
        {"dataset": name, "width": width, "system": "ours"}
        for name in ("g", "h")
        for width in (2, 4)
    ]
    assert [cell.group for cell in cells] == ["g/2", "g/4", "h/2", "h/4"]
    assert {(cell.paper, cell.experiment, cell.repeats, cell.timeout_s) for cell in cells} == {
        ("toy", "sizes", 5, 7.0)
    }
    small = Sizes().cells("smoke", "cpu")
    assert [(cell.group, cell.repeats) for cell in small] == [("g/2", 1), ("g/4", 1)]


def test_every_system_has_a_cell_on_each_workload_and_one_workload_is_watched() -> None:
    cells = Trainings().cells("quick", "cpu")
    assert [(cell.group, cell.params["system"]) for cell in cells] == [
        ("g/a", "base"), ("g/a", "ours"), ("h/a", "base"), ("h/a", "ours"),
    ]  # fmt: skip
    assert {cell.repeats for cell in cells} == {5}
    assert {cell.group for cell in cells if cell.phases} == {"h/a"}


@pytest.mark.parametrize("params", [{"axes": {"datset": ("g",)}}, {"fixed": {"datset": "g"}}])
def test_a_param_that_is_no_dimension_is_refused_where_the_class_is_made(params) -> None:
    with pytest.raises(UnknownKeyError, match="dimension 'datset'") as refused:
        type("Misspelt", (Grid,), params)
    assert "dataset" in str(refused.value.hint)
