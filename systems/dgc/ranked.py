"""Training vertex-steps on several ranks of this machine and measuring it: one call, one result.

What DGC shows of its distributed runs (sections 7.2 to 7.5) comes from here: time per epoch and its
parts, what was sent, how even the work is, losses and accuracy.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Final

from dgbench.runtime.collectives import Communicator
from dgbench.runtime.meter import Meter
from dgbench.systems.base.rank_training import RankTraining
from dgbench.systems.base.ranked import (
    RankedRun,
    RankOutput,
    WorkClock,
    check_group,
    instrumented,
    on_ranks,
    time_epochs,
)
from dgbench.systems.base.sequences import SequenceWorkload, load_sequences
from dgbench.systems.base.training_file import all_ready
from dgbench.systems.dgc.dealing import WorkAssignment, connect, deal, open_trainer
from dgbench.systems.dgc.settings_run import ChunkRankSettings
from dgbench.systems.dgc.stale import StaleEpoch, StaleRows, summed
from dgbench.systems.dgc.trainer import ChunkRankTrainer

if TYPE_CHECKING:
    from dgbench.datasets import SnapshotSequence
    from dgbench.systems.dgc.placement import Placement

PHASES: Final = ("transfer", "gnn", "rnn", "communicate", "update")
"""Phases of a rank's time: loading rows, structure encoder, time encoder, exchanges and waiting for
others, and the rest: loss, all-reduce, optimiser."""


@dataclass(slots=True, kw_only=True)
class ChunkRankedRun(RankedRun):
    """A training run on a group of ranks; its `phases` are those of `PHASES`.

    Attributes:
        partition_s: of `prepare_s`, making the placement.
        stages: segments that no worker can run before another has ended.
        work_s: per rank, seconds per epoch of own work: of its processor on a CPU, so that ranks
            which share a core do not count each other's time; else of the epoch less waiting.
        stale: of every epoch, what was sent and held back over all ranks; empty without.
    """

    partition_s: float
    stages: int
    work_s: list[float]
    stale: list[StaleEpoch] = field(default_factory=list)

    @property
    def divergence(self) -> float:
        """T_max / T_min of own work over the ranks (section 3.6); infinite where one has none."""
        least = min(self.work_s)
        return max(self.work_s) / least if least > 0 else float("inf")


def train_ranked(
    workload: SequenceWorkload,
    size: int,
    settings: ChunkRankSettings = ChunkRankSettings(),
    *,
    epochs: int | None = None,
    budget_s: float = 1.0,
    timeout_s: float = 60.0,
    device: str = "cpu",
    threads: int = 1,
    seed: int | None = None,
    accuracy: bool = False,
    data: SnapshotSequence | None = None,
    placement: Placement | None = None,
) -> ChunkRankedRun:
    """Train on `size` ranks of this machine; one rank runs in this process.

    Every rank waits for the others before each timed epoch. Data, vertex-steps and placement are
    made here, once: ranks that are forks of this process share them.

    Args:
        workload: what to train.
        size: P, at least 1; with a store, one process more serves.
        settings: how.
        epochs: trained in all, at least 1; warm-up is taken off the timed ones. None: as many as
            fit into the budget, at least three after the first.
        budget_s: seconds of timed epochs to aim for.
        timeout_s: limit of the whole group, its start included; one rank alone has none.
        device: `cpu` or `cuda`.
        threads: of each rank.
        seed: of what a rank draws itself; None: the workload's, which also makes the parameters.
        accuracy: measure it after each epoch, outside of the timed part.
        data: of the workload, from `load_sequences`; None: loaded here.
        placement: None: as the settings say.

    Raises:
        InvalidInputError, UnknownKeyError: an argument out of range.
        UnsupportedError: what this machine cannot do or what is not built.
        RankError: a rank failed; RankTimeoutError and RankMemoryError where by time or memory.
    """
    settings.check()
    workload.check()
    check_group(size, epochs, budget_s)
    data = load_sequences(workload) if data is None else data
    begin = time.perf_counter()
    dealt = deal(workload, data, size, settings, placement=placement, device=device)
    before = time.perf_counter() - begin
    work = _ChunkRankInput(workload, settings, epochs, budget_s, accuracy)
    seed = workload.seed if seed is None else seed
    ranks = dealt.placement.workers
    found, peaks = on_ranks(
        _train, ranks, (work, data, dealt), device=device, seed=seed, timeout_s=timeout_s,
        threads=threads,
    )  # fmt: skip
    return ChunkRankedRun.of(
        found,
        peaks,
        before,
        partition_s=dealt.seconds,
        stages=found[0].stages,
        work_s=[rank.work_s for rank in found[:size]],
        stale=summed([rank.stale for rank in found]) if settings.stale else [],
        notes=[*dealt.notes, *found[0].notes],
    )


@dataclass(frozen=True, slots=True)
class _ChunkRankInput:
    """Input of every rank."""

    workload: SequenceWorkload
    settings: ChunkRankSettings
    epochs: int | None
    budget_s: float
    accuracy: bool


@dataclass(slots=True, kw_only=True)
class _ChunkRankOutput(RankOutput):
    """Output of one rank."""

    stages: int
    work_s: float
    stale: list[StaleEpoch]


def _train(
    comm: Communicator, work: _ChunkRankInput, data: SnapshotSequence, dealt: WorkAssignment
) -> _ChunkRankOutput:
    """Be one rank."""
    connect(comm, work.settings)
    begin = time.perf_counter()
    trainer = open_trainer(comm, work.workload, data, dealt, work.settings)
    prepare_s = time.perf_counter() - begin
    clock = WorkClock(comm)
    timed = time_epochs(
        comm,
        trainer,
        epochs=work.epochs,
        budget_s=work.budget_s,
        accuracy=work.accuracy,
        clock=clock,
    )
    state, history = trainer.state(), stale_history(trainer)
    traffic, counters, phases = instrumented(comm, trainer, timed, work.budget_s, _phases)
    trainer.close()
    return _ChunkRankOutput(
        timed=timed,
        traffic=traffic,
        phases=phases,
        counters=counters,
        prepare_s=prepare_s,
        state=state,
        stages=trainer.stages,
        work_s=median(clock.each[timed.warmup :]),
        stale=history,
        notes=list(trainer.notes),
    )


def _phases(meter: Meter) -> dict[str, float]:
    spent = meter.phases()
    return {name: spent.get(name, 0.0) for name in PHASES}


def stale_history(trainer: ChunkRankTrainer) -> list[StaleEpoch]:
    """Rows sent and held back by each epoch so far on this rank; [] where all are sent."""
    exchange = trainer.exchange
    return list(exchange.history) if isinstance(exchange, StaleRows) else []


class ChunkRanks(RankTraining):
    """Training of vertex-steps by ranks that `dgbench ranks` starts, by chunks and exactly."""

    def load(self, workload: SequenceWorkload) -> SnapshotSequence:
        return load_sequences(workload)

    def open(
        self, comm: Communicator, hosts: int, workload: SequenceWorkload, data: SnapshotSequence
    ) -> ChunkRankTrainer:
        settings = ChunkRankSettings()
        dealt = deal(workload, data, comm.size, settings, device=str(comm.device))
        all_ready(comm)
        connect(comm, settings)
        trainer = open_trainer(comm, workload, data, dealt, settings)
        trainer.notes.extend(dealt.notes)
        return trainer
