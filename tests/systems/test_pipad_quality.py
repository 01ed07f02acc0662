"""Whole trainings on snapshots beside predictors that train nothing: rows, race, causality."""

from __future__ import annotations

import math

import pytest
import torch
from pipad_rows import made, observation

from dgbench.harness.plan.plan import Plan
from dgbench.lab.quality import MIN_SEEDS
from dgbench.systems.base import RunContext, get_paper
from dgbench.systems.base.data import load
from dgbench.systems.pipad.experiments import quality as experiment
from dgbench.systems.pipad.experiments.main_races import TRAINING

WHERE = {"dataset": "covid19-england", "model": "tgcn_model"}


def test_cells_of_the_smoke_preset():
    study = experiment.SnapshotQuality()
    rows = []
    for cell in study.cells("smoke", "cpu"):
        found = study.run(cell, RunContext("cpu", "smoke", 1))
        assert found.checks
        assert all(check.passed for check in found.checks)
        assert all(math.isfinite(one.value) for one in found.observations)
        rows.append(made("quality", cell.params, found.observations))
    assert [row.params.get("model") for row in rows] == [None, *experiment.MODELS]
    assert len(study.figures()[0].points(rows)) == 2 + len(experiment.MODELS)
    assert study.answer(rows).startswith("Mean squared errors: EvolveGCN on Covid19-England")


def test_the_baselines_predict_the_snapshots_that_the_models_predict():
    study = experiment.SnapshotQuality()
    cell = study.cells("smoke", "cpu")[0]
    found = study.run(cell, RunContext("cpu", "smoke", 1))
    data = load(experiment._task(cell.params))
    frames = len(data) - 16
    test = range(16 + round(0.85 * frames), len(data))  # what the last frames predict
    wanted = [float((data.targets[s] - data.targets[s - 1]).square().mean()) for s in test]
    (error,) = (
        one.value
        for one in found.observations
        if (one.metric, one.dims["method"]) == ("mean_squared_error", "last_value")
    )
    assert error == pytest.approx(sum(wanted) / len(wanted))


class _Recorder:
    """Trainer whose output on frame i is i, and whose head reads the first column."""

    num_frames, device = 10, torch.device("cpu")

    def __init__(self, frame: int) -> None:
        self.workload = type("Frames", (), {"frame": frame})
        self.model = type("Model", (), {"head": staticmethod(lambda hidden: hidden[:, 0])})

    def evaluate(self, number: int) -> torch.Tensor:
        return torch.full((2, 1), float(number))


def test_a_frame_is_scored_on_the_snapshot_after_it():
    trainer = _Recorder(frame=3)
    data = type("Data", (), {"targets": torch.arange(13.0).unsqueeze(1).expand(13, 2)})
    assert experiment._errors(trainer, data, 4, 10).absolute == 3.0


def scored(mean: float, last_value: float) -> list:
    trained = [
        made(
            "quality", {**WHERE, "part": "trained", "seed": seed},
            [observation("mean_squared_error", mean + 0.001 * seed)],
        )
        for seed in range(1, MIN_SEEDS + 1)
    ]  # fmt: skip
    plain = made(
        "quality", {"dataset": WHERE["dataset"], "part": "untrained"},
        [
            observation("mean_squared_error", last_value, method="last_value"),
            observation("mean_squared_error", 2.0, method="historical_mean"),
        ],
    )  # fmt: skip
    return [*trained, plain]


@pytest.mark.parametrize(("mean", "below"), [(0.6, True), (0.1, False)])
def test_the_race_reads_the_errors_of_whole_trainings(mean, below):
    study, rows = experiment.SnapshotQuality(), scored(mean, 0.3)
    (judged,) = {comparison.quality for comparison in TRAINING.comparisons if comparison.quality}
    found = judged(rows, WHERE)
    assert (found.below, found.method, found.method_score) == (below, "last_value", 0.3)
    assert judged(rows[1:], WHERE) is None
    assert judged(rows, {**WHERE, "model": "mpnn_lstm"}) is None
    drawn = [point for point in study.figures()[0].points(rows) if point["series"] == "trained"]
    assert ["below" in point for point in drawn] == [below]
    (point,) = drawn  # five seeds
    assert point["low"] <= point["y"] <= point["high"]
    assert ("below the dictionary" in study.answer(rows)) == below


def test_plans_state_their_time():
    paper = get_paper("pipad")
    whole = Plan.build([paper], ["pipad/quality"], "paper", "cpu")
    assert len(whole.cells) == 5 * (1 + 3 * MIN_SEEDS)
    assert 1.5 * 3600 < whole.seconds < 3 * 3600
    quick = Plan.build([paper], ["pipad/quality"], "quick", "cpu")
    assert {planned.cell.params["part"] for planned in quick.cells} == {"untrained"}
