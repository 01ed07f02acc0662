"""The experiments that train T-GCN: what a smoke run measures, and what the checks make of it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from dgbench.lab.paper import Claim
from dgbench.systems.base import RunContext
from dgbench.systems.tgcn.checks import ablation as ablation_checks
from dgbench.systems.tgcn.checks import end_to_end, memory, times
from dgbench.systems.tgcn.experiments import ablation, fig6, races, table2, table3

EXPERIMENTS = {
    "fig6": (fig6.Fig6(), end_to_end),
    "table2": (table2.Table2(), times),
    "table3": (table3.Table3(), memory),
    "ablation": (ablation.Ablation(), ablation_checks),
}


@pytest.fixture(scope="module", autouse=True)
def _small():
    """Fewer events than a smoke run has."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(races.EVENTS, "smoke", 160)
        patch.setitem(races.BATCH, "smoke", 10)
        patch.setattr(races, "INTERVAL", 60)
        yield


def rows_of(name: str, names=None) -> list:
    """Rows of a smoke run on the CPU."""
    experiment, found = EXPERIMENTS[name][0], []
    for number, cell in enumerate(experiment.cells("smoke", "cpu")):
        if cell.unavailable or (names and cell.params["dataset"] not in names):
            continue
        found.append(row_of(experiment, cell, number))
    return found


def row_of(experiment, cell, number):
    one = experiment.run(cell, RunContext("cpu", "smoke", 1))
    return SimpleNamespace(
        id=f"{cell.experiment}-{number}",
        paper="tgcn",
        experiment=cell.experiment,
        params=cell.params,
        group=cell.group,
        round=0,
        device="cpu",
        preset="smoke",
        instrumented=False,
        status="ok",
        reason="",
        values=one.values,
        counters=one.counters,
        phases=one.phases,
        deviation=one.deviation,
        data=one.data,
        probes={},
        time=None,
    )


def claim(key: str, value=None) -> Claim:
    from dgbench.systems.base import get_paper

    paper = get_paper("tgcn")
    from dgbench.harness.claims.ledger import load_ledger

    return next(one for one in load_ledger(paper.ledger) if one.id == key)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_claim_has_a_check(name):
    experiment, checks = EXPERIMENTS[name]
    assert set(experiment.claims) == set(checks.CHECKS)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_smoke_run_answers(name):
    experiment, checks = EXPERIMENTS[name]
    rows = rows_of(name)
    assert rows
    assert all(gap <= 1e-9 for row in rows for gap in row.deviation.values())
    assert experiment.answer(rows)
    for figure in experiment.figures():
        assert figure.points(rows)
    for key, check in checks.CHECKS.items():
        found = check(claim(key), rows)
        assert found.measured is not None or found.reason, key
        assert check(claim(key), []).reason, key
    assert experiment.answer([]) == ""


def test_cells_name_graphs_of_every_preset():
    for experiment, _ in EXPERIMENTS.values():
        for preset in ("smoke", "quick", "full", "paper"):
            for device in ("cpu", "cuda"):
                cells = experiment.cells(preset, device)
                assert len({str(sorted(c.params.items())) for c in cells}) == len(cells)
                for cell in cells:
                    races.task_of(str(cell.params["dataset"]), preset).check()
