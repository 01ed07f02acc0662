"""T-GCN on ranks: one device per process, destinations travel by swaps (sections 4.2 and 6.7).

Every rank samples and cuts the same way, owns one part, and keeps the grids of that part as a
source. In a phase it exchanges destinations with its partner alone; gradients of parameters and the
loss are added up over all ranks once per interval. Losses are those of one device.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from dgbench.models.streaming import DygnnState, PendingInteractions
from dgbench.runtime.collectives import (
    Communicator,
    Traffic,
    TrafficMatrix,
    stack,
)
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.base.interaction_checks import InteractionProbe, probe
from dgbench.systems.base.interaction_trainer import InteractionScores, StepResult, VertexLabels
from dgbench.systems.base.interactions import (
    InteractionData,
    InteractionWorkload,
    load_interactions,
)
from dgbench.systems.base.rank_audit import draw_seed
from dgbench.systems.base.rank_training import RankTraining
from dgbench.systems.base.ranked import WorkClock, on_ranks
from dgbench.systems.base.training_file import all_ready
from dgbench.systems.tgcn.feeding import StagedInterval
from dgbench.systems.tgcn.measured import measure_links, ring_words
from dgbench.systems.tgcn.rank_audit import IntervalCopies, RankGroupAudit
from dgbench.systems.tgcn.rank_rounds import RankRounds
from dgbench.systems.tgcn.ring import KnownLinks
from dgbench.systems.tgcn.rounds import Device
from dgbench.systems.tgcn.trainer import TgcnTrainer


class GridRankTrainer(TgcnTrainer):
    """One rank's part; all ranks call it alike.

    Args:
        comm: the group.
        workload, data, switches, options: of `TgcnTrainer`; state is resident, a part per rank.
        links: between the ranks; None: with `measured_ring` and `schedule` they are measured.
    """

    def __init__(
        self,
        comm: Communicator,
        workload: InteractionWorkload,
        data: InteractionData,
        switches: Mapping[str, bool],
        *,
        links: KnownLinks | None = None,
        **options: Any,
    ) -> None:
        if not switches["partition"]:
            raise InvalidInputError("'partition' is off; ranks own parts, it has to be on")
        self.comm = comm
        measured = None
        if links is None and switches["measured_ring"] and switches["schedule"]:
            links = measured = measure_links(comm)
        super().__init__(
            workload,
            data,
            switches,
            devices=comm.size,
            resident=True,
            device=str(comm.device),
            meter=comm.meter,
            links=links,
            **options,
        )
        if measured is not None:
            self.notes.append(ring_words(measured, self.rounds.schedule.ring))

    @property
    def own_part(self) -> int:
        return self.comm.rank

    def owned(self, vertices: Tensor) -> Tensor:
        return vertices[self.parts.of(vertices) == self.comm.rank]

    def rows_of(self, vertices: Tensor) -> Tensor:
        """Rows of owned vertices in what this rank holds."""
        return self.parts.row(vertices) - self.parts.slice(self.comm.rank).start

    def _initial(self) -> tuple[DygnnState, PendingInteractions]:
        return self._new_state(self.parts.vertices()[self.parts.slice(self.comm.rank)])

    def _rounds(self, labels: VertexLabels | None) -> RankRounds:
        device = Device(
            self.comm.rank, self._settings, self.vertices, self.pending, self.regions[0], labels
        )
        return RankRounds(self.comm, device, self._settings, self.schedule())

    def _run(self, load: StagedInterval, scale: float | None) -> StepResult:
        found = super()._run(load, scale)
        self._loss = found.loss
        if scale is None:
            # Ranks lie in the order of source parts, so that scores come in the order of grids.
            columns, edges = [], self.edges_of(load.events)
            for column, ends in ((found.positives, edges.dst), (found.negatives, edges.negative)):
                sizes = self.comm.exchange_sizes([column.numel()] * self.comm.size)
                order = self._grid_order(edges.src, ends) if ends.numel() else None
                columns.append(load.in_order([self.comm.all_gather(column, sizes)], order))
            found.positives, found.negatives = columns
            ones = torch.stack([found.loss, found.correct, found.asked])
            found.loss, found.correct, found.asked = self.comm.all_reduce(ones)
        return found

    def _grid_order(self, src: Tensor, dst: Tensor) -> Tensor:
        """int64[n]: pairs int64[n] by source and destination part, a grid's in their order."""
        cells = self.parts.of(src) * self.comm.size + self.parts.of(dst)
        return cells.sort(stable=True).indices

    def agree(self) -> None:
        """Add up gradients and the loss of all ranks, in one exchange."""
        gradients = [leaf.grad for leaf in self.model.parameters()]
        flat = [one.flatten() for one in gradients]
        with self.meter.phase("communicate"):
            total = self.comm.all_reduce(torch.cat([*flat, self._loss.reshape(1)]))
        *parts, loss = total.split([*(one.numel() for one in flat), 1])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))
        self._loss.copy_(loss[0])


@dataclass(slots=True)
class GridRankedRun:
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
        copies: per rank, around audited intervals, where they were asked for.
        probe: of the events that were asked for afterwards, all ranks together, or None.
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
    copies: list[IntervalCopies]
    probe: InteractionProbe | None = None

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
class _GridRankInput:
    """Input of every rank."""

    workload: InteractionWorkload
    switches: dict[str, bool]
    epochs: int
    score: tuple[int, int] | None
    probed: tuple[int, int] | None
    clocks: bool
    seed: int | None
    options: dict[str, Any]


@dataclass(slots=True)
class _GridRankOutput:
    """Output of one rank."""

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
    probe: InteractionProbe | None
    copies: IntervalCopies | None


def train_ranked(
    workload: InteractionWorkload,
    ranks: int,
    *,
    switches: Mapping[str, bool] | None = None,
    data: InteractionData | None = None,
    epochs: int = 1,
    score: tuple[int, int] | None = None,
    probed: tuple[int, int] | None = None,
    clocks: bool = False,
    audited: bool = False,
    device: str = "cpu",
    timeout_s: float = 120.0,
    **options: Any,
) -> GridRankedRun:
    """Train on local ranks, one device each; one rank runs in this process.

    Args:
        workload: what to train.
        ranks: devices; 1 or more.
        switches: techniques that differ from the defaults.
        data: of the workload; None: loaded here.
        epochs: at least 1; the first one warms up.
        score: events to score after training, from the first of them to before the last.
        probed: events to probe the trained ranks on, likewise.
        clocks: read clocks around phases.
        audited: let ranks copy their states around drawn intervals of epochs after the first.
        device: `cpu` or `cuda`.
        timeout_s: limit of the whole group; one rank alone has none.
        options: of `GridRankTrainer`: links, vertex_cut, dtype, program and others.

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
    seed = draw_seed() if audited else None
    work = _GridRankInput(workload, on, epochs, score, probed, clocks, seed, options)
    found, _ = on_ranks(
        _train, ranks, (work, data), device=device, seed=workload.seed, timeout_s=timeout_s
    )
    one = found[0]
    return GridRankedRun(
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
        copies=[f.copies for f in found if f.copies is not None],
        probe=_joined([f.probe for f in found]) if probed else None,
    )


def _joined(found: list[InteractionProbe]) -> InteractionProbe:
    """The probe of a group: gradients and losses of training add up, rows lie side by side."""
    return replace(
        found[0],
        trained=sum(one.trained for one in found),
        gradients={
            name: torch.stack([one.gradients[name] for one in found]).sum(0)
            for name in found[0].gradients
        },
        before={vertex: row for one in found for vertex, row in one.before.items()},
        after={vertex: row for one in found for vertex, row in one.after.items()},
    )


def _train(comm: Communicator, work: _GridRankInput, data: InteractionData) -> _GridRankOutput:
    """Be one rank."""
    trainer = GridRankTrainer(comm, work.workload, data, work.switches, **work.options)
    trainer.prepare()
    losses, seconds, clock, audit = [], [], WorkClock(comm), None
    if work.seed is not None:
        audit = RankGroupAudit(comm, trainer, clock, work.seed)
    comm.meter.reset()
    comm.traffic.clear()
    comm.meter.timing = work.clocks
    for _ in range(work.epochs):
        audited = 0.0
        if audit is not None:
            audit.begin(*trainer.next_epoch())
            audited = audit.seconds
        comm.barrier()
        clock.start()
        begin = time.perf_counter()
        losses.append(trainer.train_epoch(audit))
        seconds.append(time.perf_counter() - begin)
        clock.stop()
        if audit is not None:
            seconds[-1] -= audit.seconds - audited
            audit.end()
    comm.meter.timing = False
    traffic = Traffic(comm.rank, comm.size)
    traffic.sent = {key: counts.copy() for key, counts in comm.traffic.sent.items()}
    counters, phases = dict(comm.meter.counters), comm.meter.phases()
    scores = trainer.evaluate_range(*work.score) if work.score else None
    seen = probe(trainer, *work.probed) if work.probed else None
    kept = sum(load.events.numel() for load in trainer.loads(0, data.train_end))
    found = _GridRankOutput(
        losses, scores, seconds, clock.each, kept, traffic, counters, phases,
        trainer.state(), trainer.notes, seen, None if audit is None else audit.copies,
    )  # fmt: skip
    trainer.close()
    return found


class GridRanks(RankTraining):
    """Training on interactions by ranks that `dgbench ranks` starts, each with its vertices."""

    def load(self, workload: InteractionWorkload) -> InteractionData:
        return load_interactions(workload)

    def open(
        self, comm: Communicator, hosts: int, workload: InteractionWorkload, data: InteractionData
    ) -> GridRankTrainer:
        from dgbench.systems.tgcn.system import TgcnSystem

        all_ready(comm)  # links are measured
        trainer = GridRankTrainer(comm, workload, data, TgcnSystem().switches())
        trainer.prepare()
        return trainer

    def train_epoch(self, trainer: GridRankTrainer, epoch: int) -> float:
        trainer.reset_state()
        return trainer.train(0, trainer.data.train_end, epoch=epoch)
