"""Continuous training (sections 3 and 6.1): round by round, the graph grows and the model follows.

A round inserts its events, asks the model of the round before for them, then trains on them. This
works for any stream trainer, whatever keeps its graph: GNNFlow's store, TGL's rebuilt T-CSR, the
plain reference.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dgbench.runtime.errors import InvalidInputError
from dgbench.runtime.fields import check_count
from dgbench.systems.gnnflow.replay import Replay

if TYPE_CHECKING:
    from dgbench.systems.base.stream import StreamTrainer
    from dgbench.systems.base.stream_audit import BatchAudit


@dataclass(frozen=True, slots=True)
class Round:
    """An incremental batch: the events first .. last - 1 of a stream, never empty."""

    number: int
    first: int
    last: int

    @property
    def events(self) -> int:
        """Number of events."""
        return self.last - self.first


def rounds_by_time(t: Tensor, length: float, *, initial: float = 0.3) -> list[Round]:
    """Rounds of equal length in time, counted from the first event; empty ones are left out.

    Args:
        t: float64[E], non-decreasing.
        length: of a round, in the unit of `t`.
        initial: share of the events that comes before the rounds. The round it ends in belongs to
            it as a whole, so that every round is a whole one.

    Raises:
        InvalidInputError: length <= 0, or initial outside [0, 1].
    """
    if not 0 < length < float("inf"):
        raise InvalidInputError(f"length is {length!r}; a finite number > 0 is allowed")
    _check_initial(initial)
    if t.numel() == 0:
        return []
    interval = ((t - t[0]) / length).floor()
    starts = torch.cat(
        [torch.zeros(1, dtype=torch.int64), (interval.diff() > 0).nonzero()[:, 0] + 1]
    )
    kept = starts[starts >= initial * t.numel()].tolist()
    pairs = pairwise([*kept, t.numel()])
    return [Round(number, first, last) for number, (first, last) in enumerate(pairs)]


def rounds_by_count(events: int, count: int, *, initial: float = 0.3) -> list[Round]:
    """`count` rounds that differ by at most one event, over what `initial` leaves.

    Raises:
        InvalidInputError: count < 1, more rounds than events, or initial outside [0, 1].
    """
    _check_initial(initial)
    begin = round(initial * events)
    if not 1 <= count <= events - begin:
        raise InvalidInputError(f"count is {count}; 1 .. {events - begin} rounds are possible")
    edges = [begin + (events - begin) * i // count for i in range(count + 1)]
    return [Round(i, edges[i], edges[i + 1]) for i in range(count)]


def _check_initial(initial: float) -> None:
    if not 0 <= initial <= 1:
        raise InvalidInputError(f"initial is {initial!r}; a share in [0, 1] is allowed")


@dataclass(slots=True)
class RoundResult:
    """Result and times of one round.

    Attributes:
        round: its events.
        update_s: seconds until the graph held them; `train_s`: seconds of all epochs, and of what
            caches do between rounds.
        trained: events of an epoch, replayed ones included; 0 where the model was left as it is.
        losses: mean loss of each epoch.
        ap: average precision of the model of the round before on these events, or None.
        parts: seconds of the update and the epochs by phase, where the meter times phases.
        counters: what the meter counted in the update and the epochs.
    """

    round: Round
    update_s: float = 0.0
    train_s: float = 0.0
    trained: int = 0
    losses: list[float] = field(default_factory=list)
    ap: float | None = None
    parts: dict[str, float] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)

    @property
    def retrain_s(self) -> float:
        """Update and finetuning: the time per day of Figure 8."""
        return self.update_s + self.train_s


class Continuous:
    """A model that follows a stream.

    Args:
        trainer: with a graph that is still empty.
        rounds: in their order; what comes before the first is the initial graph.
        epochs: of a round (the paper's three).
        every: train in every so many-th round, on all events since the last time; None: never.
        replay: old events to train on as well, or None.
        evaluate: whether to score a round's events before training on them.
        audit: of the trainer's batches; what it takes is in no time.

    Attributes:
        played: rounds so far.
    """

    def __init__(
        self,
        trainer: StreamTrainer,
        rounds: Sequence[Round],
        *,
        epochs: int = 3,
        every: int | None = 1,
        replay: Replay | None = None,
        evaluate: bool = True,
        audit: BatchAudit | None = None,
    ) -> None:
        check_count("epochs", epochs)
        if every is not None and (isinstance(every, bool) or every < 1):
            raise InvalidInputError(f"every is {every!r}; an integer >= 1 or None is allowed")
        if not rounds:
            raise InvalidInputError("there are no rounds", hint="a shorter round or initial share")
        self.trainer, self.rounds = trainer, list(rounds)
        self.epochs, self.every, self.replay, self.evaluate = epochs, every, replay, evaluate
        self._audit = audit
        self.played = 0
        self._pending = self.rounds[0].first
        self._memory = trainer.mark_memory()

    def begin(self, epochs: int = 0) -> list[float]:
        """Insert everything before the first round and train on it for some epochs.

        Returns:
            The mean loss of each epoch.
        """
        first = self.rounds[0].first
        self.trainer.insert(first)
        losses = []
        for epoch in range(epochs if first else 0):
            self.trainer.reset_memory()
            losses.append(self.trainer.train(0, first, epoch=epoch))
        return losses

    def play(self) -> RoundResult:
        """The next round: insert, score, train.

        Raises:
            InvalidInputError: all rounds were played.
        """
        if self.played == len(self.rounds):
            raise InvalidInputError(f"all {self.played} rounds were played")
        one, trainer = self.rounds[self.played], self.trainer
        self.played += 1
        trains = self.every is not None and self.played % self.every == 0
        found = RoundResult(one)
        start = time.perf_counter()
        _tell(trainer.access, "begin_round")
        found.train_s = time.perf_counter() - start
        if self._pending == one.first:
            self._memory = trainer.mark_memory()
        with _metered(trainer, found):
            start = time.perf_counter()
            trainer.insert(one.last)
            found.update_s = time.perf_counter() - start
        if self.evaluate:
            # Without training, scoring is the only way in which memories take the events in.
            found.ap = trainer.evaluate_range(one.first, one.last, remember=not trains).ap
        if trains:
            with _metered(trainer, found):
                self._train(one.last, found)
        return found

    def play_all(self) -> list[RoundResult]:
        """All rounds that are left."""
        return [self.play() for _ in range(self.played, len(self.rounds))]

    def _train(self, last: int, found: RoundResult) -> None:
        events = torch.arange(self._pending, last)
        if self.replay:
            events = torch.cat([self.replay.choose(self._pending, last), events])
        audited = self._audit.seconds if self._audit else 0.0
        start = time.perf_counter()
        for epoch in range(self.epochs):
            _tell(self.trainer.access, "begin_epoch")
            # An epoch starts from the memories of its begin: those after it have seen its events.
            self.trainer.restore_memory(self._memory)
            found.losses.append(self._train_epoch(events, epoch))
        audited = self._audit.seconds - audited if self._audit else 0.0
        found.train_s += time.perf_counter() - start - audited
        found.trained = events.numel()
        self._pending = last

    def _train_epoch(self, events: Tensor, epoch: int) -> float:
        audit = self._audit
        if audit is None:
            return self.trainer.train_on(events, epoch=epoch)
        audit.begin(events, epoch)
        loss = self.trainer.train_on(events, epoch=epoch, watch=audit)
        audit.end()
        return loss


def _tell(access: Any, event: str) -> None:
    """Let whatever keeps caches know where in a round it is."""
    hook = getattr(access, event, None)
    if hook is not None:
        hook()


@contextmanager
def _metered(trainer: StreamTrainer, into: RoundResult) -> Iterator[None]:
    """Add what the trainer's meter takes and counts meanwhile to an outcome."""
    meter = trainer.meter
    parts, counters = {**meter.phases(), **meter.spent}, dict(meter.counters)
    yield
    for found, now, before in (
        (into.parts, {**meter.phases(), **meter.spent}, parts),
        (into.counters, meter.counters, counters),
    ):
        for name, value in now.items():
            found[name] = found.get(name, 0) + value - before.get(name, 0)
