"""PiPAD's ledger, checks and experiments hang together, and small cells really run."""

from __future__ import annotations

import math

import pytest

from dgbench.harness.claims.evaluate import evaluate
from dgbench.harness.claims.ledger import load_ledger
from dgbench.harness.store.row import Row
from dgbench.systems.base import Finding, RunContext
from dgbench.systems.pipad import PAPER
from dgbench.systems.pipad.experiments.settings import ALL, workload

PRESETS = ("smoke", "quick", "full", "paper")


def test_every_claim_has_one_check() -> None:
    ledger = load_ledger(PAPER.ledger)
    assert len(ledger) == 85
    assert {claim.id for claim in ledger} == set(PAPER.checks)


def test_without_rows_every_claim_says_what_it_needs() -> None:
    for claim in load_ledger(PAPER.ledger):
        finding = PAPER.checks[claim.id](claim, [])
        assert isinstance(finding, Finding)
        assert finding.measured is None
        assert finding.holds is None
        assert finding.reason, claim.id
    verdicts = evaluate(PAPER, []).verdicts
    assert len(verdicts) == 85
    assert {v.verdict for v in verdicts} == {"not run here"}


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("experiment", PAPER.experiments, ids=lambda e: e.name)
def test_cells_are_distinct_and_pairs_share_a_group(preset, experiment) -> None:
    cells = experiment.cells(preset, "cpu")
    assert cells
    keys = {tuple(sorted((k, repr(v)) for k, v in cell.params.items())) for cell in cells}
    assert len(keys) == len(cells)
    for cell in cells:
        assert (cell.paper, cell.experiment) == ("pipad", experiment.name)
        if cell.repeats > 1:
            others = [c for c in cells if c.group == cell.group and c.repeats == cell.repeats]
            assert len(others) > 1, f"{cell.params} has nothing to be paired with"
            if preset != "smoke":
                assert cell.repeats >= 5


def _rows(experiment, keep) -> list[Row]:
    rows = []
    for cell in experiment.cells("smoke", "cpu"):
        if not keep(cell):
            continue
        context = RunContext("cpu", "smoke", 1, budget_s=0.02)
        found = experiment.run(cell, context)
        for round_ in range(cell.repeats):
            rows.append(
                Row(
                    id=f"{experiment.name}-{len(rows)}",
                    run="test",
                    cell_hash=str(len(rows)),
                    paper="pipad",
                    experiment=experiment.name,
                    params=dict(cell.params),
                    group=cell.group,
                    round=round_ + 1,
                    device="cpu",
                    preset="smoke",
                    status="ok",
                    values=found.values,
                    units=found.units,
                    counters=found.counters,
                    samples=found.samples,
                    warmup=found.warmup,
                    deviation=found.deviation,
                    data=found.data,
                    notes=found.notes,
                )
            )
    return rows


@pytest.mark.parametrize("experiment", PAPER.experiments, ids=lambda e: e.name)
def test_small_cells_run_and_can_be_drawn(experiment) -> None:
    def keep(cell) -> bool:
        params = cell.params
        if params.get("dataset") not in (None, "hepth"):
            return False
        return params.get("model") in (None, "tgcn_model") and params.get("system") != "pygt-a"

    rows = _rows(experiment, keep)
    assert rows
    for row in rows:
        assert all(math.isfinite(v) for v in row.values.values()), row.values
    for figure in experiment.figures():
        for point in figure.points(rows):
            assert "row_ids" in point or point.get("failed")
    assert isinstance(experiment.answer(rows), str)
    for claim in load_ledger(PAPER.ledger):
        assert isinstance(PAPER.checks[claim.id](claim, rows), Finding)


def test_workloads_follow_section_5_1() -> None:
    for graph in ALL:
        task = workload(graph, "tgcn_model", "quick")
        assert (task.feature_dim, task.hidden_dim) == ((16, 32) if graph.small else (2, 6))
        assert task.frame == 16
