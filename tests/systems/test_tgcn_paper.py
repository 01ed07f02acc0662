"""T-GCN's ledger, checks and experiments hang together, and its claims can be judged."""

from __future__ import annotations

from collections import Counter

import pytest

from dgbench.datasets import card
from dgbench.harness.claims.ledger import load_ledger
from dgbench.harness.store.row import Row
from dgbench.lab.printed import plain
from dgbench.systems.tgcn import PAPER
from dgbench.systems.tgcn.printed import DATASET_OF, Printed, table2, table3
from dgbench.systems.tgcn.settings import ALL, BY_NAME, GRAPHS, PAPERS_GRAPHS, PRESETS, workload

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


def test_printed_numbers_are_those_of_the_ledger() -> None:
    assert list(DATASET_OF.values()) == [graph.name for graph in GRAPHS]
    assert all(list(graph.scales) == sorted(graph.scales) for graph in GRAPHS)
    assert BY_NAME["twitter"].printed == Printed(41_600_000, 1_470_000_000, 74.6, 1)
    assert BY_NAME["lastfm"].printed == Printed(7_000, 1_300_000, 364.3, 39)
    assert table2("dygnn", "io") == {"lastfm": 5.53, "reddit": 24.3, "flickr": 63.18}
    assert table2("tgcn", "total")["twitter"] == 9273.05
    assert table3("jodie") == {"lastfm": 1837, "reddit": 1201, "flickr": 17246}
    assert (plain("815.7K"), plain(9237.4)) == (815_700, 9237.4)


def test_other_graphs_can_be_kept_out() -> None:
    rows = [failed_row(PAPER.experiments[0], c) for c in PAPER.experiments[0].cells("quick", "cpu")]
    kept = PAPERS_GRAPHS.of(rows)
    assert 0 < len(kept) < len(rows)
    assert all(row in PAPERS_GRAPHS for row in kept)


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
