"""Audited batches of streams and groups of interactions: what is drawn, copied and taken again."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from stream_tiny import tiny_stream, tiny_task

from dgbench.runtime.schedule import DrawnRounds
from dgbench.systems.base.audit import COUNTED, TrainingState, clear_entries, numbers_left
from dgbench.systems.base.oracle import AGAINST
from dgbench.systems.base.plain_stream import PlainStream
from dgbench.systems.base.stream import StreamTrainer
from dgbench.systems.base.stream_audit import BatchAudit, BatchOracle
from dgbench.systems.gnnflow.rounds import Continuous, rounds_by_count
from tests.cheats import interactions
from tests.cheats.interactions import HonestInteractions, UnwrittenState

EPOCHS = 2


def audited(task, *, kind=StreamTrainer, seed=None):
    """Rounds of a trainer, its audit and the checks of it."""
    data = tiny_stream(task)
    trainer = kind(task, data, PlainStream(task, data))
    audit = BatchAudit(
        trainer, task, data, PlainStream(task, data), epochs=EPOCHS,
        rounds=DrawnRounds(1, seed=seed),
    )  # fmt: skip
    rounds = rounds_by_count(60, 3, initial=0.3)
    stream = Continuous(trainer, rounds, epochs=EPOCHS, evaluate=False, audit=audit)
    stream.begin()
    played = stream.play_all()
    exact = StreamTrainer(task, data, PlainStream(task, data), dtype=torch.float64)
    return played, audit, audit.checks("this one", BatchOracle(task, data, exact))


@pytest.mark.parametrize("seed", range(4))
def test_the_first_round_is_drawn_and_later_ones_more_seldom(seed) -> None:
    rounds = DrawnRounds(1, seed=seed)
    drawn = [number for number in range(1000) if number in rounds]
    assert drawn[0] == 1
    assert 2 <= len(drawn) <= 25
    assert all(0 <= rounds.below(3) < 3 for _ in range(20))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("model", ["tgn", "tgat", "dysat"])
def test_batches_in_a_row_are_those_that_the_oracle_takes(model, seed) -> None:
    _, audit, checks = audited(tiny_task(model), seed=seed)
    assert not [check.words for check in checks if not check.passed]
    first, second = (one.number for one in audit.batches[:2])
    assert first[0] == second[0] == 1
    assert second in {(1, first[1], first[2] + 1), (1, first[1] + 1, 0)}
    named = {check.of for check in checks}
    assert named == {"batches", COUNTED, "losses", "updates", "moments"} | (
        {"memories"} if model == "tgn" else set()
    )


@pytest.mark.parametrize("fields", [{"chunks": 5}, {"strict_time": False}, {"edge_dim": 0}])
def test_other_workloads_pass(fields) -> None:
    assert not [c.words for c in audited(tiny_task(**fields))[2] if not c.passed]


def test_an_audit_changes_no_loss() -> None:
    task = tiny_task()
    data = tiny_stream(task)
    plain = StreamTrainer(task, data, PlainStream(task, data))
    stream = Continuous(plain, rounds_by_count(60, 3, initial=0.3), epochs=EPOCHS, evaluate=False)
    stream.begin()
    losses = [one.losses for one in stream.play_all()]
    assert [one.losses for one in audited(task)[0]] == losses


def test_a_later_process_holds_batches_against_adam_alone() -> None:
    task = tiny_task()
    _, audit, checks = audited(task)
    retaken = {check.part.split(" of ")[0] for check in checks if check.against == AGAINST}
    assert len({part.split(",")[3] for part in retaken}) == 1  # one batch of two
    data = tiny_stream(task)
    exact = StreamTrainer(task, data, PlainStream(task, data), dtype=torch.float64)
    checks = audit.checks("this one", BatchOracle(task, data, exact), again=False)
    assert [check.of for check in checks] == ["batches", COUNTED, "updates", "moments"]
    assert all(check.passed for check in checks)


class Hidden(StreamTrainer):
    """Tells nobody of its batches."""

    def train_on(self, events, *, epoch=0, watch=None):
        return super().train_on(events, epoch=epoch)


class Halves(StreamTrainer):
    """Tells of the first half of each batch."""

    def train_on(self, events, *, epoch=0, watch=None):
        return super().train_on(events[: len(events) // 2], epoch=epoch, watch=watch)


@pytest.mark.parametrize(("kind", "words"), [(Hidden, "0 of"), (Halves, "batch")])
def test_a_trainer_that_hides_batches_fails(kind, words) -> None:
    _, _, checks = audited(tiny_task(), kind=kind)
    (cut,) = (check for check in checks if check.of == "batches")
    assert not cut.passed
    assert words in f"{cut.words} {cut.part}"


@pytest.mark.parametrize(
    ("kind", "wrong"), [(HonestInteractions, set()), (UnwrittenState, {"states"})]
)
def test_audited_groups_of_interactions_are_taken_again(kind, wrong) -> None:
    found = interactions.raced(kind, SimpleNamespace(round=1, preset="smoke", device="cpu"))
    audit = [check for check in found.checks if "drawn by" in check.part]
    assert {check.of for check in audit} == {"events", "losses", "updates", "moments", "states"}
    assert {check.of for check in audit if not check.passed} == wrong


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
