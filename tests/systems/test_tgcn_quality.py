"""Relaxed order and sampled edges beside the strict order: rows, verdicts, estimates."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from stream_tiny import tiny_events
from tgcn_rows import made, observation

from dgbench import datasets
from dgbench.harness.plan.plan import Plan
from dgbench.lab.quality import MIN_SEEDS
from dgbench.lab.quality_study import CONTINUED
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.base import RunContext, get_paper
from dgbench.systems.tgcn.experiments import quality as experiment
from dgbench.systems.tgcn.experiments.fig6 import RACE

HOURLY = 3600.0


@pytest.fixture
def tiny_messages(monkeypatch):
    events = tiny_events(300, 20)
    threes = torch.arange(300).div(3, rounding_mode="floor")  # events of one time, too
    stream = replace(events, t=threes.double() * HOURLY)
    monkeypatch.setattr(datasets, "open_events", lambda *_: stream)
    return stream


def test_cells_of_the_smoke_preset(tiny_messages):
    study = experiment.InteractionQuality()
    rows = []
    for cell in study.cells("smoke", "cpu"):
        found = study.run(cell, RunContext("cpu", "smoke", 1))
        assert found.checks
        assert [check for check in found.checks if not check.passed] == []
        assert all(math.isfinite(one.value) for one in found.observations)
        tests = {one.dims.get("of") for one in found.observations if one.metric == "mrr"}
        assert (CONTINUED in tests) == (cell.params["part"] == "trained")
        rows.append(made("quality", cell.params, found.observations))
    assert [row.params.get("model") for row in rows] == [None, *experiment.CONTENDERS]
    answer = study.answer(rows)
    assert "T-GCN on CollegeMsg reaches" in answer
    assert "beside DyGNN" not in answer  # one seed says nothing


def test_contenders_are_scored_on_the_same_events(tiny_messages):
    size = experiment.SIZES["smoke"]
    for model in experiment.CONTENDERS:
        task, data = experiment._data("college-msg", model, 1, size)
        assert (data.train_end, data.validate_end) == (210, 255)
        assert torch.equal(data.events.t, tiny_messages.t)
        assert task.batch == experiment.BATCH


def scored(relaxed: float, strict: float, dictionary: float) -> list:
    def of(model: str, mean: float) -> list:
        return [
            made(
                "quality",
                {"dataset": "enron", "part": "trained", "model": model, "seed": seed},
                [observation("mrr", mean + 0.001 * seed + 1e-5 * seed * (model == "tgcn"))],
            )
            for seed in range(1, MIN_SEEDS + 1)
        ]

    plain = made(
        "quality", {"dataset": "enron", "part": "untrained"},
        [observation("mrr", dictionary, method="local_recency")],
    )  # fmt: skip
    return [*of("tgcn", relaxed), *of("dygnn", strict), plain]


@pytest.mark.parametrize(
    ("relaxed", "dictionary", "word"),
    [(0.2, 0.1, "worse"), (0.5, 0.1, "better"), (0.2, 0.9, "below the dictionary")],
)
def test_the_relaxed_order_is_judged_beside_the_strict_one(relaxed, dictionary, word):
    study, rows = experiment.InteractionQuality(), scored(relaxed, 0.4, dictionary)
    found = study.quality_of(rows, "enron", "tgcn")
    assert found.word == word
    side = "better" if relaxed > 0.4 else "worse"
    assert found.against_reference.startswith(f"{side} by ")
    assert f"{side} by" in study.answer(rows)
    judged = [one.quality for one in RACE.comparisons if one.quality]
    assert {read(rows, {"dataset": "enron"}).word for read in judged} == {word}
    strict = study.quality_of(rows, "enron", "dygnn")
    assert strict.reference is None


def test_plans_state_their_time():
    paper = get_paper("tgcn")
    whole = Plan.build([paper], ["tgcn/quality"], "paper", "cpu")
    size = experiment.WHOLE
    assert len(whole.cells) == len(size.datasets) + MIN_SEEDS * len(size.trainings)
    assert 1 * 3600 < whole.seconds < 4 * 3600
    with pytest.raises(InvalidInputError, match="quick"):
        Plan.build([paper], ["tgcn/quality"], "quick", "cpu")
