"""Training on a stream by several ranks of this machine, and measuring it (GNNFlow 4.4, 6.3, 6.4).

A batch is dealt evenly to the ranks, whatever machine its vertices belong to. Each samples, fetches
and computes its share; gradients are added up, memories of TGN go to their owners. For one seed,
samples are the same bits and losses the same up to rounding for any number of ranks.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from dgbench.models.ctdg import MemoryRows
from dgbench.runtime.collectives import (
    Communicator,
    Traffic,
    TrafficMatrix,
    equal_parts,
    stack,
)
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.base.rank_training import RankTraining
from dgbench.systems.base.ranked import WorkClock, on_ranks
from dgbench.systems.base.stream import (
    Batch,
    Recalled,
    Scores,
    StreamData,
    StreamTrainer,
    StreamWorkload,
    batches,
    load_stream,
)
from dgbench.systems.base.stream_data import part_ends
from dgbench.systems.base.training_file import all_ready
from dgbench.systems.gnnflow.owners import IdentityHash, MachineLayout, Owners
from dgbench.systems.gnnflow.rank_audit import BatchCopies, BatchRequest, RankBatchAudit
from dgbench.systems.gnnflow.remote_access import GraphRankSettings, RemoteAccess
from dgbench.systems.gnnflow.remote_memory import RemoteMemory

if TYPE_CHECKING:
    from dgbench.systems.base.stream_memory import VertexMemory

INGEST: Final = 100_000
"""Events that are inserted at a time."""


class StreamRankTrainer(StreamTrainer):
    """One rank's share of every batch; all ranks call it alike.

    Args:
        comm: the group. owners: of the vertices. settings: how the graph lies on machines.
        workload, data: of `load_stream`; a batch is that of all ranks together.
        dtype: of the model.
    """

    access: RemoteAccess

    def __init__(
        self,
        comm: Communicator,
        owners: Owners,
        workload: StreamWorkload,
        data: StreamData,
        settings: GraphRankSettings,
        *,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.comm = comm
        access = RemoteAccess(comm, owners, workload, data, settings)
        super().__init__(
            workload, data, access, device=str(comm.device), meter=comm.meter, dtype=dtype
        )
        self.notes += access.notes
        if self.memory is not None:
            self.memory: VertexMemory | RemoteMemory = RemoteMemory(
                comm,
                settings.layout,
                owners,
                data.events.num_nodes,
                self.model.memory_dim,
                self.model.mail_dim,
                begin=data.events.span[0],
                dtype=dtype,
                schedule=settings.schedule,
            )

    def share(self, count: int) -> Tensor:
        """This rank's places in a batch: an equal part, in order."""
        parts = equal_parts(count, self.comm.size)
        first = sum(parts[: self.comm.rank])
        return torch.arange(first, first + parts[self.comm.rank])

    def agree(self) -> None:
        """Add up the gradients of all ranks, in one exchange."""
        leaves = list(self.model.parameters())
        flat = [p.new_zeros(p.numel()) if p.grad is None else p.grad.flatten() for p in leaves]
        with self.meter.phase("communicate"):
            total = self.comm.all_reduce(torch.cat(flat))
        for leaf, part in zip(leaves, total.split([p.numel() for p in leaves]), strict=True):
            leaf.grad = part.view_as(leaf).clone()

    def gathered(self, rows: Tensor, count: int | None = None) -> Tensor:
        """Rows of all ranks, in order of rank; how many each has is known from the batch."""
        sizes = None if count is None else equal_parts(count, self.comm.size)
        return self.comm.all_gather(rows, sizes)

    def train_batch(self, events: Tensor, epoch: int) -> float:
        """Train on these events as one batch; its loss before the update."""
        return self._read(self.enqueue_batch(events, epoch))

    def _batch(self, events: Tensor, draw: int) -> Batch:
        batch = super()._batch(events, draw)
        self.access.expect(batch.events)
        return batch

    def _hidden(self, batch: Batch) -> tuple[Tensor, Recalled | None]:
        if batch.events.numel():
            return super()._hidden(batch)
        # Nothing to compute, but the other ranks may ask for what this one keeps.
        nothing = batch.events
        self.access.sample(nothing, batch.times, draw=batch.draw, positions=nothing)
        hidden = torch.zeros(0, self.model.output_dim, dtype=self.dtype, device=self.device)
        if self.memory is None:
            return hidden, None
        nothing = nothing.to(self.device)
        rows = self.memory.read(nothing)
        return hidden, Recalled(nothing, nothing, rows, rows.memory)

    def _loss(self, batch: Batch, hidden: Tensor) -> Tensor:
        if batch.events.numel():
            return super()._loss(batch, hidden)
        return sum((leaf.sum() for leaf in self.model.parameters()), hidden.sum()) * 0

    def _memorise(self, batch: Batch, recalled: Recalled | None) -> None:
        if recalled is not None and not batch.events.numel():
            # Nothing of its own, but the other ranks' memories may be kept here.
            nothing = batch.events.to(self.device)
            self._write(batch, nothing, nothing, recalled.rows[nothing])
            return
        super()._memorise(batch, recalled)


@dataclass(slots=True)
class BatchAnswer:
    """Results of ranks for a batch of b events without training on it.

    Attributes:
        outputs: [3 b, H], by root. gradients: of the batch's loss, by parameter. loss: of it.
    """

    outputs: Tensor
    gradients: dict[str, Tensor]
    loss: float

    @classmethod
    def of(cls, trainer: StreamTrainer, frame: int) -> BatchAnswer:
        """A trainer's share of it."""
        return cls(trainer.evaluate(frame), trainer.gradients(frame), trainer.loss(frame))

    @classmethod
    def joined(cls, shares: Sequence[BatchAnswer]) -> BatchAnswer:
        """The whole of the shares of all ranks: outputs by side of the events, sums else."""
        width = shares[0].outputs.shape[1]
        sides = [one.outputs.view(3, -1, width) for one in shares]
        return cls(
            torch.cat(sides, dim=1).view(-1, width),
            {
                name: torch.stack([one.gradients[name] for one in shares]).sum(0)
                for name in shares[0].gradients
            },
            sum(one.loss for one in shares),
        )


@dataclass(slots=True)
class StreamRankedRun:
    """A training run on a group of ranks.

    Attributes:
        losses: of every batch, before its update; equal on all ranks.
        scores: of the events that were scored after training, or None.
        seconds: of each batch after the first, the slowest rank's.
        events: of the same batches.
        insert_s: seconds to dispatch and insert all events, the slowest rank's.
        work_s: per rank, seconds of own work in each of these batches, see `WorkClock`.
        sample_s: per rank, those of sampling for itself and for others.
        traffic: of training, these batches.
        insert_traffic: of the dispatch.
        counters: per rank, of these batches.
        phases: per rank, seconds by phase over these batches, where clocks were read.
        state: parameters at the end.
        memory: of all vertices at the end, or None.
        answers: to each of the batches compared, after training.
        notes: what readers have to know.
        copies: per rank, around audited batches, where they were asked for.
    """

    losses: list[float]
    scores: Scores | None
    seconds: list[float]
    events: list[int]
    insert_s: float
    work_s: list[list[float]]
    sample_s: list[list[float]]
    traffic: TrafficMatrix
    insert_traffic: TrafficMatrix
    counters: list[dict[str, int]]
    phases: list[dict[str, float]]
    state: dict[str, Tensor]
    memory: MemoryRows | None
    answers: list[BatchAnswer]
    notes: list[str]
    copies: list[BatchCopies]

    @property
    def throughput(self) -> float:
        """Events of training per second, by the slowest rank of each batch."""
        return sum(self.events) / sum(self.seconds) if self.seconds else 0.0

    @property
    def own_throughput(self) -> float:
        """The same if every rank had a core of its own: by the most processor time of a batch."""
        slowest = sum(max(batch) for batch in zip(*self.work_s, strict=True))
        return sum(self.events) / slowest if slowest else 0.0


@dataclass(frozen=True, slots=True)
class GraphPlacement:
    """One way to keep the graph on the ranks.

    Attributes:
        settings: layout, schedule, caches.
        owners: of the vertices; None: the identity hash.
    """

    settings: GraphRankSettings
    owners: Owners | None = None


def train_ranked(
    workload: StreamWorkload,
    settings: GraphRankSettings,
    *,
    owners: Owners | None = None,
    **how: Any,
) -> StreamRankedRun:
    """`race_ranked` with one contender."""
    return race_ranked(workload, {"": GraphPlacement(settings, owners)}, **how)[""]


def race_ranked(
    workload: StreamWorkload,
    contenders: Mapping[str, GraphPlacement],
    *,
    data: StreamData | None = None,
    first: int = 0,
    last: int | None = None,
    epochs: int = 1,
    score: tuple[int, int] | None = None,
    ingest: int = INGEST,
    clocks: bool = False,
    timeout_s: float = 120.0,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    compared: Mapping[int, Tensor] | None = None,
    audited: BatchRequest | None = None,
) -> dict[str, StreamRankedRun]:
    """Insert a stream and train on some of its events, the contenders batch by batch in turns.

    One rank runs in this process. All events that are trained on or scored are inserted first;
    sampling looks back in time only, so training sees no later ones.

    Args:
        workload: what to train; its batch is that of all ranks together.
        contenders: by name; their layouts have equally many ranks.
        data: of the workload; None: loaded here.
        first, last: events to train on; None: to the end.
        epochs: over them, one round.
        score: events to score after training, from the first of them to before the last.
        ingest: events of an incremental batch.
        clocks: read clocks around phases.
        timeout_s: limit of the whole group; one rank alone has none.
        device: `cpu`, or `cuda`: models, memories and caches of each rank lie on its device, which
            samples blocks, too; rows and records travel from device to device.
        dtype: of the model.
        compared: events by number of their frame that the trainers answer to after training.
        audited: batches around which ranks copy their states; None: none.

    Raises:
        InvalidInputError, UnknownKeyError: an argument out of range.
        RankError: a rank failed.
    """
    workload.check()
    data = load_stream(workload) if data is None else data
    last = len(data.events) if last is None else last
    if not 0 <= first < last <= len(data.events) or epochs < 1 or ingest < 1:
        raise InvalidInputError(
            f"events [{first}, {last}), {epochs} epochs, {ingest} inserted at a time; needed: 0 <= "
            f"first < last <= {len(data.events)}, at least one epoch and one event"
        )
    sizes = {one.settings.layout.ranks for one in contenders.values()}
    if len(sizes) != 1:
        raise InvalidInputError(f"contenders have {sorted(sizes)} ranks, needed: equally many")
    ranks = sizes.pop()
    work = _StreamRankInput(
        workload,
        dict(contenders),
        first,
        last,
        epochs,
        score,
        ingest,
        clocks,
        dtype,
        dict(compared or {}),
        audited,
    )
    found, _ = on_ranks(
        _race, ranks, (work, data), device=device, seed=workload.seed, timeout_s=timeout_s
    )
    return {name: _run([rank[name] for rank in found]) for name in contenders}


def _run(found: Sequence[_StreamRankOutput]) -> StreamRankedRun:
    """One contender's run from what its ranks tell."""
    one = found[0]
    return StreamRankedRun(
        losses=one.losses,
        scores=one.scores,
        seconds=[max(batch) for batch in zip(*(f.seconds for f in found), strict=True)],
        events=one.events,
        insert_s=max(f.insert_s for f in found),
        work_s=[f.work_s for f in found],
        sample_s=[f.sample_s for f in found],
        traffic=stack([f.traffic for f in found]),
        insert_traffic=stack([f.insert_traffic for f in found]),
        counters=[dict(f.counters) for f in found],
        phases=[dict(f.phases) for f in found],
        state=one.state,
        memory=one.memory,
        answers=[
            BatchAnswer.joined(each) for each in zip(*(f.answers for f in found), strict=True)
        ],
        notes=one.notes,
        copies=[f.copies for f in found if f.copies is not None],
    )


@dataclass(frozen=True, slots=True)
class _StreamRankInput:
    """Input of every rank."""

    workload: StreamWorkload
    contenders: dict[str, GraphPlacement]
    first: int
    last: int
    epochs: int
    score: tuple[int, int] | None
    ingest: int
    clocks: bool
    dtype: torch.dtype
    compared: dict[int, Tensor]
    audited: BatchRequest | None


@dataclass(slots=True)
class _StreamRankOutput:
    """Output of one rank for one contender."""

    traffic: Traffic
    insert_traffic: Traffic
    insert_s: float = 0.0
    losses: list[float] = field(default_factory=list)
    scores: Scores | None = None
    seconds: list[float] = field(default_factory=list)
    events: list[int] = field(default_factory=list)
    work_s: list[float] = field(default_factory=list)
    sample_s: list[float] = field(default_factory=list)
    counters: Counter[str] = field(default_factory=Counter)
    phases: Counter[str] = field(default_factory=Counter)
    state: dict[str, Tensor] = field(default_factory=dict)
    memory: MemoryRows | None = None
    answers: list[BatchAnswer] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    copies: BatchCopies | None = None


def _race(
    comm: Communicator, work: _StreamRankInput, data: StreamData
) -> dict[str, _StreamRankOutput]:
    """Be one rank."""
    trainers: dict[str, StreamRankTrainer] = {}
    found: dict[str, _StreamRankOutput] = {}
    for name, one in work.contenders.items():
        owners = one.owners or IdentityHash(one.settings.layout.machines)
        trainer = StreamRankTrainer(
            comm, owners, work.workload, data, one.settings, dtype=work.dtype
        )
        trainers[name] = trainer
        _taken(comm)
        comm.barrier()
        begin = time.perf_counter()
        last = max(work.last, work.score[1] if work.score else 0)
        for first in range(0, last, work.ingest):
            trainer.insert(min(last, first + work.ingest))
        trainer.access.finish()
        mine = found[name] = _StreamRankOutput(Traffic(comm.rank, comm.size), _taken(comm))
        mine.insert_s = time.perf_counter() - begin
    wanted, names = torch.arange(work.first, work.last), list(trainers)
    turn, audits = 0, dict[str, RankBatchAudit]()
    for name, trainer in trainers.items():
        trainer.access.begin_round()
        if work.audited is not None:
            audits[name] = RankBatchAudit(comm, work.audited, trainer)
    for epoch in range(work.epochs):
        for trainer in trainers.values():
            trainer.access.begin_epoch()
            trainer.reset_memory()
        for part in batches(work.workload, wanted, data.events.t[wanted], epoch):
            for name in names if turn % 2 == 0 else reversed(names):
                if audits:
                    audits[name].between(turn)
                _one_batch(comm, trainers[name], part, epoch, found[name], work.clocks and turn > 0)
            turn += 1
    for name, audit in audits.items():
        audit.between(turn)
        found[name].copies = audit.copies
    for name, trainer in trainers.items():
        if work.score:
            found[name].scores = trainer.evaluate_range(*work.score)
        found[name].state, found[name].notes = trainer.state(), trainer.notes
        if work.compared:
            _answer(comm, trainer, work.compared, found[name])
    return found


def _answer(
    comm: Communicator,
    trainer: StreamRankTrainer,
    frames: Mapping[int, Tensor],
    found: _StreamRankOutput,
) -> None:
    """Note a trainer's memories, and what it answers to some batches; all ranks alike."""
    if trainer.memory is not None:
        trainer._write_held()  # else a batch of another time would
        rows = trainer.memory.read(torch.arange(trainer.data.events.num_nodes, device=comm.device))
        if comm.rank == 0:
            columns = (getattr(rows, name).cpu() for name in MemoryRows.__slots__)
            found.memory = MemoryRows(*columns)
    with trainer.frames_replaced(frames):
        found.answers = [BatchAnswer.of(trainer, frame) for frame in frames]


def _one_batch(
    comm: Communicator,
    trainer: StreamRankTrainer,
    part: Tensor,
    epoch: int,
    found: _StreamRankOutput,
    clocks: bool,
) -> None:
    """Train on a batch and note what it took; the first one only warms up."""
    meter = comm.meter
    meter.reset()
    _taken(comm)
    comm.barrier()
    meter.timing = clocks
    clock = WorkClock(comm)
    clock.start()
    wall = time.perf_counter()
    loss = trainer.train_batch(part, epoch)
    wall = time.perf_counter() - wall
    clock.stop()
    meter.timing = False
    found.losses.append(loss)
    if len(found.losses) == 1:
        return
    found.seconds.append(wall)
    found.work_s.append(clock.each[-1])
    found.events.append(part.numel())
    found.sample_s.append(meter.spent["sample_own"] + meter.spent["sample_served"])
    found.counters.update(meter.counters)
    found.phases.update(meter.phases())
    for key, counts in _taken(comm).sent.items():
        known = found.traffic.sent.get(key)
        found.traffic.sent[key] = counts if known is None else known + counts


def _taken(comm: Communicator) -> Traffic:
    """The counts so far; counting begins again."""
    taken = Traffic(comm.rank, comm.size)
    taken.sent = {key: counts.copy() for key, counts in comm.traffic.sent.items()}
    comm.traffic.clear()
    return taken


class StreamRanks(RankTraining):
    """Training on a stream by ranks that `dgbench ranks` starts; every host keeps its part of the
    graph."""

    def load(self, workload: StreamWorkload) -> StreamData:
        return load_stream(workload)

    def open(
        self, comm: Communicator, hosts: int, workload: StreamWorkload, data: StreamData
    ) -> StreamRankTrainer:
        layout = MachineLayout(hosts, comm.size // hosts)
        end, _ = part_ends(data.events)
        if end == 0:
            raise InvalidInputError(
                f"'{workload.dataset}' has {len(data.events)} events, of which none is in the "
                "training part: its end lies between two times",
                hint="take more events, or data with more times",
            )
        all_ready(comm)  # ranks of a machine share its store
        trainer = StreamRankTrainer(
            comm, IdentityHash(hosts), workload, data, GraphRankSettings(layout)
        )
        for first in range(0, end, INGEST):
            trainer.insert(min(end, first + INGEST))
        trainer.access.finish()
        trainer.access.begin_round()
        return trainer

    def train_epoch(self, trainer: StreamRankTrainer, epoch: int) -> float:
        trainer.access.begin_epoch()
        trainer.reset_memory()
        return trainer.train(0, part_ends(trainer.data.events)[0], epoch=epoch)
