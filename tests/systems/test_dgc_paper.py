"""DGC's ledger, checks and experiments hang together, and its claims can be judged."""

from __future__ import annotations

import math
import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec import structs
from paper_rows import small_rows

from dgbench.harness.claims.ledger import load_ledger
from dgbench.lab.evidence import finding
from dgbench.systems.base import Finding
from dgbench.systems.dgc import PAPER, claims
from dgbench.systems.dgc.experiments import race_runs
from dgbench.systems.dgc.experiments.settings import (
    ALL,
    BY_NAME,
    DATASET_OF,
    GRAPHS,
    MODEL_OF,
    PAPERS_GRAPHS,
    PRESETS,
    snapshots,
    standing_in,
    workload,
)

LEDGER = load_ledger(PAPER.ledger)
BY_ID = {claim.id.removeprefix("dgc-"): claim for claim in LEDGER}


@pytest.fixture(autouse=True)
def private_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("DGBENCH_CACHE", str(tmp_path_factory.getbasetemp() / "dgc-paper"))
    monkeypatch.delenv("DGBENCH_DATA", raising=False)


def test_every_claim_has_exactly_one_check_of_its_own() -> None:
    source = Path(claims.__file__).read_text("utf-8")
    written = Counter(re.findall(r'^    "(dgc-[\w-]+)":', source, re.MULTILINE))
    assert set(written.values()) == {1}  # a table would take the last of two
    assert set(PAPER.checks) == {claim.id for claim in LEDGER} >= set(written)


def test_claims_name_known_graphs_and_models() -> None:
    for claim in LEDGER:
        assert bool(claim.hardware) or not claim.needs["gpus"], claim.id
        for name in claim.workload.get("datasets", ()):
            assert name in DATASET_OF or name == "synthetic", claim.id
        named = claim.workload.get("model") or []
        for name in [named] if isinstance(named, str) else named:
            assert name in MODEL_OF or name.startswith("not printed"), claim.id


def test_printed_means_of_table_3_are_those_of_its_cells() -> None:
    """The ledger's own numbers: 1.56 points lost and 80.26 % saved by the adaptive threshold."""
    accuracy = [c.value for c in LEDGER if c.id.startswith("dgc-tab3-acc-")]
    saved = [c.value["adaptive"] for c in LEDGER if c.id.startswith("dgc-tab3-comm-")]
    assert len(accuracy) == len(saved) == 12
    lost = sum(v["without"] - v["adaptive"] for v in accuracy) / 12
    printed = BY_ID["s733-adaptive-mean"].value
    assert 100 * lost == pytest.approx(printed["accuracy_drop"], abs=0.005)
    assert sum(saved) / 12 == pytest.approx(printed["traffic_saved"], abs=0.015)
    for claim in LEDGER:
        if claim.id.startswith("dgc-tab3-comm-"):
            assert claim.value["0.5D"] < claim.value["adaptive"] < claim.value["0.7D"]


def test_what_stands_in_for_a_graph_of_the_paper() -> None:
    def chosen(dataset, *found, any_graph=False):
        return standing_in(
            dataset,
            found,
            lambda one: one.removesuffix("*"),
            lambda one: one.endswith("*"),
            any_graph=any_graph,
        )

    twin, kin, other = "amazon*", "amazon-magazine", "wikipedia"
    assert chosen("amazon", "amazon", twin, kin, other) == ["amazon"]
    assert chosen("amazon", twin, kin, other, any_graph=True) == [kin]
    assert chosen("amazon", twin, other, any_graph=True) == [other]
    assert chosen("amazon", twin, other) == [twin]
    assert chosen("amazon", other) == []
    assert chosen("movie", kin, other) == []
    assert chosen("movie", kin, other, any_graph=True) == [kin, other]


def test_checks_see_rows_of_all_graphs() -> None:
    """Rows of other graphs are weak; they do not vanish."""
    assert PAPER.graphs is PAPERS_GRAPHS


def test_a_finding_takes_rows_and_the_largest_deviation() -> None:
    rows = [
        SimpleNamespace(id="a", data={"twin": True}, deviation={"loss": -3e-6}),
        SimpleNamespace(id="b", data={}, deviation={}),
    ]
    found = finding(rows, measured=1.0)
    assert (found.deviation, found.rows) == (3e-6, ["a", "b"])
    assert finding(rows[1:], measured=1.0).deviation is None


@pytest.mark.parametrize("preset", PRESETS)
def test_settings_of_a_preset(preset) -> None:
    for graph in ALL:
        task = workload(graph, "dysat", preset, seed=3).check()
        assert (task.dataset, task.bins, task.seed) == (graph.name, graph.bins, 3)
        assert task.scale == (1.0 if graph.real or preset == "paper" else graph.scale(preset))
        assert task.snapshots == snapshots(preset)
    assert workload(GRAPHS[0], "dysat", preset, snapshots=5).snapshots == 5


def test_paper_scales_are_the_papers_and_smaller_ones_smaller() -> None:
    for graph in GRAPHS:
        assert list(graph.scales) == sorted(graph.scales)
        assert graph.scales[-1] == 1.0
        assert BY_NAME[graph.name].bins == graph.printed["snapshots"]


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Races of smoke over fewer snapshots: what they do does not depend on how many there are."""
    monkeypatch.setitem(race_runs.KEPT["email-eu-core"], "smoke", 5)


@pytest.mark.nightly
@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("experiment", PAPER.experiments, ids=lambda e: e.name)
def test_small_cells_run_and_can_be_drawn(experiment) -> None:
    rows = small_rows(experiment, 1)
    if not rows:
        pytest.skip("its data is not held here")
    for row in rows:
        assert all(math.isfinite(one.value) for one in row.observations), row.observations
        assert not {**row.values, **row.counters}
    for figure in experiment.figures():
        for point in figure.points(rows):
            printed = point.get("paper") or str(point.get("series")).endswith(", paper")
            assert "row_ids" in point or point.get("failed") or printed
    assert isinstance(experiment.answer(rows), str)
    quick = [structs.replace(row, preset="quick") for row in rows]
    for claim in LEDGER:
        assert isinstance(PAPER.checks[claim.id](claim, quick), Finding)
