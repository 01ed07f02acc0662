"""DySAT by the steps that its attention sees."""

from __future__ import annotations

import pytest
from dgc_rows import kept
from dgc_tiny import random_sequence

from dgbench.harness.store.row import Row
from dgbench.systems.base import Measurement, RunContext
from dgbench.systems.base.plain_sequences import PlainSequences
from dgbench.systems.dgc.experiments import steps_seen
from dgbench.systems.dgc.experiments.steps_seen import ALL, EARLIER, StepsSeen

DATA = random_sequence(30, 7, 60, 3)


@pytest.fixture
def experiment(monkeypatch) -> StepsSeen:
    monkeypatch.setattr(steps_seen, "load_sequences", lambda task: DATA)
    return StepsSeen()


def test_both_readings_are_trained_and_compared(monkeypatch, experiment):
    asked = []
    init = PlainSequences.__init__

    def noted(self, task, *args, **fields):
        asked.append(task.causal)
        init(self, task, *args, **fields)

    monkeypatch.setattr(PlainSequences, "__init__", noted)
    (cell,) = experiment.cells("smoke", "cpu")
    found = experiment.run(cell, RunContext("cpu", "smoke", 1))
    assert set(asked) == {False, True}
    assert found.checks
    assert all(check.passed for check in found.checks)
    assert {c.of for c in found.checks} >= {"outputs", "gradients", "losses"}
    accuracy = {o.dims["setting"]: o.value for o in found.observations if o.metric == "accuracy"}
    assert set(accuracy) == {ALL, EARLIER}
    row = kept(found, "steps_seen", cell.params)
    points = [point for figure in experiment.figures() for point in figure.points([row])]
    assert {point["series"]: point["y"] for point in points} == accuracy


def learned(seed: int, everything: float, earlier: float) -> Row:
    found = Measurement(data={"dataset": "wikipedia", "twin": False})
    found.observe("accuracy", everything, setting=ALL)
    found.observe("accuracy", earlier, setting=EARLIER)
    return kept(found, "steps_seen", {"dataset": "wikipedia", "seed": seed})


def test_a_gain_is_paired_by_seed():
    rows = [learned(1, 0.75, 0.5), learned(2, 0.5, 0.625)]
    assert steps_seen.gains_on(rows, "wikipedia") == [0.25, -0.125]
    assert "6.2 points" in StepsSeen().answer(rows)
    assert StepsSeen().answer([]) == ""
