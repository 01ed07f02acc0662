"""PiPAD's ledger, checks and experiments hang together, and small cells really run."""

from __future__ import annotations

import math

import pytest
from msgspec import structs
from pipad_rows import made, observation, ran

from dgbench.harness.claims.evaluate import evaluate
from dgbench.harness.claims.ledger import load_ledger
from dgbench.harness.store.row import Row
from dgbench.systems.base import Cell, Finding
from dgbench.systems.pipad import PAPER
from dgbench.systems.pipad.experiments.settings import ALL, FrameGraph, workload

PRESETS = ("smoke", "quick", "full", "paper")


def _rows(experiment, keep, preset="smoke") -> list[Row]:
    """Rows of the kept cells; a round more takes the same numbers."""
    rows: list[Row] = []
    for cell in experiment.cells("smoke", "cpu"):
        if not keep(cell):
            continue
        if cell.unavailable:
            rows.append(made(experiment.name, dict(cell.params), status="no-gpu",
                             reason=cell.unavailable))  # fmt: skip
            continue
        for instrumented in (False, True) if cell.phases else (False,):
            one = ran(cell, instrumented=instrumented, preset=preset)
            rows += [
                structs.replace(one, id=f"{one.id}-{instrumented}-{number}", round=number + 1)
                for number in range(1 if instrumented else cell.repeats)
            ]
    return rows


GRAPHS = ("hepth", "flickr", None, "covid19-england")
"""Graphs that every machine has, the cheaper one first."""


def _scale(graph: FrameGraph, preset: str) -> float:
    """Size of a twin for cells whose times nobody reads: HepTh keeps 90 vertices."""
    return 1 / 256 if graph.name == "hepth" else graph.scales[0]


def _small(experiment):
    """Keeps one graph, one model and no PyGT-A."""
    cells = experiment.cells("smoke", "cpu")
    graphs = {cell.params.get("dataset") for cell in cells}
    dataset = next((name for name in GRAPHS if name in graphs), None)

    def keep(cell) -> bool:
        params = cell.params
        if params.get("dataset") not in (None, dataset) and not cell.unavailable:
            return False
        models = (None, "tgcn_model", "evolvegcn" if "link" in params or "part" in params else None)
        return params.get("model") in models and params.get("system") != "pygt-a"

    return keep


@pytest.mark.nightly
@pytest.mark.parametrize("experiment", PAPER.experiments, ids=lambda e: e.name)
def test_small_cells_run_and_can_be_drawn(experiment, monkeypatch) -> None:
    monkeypatch.setattr(FrameGraph, "scale", _scale)
    rows = _rows(experiment, _small(experiment))
    assert rows
    for row in rows:
        assert all(math.isfinite(one.value) for one in row.observations), row.observations
    for figure in experiment.figures():
        for point in figure.points(rows):
            assert "row_ids" in point or point.get("failed")
    assert isinstance(experiment.answer(rows), str)
    for claim in load_ledger(PAPER.ledger):
        assert isinstance(PAPER.checks[claim.id](claim, rows), Finding)


def test_claims_that_a_cpu_can_settle_lack_no_run() -> None:
    """Every claim whose needs a CPU meets gets a verdict, or a reason other than a missing run."""
    counting = {"table1", "space", "memory", "preparation"}
    twins = {"youtube", "hepth", "flickr", None}
    rows = []
    for experiment in PAPER.experiments:
        if experiment.name in counting:
            rows += _rows(experiment, lambda c: c.params.get("dataset") in twins, "quick")
    for system in ("pipad", "pygt"):  # the baseline shows that the counter counts
        rows += _trained("hepth", "tgcn_model", system)
    for system in ("pygt-r", "pygt-g"):
        rows += _trained("flickr", "evolvegcn", system)
    whole = {"part": "reorder", "dataset": "flickr"}  # takes seconds, so it is not run here
    rows.append(
        structs.replace(
            rows[0], id="reorder", experiment="preparation", params=whole,
            observed=[observation("operation_time", 3.0, phase="reordering")],
            data={"scale": 1.0, "twin": True},
        )
    )  # fmt: skip
    ledger = load_ledger(PAPER.ledger)
    settled = {c.id for c in ledger if not c.needs["gpus"] or c.needs["cpu_only_ok"]}
    assert len(settled) >= 30
    open_ = {}
    for verdict in evaluate(PAPER, rows).verdicts:
        if verdict.id in settled and verdict.verdict == "not run here":
            data = "needs the real data" in verdict.reason or verdict.id.startswith("pipad-tab1-")
            if not data:
                open_[verdict.id] = verdict.reason
    assert not open_


def _trained(dataset, model, system) -> list[Row]:
    """A row of a short race of Figure 10 at smoke size."""
    params = {"dataset": dataset, "model": model, "system": system}
    return [ran(Cell(paper="pipad", experiment="fig10", params=params, group="g"), preset="quick")]


def test_workloads_follow_section_5_1() -> None:
    for graph in ALL:
        task = workload(graph, "tgcn_model", "quick")
        assert (task.feature_dim, task.hidden_dim) == ((16, 32) if graph.small else (2, 6))
        assert task.frame == 16
