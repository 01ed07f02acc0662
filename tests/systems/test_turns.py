"""Turns inside one process: timelines and their settings, times by part, and a checked truth."""

from __future__ import annotations

import pytest
from tiny_data import tiny_sequence

from dgbench.runtime.errors import UnsupportedError
from dgbench.systems.base import RunContext, race
from dgbench.systems.base.race import oracle_of
from dgbench.systems.base.timeline import TimelineWorkload
from dgbench.systems.base.turns import RaceContender, opened, turns_of
from dgbench.systems.base.workload import Workload
from dgbench.systems.esdg import system as esdg_system

CONTEXT = RunContext("cpu", "smoke", 1)
BASE = RaceContender("esdg", {"difference": False, "arena": True}, {"nb": 2})
GD = RaceContender("esdg", {"arena": True}, {"nb": 3})


@pytest.fixture
def task(monkeypatch) -> TimelineWorkload:
    data = tiny_sequence(features=2)
    for where in (race, esdg_system):
        monkeypatch.setattr(where, "load_timeline", lambda workload: data)
    return TimelineWorkload(dataset="tiny", model="cd_gcn")


def test_settings_of_a_timeline_take_turns(task):
    oracle = oracle_of(task, CONTEXT)
    with opened({"base": BASE, "gd": GD}, task, CONTEXT, timing=True) as trainers:
        assert [len(t.blocks) for t in trainers.values()] == [2, 3]
        found = turns_of(trainers, 3, 0.0)
        assert all(check.passed for check in oracle.settings(trainers, first=True))
        sent = {name: trainer.epoch_bytes() for name, trainer in trainers.items()}
    assert found.sent == sent
    for name in ("base", "gd"):
        assert len(found.seconds[name]) == 3
        for part in ("transfer", "update", "copy_busy"):
            assert len(found.parts[name][part]) == 3
            assert all(s >= 0 for s in found.parts[name][part])
        phases = zip(found.seconds[name], found.parts[name]["transfer"], strict=True)
        assert all(whole > part for whole, part in phases)


def test_another_answer_is_no_result(task, monkeypatch):
    oracle = oracle_of(task, CONTEXT)
    with opened({"base": BASE, "gd": GD}, task, CONTEXT) as trainers:
        kind = type(trainers["gd"])
        right = kind.evaluate
        turns_of(trainers, 1, 0.0)
        assert all(check.passed for check in oracle.settings(trainers, first=True))
        monkeypatch.setattr(kind, "evaluate", lambda self, *frame: 1.5 * right(self, *frame))
        (outputs, gradients, _) = oracle.settings({"gd": trainers["gd"]}, first=True)
        assert not outputs.passed
        assert gradients.passed
        assert "gd" in outputs.part


def test_a_system_that_cannot_train_this_says_why():
    frames = Workload(dataset="covid19-england", model="evolvegcn")
    with (
        pytest.raises(UnsupportedError, match="whole timeline"),
        opened({"e": GD}, frames, CONTEXT),
    ):
        pass
