"""DGC's ledger, checks and experiments hang together, and its claims can be judged."""

from __future__ import annotations

import math
from collections import Counter
from types import SimpleNamespace

import pytest
from msgspec import structs

from dgbench.datasets.twins.limits import twin_rule
from dgbench.harness.claims.evaluate import evaluate
from dgbench.harness.claims.ledger import load_ledger
from dgbench.harness.claims.verdict import decide, is_factor, show, what_it_needs
from dgbench.harness.store.row import Row
from dgbench.runtime.errors import MissingDataError
from dgbench.runtime.meter import Meter
from dgbench.systems.base import Finding, RunContext
from dgbench.systems.dgc import PAPER, checks
from dgbench.systems.dgc.checks.common import any_graph, finding
from dgbench.systems.dgc.experiments.settings import (
    ALL,
    BY_NAME,
    DATASET_OF,
    GRAPHS,
    MODEL_OF,
    PRESETS,
    snapshots,
    workload,
)

LEDGER = load_ledger(PAPER.ledger)
BY_ID = {claim.id.removeprefix("dgc-"): claim for claim in LEDGER}
COUNTS = 104


@pytest.fixture(autouse=True)
def private_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("DGBENCH_CACHE", str(tmp_path_factory.getbasetemp() / "dgc-paper"))
    monkeypatch.delenv("DGBENCH_DATA", raising=False)


def test_every_claim_has_exactly_one_check_of_its_own() -> None:
    assert len(LEDGER) == len(BY_ID) == COUNTS
    assert all(claim.id.startswith("dgc-") for claim in LEDGER)
    assert set(PAPER.checks) == {claim.id for claim in LEDGER}
    answered = Counter(key for part in checks._PARTS for key in part)
    assert set(answered.values()) == {1}
    assert set(answered) == set(PAPER.checks)


def test_two_checks_of_one_claim_are_refused() -> None:
    part = {"dgc-tab1-movie": lambda claim, rows: Finding()}
    with pytest.raises(ValueError, match="dgc-tab1-movie"):
        checks._join([part, part])


def test_facts_are_complete() -> None:
    for claim in LEDGER:
        assert set(claim.needs) == {"gpus", "cpu_only_ok", "real_dataset_required"}, claim.id
        assert bool(claim.hardware) or not claim.needs["gpus"], claim.id
        assert claim.statement.endswith("."), claim.id
        assert what_it_needs(claim)
        assert show(claim.value, claim.unit, printed=True), claim.id
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


def test_other_graphs_take_no_part_in_claims_about_the_papers() -> None:
    names = ("epinions", "sx-mathoverflow", "synthetic-spatial", None)
    rows = [SimpleNamespace(params={"dataset": name} if name else {}) for name in names]
    seen = []

    def check(claim, rows):
        seen.append([row.params.get("dataset") for row in rows])
        return Finding(reason="looked")

    checks._on_the_papers_graphs(check)(BY_ID["fig12-dgc-best"], rows)
    checks._on_the_papers_graphs(check)(BY_ID["s512-mask-correct"], rows)  # names no graph
    checks._on_the_papers_graphs(any_graph(check))(BY_ID["fig12-dgc-best"], rows)
    assert seen == [["epinions", "synthetic-spatial", None], list(names), list(names)]


def test_a_finding_takes_twins_and_the_largest_deviation() -> None:
    rows = [
        SimpleNamespace(id="a", data={"twin": True}, deviation={"loss": -3e-6}),
        SimpleNamespace(id="b", data={}, deviation={}),
    ]
    found = finding(rows, evidence="counted", measured=1.0)
    assert (found.twin, found.deviation, found.rows) == (True, 3e-6, ["a", "b"])
    assert finding(rows[1:], evidence="counted", measured=1.0).deviation is None


def test_without_rows_every_claim_says_what_it_needs() -> None:
    for claim in LEDGER:
        found = PAPER.checks[claim.id](claim, [])
        assert isinstance(found, Finding)
        assert found.measured is None
        assert found.holds is None
        assert found.reason, claim.id
    verdicts = evaluate(PAPER, [])
    assert not verdicts.warnings
    assert {v.verdict for v in verdicts.verdicts} == {"not run here"}


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


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("experiment", PAPER.experiments, ids=lambda e: e.name)
def test_cells_are_distinct_and_pairs_share_a_group(preset, experiment) -> None:
    cells = experiment.cells(preset, "cpu")
    assert cells
    keys = {tuple(sorted((k, repr(v)) for k, v in cell.params.items())) for cell in cells}
    assert len(keys) == len(cells)
    for cell in cells:
        assert (cell.paper, cell.experiment) == ("dgc", experiment.name)
        if cell.repeats > 1:
            others = [c for c in cells if c.group == cell.group and c.repeats == cell.repeats]
            assert len(others) > 1, f"{cell.params} has nothing to be paired with"


def test_experiments_name_claims_of_the_ledger() -> None:
    ids = {claim.id for claim in LEDGER}
    assert len({experiment.name for experiment in PAPER.experiments}) == len(PAPER.experiments)
    for experiment in PAPER.experiments:
        assert experiment.title
        assert experiment.question.endswith("?"), experiment.name
        assert set(experiment.claims) <= ids, experiment.name
        for figure in experiment.figures():
            assert figure.points([]) == [], experiment.name
        assert experiment.answer([]) == "", experiment.name


def _rows(experiment, most) -> list[Row]:
    """Rows of the first cells of the smoke preset, each run once."""
    rows: list[Row] = []
    for cell in experiment.cells("smoke", "cpu")[:most]:
        common = {
            "id": f"{experiment.name}-{len(rows)}", "run": "test", "cell_hash": str(len(rows)),
            "paper": "dgc", "experiment": experiment.name, "params": dict(cell.params),
            "group": cell.group, "device": "cpu", "preset": "smoke", "round": 1,
        }  # fmt: skip
        if cell.unavailable:
            rows.append(Row(status="no-gpu", reason=cell.unavailable, **common))
            continue
        meter = Meter(timing=False)
        context = RunContext("cpu", "smoke", 1, instrumented=False, meter=meter, budget_s=0.02)
        try:
            found = experiment.run(cell, context)
        except MissingDataError:  # real data that this machine does not hold
            continue
        rows.append(
            Row(
                status="ok", values=found.values, units=found.units,
                counters={**meter.counters, **found.counters}, phases=found.phases,
                samples=found.samples, warmup=found.warmup, deviation=found.deviation,
                data=found.data, notes=found.notes, **common,
            )
        )  # fmt: skip
    return rows


@pytest.mark.parametrize("experiment", PAPER.experiments, ids=lambda e: e.name)
def test_small_cells_run_and_can_be_drawn(experiment) -> None:
    rows = _rows(experiment, 1)
    if not rows:
        pytest.skip("its data is not held here")
    for row in rows:
        assert all(math.isfinite(v) for v in row.values.values()), row.values
    for figure in experiment.figures():
        for point in figure.points(rows):
            printed = point.get("paper") or str(point.get("series")).endswith(", paper")
            assert "row_ids" in point or point.get("failed") or printed
    assert isinstance(experiment.answer(rows), str)
    quick = [structs.replace(row, preset="quick") for row in rows]
    for claim in LEDGER:
        assert isinstance(PAPER.checks[claim.id](claim, quick), Finding)
