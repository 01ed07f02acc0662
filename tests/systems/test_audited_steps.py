"""Audited steps: what is drawn, what is expected of a step, and which trainers can be audited."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from tiny_data import serve, tiny_sequence, tiny_workload

from dgbench.runtime.errors import UnsupportedError
from dgbench.runtime.schedule import DrawnSteps
from dgbench.systems.base import audit as audit_module
from dgbench.systems.base import get_system
from dgbench.systems.base.audit import MOVE, StepAudit, adam_update
from dgbench.systems.base.system import Trainer


@pytest.fixture
def trainer(monkeypatch):
    serve(monkeypatch, tiny_sequence(nodes=15, edges=50, snapshots=9))
    return get_system("reference").open(tiny_workload(), device="cpu")


def take(audit: StepAudit, trainer: Trainer, steps: int) -> None:
    for number in range(steps):
        audit.between(number)
        trainer.step(number % trainer.num_frames)
    audit.finish(steps)


@pytest.mark.parametrize("seed", range(5))
def test_steps_are_drawn_from_the_first_on_and_ever_further_apart(seed) -> None:
    schedule = DrawnSteps(3, seed=seed)
    drawn = [step for step in range(1000) if step in schedule]
    assert drawn[0] in (3, 4)
    assert all(b - a <= 1 + a // 2 + 1 for a, b in pairwise(drawn))
    assert 8 <= len(drawn) <= 60


def test_a_schedule_is_drawn_anew_in_every_process() -> None:
    assert len({DrawnSteps(3).seed for _ in range(8)}) == 8


@pytest.mark.parametrize("steps", [1, 7])
def test_an_update_is_that_of_torch(steps) -> None:
    value = torch.randn(4, 3, dtype=torch.float64)
    leaf = value.clone().requires_grad_()
    adam = torch.optim.Adam([leaf], lr=0.01)
    first = second = torch.zeros_like(value)
    for number in range(steps):
        leaf.grad = torch.randn_like(value)
        before = leaf.detach().clone()
        adam.step()
        moved, first, second = adam_update(before, leaf.grad, first, second, number, 0.01)
        torch.testing.assert_close(moved, leaf.detach() - before)
    torch.testing.assert_close(second, adam.state[leaf]["exp_avg_sq"])


def test_states_are_copied_around_drawn_steps_and_parameters_moved_once(trainer) -> None:
    audit = StepAudit(trainer, 3)
    take(audit, trainer, 12)
    numbers = [step.number for step in audit.steps]
    assert len(numbers) >= 2
    assert [step.moved for step in audit.steps] == [True] + [False] * (len(numbers) - 1)
    for step in audit.steps:
        assert step.before.updates == dict.fromkeys(step.before.parameters, step.number)
        assert step.after.updates == dict.fromkeys(step.before.parameters, step.number + 1)


def test_parameters_move_by_a_small_share(trainer) -> None:
    audit = StepAudit(trainer, 3)
    before = trainer.state()
    audit._move()
    gaps = [trainer.state()[name] / value - 1 for name, value in before.items() if value.all()]
    assert gaps
    assert all(0 < float(gap.abs().max()) <= MOVE * 1.001 for gap in gaps)


def test_a_trainer_is_not_called_while_it_is_audited(trainer, monkeypatch) -> None:
    audit = StepAudit(trainer, 3)
    audit.between(0)
    trainer.step(0)
    audit.between(1)
    called: list[str] = []
    for name in ("state", "evaluate", "gradients", "trained", "shared", "moments"):
        monkeypatch.setattr(trainer, name, lambda *_, name=name: called.append(name))
    for number in range(2, 12):
        audit.between(number)
    assert len(audit.steps) >= 2
    assert called == []


def test_a_trainer_without_moments_is_refused(trainer) -> None:
    audit = StepAudit(trainer, 3, name="Other")
    audit.between(0)
    with pytest.raises(
        UnsupportedError, match=r"steps of Other cannot be audited: .* `moments\(\)`"
    ):
        audit.between(1)  # no step was taken, so there is no optimiser yet


class _Clocks:
    """Clocks that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class _Lazy:
    """Answers that take `first` seconds, and a tenth where they are asked for again."""

    def __init__(self, clock: _Clocks, first: float) -> None:
        self.clock, self.first, self.asked = clock, first, 0

    def state(self) -> dict[str, Any]:
        self.asked += 1
        self.clock.now += self.first if self.asked % 2 else 0.1
        return {}


@pytest.mark.parametrize(("first", "share"), [(0.1, 0.0), (0.2, 0.1), (1.1, 1.0)])
def test_answers_that_do_deferred_work_are_told_by_both_clocks(monkeypatch, first, share) -> None:
    clock = _Clocks()
    monkeypatch.setattr(audit_module.time, "perf_counter", clock)
    answers, lazy = audit_module._Answers(clock), _Lazy(clock, first)
    for _ in range(5):
        answers.begin()
        clock.now += 1.0
        answers.end()
        answers.ask(lazy, twice=True)
    assert answers.deferred == (pytest.approx(share), 5)


def test_a_clock_of_the_wall_alone_accuses_nobody(monkeypatch) -> None:
    clock, busy = _Clocks(), _Clocks()
    monkeypatch.setattr(audit_module.time, "perf_counter", clock)
    answers, lazy = audit_module._Answers(busy), _Lazy(clock, 50.0)
    answers.begin()
    clock.now += 1.0
    busy.now += 1.0
    answers.end()
    answers.ask(lazy, twice=True)
    assert answers.deferred == (0.0, 1)
