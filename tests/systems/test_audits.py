"""Audits: steps, batches and epochs that are taken again, and counters that are recounted.

In `tests/cheats` trainers and ranks that cheat lose their rows, and honest ones keep theirs.
"""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
from dgc_tiny import random_sequence
from dgc_tiny import tiny_workload as tiny_sequences
from stream_tiny import tiny_stream, tiny_task
from tiny_data import entries_of, serve, tiny_sequence, tiny_workload

from dgbench.runtime.errors import UnsupportedError
from dgbench.runtime.schedule import DrawnRounds, DrawnSteps
from dgbench.systems.base import get_system
from dgbench.systems.base.audit import (
    COUNTED,
    StepAudit,
    TrainingState,
    adam_update,
    clear_entries,
    numbers_left,
)
from dgbench.systems.base.oracle import AGAINST, Oracle
from dgbench.systems.base.plain_sequences import PlainSequences
from dgbench.systems.base.plain_stream import PlainStream
from dgbench.systems.base.rank_audit import RankAudit, audited_epochs
from dgbench.systems.base.recount import recounted
from dgbench.systems.base.stream import StreamTrainer
from dgbench.systems.base.stream_audit import BatchAudit, BatchOracle
from dgbench.systems.gnnflow.rounds import Continuous, rounds_by_count

FRAMES = tiny_sequence(nodes=15, edges=50, snapshots=9)


@pytest.fixture
def frames(monkeypatch, tmp_path):
    monkeypatch.setenv("DGBENCH_CACHE", str(tmp_path))
    serve(monkeypatch, FRAMES)


@pytest.fixture
def trainer(frames):
    return get_system("reference").open(tiny_workload(), device="cpu")


@pytest.mark.parametrize("seed", range(5))
def test_steps_and_rounds_are_drawn_ever_further_apart(seed) -> None:
    schedule = DrawnSteps(3, seed=seed)
    drawn = [step for step in range(1000) if step in schedule]
    assert drawn[0] in (3, 4)
    assert all(b - a <= 1 + a // 2 + 1 for a, b in pairwise(drawn))
    assert 8 <= len(drawn) <= 60
    rounds = DrawnRounds(1, seed=seed)
    drawn = [number for number in range(1000) if number in rounds]
    assert drawn[0] == 1
    assert 2 <= len(drawn) <= 25
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


def test_states_are_copied_around_drawn_steps_and_parameters_moved_once(
    trainer, monkeypatch
) -> None:
    """Without a call of the trainer after the first answer."""
    audit, called = StepAudit(trainer, 3), list[str]()
    for number in range(12):
        audit.between(number)
        trainer.step(number % trainer.num_frames)
        if number == 1:
            for name in ("state", "evaluate", "gradients", "trained", "shared", "moments"):
                monkeypatch.setattr(trainer, name, lambda *_, name=name: called.append(name))
    assert called == []
    audit.finish(12)
    assert len(audit.steps) >= 2
    assert [step.moved for step in audit.steps] == [True] + [False] * (len(audit.steps) - 1)
    for step in audit.steps:
        assert step.before.updates == dict.fromkeys(step.before.parameters, step.number)
        assert step.after.updates == dict.fromkeys(step.before.parameters, step.number + 1)


def test_an_audit_without_a_step_says_so(trainer) -> None:
    audit = StepAudit(trainer, 3, name="Other")
    audit.between(0)
    with pytest.raises(UnsupportedError, match="moments"):
        audit.between(1)  # no step was taken, so there is no optimiser yet


def test_weights_of_ages_do_not_hide_the_updates_of_others() -> None:
    """Their gradients and moments are as large as ages: beside them all others look like none."""
    gradients = {"time.weight": torch.tensor([3e6]), "merge.weight": torch.tensor([1.0, 1e-9])}
    zeros = {name: torch.zeros_like(one) for name, one in gradients.items()}
    first = zeros | {"time.weight": torch.tensor([1e7])}
    before = TrainingState(zeros, first, zeros, {})
    clear = clear_entries(gradients, before)
    assert {name: one.tolist() for name, one in clear.items()} == {
        "time.weight": [True], "merge.weight": [True, False],
    }  # fmt: skip
    left = numbers_left(before, TrainingState(gradients, first, zeros, {}), clear)
    assert left["updates"]["merge.weight"].tolist() == [1.0, 0.0]


def audited(task, *, kind=StreamTrainer, seed=None, again=True):
    """Losses of rounds of a trainer, its audit and the checks of it."""
    data = tiny_stream(task)
    trainer = kind(task, data, PlainStream(task, data))
    access, drawn = PlainStream(task, data), DrawnRounds(1, seed=seed)
    audit = BatchAudit(trainer, task, data, access, epochs=2, rounds=drawn)
    rounds = rounds_by_count(60, 3, initial=0.3)
    stream = Continuous(trainer, rounds, epochs=2, evaluate=False, audit=audit)
    stream.begin()
    losses = [one.losses for one in stream.play_all()]
    exact = StreamTrainer(task, data, PlainStream(task, data), dtype=torch.float64)
    return losses, audit, audit.checks("this one", BatchOracle(task, data, exact), again=again)


@pytest.mark.parametrize(
    "fields", [{}, {"model": "tgat"}, {"model": "dysat"}, {"chunks": 5}, {"strict_time": False},
               {"edge_dim": 0}],
)  # fmt: skip
def test_batches_in_a_row_are_those_that_the_oracle_takes(fields) -> None:
    task = tiny_task(**fields)
    _, audit, checks = audited(task)
    assert all(check.passed for check in checks)
    first, second = (one.number for one in audit.batches[:2])
    assert first[0] == second[0] == 1
    assert second in {(1, first[1], first[2] + 1), (1, first[1] + 1, 0)}
    assert {check.of for check in checks} == {
        "batches", COUNTED, "losses", "updates", "moments"
    } | ({"memories"} if task.model == "tgn" else set())  # fmt: skip


def test_an_audit_changes_no_loss_and_a_later_process_holds_batches_against_adam_alone() -> None:
    task = tiny_task()
    data = tiny_stream(task)
    plain = StreamTrainer(task, data, PlainStream(task, data))
    stream = Continuous(plain, rounds_by_count(60, 3, initial=0.3), epochs=2, evaluate=False)
    stream.begin()
    losses, _, checks = audited(task)
    assert [one.losses for one in stream.play_all()] == losses
    retaken = {check.part.split(" of ")[0] for check in checks if check.against == AGAINST}
    assert len({part.split(",")[3] for part in retaken}) == 1  # one batch of two
    checks = audited(task, again=False)[2]
    assert [check.of for check in checks] == ["batches", COUNTED, "updates", "moments"]
    assert all(check.passed for check in checks)


@pytest.mark.parametrize(
    ("spoilt", "of"), [("", ""), ("parameters", "updates"), ("first", "moments"),
                       ("second", "moments")],
)  # fmt: skip
def test_a_state_that_adam_did_not_make_fails(spoilt, of) -> None:
    task, data = tiny_sequences(hidden_dim=8), random_sequence(30, 7, 60, 8)
    audit, trainer = RankAudit(SimpleNamespace(rank=0), 3, 2), PlainSequences(task, data)
    audit.open("plain", trainer)
    losses = []
    for epoch in range(8):
        losses.append(trainer.train_epoch())
        audit.after("plain", epoch + 1)
    copies = audit.epochs
    for step in copies["plain"].steps if spoilt else ():
        getattr(step.after, spoilt).update(getattr(step.before, spoilt))
    oracle = Oracle(lambda dtype: PlainSequences(task, data, dtype=dtype), task)
    stale = ["plain"] if spoilt else []  # held against Adam alone
    checks = audited_epochs(copies, {"plain": losses}, oracle, first=True, stale=stale)
    failed = {check.of for check in checks if not check.passed}
    assert of in failed if of else not failed


def edges(times) -> int:
    """Different edges of snapshots, one by one."""
    return len({entry for t in times for entry in entries_of(FRAMES.topology[t])})


def recounts(task, counters, before=None):
    return recounted(task, FRAMES, counters, before or {}, range(1, 4), 5, system="mine")


def test_what_is_counted_is_in_the_graphs() -> None:
    task = tiny_workload(model="mpnn_lstm")
    frames = [range(i, i + task.frame) for i in range(4)]
    above = sum(edges(times) for times in frames[1:])
    first = edges(range(3 + task.frame)) + edges(frames[0])
    for short in (0, 1):
        (check,) = recounts(task, {"edges_aggregated": above - short}, {"edges_aggregated": 10**6})
        assert check.passed == (not short)
        (check,) = recounts(task, {"edges_aggregated": above}, {"edges_aggregated": first - short})
        assert check.passed == (not short)
        reused = {"reused_aggregations": 3 * task.frame + short}
        assert recounts(tiny_workload(), reused)[0].passed == (not short)
    assert not recounts(tiny_workload(model="tgcn_model"), {"edges_aggregated": -7})[0].passed
    assert recounts(tiny_workload(), {"something": 1}) == []  # nobody counted it
    assert recounts("another task", {"edges_aggregated": 1}) == []
