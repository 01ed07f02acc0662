"""Rows of ESDG's experiments on differences: real ones of smoke runs, and failed ones."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pytest
from esdg_rows import row, row_of

from dgbench.harness.store.row import Row
from dgbench.systems.base import RunContext
from dgbench.systems.esdg.experiments import fig4
from dgbench.systems.esdg.experiments.settings import MODELS

SMOKE = RunContext("cpu", "smoke", 1, budget_s=0.01)


@pytest.fixture(autouse=True)
def private_cache(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.getbasetemp() / "esdg-difference"
    monkeypatch.setenv("DGBENCH_CACHE", str(folder))
    monkeypatch.delenv("DGBENCH_DATA", raising=False)


def ran(experiment: Any, number: int = 0, /, **params: Any) -> Row:
    """A real row of a smoke run: the first cell with these params."""
    cells = [c for c in experiment.cells("smoke", "cpu") if params.items() <= c.params.items()]
    return row_of(cells[0], experiment.run(cells[0], SMOKE), id=f"{experiment.name}-{number}")


def failed(experiment: str, number: int = 9, /, **params: Any) -> Row:
    name = f"{experiment}-{number}"
    return row(experiment, params, id=name, status="oom", reason="21 of 24 GiB", checks=[])


def points_of(experiment: Any, rows: list[Row]) -> dict[str, list[dict]]:
    return {figure.name: figure.points(rows) for figure in experiment.figures()}


@lru_cache
def timed(model: str) -> Row:
    """Figure 4's timed epochs of a smoke run, once a model."""
    return ran(fig4.Fig4(), MODELS.index(model), part="timed", model=model)
