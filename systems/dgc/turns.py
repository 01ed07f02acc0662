"""Settings that take turns inside one group of ranks, epoch by epoch.

What disturbs the machine then disturbs all of them alike, and ratios are formed turn by turn. The
processes, their data and their links are the same for all.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dgbench.runtime.collectives import (
    Communicator,
    LocalCommunicator,
    Traffic,
    TrafficMatrix,
    stack,
)
from dgbench.runtime.errors import InvalidInputError
from dgbench.runtime.meter import Meter
from dgbench.runtime.ranks import TRAINING, launch
from dgbench.systems.base.rank_audit import AuditedEpochs, RankAudit, draw_seed
from dgbench.systems.base.ranked import WorkClock
from dgbench.systems.base.sequences import SequenceWorkload, vertex_steps
from dgbench.systems.base.transport import Transport, bind, carrier
from dgbench.systems.dgc.dealing import WorkAssignment, connect, deal, open_trainer
from dgbench.systems.dgc.plan import step_entries
from dgbench.systems.dgc.ranked import PHASES, stale_history
from dgbench.systems.dgc.sequence_oracle import (
    SequenceAnswers,
    answers_of,
    last_gradients,
    load_state,
    send_every_row,
)
from dgbench.systems.dgc.settings_run import ChunkRankSettings
from dgbench.systems.dgc.stale import StaleEpoch, summed
from dgbench.systems.dgc.trainer import ChunkRankTrainer

if TYPE_CHECKING:
    from dgbench.datasets import SnapshotSequence
    from dgbench.systems.dgc.placement import Placement

WARM = 2
"""Turns before the first that counts."""

CLOCKED = 2
"""Epochs after the turns in which clocks are read for the phases."""


@dataclass(slots=True)
class ChunkRaceResult:
    """Result of a race; all fields by name of the contender.

    Attributes:
        seconds: of each counted epoch, the slowest rank's.
        phases: seconds per epoch of `ranked.PHASES`, mean over ranks, median of later epochs;
            `communicate` is the time that a rank stands still for others (which on fewer cores than
            ranks includes waiting for a core).
        shares: per rank the same.
        traffic: of one epoch.
        counters: of one epoch, summed over ranks; rows and floats by name of exchange.
        partition_s: seconds to make the placement.
        prepare_s: the slowest rank's seconds to cut its matrices and make its lists.
        work_s: per rank, seconds per epoch of own work, see `ChunkRankedRun.work_s`.
        stages: segments that no worker can run before another has ended.
        losses: of every epoch, warm-up included.
        output: of the untrained model, over all vertex-steps.
        gradients: of the first epoch, which sends everything.
        later: per rank, what the contenders answer after everything else.
        audits: of drawn epochs that count.
        placements: who did what.
        accuracy: after the last turn, on what is held out; {} where nothing is compared.
        stale: of every epoch, over all ranks; [] where all is sent.
        notes: what readers have to know.
        carrier: what carried rows between the ranks, in words.
    """

    seconds: dict[str, list[float]]
    phases: dict[str, dict[str, float]]
    shares: dict[str, list[dict[str, float]]]
    traffic: dict[str, TrafficMatrix]
    counters: dict[str, dict[str, int]]
    partition_s: dict[str, float]
    prepare_s: dict[str, float]
    work_s: dict[str, list[float]]
    stages: dict[str, int]
    losses: dict[str, list[float]]
    output: dict[str, Tensor]
    gradients: dict[str, dict[str, Tensor]]
    later: list[TrainedAnswers]
    audits: dict[str, AuditedEpochs]
    placements: dict[str, Placement]
    accuracy: dict[str, float]
    stale: dict[str, list[StaleEpoch]]
    notes: dict[str, list[str]]
    carrier: str

    def divergence(self, name: str) -> float:
        """T_max / T_min of own work over the ranks (section 3.6)."""
        work = self.work_s[name]
        return max(work) / min(work) if min(work) > 0 else float("inf")


def take_rank_turns(
    workload: SequenceWorkload,
    data: SnapshotSequence,
    ranks: int,
    contenders: Mapping[str, ChunkRankSettings],
    *,
    least: int = 5,
    budget_s: float = 1.0,
    timeout_s: float = 120.0,
    device: str = "cpu",
    transport: Transport = "auto",
    compare: bool = True,
    clocked: int = CLOCKED,
) -> ChunkRaceResult:
    """Train every contender on the same ranks, one epoch each per turn, in alternating order.

    Args:
        workload, data: what all of them train.
        ranks: P, at least 1; processes of this machine with one thread each, with `auto` kept on
            cores where these can be shared out evenly. One rank runs in this process.
        contenders: name -> settings; their `transport` is not read. None with a store, which needs
            a rank more.
        least: turns that count, at least.
        budget_s: seconds to go on for, warm-up included.
        timeout_s: of the whole group.
        device: `cpu`, or `cuda` where each rank has one of its own.
        transport: what carries rows between ranks.
        compare: gather outputs and gradients, before training and after it.
        clocked: epochs after the turns that phases are taken from; with 0 there are none.

    Raises:
        InvalidInputError: no contender, or one with a store.
        RankError: a rank failed.
    """
    if not contenders or any(settings.store for settings in contenders.values()):
        raise InvalidInputError(
            "'contenders' needs settings, none with a store",
            hint="a store has a rank of its own: train_ranked",
        )
    settings = {n: replace(s.check(), transport=transport) for n, s in contenders.items()}
    graph = vertex_steps(data, workload)
    entries = step_entries(data, graph, workload.norm)
    known: dict[tuple[object, ...], WorkAssignment] = {}
    dealt: dict[str, WorkAssignment] = {}
    for name, some in settings.items():
        key = (some.partition, some.chunks if some.partition == "chunks" else None)
        if key not in known:
            known[key] = deal(
                workload, data, ranks, some, graph=graph, entries=entries, device=device
            )
        dealt[name] = known[key]
    drawn = random.SystemRandom().choice(list(settings))
    told = _ChunkRaceRankInput(
        workload, data, settings, dealt, least, budget_s, transport, compare, clocked, drawn,
        draw_seed(),
    )  # fmt: skip
    if ranks == 1:
        comm = LocalCommunicator(device=device, meter=Meter(device=device), seed=workload.seed)
        found = [_take(comm, told)]
    else:
        found = list(
            launch(
                _take,
                ranks,
                (told,),
                timeout_s=timeout_s,
                device=device,
                threads=1,
                seed=workload.seed,
                preload=TRAINING,
            )
        )
    first, names = found[0], list(settings)
    shares = {n: [f.phases[n] for f in found] for n in names}
    return ChunkRaceResult(
        seconds={n: [max(turn) for turn in zip(*(f.seconds[n] for f in found))] for n in names},  # noqa: B905
        phases={
            n: {p: sum(share[p] for share in shares[n]) / ranks for p in shares[n][0]}
            for n in names
        },
        shares=shares,
        traffic={n: stack([f.traffic[n] for f in found]) for n in names},
        counters={n: _added([f.counters[n] for f in found]) for n in names},
        partition_s={n: dealt[n].seconds for n in names},
        prepare_s={n: max(f.prepare_s[n] for f in found) for n in names},
        work_s={n: [f.work_s[n] for f in found] for n in names},
        stages=first.stages,
        losses=first.losses,
        output=first.output,
        gradients=first.gradients,
        later=[f.later for f in found if f.later is not None],
        audits=first.audits,
        placements={n: dealt[n].placement for n in names},
        accuracy=first.accuracy,
        stale={n: summed([f.stale[n] for f in found]) for n in names},
        notes={n: [*dealt[n].notes] for n in names},
        carrier=first.carrier,
    )


@dataclass(frozen=True, slots=True)
class _ChunkRaceRankInput:
    """Input of every rank."""

    workload: SequenceWorkload
    data: SnapshotSequence
    settings: dict[str, ChunkRankSettings]
    dealt: dict[str, WorkAssignment]
    least: int
    budget_s: float
    transport: Transport
    compare: bool
    clocked: int
    drawn: str
    seed: int


@dataclass(slots=True)
class _ChunkRaceRankOutput:
    """Output of one rank."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    phases: dict[str, dict[str, float]] = field(default_factory=dict)
    traffic: dict[str, Traffic] = field(default_factory=dict)
    counters: dict[str, dict[str, int]] = field(default_factory=dict)
    prepare_s: dict[str, float] = field(default_factory=dict)
    work_s: dict[str, float] = field(default_factory=dict)
    stages: dict[str, int] = field(default_factory=dict)
    losses: dict[str, list[float]] = field(default_factory=dict)
    output: dict[str, Tensor] = field(default_factory=dict)
    gradients: dict[str, dict[str, Tensor]] = field(default_factory=dict)
    later: TrainedAnswers | None = None
    audits: dict[str, AuditedEpochs] = field(default_factory=dict)
    accuracy: dict[str, float] = field(default_factory=dict)
    stale: dict[str, list[StaleEpoch]] = field(default_factory=dict)
    carrier: str = ""


def _take(comm: Communicator, told: _ChunkRaceRankInput) -> _ChunkRaceRankOutput:
    """Be one rank."""
    if told.transport == "auto" and comm.size > 1:
        # Only pipes crowd ranks on one core; under Gloo a fixed place makes shares less even.
        bind(comm.rank, comm.size)
    found, names = _ChunkRaceRankOutput(), list(told.settings)
    trainers: dict[str, ChunkRankTrainer] = {}
    clocks: dict[str, WorkClock] = {}
    audit = RankAudit(comm, told.seed, WARM, least=told.least)
    for name, settings in told.settings.items():
        connect(comm, settings)
        comm.barrier()
        begin = time.perf_counter()
        trainers[name] = trainer = open_trainer(
            comm, told.workload, told.data, told.dealt[name], settings
        )
        found.prepare_s[name] = time.perf_counter() - begin
        found.stages[name] = trainer.stages
        if told.compare:
            output = trainer.evaluate()
            if comm.rank == 0:
                found.output[name] = output
        found.seconds[name], found.losses[name] = [], []
        clocks[name] = WorkClock(comm)
        audit.open(name, trainer)
    gc.collect()
    begin, turn, going = time.perf_counter(), -WARM, True
    while going:
        for name in names if turn % 2 == 0 else reversed(names):
            connect(comm, told.settings[name])
            comm.traffic.clear()
            comm.meter.counters.clear()
            comm.barrier()
            clocks[name].start()
            start = time.perf_counter()
            loss = trainers[name].train_epoch()
            took = time.perf_counter() - start
            clocks[name].stop()
            found.losses[name].append(loss)
            audit.after(name, len(found.losses[name]))
            if turn == -WARM and told.compare and comm.rank == 0:
                found.gradients[name] = last_gradients(trainers[name])
            if turn >= 0:
                found.seconds[name].append(took)
            if turn == 0:
                found.traffic[name] = comm.traffic.copy()
                found.counters[name] = dict(comm.meter.counters)
        turn += 1
        # The first rank's clock decides, so that all stop together.
        spent = torch.tensor([time.perf_counter() - begin], dtype=torch.float64)
        going = turn < told.least or float(comm.broadcast(spent.to(comm.device))[0]) < told.budget_s
    found.audits = audit.epochs
    for name in names:
        found.work_s[name] = median(clocks[name].each[WARM:])
        found.stale[name] = stale_history(trainers[name])
        if told.compare:
            found.accuracy[name] = trainers[name].accuracy()
    for name in names:
        connect(comm, told.settings[name])
        found.phases[name] = _phases(comm, trainers[name], told.clocked)
    if told.compare:
        found.later = ask_trained(comm, trainers, told.settings, told.drawn)
    found.carrier = carrier(comm)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class TrainedAnswers:
    """Results of trained contenders on one rank, with all that they keep as training left it.

    Attributes:
        state: parameters of one of them, at which all were asked; stale rows are all sent for it.
        answers: by name, on the first rank.
        replicas: parameters that each was left with, as one vector.
    """

    state: dict[str, Tensor]
    answers: dict[str, SequenceAnswers]
    replicas: dict[str, Tensor]


def ask_trained(
    comm: Communicator,
    trainers: Mapping[str, ChunkRankTrainer],
    settings: Mapping[str, ChunkRankSettings],
    drawn: str,
) -> TrainedAnswers:
    """Ask trained contenders at the parameters of the one that was drawn; all ranks call it."""
    found = TrainedAnswers(trainers[drawn].state(), {}, {})
    for name, trainer in trainers.items():
        connect(comm, settings[name])
        found.replicas[name] = torch.cat([p.flatten() for p in trainer.state().values()])
        load_state(trainer, found.state)
        send_every_row(trainer)
        answers = answers_of(trainer)
        if comm.rank == 0:
            found.answers[name] = answers
    return found


def _phases(comm: Communicator, trainer: ChunkRankTrainer, epochs: int) -> dict[str, float]:
    """Seconds per epoch with clocks read, the median of some epochs; empty without any."""
    each = []
    for _ in range(epochs):
        comm.meter.reset()
        comm.barrier()
        comm.meter.timing = True
        trainer.train_epoch()
        comm.meter.timing = False
        each.append(comm.meter.phases())
    return {name: median(spent.get(name, 0.0) for spent in each) for name in PHASES if each}


def _added(counters: list[dict[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for one in counters:
        for name, count in one.items():
            total[name] = total.get(name, 0) + count
    return total
