"""Audited batches: drawn batches of timed rounds on a stream, taken again in float64.

In the first timed round, and in later ones ever more seldom, two batches in a row are drawn. Around
them the harness copies, outside of the clock and without a call of the trainer, what it holds since
before the first round: parameters, Adam's moments and the memories of the vertices that the batch
reads. The plain trainer takes the very batch again in float64 from the copied state, with the same
negatives and neighbours, and its loss, updates, moments and memories are compared.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from dgbench.lab.result_checks import ResultCheck, at_most, equal
from dgbench.models.ctdg import MemoryRows
from dgbench.runtime.schedule import DrawnRounds
from dgbench.runtime.threads import one_thread
from dgbench.runtime.touched import comparing
from dgbench.systems.base.audit import (
    Tensors,
    TrainingState,
    adam_checks,
    adam_numbers,
    clear_entries,
    copied_training,
    counted_steps,
    numbers_left,
)
from dgbench.systems.base.moments import AdamMoments
from dgbench.systems.base.oracle import AGAINST, DRAWS, judge_retaken, moved_by_a_unit
from dgbench.systems.base.stream import StreamData, StreamTrainer, StreamWorkload
from dgbench.systems.base.stream_access import GraphAccess
from dgbench.systems.base.stream_batches import batch_draw, batches
from dgbench.systems.base.stream_data import negatives_of
from dgbench.systems.base.stream_memory import HeldWrites

IN_A_ROW: Final = 2
"""Batches that are audited one after the other: a trainer that skips every second one skips one of
them."""
TIMES: Final = ("updated", "mail_time")
"""Columns of a memory that are times, and are compared exactly."""

Taken = tuple[Tensor, dict[str, Tensor], MemoryRows | None]
"""Loss, gradients by name, and memories that a batch leaves."""


@dataclass(frozen=True, slots=True)
class BatchState:
    """Copy of what a batch starts from or has left.

    Attributes:
        training: parameters and moments.
        rows: memories of the vertices that the batch reads; None for a network without.
        held: writes that wait until a time is over.
    """

    training: TrainingState
    rows: MemoryRows | None
    held: HeldWrites


@dataclass(slots=True)
class AuditedBatch:
    """A batch of training and the states around it.

    Attributes:
        number: of the round, from 0, and of the epoch and the batch in it.
        events: int64[b]. inserted: events that the graph holds.
        samples: neighbours as the plain sampler draws them; None: later, as all that it finds lies
            before the batch.
        vertices: int64[U] whose memory it reads; None for a network without.
        loss: before the update; None where the trainer tells none of a single batch.
    """

    number: tuple[int, int, int]
    events: Tensor
    inserted: int
    samples: Any
    vertices: Tensor | None
    before: BatchState
    after: BatchState | None = None
    loss: float | None = None


class BatchOracle:
    """The plain trainers that audited batches of one task are taken again by.

    Args:
        task, data: of the trainers that are audited.
        exact: the plain trainer in float64; its parameters and memories are moved.
    """

    def __init__(self, task: StreamWorkload, data: StreamData, exact: StreamTrainer) -> None:
        self.task, self.data, self.exact = task, data, exact
        self._single: StreamTrainer | None = None

    def sample(self, events: Tensor, epoch: int) -> Any:
        """Neighbours of a batch in an epoch, as the plain sampler draws them."""
        return _sampled(self.exact.access, self.task, self.data, events, epoch)

    def take(self, one: AuditedBatch) -> Taken:
        """Loss, gradients and memories of a batch, in float64."""
        return _take(self.exact, self.task, self.data, one, one.before.training.parameters)

    def draws(self, one: AuditedBatch) -> Iterator[Taken]:
        """The same in float32, rounded another way each time."""
        if self._single is None:
            device = str(self.exact.device)
            self._single = StreamTrainer(self.task, self.data, self.exact.access, device=device)
        state, random_bits = one.before.training.parameters, torch.Generator().manual_seed(1)
        for draw in range(DRAWS):
            moved = state if draw == 0 else moved_by_a_unit(state, random_bits)
            yield _take(self._single, self.task, self.data, one, moved)

    def checks(self, one: AuditedBatch, part: str, *, system: str = "") -> list[ResultCheck]:
        """Checks of a batch against itself in float64, from the state before it.

        Args:
            one: whole, with its samples.
            part: which batch it is, in words. system: name of its trainer.
        """
        exact, before = self.take(one), one.before.training
        clear = clear_entries(exact[1], before)
        lr = self.task.lr
        about = {"against": AGAINST, "part": part, "system": system}
        found = judge_retaken(
            _left(one, clear),
            _read(one, exact, clear, lr),
            (_read(one, taken, clear, lr) for taken in self.draws(one)),
            lambda: _read(one, self.take(one), clear, lr),
            about,
        )
        if exact[2] is not None:
            assert one.after is not None
            own = _effective(one.after, one.vertices)
            times = [{of: getattr(rows, of).cpu() for of in TIMES} for rows in (own, exact[2])]
            same = equal("memories", *times, against=AGAINST)
            about["part"] = f"{part}: times of what is waiting and was taken in"
            found.append(at_most("memories", same.gap, 0.0, compared=same.compared, **about))
        return found


class BatchAudit:
    """Watches the batches of a trainer, and copies its state around drawn ones.

    Args:
        trainer: no batch was trained on yet.
        task, data: of the trainer.
        plain: a sampler to which nothing was told yet.
        epochs: of a round.
        first: rounds that are never audited, in the beginning.
        rounds: drawn ones; by the operating system where it is None.

    Attributes:
        seconds: that the audit itself has taken so far, on no trainer's account.
    """

    def __init__(
        self,
        trainer: StreamTrainer,
        task: StreamWorkload,
        data: StreamData,
        plain: GraphAccess,
        *,
        epochs: int,
        first: int = 1,
        rounds: DrawnRounds | None = None,
    ) -> None:
        self._trainer, self._task, self._data, self._plain = trainer, task, data, plain
        self._epochs, self._rounds = epochs, rounds or DrawnRounds(first)
        self._leaves = trainer.trained()
        self._moments: dict[str, AdamMoments] = {}
        self._columns = None if trainer.memory is None else trainer.memory.columns
        self._round, self._epoch = -1, 0
        self._drawn: dict[tuple[int, int], Tensor] = {}  # events by epoch and batch
        self._sizes: list[int] = []  # batches of each epoch of a drawn round
        self._seen = self._inserted = self._expected = 0
        self._wrong: list[str] = []
        self.batches: list[AuditedBatch] = []
        self.seconds = 0.0

    # --- around rounds, epochs and batches --------------------------------------------------------

    def begin(self, events: Tensor, epoch: int) -> None:
        """An epoch on events begins.

        Args:
            events: int64[n], ascending; the graph holds all up to the last of them.
            epoch: of a round, from 0.
        """
        start = time.perf_counter()
        if epoch == 0:
            self._round += 1
            self._drawn, self._sizes = {}, []
            if events.numel() and self._round in self._rounds:
                self._draw(events)
        if not self._moments:
            self._moments = self._trainer.moments()
        self._epoch, self._seen = epoch, 0
        self.seconds += time.perf_counter() - start

    def before(self, events: Tensor) -> None:
        """A batch of events is about to be trained on."""
        number = self._epoch, self._seen
        self._seen += 1
        if number not in self._drawn:
            return
        self._synchronise()
        start = time.perf_counter()
        expected = self._drawn[number]
        self._expected += expected.numel()
        if not torch.equal(events, expected):
            self._wrong.append(f"batch {number[1] + 1} is other events")
        self.batches.append(self._opened((self._round, *number), expected))
        self.seconds += time.perf_counter() - start

    def after(self, loss: Tensor | None) -> None:
        """The batch was trained on.

        Args:
            loss: scalar of it, before the update; None where there is none of it alone.
        """
        if (self._epoch, self._seen - 1) not in self._drawn:
            return
        self._synchronise()
        start = time.perf_counter()
        one = self.batches[-1]
        one.after = self._copy(one.vertices)
        one.loss = None if loss is None else float(loss)
        self.seconds += time.perf_counter() - start

    def end(self) -> None:
        """The epoch has ended."""
        if self._sizes and self._seen != self._sizes[self._epoch]:
            self._wrong.append(f"{self._seen} of {self._sizes[self._epoch]} batches")

    def _draw(self, events: Tensor) -> None:
        """Draw batches of a round, and tell the sampler what the graph holds."""
        times = self._data.events.t[events]
        epochs = [batches(self._task, events, times, epoch) for epoch in range(self._epochs)]
        self._sizes = [len(parts) for parts in epochs]
        every = [(e, i) for e, parts in enumerate(epochs) for i in range(len(parts))]
        first = self._rounds.below(max(1, len(every) - IN_A_ROW + 1))
        self._drawn = {(e, i): epochs[e][i] for e, i in every[first : first + IN_A_ROW]}
        last = int(events[-1]) + 1
        self._plain.insert(self._inserted, last)
        self._inserted = last

    def _opened(self, number: tuple[int, int, int], events: Tensor) -> AuditedBatch:
        samples = vertices = None
        if self._columns is not None or self._task.closed:
            samples = self._sample(number[1], events)
        if self._columns is not None and samples is not None:
            last = samples[0][-1]
            waiting = [ids.cpu() for ids, _, _ in self._trainer._held.writes]
            vertices = torch.cat([last.nodes, last.neighbours, *waiting]).unique()
        return AuditedBatch(number, events, self._inserted, samples, vertices, self._copy(vertices))

    def _sample(self, epoch: int, events: Tensor) -> Any:
        return _sampled(self._plain, self._task, self._data, events, epoch)

    def _copy(self, vertices: Tensor | None) -> BatchState:
        rows = None
        if self._columns is not None and vertices is not None:
            ids = vertices.to(self._columns[0].device)
            rows = MemoryRows(*(column[ids] for column in self._columns))
        training = copied_training(self._leaves, self._moments)
        return BatchState(training, rows, self._trainer._held.copy())

    def _synchronise(self) -> None:
        device = next(iter(self._leaves.values())).device
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    # --- afterwards -------------------------------------------------------------------------------

    @comparing()
    def checks(self, name: str, oracle: BatchOracle, *, again: bool = True) -> list[ResultCheck]:
        """Checks of the batches of a drawn round against Adam, and of one of them in float64.

        Args:
            name: of the trainer in the row. oracle: of its task. again: take one again.
        """
        checks = [self.cut(name)]
        rounds = sorted({one.number[0] for one in self.batches})
        chosen = rounds[self._rounds.below(len(rounds))] if rounds else -1
        whole_ones = [
            (one, one.after.training)
            for one in self.batches if one.number[0] == chosen and one.after is not None
        ]  # fmt: skip
        if not whole_ones:
            return checks
        with one_thread():
            steps = counted_steps((one.before.training, after) for one, after in whole_ones)
            checks += adam_checks(
                steps, self._task.lr, seed=self._rounds.seed, system=name, each="batch"
            )
            if again:
                one, _ = whole_ones[self._rounds.below(len(whole_ones))]
                checks += self._taken_again(name, oracle, one)
        return checks

    def cut(self, name: str) -> ResultCheck:
        """A check that a trainer went through its batches one by one."""
        return at_most(
            "batches", float(len(self._wrong)), 0.0, against="cut of the events",
            compared=self._expected,
            part=", ".join([name, *self._wrong[:1], f"drawn by {self._rounds.seed}"]),
        )  # fmt: skip

    def _taken_again(self, name: str, oracle: BatchOracle, one: AuditedBatch) -> list[ResultCheck]:
        round_, epoch, number = one.number
        part = f"{name}, round {round_ + 1}, epoch {epoch + 1}, batch {number + 1}"
        if one.samples is None:
            one.samples = self._sample(epoch, one.events)
        return oracle.checks(one, f"{part}, drawn by {self._rounds.seed}")


class _Drawn:
    """A `GraphAccess` to the features of a stream, and to samples that were drawn."""

    def __init__(self, data: StreamData, samples: Any) -> None:
        self._data, self._samples = data, samples

    def insert(self, first: int, last: int) -> None:
        """As of every `GraphAccess`; the samples are there."""

    def sample(
        self, nodes: Tensor, times: Tensor, *, draw: int, positions: Tensor | None = None
    ) -> Any:
        """The samples of the one batch."""
        return self._samples

    def node_features(self, ids: Tensor) -> Tensor:
        """As of every `GraphAccess`."""
        return self._data.node_feat.index_select(0, ids)  # type: ignore[union-attr]

    def edge_features(self, eids: Tensor) -> Tensor:
        """As of every `GraphAccess`."""
        return self._data.edge_feat.index_select(0, eids)  # type: ignore[union-attr]


def _take(
    plain: StreamTrainer,
    task: StreamWorkload,
    data: StreamData,
    one: AuditedBatch,
    parameters: Mapping[str, Tensor],
) -> Taken:
    """Loss, gradients and rows that a plain trainer takes a batch to."""
    with torch.no_grad():
        for name, leaf in plain.model.named_parameters():
            leaf.copy_(parameters[name])
    if plain.memory is not None and one.before.rows is not None:
        plain.memory.write(one.vertices.to(plain.device), one.vertices, one.before.rows)
        plain._held = one.before.held.copy()
    access, plain.access = plain.access, _Drawn(data, one.samples)
    try:
        batch = plain._batch(one.events, batch_draw(task, int(one.events[0]), one.number[1]))
        with plain._dropping(batch.draw):
            hidden, recalled = plain._hidden(batch)
        loss = plain._loss(batch, hidden)
        leaves = dict(plain.model.named_parameters())
        found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
        plain._memorise(batch, recalled)
    finally:
        plain.access = access
    gradients = {
        name: (torch.zeros_like(leaf) if grad is None else grad).detach().cpu()
        for (name, leaf), grad in zip(leaves.items(), found, strict=True)
    }
    rows = None
    if plain.memory is not None and one.vertices is not None:
        read = plain.memory.read(one.vertices.to(plain.device))
        rows = _effective(BatchState(one.before.training, read, plain._held), one.vertices)
    return loss, gradients, rows


def _effective(state: BatchState, vertices: Tensor | None) -> MemoryRows:
    """Memories of vertices as they are once what is held was written."""
    assert state.rows is not None
    assert vertices is not None
    rows = MemoryRows(*(getattr(state.rows, name).cpu().clone() for name in MemoryRows.__slots__))
    for ids, _, values in state.held.writes:
        place = torch.searchsorted(vertices, ids.cpu())
        inside = vertices[place.clamp(max=vertices.numel() - 1)] == ids.cpu()
        for name in MemoryRows.__slots__:
            column = getattr(rows, name)
            column[place[inside]] = getattr(values, name).cpu().to(column)[inside]
    return rows


def _read(one: AuditedBatch, taken: Taken, clear: Mapping[str, Tensor], lr: float) -> Tensors:
    """Numbers that a batch leaves, from what a plain trainer took it to."""
    loss, gradients, rows = taken
    value = None if one.loss is None else float(loss.detach())
    return adam_numbers(one.before.training, gradients, clear, lr) | _beside(value, rows)


def _left(one: AuditedBatch, clear: Mapping[str, Tensor]) -> Tensors:
    """The same numbers as the trainer left them."""
    assert one.after is not None
    rows = None if one.vertices is None else _effective(one.after, one.vertices)
    left = numbers_left(one.before.training, one.after.training, clear)
    return left | _beside(one.loss, rows)


def _sampled(
    plain: GraphAccess, task: StreamWorkload, data: StreamData, events: Tensor, epoch: int
) -> Any:
    """Samples of a batch's roots: sources, destinations, negatives."""
    stream = data.events
    nodes = torch.cat([stream.src[events], stream.dst[events], negatives_of(task, data, events)])
    return plain.sample(
        nodes, stream.t[events].repeat(3), draw=batch_draw(task, int(events[0]), epoch)
    )


def _beside(loss: float | None, rows: MemoryRows | None) -> Tensors:
    """Loss and memories by kind of check, where they are known."""
    kinds: Tensors = {}
    if loss is not None:
        kinds["losses"] = {"": torch.tensor(loss, dtype=torch.float64)}
    if rows is not None:
        kinds["memories"] = {"memory": rows.memory.cpu(), "mail": rows.mail.cpu()}
    return kinds
