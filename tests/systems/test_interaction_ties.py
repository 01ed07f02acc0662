"""Checks of t-batches where many events have one time, which none of them may change."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from interactions_tiny import tiny_interactions, tiny_task

from dgbench.systems.base import get_system, interaction_checks
from dgbench.systems.base.interaction_checks import EVENTS, check_now
from dgbench.systems.base.interactions import interaction_data


@pytest.fixture(params=[1, 3, 60], ids=lambda each: f"{each} of a time")
def events(request):
    stream = tiny_interactions()
    places = torch.arange(len(stream)).div(request.param, rounding_mode="floor")
    return replace(stream, t=100.0 + places.double())


def trained(events, **fields):
    task = tiny_task(model="dygnn", intervals=4, propagation=False, **fields)
    data = interaction_data(events, task)
    trainer = get_system("tgcn").open(task, data=data, dtype=torch.float64, scoring="t-batches")
    trainer.prepare()
    trainer.reset_state()
    trainer.train(0, 30)
    return trainer


@pytest.mark.parametrize("strict", [True, False])
def test_a_sound_trainer_passes_at_every_place(events, strict, monkeypatch):
    trainer = trained(events, strict_time=strict)
    for first in range(0, trainer.data.train_end - EVENTS):
        with monkeypatch.context() as patched:
            patched.setattr(
                interaction_checks.random.SystemRandom, "randint", lambda *_, at=first: at
            )
            found = check_now(trainer, "here", last=False)
        assert [check for check in found if not check.passed] == []


def test_a_state_that_forgets_fails(events, monkeypatch):
    trainer = trained(events)
    kind = type(trainer.model)
    refresh = kind.refresh

    def forgets(self, state, waiting):
        return refresh(self, state, replace(waiting, sum_s=0.5 * waiting.sum_s))

    monkeypatch.setattr(kind, "refresh", forgets)
    found = check_now(trainer, "here", last=False)
    assert not all(check.passed for check in found)
