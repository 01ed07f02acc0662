"""Stale exchange between workers that all live in one process: what their training learns.

Accuracy and counts of a run with stale rows depend on who owns which vertex-step, not on who
computes it. Here one process computes all workers as one: every row that another worker reads
stands twice in a table, fresh for its owner and as last sent for the others, and each matrix reads
the column it should. That is the distributed run to the sum (the experiment `stale_ablation` trains
both and compares them) at a fraction of its time, as P processes on two cores mostly wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dgbench.datasets.transforms import factors
from dgbench.kernels_cuda.aggregate import spmm
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.supergraph import Supergraph
from dgbench.models import attend_rows
from dgbench.models.sequence import SequenceModel, Starts
from dgbench.runtime.errors import InvalidInputError
from dgbench.runtime.meter import Meter
from dgbench.systems.base.sequences import (
    SequenceTask,
    SequenceTrainer,
    SequenceWorkload,
    by_step,
    find_vertex_steps,
)
from dgbench.systems.base.training import coordinates
from dgbench.systems.dgc.packing import PackedRows, pack_sequences
from dgbench.systems.dgc.placement import Placement
from dgbench.systems.dgc.stale import LastSent, StaleEpoch, StaleSettings, Threshold

if TYPE_CHECKING:
    from dgbench.datasets import SnapshotSequence

INDEX_BYTES, SIZE_BYTES = 4, 8
"""Of the id of a row that is sent, and of the number of rows that a worker tells another one."""


@dataclass(frozen=True, slots=True, eq=False)
class Boundary:
    """Rows of an exchange that other workers read.

    Attributes:
        rows: int64[B], which, ascending; ids in a table of the exchange.
        sender: int64[B], their workers.
        readers: int64[B], how many other workers read each.
        bit_bytes: of one bit for each row and reader, the lists of two workers in bytes of their
            own.
    """

    rows: Tensor
    sender: Tensor
    readers: Tensor
    bit_bytes: int = 0

    @classmethod
    def of(cls, row: Tensor, sender: Tensor, reader: Tensor, workers: int) -> Boundary:
        """From pairs of a row and a reading worker, repeated ones included; own pairs are none.

        Args:
            row: int64[n]. sender, reader: int64[n], workers. workers: P.
        """
        apart = sender != reader
        pairs = torch.unique(row[apart] * workers + reader[apart])
        rows, readers = torch.unique_consecutive(pairs // workers, return_counts=True)
        owner = torch.full((int(row.max()) + 1 if row.numel() else 0,), -1)
        owner[row] = sender
        lists = torch.bincount(owner[pairs // workers] * workers + pairs % workers)
        return cls(rows, owner[rows], readers, int((-(-lists // 8)).sum()))

    @property
    def pairs(self) -> int:
        """Rows that are sent without stale aggregation, one for each reader."""
        return int(self.readers.sum())


@dataclass(frozen=True, slots=True, eq=False)
class _CutStage:
    """Segments with the same number of cuts before them.

    Attributes:
        steps: int64[S], vertex-steps, segment after segment.
        rows: how they are packed.
        before: int64[segments], last vertex-step of the segment before, or empty at stage 0.
        begins: int32[T, N], or None at stage 0.
        boundary: the states that are handed over; rows are numbers of segments.
    """

    steps: Tensor
    rows: PackedRows
    before: Tensor
    begins: Tensor | None
    boundary: Boundary | None


@dataclass(frozen=True, slots=True, eq=False)
class _Attended:
    """Sequences as each worker that owns a step of them holds them.

    Attributes:
        boundary: steps of entities that several workers own.
        gather: int64[S], rows of the table [own steps; stale copies], sequence after sequence.
        own: int64[V], where the vertex-steps' outputs lie among the S.
        rows: how sequences are packed.
    """

    boundary: Boundary
    gather: Tensor
    own: Tensor
    rows: PackedRows


class Workers:
    """A placement of vertex-steps and all index work that follows; shared by many runs.

    Args:
        workload, data, graph: what is trained.
        placement: who owns each vertex-step, in both encoders.
        attention: of the model; its sequences are attended to, not walked.

    Raises:
        InvalidInputError: vertex-steps that change workers between the two encoders.
    """

    def __init__(
        self,
        workload: SequenceWorkload,
        data: SnapshotSequence,
        graph: Supergraph,
        placement: Placement,
        *,
        attention: bool,
    ) -> None:
        if placement.moves:
            raise InvalidInputError(
                f"rows of '{placement.partition}' change workers between the encoders",
                hint="a placement by chunks, snapshots or sequences",
            )
        self.workload, self.data, self.graph = workload, data, graph
        self.placement = placement
        self.count, self.worker = placement.workers, placement.structure.long()
        self.task = SequenceTask(data, workload, graph)
        self.inputs = torch.as_tensor(data.features)[graph.step.long(), graph.entity.long()]
        self._lay_out_structure()
        self.stages = [] if attention else self._stages()
        self.attended = self._attended() if attention else None

    def _lay_out_structure(self) -> None:
        graph, sources, targets, values = self.graph, [], [], []
        loop = torch.zeros(graph.num_vertices)
        for t, ids in enumerate(by_step(graph)):
            csr = self.data.topology[t]
            row_scale, col_scale = factors(csr, self.workload.norm)
            entity = graph.entity[ids].long()
            loop[ids] = row_scale[entity] * col_scale[entity]
            source, target = coordinates(csr)
            weight = torch.ones(csr.nnz) if csr.values is None else csr.values
            values.append(weight * row_scale[target] * col_scale[source])
            for found, where in ((sources, source), (targets, target)):
                found.append(find_vertex_steps(graph, where.long(), torch.full_like(where, t)))
        source, target, value = torch.cat(sources), torch.cat(targets), torch.cat(values)
        reader = self.worker[target]
        self.structure = Boundary.of(source, self.worker[source], reader, self.count)
        place = torch.zeros(graph.num_vertices, dtype=torch.int64)
        place[self.structure.rows] = torch.arange(self.structure.rows.numel())
        remote = self.worker[source] != reader
        column = torch.where(remote, graph.num_vertices + place[source], source)
        order = torch.argsort(target * (2 * graph.num_vertices + 1) + column)
        indptr = torch.zeros(graph.num_vertices + 1, dtype=torch.int64)
        torch.cumsum(torch.bincount(target, minlength=graph.num_vertices), 0, out=indptr[1:])
        columns = graph.num_vertices + self.structure.rows.numel()
        self.csr = Csr(indptr, column[order].int(), columns, value[order])
        self.loop = loop[:, None]

    def _stages(self) -> list[_CutStage]:
        graph, worker = self.graph, self.worker
        entity = graph.entity.long()
        fresh = torch.ones(graph.num_vertices, dtype=torch.bool)
        fresh[1:] = entity[1:] != entity[:-1]
        cut = torch.zeros_like(fresh)
        cut[1:] = (worker[1:] != worker[:-1]) & ~fresh[1:]
        segment = torch.cumsum(fresh | cut, 0) - 1  # [V]
        cuts = torch.cumsum(cut, 0)
        stage_of_step = cuts - cuts[graph.start[entity]]
        found = []
        for stage in range(int(stage_of_step.max()) + 1 if graph.num_vertices else 0):
            steps = (stage_of_step == stage).nonzero().squeeze(1)
            numbers, lengths = torch.unique_consecutive(segment[steps], return_counts=True)
            rows = pack_sequences(lengths)
            begin = torch.cumsum(lengths, 0) - lengths
            if stage == 0:
                found.append(_CutStage(steps, rows, steps[:0], None, None))
                continue
            before = steps[begin] - 1
            number = torch.arange(numbers.numel())
            boundary = Boundary.of(number, worker[before], worker[steps[begin]], self.count)
            found.append(_CutStage(steps, rows, before, rows.begins_from(number), boundary))
        return found

    def _attended(self) -> _Attended:
        graph, count = self.graph, self.count
        entity, steps = graph.entity.long(), graph.num_vertices
        pairs = torch.unique(entity * count + self.worker)  # an entity at one of its workers
        lengths = graph.start.diff()[pairs // count]
        begin = torch.cumsum(lengths, 0) - lengths
        sequence = torch.repeat_interleave(torch.arange(pairs.numel()), lengths)
        offset = torch.arange(sequence.numel()) - begin[sequence]
        step = graph.start[(pairs // count)[sequence]] + offset
        reader = (pairs % count)[sequence]
        boundary = Boundary.of(step, self.worker[step], reader, count)
        place = torch.zeros(steps, dtype=torch.int64)
        place[boundary.rows] = torch.arange(boundary.rows.numel())
        mine = self.worker[step] == reader
        gather = torch.where(mine, step, steps + place[step])
        own = torch.empty(steps, dtype=torch.int64)
        own[step[mine]] = mine.nonzero().squeeze(1)
        return _Attended(boundary, gather, own, pack_sequences(lengths))


@dataclass(slots=True)
class Totals:
    """Traffic of runs, summed over the epochs that count.

    Attributes:
        rows, plain_rows: forward, a row to two readers twice; sent, and without stale aggregation.
        bytes, plain_bytes: forward and backward, ids of rows included.
    """

    rows: int = 0
    plain_rows: int = 0
    bytes: int = 0
    plain_bytes: int = 0


@dataclass(slots=True)
class _ExchangeCopies:
    """The copies of one exchange."""

    last: LastSent
    received: Tensor | None = None


class StaleWorkers(SequenceTrainer):
    """All workers of a placement in one process, with stale rows between them.

    Args:
        workers: the placement.
        settings: when a row counts as unchanged; None: everything is sent.

    Attributes:
        history: what each epoch sent, all workers together.
        totals: over all epochs.
        hits: right and all predictions on what is held out, by the outputs of the last training
            pass itself, stale rows included.
        hidden: outputs of the last training pass.
    """

    def __init__(
        self,
        workers: Workers,
        settings: StaleSettings | None = None,
        *,
        meter: Meter | None = None,
    ) -> None:
        super().__init__(workers.workload, workers.data, meter=meter, graph=workers.graph)
        self.workers = workers
        self.settings = settings or StaleSettings(threshold=0.0)
        self.threshold = Threshold(self.settings)
        self.history: list[StaleEpoch] = []
        self.totals = Totals()
        self.hits = (0, 0)
        self.hidden: Tensor | None = None
        self._now = StaleEpoch()
        self._kept: dict[str, _ExchangeCopies] = {}

    def accumulate(self) -> float:
        hidden = self._forward()
        task, head = self.task, self.model.head
        loss = task.loss_sum(head, hidden, task.scored) / task.count
        loss.backward()
        self.hidden = hidden.detach()
        self.hits = task.hits(head, self.hidden, task.scored)
        value = float(loss.detach())
        self._now.share = self.threshold.share
        self.history.append(self._now)
        self._now = StaleEpoch()
        self.threshold.end_epoch(value)
        return value

    @torch.no_grad()
    def outputs(self) -> Tensor:
        return self._forward()

    @torch.no_grad()
    def accuracy(self) -> float:
        right, total = self.task.hits(self.model.head, self._forward(), self.task.scored)
        return right / total if total else 0.0

    @property
    def cache_bytes(self) -> int:
        """Bytes of the copies that senders keep, measured."""
        return sum(kept.last.nbytes for kept in self._kept.values())

    def cache_rows(self) -> dict[str, tuple[int, int]]:
        """By exchange: rows that others read, and floats of each."""
        return {
            name: (kept.last.copy.shape[0], kept.last.copy[0].numel())
            for name, kept in self._kept.items()
            if kept.last.copy is not None and kept.last.copy.shape[0]
        }

    def _forward(self) -> Tensor:
        workers, model = self.workers, self.model
        x = workers.inputs
        for k in range(len(model.round_dims)):
            shown = model.show(k, x)
            stale = self._fetch(f"structure{k}", shown, workers.structure)
            x = model.receive(k, _Table(workers), torch.cat([shown, stale]))
        if workers.attended is not None:
            return self._attend(model, x, workers.attended)
        return self._walk(model, x)

    def _attend(self, model: SequenceModel, x: Tensor, attended: _Attended) -> Tensor:
        table = torch.cat([x, self._fetch("time", x, attended.boundary)])
        packed = attended.rows.pack(table.index_select(0, attended.gather))
        out = attended.rows.unpack(model.temporal_fused(packed, attended.rows)[0])
        return out.index_select(0, attended.own)

    def _walk(self, model: SequenceModel, x: Tensor) -> Tensor:
        outs: list[Tensor] = []
        ends: list[tuple[Tensor, ...]] = []
        for number, stage in enumerate(self.workers.stages):
            packed = stage.rows.pack(x.index_select(0, stage.steps))
            starts = None
            if stage.begins is not None:
                given = self._handed(number, stage, ends)
                starts = Starts(stage.begins, given.split(list(model.state_dims), dim=1))
            out, states = model.temporal_fused(packed, stage.rows, starts)
            outs.append(stage.rows.unpack(out))
            ends.append(tuple(stage.rows.unpack(s) for s in states))
        order = torch.cat([stage.steps for stage in self.workers.stages]).argsort()
        return torch.cat(outs).index_select(0, order)

    def _handed(self, number: int, stage: _CutStage, ends: list[tuple[Tensor, ...]]) -> Tensor:
        """States that the segments of a stage begin from, stale where they were held back."""
        earlier = self.workers.stages[number - 1]
        place = torch.searchsorted(earlier.steps, stage.before)
        states = torch.cat([s.index_select(0, place) for s in ends[-1]], dim=1)
        # A segment begins where its sequence was cut, so another worker reads every row.
        return self._fetch(f"state{number - 1}", states, stage.boundary)

    def _fetch(self, name: str, x: Tensor, boundary: Boundary) -> Tensor:
        """The rows that others read as they read them, [B, W]."""
        now = x.index_select(0, boundary.rows)
        if not torch.is_grad_enabled():
            return now
        width, pairs = x[0].numel() if x.shape[0] else 0, boundary.pairs
        passes = 2 if x.requires_grad else 1
        if not self.settings.applies(name):
            self._count(name, pairs, pairs, width, passes, 0)
            return now
        kept = self._kept.get(name)
        if kept is None:
            kept = self._kept[name] = _ExchangeCopies(LastSent(self.settings, boundary.sender))
        share = self.threshold.share
        sent = kept.last.choose(now, share)
        self._now.largest[name] = kept.last.largest
        number = int(boundary.readers[sent].sum())
        if kept.received is None or share is None:
            kept.received = now.detach().clone()
            self._count(name, number, pairs, width, passes, 0)
            return now
        index = boundary.bit_bytes
        if self.settings.index == "ids":
            peers = self.workers.count * (self.workers.count - 1)
            index = INDEX_BYTES * number + SIZE_BYTES * peers
        if not x.requires_grad and self.settings.refresh is None:
            index = 0  # inputs: everybody knows that they do not change
        self._count(name, number, pairs, width, passes, index)
        seen = torch.where(sent[:, None], now, kept.received)
        kept.received = seen.detach()
        return seen

    def _count(self, name: str, sent: int, pairs: int, width: int, passes: int, index: int) -> None:
        self._now.add(name, sent, pairs - sent, width)
        self._now.index_bytes += index
        self.totals.rows += sent
        self.totals.plain_rows += pairs
        self.totals.bytes += 4 * width * passes * sent + index
        self.totals.plain_bytes += 4 * width * passes * pairs


class _Table:
    """All vertex-steps as `Neighbours`; further columns are copies that others read."""

    def __init__(self, workers: Workers) -> None:
        self.rows = workers.graph.num_vertices
        self._csr, self._loop = workers.csr, workers.loop

    def propagate(self, shown: Tensor) -> Tensor:
        return spmm(self._csr, shown.contiguous()) + shown[: self.rows] * self._loop

    def attend(self, values: Tensor, source: Tensor, target: Tensor, slope: float) -> Tensor:
        return attend_rows(self._csr.indptr, self._csr.indices, values, source, target, slope)
