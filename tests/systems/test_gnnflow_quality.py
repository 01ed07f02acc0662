"""Whole trainings beside predictors that train nothing: rows, verdicts, figure and estimate."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from gnnflow_rows import row as row_of
from stream_tiny import tiny_events

from dgbench import datasets
from dgbench.harness.plan.plan import Plan
from dgbench.harness.terminal.planning import plan_head
from dgbench.lab.paper import Paper
from dgbench.lab.quality import MIN_SEEDS, TITLES
from dgbench.lab.quality_study import CONTINUED
from dgbench.lab.result_checks import ResultCheck
from dgbench.lab.table import observation
from dgbench.lab.time_to_quality import PROCESSOR
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.base import Measurement, RunContext, get_paper, link_baseline_checks
from dgbench.systems.gnnflow.experiments import quality as experiment

HOURLY = 3600.0


@pytest.fixture
def tiny_messages(monkeypatch):
    events = tiny_events(3600, 20)
    stream = replace(events, t=events.t * HOURLY)
    monkeypatch.setattr(datasets, "open_events", lambda *_: stream)


def test_cells_of_the_smoke_preset(tiny_messages):
    study = experiment.StreamQuality()
    rows = []
    for cell in study.cells("smoke", "cpu"):
        found = study.run(cell, RunContext("cpu", "smoke", 1))
        assert found.checks
        assert [check.words for check in found.checks if not check.passed] == []
        assert all(math.isfinite(one.value) for one in found.observations)
        rows.append(row_of("quality", cell.params, found))
    untrained, *trained = rows
    methods = {one.dims.get("method") for one in untrained.observations} - {None}
    assert methods == {name for name in TITLES if name not in ("last_value", "historical_mean")}
    assert [row.params["model"] for row in trained] == list(experiment.SIZES["smoke"].epochs)
    points = study.figures()[0].points(rows)
    twice = [point for point in points if point["series"].startswith("tested")]
    assert len(points) == len(methods) + len(trained) + len(twice)
    assert len(twice) == 4
    assert not any("below" in point for point in points)  # one seed says nothing
    assert "the best dictionary" in study.answer(rows)
    assert "below" not in study.answer(rows)
    # Networks that remember, trained in whole epochs, have two tests.
    twice = {
        row.params["model"]
        for row in trained
        if any(one.dims.get("of") == CONTINUED for one in row.observations)
    }
    assert twice == {"tgn", "tgn_pyg", "tgn_chunks", "tgn_1000"}


def test_a_test_that_goes_on_from_training_stands_beside():
    study, rows = experiment.StreamQuality(), scored(0.04, 0.36)
    for row in rows[:-1]:
        row.observations.append(observation("mrr", 0.2, of=CONTINUED))
    assert "(0.200" in study.answer(rows)
    assert study.scores(rows, "enron", "tgn")[1] == pytest.approx(0.041)


def scored(mean: float, dictionary: float) -> list:
    trained = [
        row_of(
            "quality",
            {"dataset": "enron", "part": "trained", "model": "tgn", "seed": seed},
            [observation("mrr", mean + 0.001 * seed)],
        )
        for seed in range(1, MIN_SEEDS + 1)
    ]
    plain = row_of(
        "quality", {"dataset": "enron", "part": "untrained"},
        [observation("mrr", dictionary, method="local_recency")],
    )  # fmt: skip
    return [*trained, plain]


@pytest.mark.parametrize(("mean", "below"), [(0.04, True), (0.6, False)])
def test_a_model_below_the_dictionary_is_hollow_and_said_to_be(mean, below):
    study, rows = experiment.StreamQuality(), scored(mean, 0.36)
    drawn = [p for p in study.figures()[0].points(rows) if p["series"] == "trained"]
    assert ["below" in point for point in drawn] == [below]
    words = "the best dictionary 0.360 (most recent partners)"
    assert study.answer(rows).endswith(words + (": below the dictionary." if below else "."))
    assert study.quality_of(rows, "enron", "tgn").below == below
    assert study.quality_of(rows[1:], "enron", "tgn") is None


def test_rows_that_failed_are_gaps():
    study = experiment.StreamQuality()
    for params in study.points("smoke", "cpu"):
        bad = row_of("quality", params, status="time", reason="60 s")
        (point,) = study.figures()[0].points([bad])
        assert point["failed"] == "time: 60 s"
        assert study.answer([bad]) == ""


def test_the_check_finds_a_rank_that_is_wrong(tiny_messages, monkeypatch):
    study = experiment.StreamQuality()
    cell = study.cells("smoke", "cpu")[0]
    plain = link_baseline_checks._plain_ranks

    def spoiled(*given) -> dict[str, float]:
        found = plain(*given)
        return {**found, "local_recency": found["local_recency"] + 0.5}

    monkeypatch.setattr(link_baseline_checks, "_plain_ranks", spoiled)
    found: Measurement = study.run(cell, RunContext("cpu", "smoke", 1))
    check: ResultCheck = found.checks[0]
    assert not check.passed


def test_a_plan_states_its_hours_before_anything_ran():
    paper: Paper = get_paper("gnnflow")
    plan = Plan.build([paper], None, "quality", "cpu")
    assert {planned.cell.experiment for planned in plan.cells} == {"quality"}
    size = experiment.WHOLE
    assert len(plan.cells) == len(size.datasets) + MIN_SEEDS * len(size.trainings)
    assert plan.seconds > 4 * 3600
    assert all(planned.stated for planned in plan.cells)
    assert f"{plan.seconds / 3600:.1f} h" in plan_head(plan, [paper])


@pytest.mark.parametrize(("mean", "word"), [(0.5, "worse"), (0.7, "better")])
def test_rounds_are_judged_beside_whole_trainings(mean, word):
    study, whole = experiment.StreamQuality(), scored(0.6, 0.3)
    rounds = [
        row_of(
            "quality",
            {"dataset": "enron", "part": "trained", "model": "tgn_rounds", "seed": seed},
            [observation("mrr", mean + 0.0011 * seed)],
        )
        for seed in range(1, MIN_SEEDS + 1)
    ]
    rows = [*whole, *rounds]
    assert study.quality_of(rows, "enron", "tgn_rounds").word == word
    assert f"{word} by 0.100" in study.answer(rows)
    assert study.quality_of(rows, "enron", "tgn").reference is None


def test_all_trainings_of_the_preset_fit_into_six_hours_of_two_cores():
    papers = [get_paper(name) for name in ("gnnflow", "pipad", "tgcn")]
    plan = Plan.build(papers, None, "quality", "cpu")
    assert {planned.cell.paper for planned in plan.cells} == {paper.name for paper in papers}
    assert plan.seconds < 2 * 6 * 3600


def test_an_experiment_without_the_preset_is_named():
    with pytest.raises(InvalidInputError, match="preset 'quality'"):
        Plan.build([get_paper("gnnflow")], ["gnnflow/fig10"], "quality", "cpu")
    plan = Plan.build([get_paper("gnnflow")], ["fig10", "gnnflow/quality"], "quality", "cpu")
    assert plan.problems == ["gnnflow/fig10 has no preset 'quality'"]
    assert {planned.cell.experiment for planned in plan.cells} == {"quality"}


def with_epochs(model: str, seconds: float, scores: list[float], mrr: float) -> list:
    """Five seeds of a training whose epochs take so long and score so on validation."""
    observed = [observation("mrr", mrr)]
    for epoch, score in enumerate(scores):
        observed += [
            observation("epoch_time", seconds, epoch=epoch, clock=PROCESSOR),
            observation("mrr", score, epoch=epoch, of="validation"),
        ]
    params = {"dataset": "enron", "part": "trained", "model": model}
    return [
        row_of("quality", {**params, "seed": seed}, observed) for seed in range(1, MIN_SEEDS + 1)
    ]


def test_rate_and_time_to_quality_come_from_the_epochs():
    study = experiment.StreamQuality()
    whole = with_epochs("tgn", 20.0, [0.1, 0.3], 0.25)
    large = with_epochs("tgn_1000", 5.0, [0.1, 0.1, 0.3, 0.2], 0.24)
    never = with_epochs("tgn_10000", 1.0, [0.1, 0.1], 0.05)
    rows = [*whole, *large, *never, scored(0.4, 0.36)[-1]]
    assert study._scores(rows, dataset="enron", model="tgn") == dict.fromkeys(range(1, 6), 0.25)
    answer = study.answer(rows)
    fast, slow = (study.quality_of(rows, "enron", name).time for name in ("tgn_1000", "tgn_10000"))
    assert (fast.target, fast.seconds, fast.reference, fast.reached) == (0.3, 15.0, 40.0, 5)
    assert (slow.gain, slow.reached) == (None, 0)
    assert all(str(time) in answer for time in (fast, slow))
    spec = study.figures()[1]
    points = {point["series"]: point for point in spec.points(rows)}
    events = study.epoch_work("enron")
    assert points["TGN"]["x"] == pytest.approx(events / 20, rel=0.05)
    assert points["TGN in batches of 1,000"]["x"] == pytest.approx(events / 5, rel=0.05)
    assert all("below" in points[name] for name in ("TGN", "TGN in batches of 10,000"))
    line = [p for p in spec.points(rows) if p["series"].startswith("no training")]
    assert [p["y"] for p in line] == [0.36, 0.36]
    assert {p["x"] for p in line} == {points["TGN"]["x"], points["TGN in batches of 10,000"]["x"]}
    assert spec.points(rows[-1:]) == []  # nothing was trained
