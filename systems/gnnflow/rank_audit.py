"""Audited batches of ranks on a stream: one of all ranks together, taken again in float64.

As in `base.rank_audit`, rank 0 copies the replicated parameters and Adam's moments around drawn
batches, outside of the clock and without a call to the trainer. Around one of them every rank
copies its rows of the memories that the batch reads, and what it holds back. The launching process
puts these together to the state of one trainer, which takes the whole batch again: work that a rank
left out shows in the update, the loss or the memories.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from dgbench.lab.result_checks import ResultCheck
from dgbench.models.ctdg import MemoryRows
from dgbench.runtime.collectives import Communicator
from dgbench.runtime.threads import one_thread
from dgbench.runtime.touched import comparing
from dgbench.systems.base.audit import adam_checks, taken_again_later
from dgbench.systems.base.rank_audit import AuditedEpochs, RankAudit, audited_numbers, draw_seed
from dgbench.systems.base.stream_audit import AuditedBatch, BatchOracle, BatchState
from dgbench.systems.base.stream_memory import HeldWrites
from dgbench.systems.gnnflow.remote_memory import latest

if TYPE_CHECKING:
    from dgbench.systems.gnnflow.ranked import StreamRankTrainer

WARM: Final = 1
"""Batches before the first that is timed."""


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """Request for copies around drawn batches.

    Attributes:
        seed: of the draws. count: batches that are trained on.
        number: the batch around which memories are copied.
        vertices: int64[U], ascending, that it reads; None for a network without memory.
    """

    seed: int
    count: int
    number: int
    vertices: Tensor | None


@dataclass(frozen=True, slots=True)
class MemoryCopy:
    """Copy of one rank's memories, on the CPU.

    Attributes:
        vertices: int64[n] of them. rows: of these. held: writes that wait on this rank.
    """

    vertices: Tensor
    rows: MemoryRows
    held: HeldWrites


@dataclass(frozen=True, slots=True)
class BatchCopies:
    """Copies that ranks made around drawn batches of one trainer.

    Attributes:
        training: parameters and moments; of rank 0, else None.
        memories: before and after the batch of the request.
    """

    training: AuditedEpochs | None
    memories: list[MemoryCopy]


class RankBatchAudit:
    """Copies of one rank around drawn batches of one trainer.

    Args:
        trainer: has trained on no batch yet.
    """

    def __init__(
        self, comm: Communicator, request: BatchRequest, trainer: StreamRankTrainer
    ) -> None:
        self._training = RankAudit(comm, request.seed, WARM, least=request.count - WARM)
        self._training.open("", trainer)
        self._trainer, self._number, self._memories = trainer, request.number, list[MemoryCopy]()
        self._vertices, memory = request.vertices, trainer.memory
        if self._vertices is not None:
            owners, machine = memory.owners, memory.layout.machine(comm.rank)
            self._vertices = self._vertices[owners.of(self._vertices) == machine]
            self._places = owners.local(self._vertices).to(comm.device)
            self._tables = memory.tables

    def between(self, number: int) -> None:
        """Called before batch `number` and after the one before it, outside of the clock."""
        if number:
            self._training.after("", number)
        if self._vertices is not None and number in (self._number, self._number + 1):
            rows, times = (table[self._places].cpu() for table in self._tables)
            memory, mail = rows.split(
                (self._trainer.model.memory_dim, self._trainer.model.mail_dim), 1
            )
            kept = MemoryRows(memory, times[:, 0].contiguous(), mail, times[:, 1].contiguous())
            held = HeldWrites(
                self._trainer._held.time,
                [(ids.cpu(), events.cpu(), rows.to(torch.device("cpu")))
                 for ids, events, rows in self._trainer._held.writes],
            )  # fmt: skip
            self._memories.append(MemoryCopy(self._vertices, kept, held))

    @property
    def copies(self) -> BatchCopies:
        """Copies so far."""
        return BatchCopies(self._training.epochs.get(""), self._memories)


class RankBatches:
    """Draw of the batches that ranks are audited in, and the checks of them.

    Args:
        oracle: of the task, whose sampler holds the events that the ranks' do.
        epochs: batches of each epoch.

    Attributes:
        request: to the ranks; None where no batch is timed.
    """

    @comparing()
    def __init__(self, oracle: BatchOracle, epochs: Sequence[Sequence[Tensor]]) -> None:
        self._oracle, self._draw, self.request = oracle, random.SystemRandom(), None
        every = [(e, i) for e, parts in enumerate(epochs) for i in range(len(parts))]
        seed, count = draw_seed(), len(every)
        if not (numbers := audited_numbers(seed, WARM, count)):
            return
        number, vertices = self._draw.choice(numbers), None
        self._at = epoch, place = every[number]
        self._events = epochs[epoch][place]
        self._samples = oracle.sample(self._events, epoch)
        if oracle.exact.memory is not None:
            last = self._samples[0][-1]
            vertices = torch.cat([last.nodes, last.neighbours]).unique()
        self.request = BatchRequest(seed, count, number, vertices)

    @comparing()
    def checks(
        self,
        copies: Mapping[str, Sequence[BatchCopies]],
        losses: Mapping[str, Sequence[float]],
        *,
        first: bool = True,
    ) -> list[ResultCheck]:
        """Checks of trainers by name: all against Adam, a drawn one against the oracle.

        Args:
            copies: of each rank. losses: of every batch.
            first: in the first process of a cell the oracle takes a batch again, later in a share.
        """
        checks = list[ResultCheck]()
        if self.request is None:
            return checks
        for name, ranks in copies.items():
            assert ranks[0].training is not None
            checks += adam_checks(
                ranks[0].training.steps, self._oracle.task.lr, seed=self.request.seed,
                system=name, each="batch",
            )  # fmt: skip
        if taken_again_later(first):
            name = self._draw.choice(list(copies))
            one = self._joined(copies[name], losses[name])
            part = f"{name}, batch {self.request.number + 1}, drawn by {self.request.seed}"
            with one_thread():
                checks += self._oracle.checks(one, part, system=name)
        return checks

    def _joined(self, ranks: Sequence[BatchCopies], losses: Sequence[float]) -> AuditedBatch:
        """The batch as one of a trainer that holds all memories."""
        assert self.request is not None
        number, training = self.request.number, ranks[0].training
        assert training is not None
        step = next(one for one in training.steps if one.number == number)
        states = []
        for place, state in enumerate((step.before, step.after)):
            rows, held = None, HeldWrites()
            if self.request.vertices is not None:
                rows, held = _whole_memory([one.memories[place] for one in ranks])
            states.append(BatchState(state, rows, held))
        return AuditedBatch(
            (0, *self._at), self._events, self._oracle.exact.inserted, self._samples,
            self.request.vertices, *states, losses[number],
        )  # fmt: skip


def _whole_memory(ranks: Sequence[MemoryCopy]) -> tuple[MemoryRows, HeldWrites]:
    """Rows of all ranks' vertices, ascending, and what all of them hold back."""

    def rows_of(parts: Sequence[MemoryRows], order: Tensor) -> MemoryRows:
        columns = ([getattr(one, name) for one in parts] for name in MemoryRows.__slots__)
        return MemoryRows(*(torch.cat(column)[order] for column in columns))

    ids = torch.cat([one.vertices for one in ranks])
    order = latest(ids, torch.zeros_like(ids))  # ranks of one machine have the same rows
    held = HeldWrites(ranks[0].held.time)
    for writes in zip(*(one.held.writes for one in ranks), strict=True):
        vertices, events = (torch.cat([write[place] for write in writes]) for place in (0, 1))
        last = latest(vertices, events)
        rows: Any = rows_of([write[2] for write in writes], last)
        held.writes.append((vertices[last], events[last], rows))
    return rows_of([one.rows for one in ranks], order), held
