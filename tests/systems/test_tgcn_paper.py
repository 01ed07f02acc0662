"""T-GCN's ledger, checks and experiments hang together, and its claims can be judged."""

from __future__ import annotations

from collections import Counter

import pytest

from dgbench.datasets import card
from dgbench.datasets.twins.limits import twin_rule
from dgbench.harness.claims.evaluate import evaluate
from dgbench.harness.claims.ledger import load_ledger
from dgbench.harness.claims.verdict import decide, is_factor, show, what_it_needs
from dgbench.harness.store.row import Row
from dgbench.systems.base import Finding
from dgbench.systems.tgcn import PAPER, checks
from dgbench.systems.tgcn.checks.common import of_the_paper, papers_graphs
from dgbench.systems.tgcn.experiments.settings import (
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
COUNT = 82


@pytest.fixture(autouse=True)
def private_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("DGBENCH_CACHE", str(tmp_path_factory.getbasetemp() / "tgcn-paper"))
    monkeypatch.delenv("DGBENCH_DATA", raising=False)


def test_every_claim_has_exactly_one_check() -> None:
    assert len(LEDGER) == len(BY_ID) == COUNT
    assert set(PAPER.checks) == {claim.id for claim in LEDGER}
    answered = Counter(key for part in checks.PARTS for key in part.CHECKS)
    assert set(answered.values()) == {1}
    assert set(answered) == set(PAPER.checks)


def test_every_claim_belongs_to_exactly_one_experiment() -> None:
    named = Counter(claim for experiment in PAPER.experiments for claim in experiment.claims)
    assert set(named) == {claim.id for claim in LEDGER}
    assert set(named.values()) == {1}


def test_facts_are_complete() -> None:
    for claim in LEDGER:
        assert claim.id.startswith("tgcn-")
        assert set(claim.needs) == {"gpus", "cpu_only_ok", "real_dataset_required"}, claim.id
        assert claim.statement.endswith("."), claim.id
        assert what_it_needs(claim)
        assert claim.value is None or show(claim.value, claim.unit, printed=True), claim.id


@pytest.mark.parametrize("name", sorted(BY_ID))
def test_every_claim_can_be_judged(name) -> None:
    """Counted statements decide, weak evidence gives a direction, a twin what its rule leaves."""
    claim = BY_ID[name]
    rule = twin_rule(claim.id)[0]
    if rule == "allowed" and claim.needs["real_dataset_required"]:
        rule = "direction"

    def verdict(holds=True, evidence="counted", twin=False, **more):
        found = Finding(measured="words", holds=holds, evidence=evidence, twin=twin, **more)
        return decide(claim, found, twin_rule=twin_rule(claim.id))

    assert verdict().verdict == "reproduced"
    assert verdict(holds=False).verdict == "contradicted"
    assert verdict(evidence="projected").glyph == "p"
    assert verdict(evidence="analogue").verdict == "direction only"
    assert verdict(undecided=True).verdict == "not run here"
    expected = {"allowed": "reproduced", "direction": "direction only", "never": "not run here"}
    assert verdict(twin=True).verdict == expected[rule]


def test_speedups_are_factors() -> None:
    assert all(is_factor(claim) for claim in LEDGER if claim.kind == "speedup")


def test_without_rows_every_claim_says_what_it_needs() -> None:
    for claim in LEDGER:
        found = PAPER.checks[claim.id](claim, [])
        assert isinstance(found, Finding)
        assert found.measured is None, claim.id
        assert found.holds is None, claim.id
        assert found.reason, claim.id
    verdicts = evaluate(PAPER, [])
    assert not verdicts.warnings
    assert {v.verdict for v in verdicts.verdicts} == {"not run here"}


def test_rows_that_failed_answer_nothing() -> None:
    for claim in LEDGER:
        failed = [
            failed_row(experiment, cell)
            for experiment in PAPER.experiments
            if claim.id in experiment.claims
            for cell in experiment.cells("smoke", "cpu")
        ]
        assert isinstance(PAPER.checks[claim.id](claim, failed), Finding), claim.id


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


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("experiment", PAPER.experiments, ids=lambda e: e.name)
def test_cells_are_distinct_and_pairs_share_a_group(preset, experiment) -> None:
    for device in ("cpu", "cuda"):
        cells = experiment.cells(preset, device)
        assert cells
        keys = {tuple(sorted((k, repr(v)) for k, v in cell.params.items())) for cell in cells}
        assert len(keys) == len(cells)
        for cell in cells:
            assert (cell.paper, cell.experiment) == ("tgcn", experiment.name)
            if cell.repeats > 1:
                others = [c for c in cells if c.group == cell.group and c.repeats == cell.repeats]
                assert len(others) > 1, f"{cell.params} has nothing to be paired with"


@pytest.mark.parametrize("experiment", PAPER.experiments, ids=lambda e: e.name)
def test_experiments_without_rows(experiment) -> None:
    assert experiment.title
    assert experiment.question.endswith("?")
    assert set(experiment.claims) <= {claim.id for claim in LEDGER}
    names = [figure.name for figure in experiment.figures()]
    assert len(names) == len(set(names))
    for figure in experiment.figures():
        assert figure.points([]) == []
    assert experiment.answer([]) == ""


@pytest.mark.parametrize("experiment", PAPER.experiments, ids=lambda e: e.name)
def test_cells_that_failed_are_drawn_as_gaps(experiment) -> None:
    rows = [failed_row(experiment, cell) for cell in experiment.cells("smoke", "cpu")]
    assert experiment.answer(rows) == ""
    points = [p for figure in experiment.figures() for p in figure.points(rows)]
    assert all(point.get("paper") or point.get("failed") for point in points)
    if experiment.figures():
        assert any(point.get("failed") == "oom: 21.9 of 24.0 GiB" for point in points)


def test_experiments_have_names_of_their_own() -> None:
    names = Counter(experiment.name for experiment in PAPER.experiments)
    assert set(names.values()) == {1}
    figures = Counter(f.name for experiment in PAPER.experiments for f in experiment.figures())
    assert set(figures.values()) == {1}
