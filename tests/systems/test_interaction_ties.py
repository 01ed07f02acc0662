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


def trained(events, dtype=torch.float64, **fields):
    task = tiny_task(model="dygnn", intervals=4, propagation=False, **fields)
    data = interaction_data(events, task)
    trainer = get_system("tgcn").open(task, data=data, dtype=dtype, scoring="t-batches")
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


def forget(trainer, share, monkeypatch):
    """Let a trainer's model lose a share of what waits for a vertex."""
    kind = type(trainer.model)
    refresh = kind.refresh

    def forgets(self, state, waiting):
        return refresh(self, state, replace(waiting, sum_s=(1 - share) * waiting.sum_s))

    monkeypatch.setattr(kind, "refresh", forgets)


def test_a_state_that_forgets_fails(events, monkeypatch):
    trainer = trained(events)
    forget(trainer, 0.5, monkeypatch)
    found = check_now(trainer, "here", last=False)
    assert not all(check.passed for check in found)


@pytest.mark.parametrize(("share", "passes"), [(0, True), (1e-2, False)])
def test_results_in_float32_may_be_off_as_far_as_they_round(events, share, passes, monkeypatch):
    """Where terms cancel the usual tolerance is too narrow; here it is for every result."""
    trainer = trained(events, torch.float32)
    monkeypatch.setattr(interaction_checks, "ROUNDING", 1e-12)
    forget(trainer, share, monkeypatch)
    checks = {check.of: check for check in check_now(trainer, "here", last=False)}
    assert [checks[of].passed for of in ("outputs", "gradients")] == [passes] * 2
    assert all(checks[of].tolerance <= 1e-3 for of in ("outputs", "gradients"))
