"""T-GCN's ledger, checks and experiments hang together, and its claims can be judged."""

from __future__ import annotations

from collections import Counter

import pytest

from dgbench.datasets import card
from dgbench.harness.claims.ledger import load_ledger
from dgbench.harness.store.row import Row
from dgbench.systems.tgcn import PAPER
from dgbench.systems.tgcn.findings.common import of_the_paper, papers_graphs
from dgbench.systems.tgcn.settings import (
    ALL,
    DATASET_OF,
    GRAPHS,
    PRESETS,
    PRINTED_TITLE,
    TABLE2,
    TABLE3,
    workload,
)

LEDGER = load_ledger(PAPER.ledger)
BY_ID = {claim.id.removeprefix("tgcn-"): claim for claim in LEDGER}


@pytest.fixture(autouse=True)
def private_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("DGBENCH_CACHE", str(tmp_path_factory.getbasetemp() / "tgcn-paper"))
    monkeypatch.delenv("DGBENCH_DATA", raising=False)


def test_every_claim_has_a_check() -> None:
    assert set(PAPER.checks) == {claim.id for claim in LEDGER}


def test_every_claim_belongs_to_exactly_one_experiment() -> None:
    named = Counter(claim for experiment in PAPER.experiments for claim in experiment.claims)
    assert set(named) == {claim.id for claim in LEDGER}
    assert set(named.values()) == {1}


def failed_row(experiment, cell) -> Row:
    return Row(
        id=f"{experiment.name}-{cell.group}", run="test", cell_hash=cell.group, status="oom",
        reason="21.9 of 24.0 GiB", paper="tgcn", experiment=experiment.name,
        params=dict(cell.params), group=cell.group, device="cpu", preset="quick", round=1,
    )  # fmt: skip


# Settings.


@pytest.mark.parametrize("preset", PRESETS)
def test_settings_of_a_preset(preset) -> None:
    for graph in ALL:
        assert card(graph.name).name == graph.name
        work = workload(graph, preset, seed=3).check()
        assert (work.dataset, work.hidden_dim, work.seed) == (graph.name, 64, 3)
        assert work.scale == (1.0 if graph.real or preset == "paper" else graph.scale(preset))


def test_settings_are_the_papers() -> None:
    assert list(DATASET_OF.values()) == [graph.name for graph in GRAPHS]
    for graph in GRAPHS:
        assert list(graph.scales) == sorted(graph.scales)
        title = PRINTED_TITLE[graph.name]
        assert graph.printed.degree == BY_ID["tab1-avg-degree"].value[title]
        assert graph.printed.feature == BY_ID["tab1-feature"].value[title]
        for name, number in (
            ("tab1-vertices", graph.printed.vertices), ("tab1-edges", graph.printed.edges)
        ):  # fmt: skip
            words = BY_ID[name].value[title]
            assert number == round(float(words[:-1]) * {"K": 1e3, "M": 1e6, "B": 1e9}[words[-1]])
    for (system, part), seconds in TABLE2.items():
        for title, name in DATASET_OF.items():
            printed = BY_ID[f"tab2-{system}-{part}"].value[title]
            assert seconds.get(name, "OOM") == printed
    for system, space in TABLE3.items():
        assert BY_ID[f"tab3-{system}-memory"].value == {
            PRINTED_TITLE[name]: number for name, number in space.items()
        }


def test_other_graphs_can_be_kept_out() -> None:
    rows = [failed_row(PAPER.experiments[0], c) for c in PAPER.experiments[0].cells("quick", "cpu")]
    kept = papers_graphs(rows)
    assert 0 < len(kept) < len(rows)
    assert all(of_the_paper(row) for row in kept)


# Experiments.


@pytest.mark.parametrize("claim", LEDGER, ids=lambda claim: claim.id)
def test_a_claim_without_rows_says_why(claim) -> None:
    found = PAPER.checks[claim.id](claim, [])
    assert found.measured is None
    assert found.reason


@pytest.mark.parametrize("experiment", PAPER.experiments, ids=lambda e: e.name)
def test_cells_that_failed_are_drawn_as_gaps(experiment) -> None:
    rows = [failed_row(experiment, cell) for cell in experiment.cells("smoke", "cpu")]
    assert experiment.answer(rows) == ""
    points = [p for figure in experiment.figures() for p in figure.points(rows)]
    assert all(point.get("paper") or point.get("failed") for point in points)
    if experiment.figures():
        assert any(point.get("failed") == "oom: 21.9 of 24.0 GiB" for point in points)
