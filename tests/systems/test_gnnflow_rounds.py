"""Rounds of continuous training, and the old events that they replay."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dgbench.runtime.errors import InvalidInputError
from dgbench.runtime.meter import Meter
from dgbench.systems.gnnflow.replay import Replay
from dgbench.systems.gnnflow.rounds import Continuous, Round, rounds_by_count, rounds_by_time

TIMES = st.lists(st.integers(0, 40), max_size=60).map(sorted)


@given(TIMES, st.integers(1, 15), st.sampled_from([0.0, 0.3, 0.9, 1.0]))
def test_rounds_by_time_are_whole_intervals_in_order(times, length, initial) -> None:
    t = torch.tensor(times, dtype=torch.float64)
    rounds = rounds_by_time(t, length, initial=initial)
    assert [one.number for one in rounds] == list(range(len(rounds)))
    interval = [(x - times[0]) // length for x in times]
    for one in rounds:
        assert one.events > 0
        assert len(set(interval[one.first : one.last])) == 1
        assert one.first == 0 or interval[one.first - 1] < interval[one.first]
    if rounds:
        assert rounds[-1].last == len(times)
        assert all(a.last == b.first for a, b in pairwise(rounds))
        assert rounds[0].first >= initial * len(times)
        before = [i for i in range(rounds[0].first) if i >= initial * len(times)]
        assert len({interval[i] for i in before}) <= 1  # the interval that `initial` ends in


@given(st.integers(1, 200), st.integers(1, 50), st.sampled_from([0.0, 0.3, 0.5]))
def test_rounds_by_count_share_evenly(events, count, initial) -> None:
    begin = round(initial * events)
    if count > events - begin:
        with pytest.raises(InvalidInputError, match="count"):
            rounds_by_count(events, count, initial=initial)
        return
    rounds = rounds_by_count(events, count, initial=initial)
    sizes = [one.events for one in rounds]
    assert (rounds[0].first, rounds[-1].last, len(rounds)) == (begin, events, count)
    assert sum(sizes) == events - begin
    assert max(sizes) - min(sizes) <= 1


@given(st.integers(0, 50), st.integers(0, 30), st.sampled_from([0.0, 0.5, 1.0, 7.5]))
def test_replay_draws_old_events_once_and_in_order(first, events, ratio) -> None:
    replay = Replay(ratio, seed=3)
    old = replay.choose(first, first + events)
    assert old.dtype == torch.int64
    assert old.numel() == min(first, round(ratio * events))
    assert torch.equal(old, old.unique())
    assert not old.numel() or set(old.tolist()) <= set(range(first))
    assert torch.equal(old, replay.choose(first, first + events))
    draws = [Replay(1.0, seed).choose(at, at + 20) for seed in (1, 2) for at in (90, 91)]
    assert len({tuple(one.tolist()) for one in draws}) == 4


class Recorder:
    """Stands for a trainer: notes what is asked of it, and counts what it was trained on."""

    def __init__(self) -> None:
        self.calls: list[tuple] = []
        self.meter = Meter()
        self.access = SimpleNamespace(
            begin_round=lambda: self.calls.append(("round",)),
            begin_epoch=lambda: self.calls.append(("epoch",)),
        )
        self.memory = 0

    def insert(self, last):
        self.calls.append(("insert", last))

    def mark_memory(self):
        return self.memory

    def restore_memory(self, state):
        self.calls.append(("restore", state))
        self.memory = state

    def reset_memory(self):
        self.memory = 0

    def train(self, first, last, *, epoch=0):
        return self.train_on(torch.arange(first, last), epoch=epoch)

    def train_on(self, events, *, epoch=0):
        self.meter.count("trained", events.numel())
        self.calls.append(("train", events.tolist(), epoch))
        self.memory += 1
        return 0.5

    def evaluate_range(self, first, last, *, remember=False):
        self.meter.count("scored", last - first)
        self.calls.append(("score", first, last, remember))
        self.memory += 10 * remember
        return SimpleNamespace(ap=0.75)


ROUNDS = [Round(0, 4, 6), Round(1, 6, 7), Round(2, 7, 10)]


def test_a_round_inserts_scores_and_trains_from_the_memories_of_its_begin() -> None:
    trainer = Recorder()
    stream = Continuous(trainer, ROUNDS, epochs=2)
    assert stream.begin(epochs=1) == [0.5]
    assert trainer.calls == [("insert", 4), ("train", [0, 1, 2, 3], 0)]
    trainer.calls.clear()
    found = stream.play()
    assert trainer.calls == [
        ("round",), ("insert", 6), ("score", 4, 6, False),
        ("epoch",), ("restore", 1), ("train", [4, 5], 0),
        ("epoch",), ("restore", 1), ("train", [4, 5], 1),
    ]  # fmt: skip
    assert (found.losses, found.ap, found.trained) == ([0.5, 0.5], 0.75, 2)
    # Scoring is no part of a round's cost.
    assert (found.counters["trained"], found.counters["scored"]) == (4, 0)
    assert found.retrain_s == found.update_s + found.train_s > 0
    assert [one.round.number for one in stream.play_all()] == [1, 2]
    with pytest.raises(InvalidInputError, match="rounds"):
        stream.play()


def test_training_in_every_second_round_takes_all_events_since() -> None:
    trainer = Recorder()
    stream = Continuous(trainer, ROUNDS, epochs=1, every=2)
    stream.begin()
    first, second, third = stream.play_all()
    assert (first.trained, second.trained, third.trained) == (0, 3, 0)
    trained = [call for call in trainer.calls if call[0] == "train"]
    assert trained == [("train", [4, 5, 6], 0)]
    assert ("restore", 0) in trainer.calls  # what round 0 began with, though it was scored since
    remembered = [call[3] for call in trainer.calls if call[0] == "score"]
    assert remembered == [True, False, True]
    trainer = Recorder()
    never = Continuous(trainer, ROUNDS, every=None).play_all()
    assert all((one.ap, one.trained, one.losses) == (0.75, 0, []) for one in never)
    assert "trained" not in trainer.meter.counters


def test_replay_comes_before_the_new_events() -> None:
    trainer = Recorder()
    stream = Continuous(trainer, ROUNDS, epochs=1, replay=Replay(1.0, seed=5), evaluate=False)
    stream.begin()
    found = stream.play()
    events = next(call[1] for call in trainer.calls if call[0] == "train")
    assert sorted(events)[-2:] == events[-2:] == [4, 5]
    assert len(events) == found.trained == 4
    assert found.ap is None


def test_bad_input_is_named() -> None:
    t = torch.arange(10, dtype=torch.float64)
    nan, inf = float("nan"), float("inf")
    cases = [("length", lambda x=x: rounds_by_time(t, x)) for x in (0, inf, nan)]
    cases += [("initial", lambda x=x: rounds_by_time(t, 1.0, initial=x)) for x in (-0.1, 1.1, nan)]
    cases += [("ratio", lambda x=x: Replay(x)) for x in (-1, nan, inf, True)]
    cases += [(name, lambda name=name: Continuous(Recorder(), ROUNDS, **{name: 0}))
              for name in ("epochs", "every")]  # fmt: skip
    cases += [("rounds", lambda: Continuous(Recorder(), []))]
    cases += [("range", lambda: Replay(1.0).choose(5, 4))]
    for name, call in cases:
        with pytest.raises(InvalidInputError, match=name):
            call()
    assert rounds_by_time(t[:0], 1.0) == []
