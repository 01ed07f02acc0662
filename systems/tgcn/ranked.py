"""T-GCN on ranks: one device per process, destinations travel by swaps (sections 4.2 and 6.7).

Every rank samples and cuts the same way, owns one part, and keeps the grids of that part as a
source. In a phase it exchanges destinations with its partner alone; gradients of parameters and the
loss are added up over all ranks once per interval. Losses are those of one device.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from dgbench.models.streaming import DygnnState, Pending
from dgbench.runtime.collectives import (
    Communicator,
    Exchange,
    LocalCommunicator,
    Traffic,
    TrafficMatrix,
    stack,
)
from dgbench.runtime.errors import InvalidInputError
from dgbench.runtime.meter import Meter
from dgbench.runtime.ranks import TRAINING, launch
from dgbench.systems.base.interaction_trainer import InteractionScores, StepResult
from dgbench.systems.base.interactions import (
    InteractionData,
    InteractionWorkload,
    load_interactions,
)
from dgbench.systems.base.ranked import WorkClock
from dgbench.systems.tgcn.device import Labels, Scored
from dgbench.systems.tgcn.feeding import Load
from dgbench.systems.tgcn.regions import Visitor
from dgbench.systems.tgcn.rounds import Device, Settings
from dgbench.systems.tgcn.schedule import Move, Schedule, make_schedule
from dgbench.systems.tgcn.trainer import TgcnTrainer


class RankRounds:
    """Runs intervals on one rank; all ranks call it alike.

    Args:
        comm: the group. device: of this rank. settings: of it. schedule: who holds what when.
    """

    def __init__(
        self, comm: Communicator, device: Device, settings: Settings, schedule: Schedule
    ) -> None:
        self.comm, self.device, self.set, self.schedule = comm, device, settings, schedule
        self._path = [part for phase in schedule.phases for part in phase.trains[comm.rank]]

    def reserve(self, rows: int, width: int, dtype: torch.dtype) -> None:
        """Have room for what is added up at home; what comes brings its own."""
        self.device.regions.reserve(rows, width, dtype, now=1, coming=0)

    def run(self, load: Load, *, scale: float | None) -> list[Scored]:
        """One interval, this rank's part of it."""
        device, phases = self.device, self.schedule.phases
        device.begin(load, scale=scale)
        early: Exchange | None = None
        for number, phase in enumerate(phases):
            self._move(load, phase.moves, early)
            following = phases[number + 1].moves if number + 1 < len(phases) else ()
            early = None
            if self.schedule.kind != "gather" and device.regions.overlap:
                early = self._read(load, following)
            for part in phase.trains[self.comm.rank]:
                self._ahead(load, part)
                device.train(load, part)
            if phase.moves:
                self.set.meter.count("phases")
        self.set.meter.count("rounds")
        return [device.end(load)]

    def _ahead(self, load: Load, part: int) -> None:
        rank, feeder = self.comm.rank, self.device.feeder
        for later in self._path[self._path.index(part) :]:
            if (rank, later) in load.grids:
                feeder.ahead((load.key, rank, later), load.grids[rank, later][1])

    def _read(self, load: Load, moves: Sequence[Move]) -> Exchange | None:
        """Begin to pass on embeddings, which nobody writes."""
        if not any(move.reads for move in moves):
            return None
        with self.set.meter.phase("swap"):
            return self._exchange(
                load, moves, "reads", 1, lambda part: self.device.held[part].embedding
            )

    def _move(self, load: Load, moves: Sequence[Move], early: Exchange | None) -> None:
        """All moves of a phase at once."""
        if not moves:
            return
        read = early if early is not None else self._read(load, moves)
        added = None
        with self.set.meter.phase("swap"):
            if any(move.sums for move in moves):
                added = self._exchange(load, moves, "sums", 2, self._sums)
            mine = [move for move in moves if move.target == self.comm.rank]
            mine.sort(key=lambda move: move.source)
            sizes = [load.shares[move.part][0].travelling for move in mine]
            embeddings = None if read is None else read.wait().split(sizes)
            sums = None if added is None else added.wait().split([2 * n for n in sizes])
        for move in moves:
            copies = self.schedule.kind == "gather"
            if move.source == self.comm.rank and (not copies or move.target == move.part):
                self.device.drop(move.part)
        for k, (move, rows) in enumerate(zip(mine, sizes, strict=True)):
            self._receive(
                move, rows, None if embeddings is None else embeddings[k], sums and sums[k]
            )

    def _receive(self, move: Move, rows: int, embedding: Tensor | None, sums: Any) -> None:
        device = self.device
        if embedding is None:
            embedding = device.owner.targets
        if sums is None or sums.shape[0] == 0:
            sums = embedding.new_zeros(2 * rows, embedding.shape[1])
        visitor = Visitor(move.part, embedding, sums[:rows], sums[rows:])
        own = device.held.get(move.part)
        if own is None:
            device.held[move.part] = visitor
        else:  # a copy is back with what was added to it
            own.gradient.add_(visitor.gradient)
            own.total.add_(visitor.total)

    def _sums(self, part: int) -> Tensor:
        visitor = self.device.held[part]
        if visitor.total is None:
            width = visitor.embedding.shape[1]
            return visitor.embedding.new_zeros(2 * visitor.embedding.shape[0], width)
        return torch.cat([visitor.gradient, visitor.total])

    def _exchange(
        self, load: Load, moves: Sequence[Move], what: str, planes: int, piece: Any
    ) -> Exchange:
        """Rows that moves take from this rank and bring to it; to partners alone."""
        size = self.comm.size
        send, receive = [0] * size, [0] * size
        pieces = {}
        for move in moves:
            if not getattr(move, what):
                continue
            rows = planes * load.shares[move.part][0].travelling
            if move.source == self.comm.rank:
                send[move.target] = rows
                pieces[move.target] = piece(move.part)
                self.set.meter.count(
                    "bytes_swapped", pieces[move.target].numel() * self.device.state.hs.itemsize
                )
            if move.target == self.comm.rank:
                receive[move.source] = rows
        empty = self.device.owner.targets[:0]
        x = torch.cat([empty, *(pieces[to] for to in sorted(pieces))])
        return self.comm.start_all_to_all(x, send, receive, grad=False)


class RankTrainer(TgcnTrainer):
    """One rank's part; all ranks call it alike.

    Args:
        comm: the group.
        workload, data, switches, options: of `TgcnTrainer`; state is resident, a part per rank.
    """

    def __init__(
        self,
        comm: Communicator,
        workload: InteractionWorkload,
        data: InteractionData,
        switches: Mapping[str, bool],
        **options: Any,
    ) -> None:
        if not switches["partition"]:
            raise InvalidInputError("'partition' is off; ranks own parts, it has to be on")
        self.comm = comm
        super().__init__(
            workload,
            data,
            switches,
            devices=comm.size,
            resident=True,
            device=str(comm.device),
            meter=comm.meter,
            **options,
        )

    @property
    def _own(self) -> int:
        return self.comm.rank

    def _initial(self) -> tuple[DygnnState, Pending]:
        mine = self.parts.slice(self.comm.rank)
        state, pending = super()._initial()
        return state[mine].clone(), pending[mine].clone()

    def _open(self) -> None:
        super()._open()
        self.regions, rest = [self.regions[self.comm.rank]], self.regions
        for one in rest:
            if one is not self.regions[0]:
                one.close()

    def _rounds(self, labels: Labels | None) -> RankRounds:
        rank = self.comm.rank
        mine = None if labels is None else labels[self.parts.slice(rank)]
        device = Device(rank, self._settings, self.vertices, self.pending, self.regions[rank], mine)
        kind = "ring" if self.on["schedule"] else "gather"
        schedule = make_schedule(self.comm.size, kind)
        return RankRounds(self.comm, device, self._settings, schedule)

    def _run(self, load: Load, scale: float | None) -> StepResult:
        found = super()._run(replace(load, edge_order=None, wrong_order=None), scale)
        self._loss = found.loss
        if scale is None:
            # Ranks lie in the order of source parts, so that scores come in the order of grids.
            columns = []
            for column, order in ((found.right, load.edge_order), (found.wrong, load.wrong_order)):
                sizes = self.comm.exchange_sizes([column.numel()] * self.comm.size)
                columns.append(load.in_order([self.comm.all_gather(column, sizes)], order))
            found.right, found.wrong = columns
            ones = torch.stack([found.loss, found.correct, found.asked])
            found.loss, found.correct, found.asked = self.comm.all_reduce(ones)
        return found

    def agree(self) -> None:
        """Add up gradients and the loss of all ranks, in one exchange."""
        leaves = list(self.model.parameters())
        flat = [p.new_zeros(p.numel()) if p.grad is None else p.grad.flatten() for p in leaves]
        # Adam leaves alone what no rank has a gradient of, as on one device.
        there = self._loss.new_tensor([float(p.grad is not None) for p in leaves])
        with self.meter.phase("communicate"):
            total = self.comm.all_reduce(torch.cat([*flat, there, self._loss.reshape(1)]))
        *parts, there, loss = total.split([*(p.numel() for p in leaves), len(leaves), 1])
        for leaf, part, found in zip(leaves, parts, there.tolist(), strict=True):
            leaf.grad = part.view_as(leaf).clone() if found else None
        self._loss.copy_(loss[0])


@dataclass(slots=True)
class RankedRun:
    """A training run on a group of ranks.

    Attributes:
        losses: of every epoch, per edge; equal on all ranks.
        scores: of the events that were scored afterwards, or None.
        seconds: of every epoch, the slowest rank's.
        work_s: per rank, processor seconds of every epoch.
        edges: trained on in an epoch.
        traffic: of all epochs.
        counters, phases: per rank, of all epochs; phases where clocks were read.
        state: parameters at the end.
        notes: what readers have to know.
    """

    losses: list[float]
    scores: InteractionScores | None
    seconds: list[float]
    work_s: list[list[float]]
    edges: int
    traffic: TrafficMatrix
    counters: list[dict[str, int]]
    phases: list[dict[str, float]]
    state: dict[str, Tensor]
    notes: list[str]

    @property
    def throughput(self) -> float:
        """Edges trained on per second after the first epoch, by the slowest rank."""
        later = self.seconds[1:] or self.seconds
        return self.edges * len(later) / sum(later)

    @property
    def own_throughput(self) -> float:
        """The same if every rank had a core of its own: by the most processor time of an epoch."""
        slowest = [max(epoch) for epoch in zip(*self.work_s, strict=True)]
        later = slowest[1:] or slowest
        return self.edges * len(later) / sum(later)


@dataclass(frozen=True, slots=True)
class _Work:
    """What every rank is told."""

    workload: InteractionWorkload
    switches: dict[str, bool]
    epochs: int
    score: tuple[int, int] | None
    clocks: bool
    options: dict[str, Any]


@dataclass(slots=True)
class _Found:
    """What one rank tells."""

    losses: list[float]
    scores: InteractionScores | None
    seconds: list[float]
    work_s: list[float]
    edges: int
    traffic: Traffic
    counters: dict[str, int]
    phases: dict[str, float]
    state: dict[str, Tensor]
    notes: list[str]


def train_ranked(
    workload: InteractionWorkload,
    ranks: int,
    *,
    switches: Mapping[str, bool] | None = None,
    data: InteractionData | None = None,
    epochs: int = 1,
    score: tuple[int, int] | None = None,
    clocks: bool = False,
    device: str = "cpu",
    timeout_s: float = 120.0,
    **options: Any,
) -> RankedRun:
    """Train on local ranks, one device each; one rank runs in this process.

    Args:
        workload: what to train.
        ranks: devices; 1 or more.
        switches: techniques that differ from the defaults.
        data: of the workload; None: loaded here.
        epochs: at least 1; the first one warms up.
        score: events to score after training, from the first of them to before the last.
        clocks: read clocks around phases.
        device: `cpu` or `cuda`.
        timeout_s: limit of the whole group; one rank alone has none.
        options: of `TgcnTrainer`: vertex_cut, dtype, program and others.

    Raises:
        InvalidInputError, UnknownKeyError: an argument out of range.
        RankError: a rank failed.
    """
    from dgbench.systems.tgcn.system import TgcnSystem

    workload.check()
    on = TgcnSystem().switches(switches)
    if ranks < 1 or epochs < 1:
        raise InvalidInputError(f"{ranks} ranks and {epochs} epochs; needed: at least 1 of each")
    data = load_interactions(workload) if data is None else data
    work = _Work(workload, on, epochs, score, clocks, options)
    if ranks == 1:
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            comm = LocalCommunicator(device=device, meter=Meter(device=device))
            found = [_train(comm, work, data)]
        finally:
            torch.set_num_threads(before)
    else:
        found = list(
            launch(
                _train,
                ranks,
                (work, data),
                timeout_s=timeout_s,
                device=device,
                threads=1,
                seed=workload.seed,
                preload=TRAINING,
            )
        )
    one = found[0]
    return RankedRun(
        losses=one.losses,
        scores=one.scores,
        seconds=[max(epoch) for epoch in zip(*(f.seconds for f in found), strict=True)],
        work_s=[f.work_s for f in found],
        edges=one.edges,
        traffic=stack([f.traffic for f in found]),
        counters=[f.counters for f in found],
        phases=[f.phases for f in found],
        state=one.state,
        notes=one.notes,
    )


def _train(comm: Communicator, work: _Work, data: InteractionData) -> _Found:
    """Be one rank."""
    trainer = RankTrainer(comm, work.workload, data, work.switches, **work.options)
    trainer.prepare()
    losses, seconds, clock = [], [], WorkClock(comm)
    comm.meter.reset()
    comm.traffic.clear()
    comm.meter.timing = work.clocks
    for _ in range(work.epochs):
        comm.barrier()
        clock.start()
        begin = time.perf_counter()
        losses.append(trainer.train_epoch())
        seconds.append(time.perf_counter() - begin)
        clock.stop()
    comm.meter.timing = False
    traffic = Traffic(comm.rank, comm.size)
    traffic.sent = {key: counts.copy() for key, counts in comm.traffic.sent.items()}
    counters, phases = dict(comm.meter.counters), comm.meter.phases()
    scores = trainer.evaluate_range(*work.score) if work.score else None
    kept = sum(load.events.numel() for load in trainer.loads(0, data.train_end))
    found = _Found(
        losses, scores, seconds, clock.each, kept, traffic, counters, phases,
        trainer.state(), trainer.notes,
    )  # fmt: skip
    trainer.close()
    return found
