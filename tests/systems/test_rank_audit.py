"""Audited epochs of ranks: which are copied, by whom, and what is held against them."""

from __future__ import annotations

import pickle
from types import SimpleNamespace

import pytest
from dgc_tiny import random_sequence, tiny_workload

from dgbench.systems.base import audit
from dgbench.systems.base.oracle import Oracle
from dgbench.systems.base.plain_sequences import PlainSequences
from dgbench.systems.base.rank_audit import HELD_BACK, AuditedEpochs, RankAudit, audited_epochs

TASK, DATA = tiny_workload(hidden_dim=8), random_sequence(30, 7, 60, 8)
EPOCHS = 8


def oracle() -> Oracle:
    return Oracle(lambda dtype: PlainSequences(TASK, DATA, dtype=dtype), TASK)


def trained(seed: int = 3, rank: int = 0, *, least: int = 2, cheat: int = -1):
    """Audit and losses of a trainer, which makes no update in one epoch."""
    audit, losses = RankAudit(SimpleNamespace(rank=rank), seed, 2, least=least), []
    trainer = PlainSequences(TASK, DATA)
    audit.open("plain", trainer)
    for epoch in range(EPOCHS):
        losses.append(trainer.accumulate() if epoch == cheat else trainer.train_epoch())
        audit.after("plain", epoch + 1)
    return audit.epochs, {"plain": losses}


@pytest.mark.parametrize("seed", range(4))
def test_epochs_that_count_are_copied_whole(seed) -> None:
    found = trained(seed)[0]["plain"]
    numbers = [step.number for step in found.steps]
    assert numbers[0] in (2, 3)
    assert numbers == sorted(set(numbers))
    assert found.seed == seed
    for step in pickle.loads(pickle.dumps(found)).steps:
        assert set(step.before.updates.values()) == {step.number}
        assert set(step.after.updates.values()) == {step.number + 1}


def test_the_only_epoch_that_counts_is_drawn() -> None:
    assert {trained(seed, least=1)[0]["plain"].steps[0].number for seed in range(4)} == {2}


def test_all_contenders_have_the_same_epochs() -> None:
    first, second = (trained(7)[0]["plain"].steps for _ in range(2))
    assert [step.number for step in first] == [step.number for step in second]


def test_other_ranks_copy_nothing() -> None:
    assert trained(rank=1)[0] == {}


@pytest.mark.parametrize("first", [True, False])
def test_an_honest_trainer_passes(monkeypatch, first) -> None:
    monkeypatch.setattr(audit, "LATER", 1.0)
    checks = audited_epochs(*trained(), oracle(), first=first)
    assert [check.words for check in checks if not check.passed] == []
    assert [check.of for check in checks] == [
        "updates so far", "updates", "moments", "losses", "updates", "moments",
    ]  # fmt: skip


def test_most_later_processes_take_no_epoch_again(monkeypatch) -> None:
    monkeypatch.setattr(audit, "LATER", 0.0)
    checks = audited_epochs(*trained(), oracle(), first=False)
    assert {check.against for check in checks}.isdisjoint({"float64 oracle"})
    assert len(checks) == 3


def test_two_of_the_trainers_are_taken_again() -> None:
    audits, losses = trained()
    names = ["a", "b", "c"]
    checks = audited_epochs(
        dict.fromkeys(names, audits["plain"]), dict.fromkeys(names, losses["plain"]), oracle(),
        first=True,
    )  # fmt: skip
    retaken = [check.system for check in checks if check.of == "losses"]
    assert len(set(retaken)) == len(retaken) == 2


def test_an_epoch_with_stale_rows_is_held_against_adam_alone() -> None:
    checks = audited_epochs(*trained(), oracle(), first=True, stale=["plain"])
    assert [check.of for check in checks] == ["updates so far", "updates", "moments"]
    assert checks[1].against == HELD_BACK
    assert all(check.passed for check in checks)


def test_an_update_that_is_left_out_shows_in_the_counters() -> None:
    checks = audited_epochs(*trained(cheat=2), oracle(), first=True, stale=["plain"])
    assert not checks[0].passed


@pytest.mark.parametrize(
    ("spoilt", "of"),
    [("parameters", "updates"), ("first", "moments"), ("second", "moments")],
)
def test_a_state_that_adam_did_not_make_is_found(spoilt, of) -> None:
    audits, losses = trained()
    for step in audits["plain"].steps:
        tensors = getattr(step.after, spoilt)
        for name, before in getattr(step.before, spoilt).items():
            tensors[name] = before
    wrong = {
        check.of
        for check in audited_epochs(audits, losses, oracle(), first=False, stale=["plain"])
        if not check.passed
    }
    assert of in wrong


def test_a_wrong_gradient_is_found_by_the_oracle_alone() -> None:
    _, losses = trained()
    other = PlainSequences(tiny_workload(hidden_dim=8, theta=0.5, seed=2), DATA)
    other.model.load_state_dict(PlainSequences(TASK, DATA).model.state_dict())
    audit = RankAudit(SimpleNamespace(rank=0), 3, 2)
    audit.open("plain", other)
    for epoch in range(EPOCHS):
        other.train_epoch()
        audit.after("plain", epoch + 1)
    checks = audited_epochs(audit.epochs, losses, oracle(), first=True)
    assert {check.against for check in checks if not check.passed} == {"float64 oracle"}


def test_a_run_without_an_audited_epoch_has_no_check() -> None:
    assert (
        audited_epochs({"plain": AuditedEpochs(1, [])}, {"plain": [1.0]}, oracle(), first=True)
        == []
    )
