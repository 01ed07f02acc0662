"""Ways to deal out the work that take turns inside one group of ranks, epoch by epoch.

What disturbs the machine then disturbs all of them alike, and ratios are formed turn by turn. The
processes, their data and their links are the same for all. One of them may be rank 0 that trains
all of it by itself while the others wait.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

import torch

from dgbench.lab.compare import AGAIN
from dgbench.lab.result_checks import ResultCheck
from dgbench.runtime.collectives import (
    Communicator,
    LocalCommunicator,
    Traffic,
    TrafficMatrix,
    stack,
)
from dgbench.runtime.meter import Meter
from dgbench.runtime.ranks import TRAINING, launch
from dgbench.systems.base import Measurement, RunContext
from dgbench.systems.base.kept import KeptLosses
from dgbench.systems.base.rank_audit import AuditedEpochs, RankAudit, draw_seed
from dgbench.systems.base.timeline import TimelineWorkload
from dgbench.systems.base.transport import Transport, bind, carrier, use_transport
from dgbench.systems.esdg.oracle import ResultRequest, TimelineOracle, TimelineResult, later_ranks
from dgbench.systems.esdg.partition_trainer import SnapshotRankTrainer

if TYPE_CHECKING:
    from dgbench.datasets import SnapshotSequence

WARM = 2
"""Turns before the first that counts."""

ALONE = {"alone": True}
"""Arguments of a contender that rank 0 trains by itself while the others wait."""


@dataclass(slots=True)
class SnapshotRaceResult:
    """Result of a race of contenders.

    Attributes:
        seconds: of each epoch by contender, the slowest rank's.
        phases: seconds per epoch by contender, mean over ranks: `communicate` is the time that a
            rank stands still for others (which on fewer cores than ranks includes waiting for a
            core), `compute` the rest; or those that its meter timed. What is left are ranks that
            were done before the slowest.
        traffic: of one epoch, by contender of all ranks.
        prepare_s: the slowest rank's seconds to cut its matrices and make its lists.
        losses: of every epoch, by contender; warm-up included.
        before, after: where they were asked for, results of one contender that is drawn before the
            first epoch, and of all after the last one, with the parameters of that one.
        audits: of drawn epochs that count, by contender.
        carrier: what carried rows between the ranks, in words.
        notes: of the trainers.
    """

    seconds: dict[str, list[float]]
    phases: dict[str, dict[str, float]]
    traffic: dict[str, TrafficMatrix]
    prepare_s: dict[str, float]
    losses: dict[str, list[float]]
    before: dict[str, TimelineResult]
    after: dict[str, TimelineResult]
    audits: dict[str, AuditedEpochs]
    carrier: str
    notes: list[str]

    def observe_times(self, found: Measurement, dimension: str, of: type = str) -> None:
        """Add seconds of an epoch and of its phases, by contender in this dimension of this
        type."""
        for name, seconds in self.seconds.items():
            where = {dimension: of(name)}
            found.observe("epoch_time", median(seconds), **where)
            for phase, spent in self.phases[name].items():
                found.observe("phase_time", spent, phase=phase, **where)

    def take_control(self) -> dict[str, list[float]]:
        """Seconds of both sides of the A/A pair, empty without one. Only checks know the second
        side afterwards: it is no contender."""
        first, pair = next(iter(self.seconds)), {}
        if AGAIN in self.seconds:
            pair = {name: self.seconds[name] for name in (first, AGAIN)}
        for found in (self.seconds, self.phases, self.traffic, self.prepare_s):
            found.pop(AGAIN, None)
        return pair

    def checks(self, oracle: TimelineOracle) -> list[ResultCheck]:
        """Comparisons of all contenders with the oracle."""
        checks = oracle.trained_checks(self.before, self.after, self.losses)
        return [*checks, *oracle.audited(self.audits, self.losses)]

    def compared(
        self, task: TimelineWorkload, data: SnapshotSequence, oracle: TimelineOracle | None,
        kept: KeptLosses, context: RunContext,
    ) -> list[ResultCheck]:  # fmt: skip
        """Comparisons with the oracle, or with the losses of a cell's first process that it kept;
        see `oracle.comparison`."""
        if oracle is None:
            return later_ranks(task, data, kept, self.losses, self.audits, context.device)
        checks = self.checks(oracle)
        kept.keep(self.losses, checks)
        return checks


def take_rank_turns(
    workload: TimelineWorkload,
    data: SnapshotSequence,
    ranks: int,
    contenders: Mapping[str, Mapping[str, Any]],
    *,
    least: int,
    budget_s: float,
    timeout_s: float = 120.0,
    device: str = "cpu",
    transport: Transport | None = "auto",
    timing: bool = False,
    request: ResultRequest | None = None,
) -> SnapshotRaceResult:
    """Train every contender on the same ranks, one epoch each per turn, in alternating order.

    Args:
        ranks: P, processes of this machine with one thread each; on a GPU each has one of its own,
            the host waits for no exchange, and waiting is a part of `compute`.
        contenders: name -> arguments of `SnapshotRankTrainer`, or `ALONE`.
        least, budget_s: turns that count and seconds, warm-up included, to go on for at least.
        transport: what carries rows between ranks, see `use_transport`; None: as it is. `auto`
            keeps ranks on cores where these can be shared out evenly.
        timing: let the meters take the times of phases.
        request: asks for results; None: for none.
    """
    found = launch(
        _take,
        ranks,
        (
            workload,
            data,
            {name: dict(c) for name, c in contenders.items()},
            least,
            budget_s,
            transport,
            timing,
            request,
            random.SystemRandom().choice([n for n, c in contenders.items() if c != ALONE]),
            draw_seed(),
        ),
        timeout_s=timeout_s,
        device=device,
        threads=1,
        seed=workload.seed,
        preload=TRAINING,
    )
    first = found[0]
    ranks_of = {name: [f for f in found if name in f.seconds] for name in contenders}
    seconds = {
        name: [max(turn) for turn in zip(*(f.seconds[name] for f in of), strict=True)]
        for name, of in ranks_of.items()
    }
    return SnapshotRaceResult(
        seconds=seconds,
        phases={
            name: {
                phase: median(seconds[name])
                * fmean(
                    turn[phase] / total
                    for f in of
                    for turn, total in zip(f.phases[name], seconds[name], strict=True)
                )
                for phase in first.phases[name][0]
            }
            for name, of in ranks_of.items()
        },
        traffic={name: stack([f.traffic[name] for f in found]) for name in first.traffic},
        prepare_s={name: max(f.prepare_s[name] for f in of) for name, of in ranks_of.items()},
        losses=first.losses,
        before=first.before,
        after=first.after,
        audits=first.audits,
        carrier=first.carrier,
        notes=first.notes,
    )


@dataclass(slots=True)
class _SnapshotRaceRankOutput:
    """Output of one rank; only rank 0 has contenders that train alone."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    phases: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    traffic: dict[str, Traffic] = field(default_factory=dict)
    prepare_s: dict[str, float] = field(default_factory=dict)
    losses: dict[str, list[float]] = field(default_factory=dict)
    before: dict[str, TimelineResult] = field(default_factory=dict)
    after: dict[str, TimelineResult] = field(default_factory=dict)
    audits: dict[str, AuditedEpochs] = field(default_factory=dict)
    carrier: str = ""
    notes: list[str] = field(default_factory=list)


def _take(
    comm: Communicator,
    workload: TimelineWorkload,
    data: SnapshotSequence,
    contenders: dict[str, dict[str, Any]],
    least: int,
    budget_s: float,
    transport: Transport | None,
    timing: bool,
    request: ResultRequest | None,
    drawn: str,
    seed: int,
) -> _SnapshotRaceRankOutput:
    """Be one rank; in the end all contenders are asked with the parameters of the one that was
    drawn."""
    if transport is not None:
        use_transport(comm, transport)
    if transport == "auto":
        # Only pipes crowd ranks on one core; under Gloo a fixed place makes shares less even.
        bind(comm.rank, comm.size)
    found = _SnapshotRaceRankOutput()
    audit = RankAudit(comm, seed, WARM, least=least)
    trainers: dict[str, SnapshotRankTrainer] = {}
    for name, options in contenders.items():
        comm.barrier()
        group = comm
        if options == ALONE:
            if comm.rank:
                continue
            meter = Meter(device=str(comm.device))
            group = LocalCommunicator(device=comm.device, meter=meter, seed=workload.seed)
            options = {}
        begin = time.perf_counter()
        trainers[name] = trainer = SnapshotRankTrainer(group, workload, data, **options)
        found.prepare_s[name] = time.perf_counter() - begin
        if request is not None and (name == drawn or group is not comm):
            found.before[name] = TimelineResult.of(trainer, request)
        found.seconds[name], found.losses[name], found.phases[name] = [], [], []
        found.notes += [note for note in trainer.notes if note not in found.notes]
        audit.open(name, trainer)
    gc.collect()
    names = list(contenders)
    begin, turn, going = time.perf_counter(), -WARM, True
    while going:
        for name in names if turn % 2 == 0 else reversed(names):
            comm.traffic.clear()
            comm.barrier()
            if name not in trainers:
                continue
            seconds, phases = _epoch(trainers[name], found.losses[name], timing=timing)
            audit.after(name, len(found.losses[name]))
            if turn < 0:
                continue
            found.seconds[name].append(seconds)
            found.phases[name].append(phases)
            if turn == 0 and trainers[name].comm is comm:
                found.traffic[name] = copied = Traffic(comm.rank, comm.size)
                copied.sent = {key: counts.copy() for key, counts in comm.traffic.sent.items()}
        turn += 1
        # The first rank's clock decides, so that all stop together.
        spent = torch.tensor([time.perf_counter() - begin], dtype=torch.float64)
        going = turn < least or float(comm.broadcast(spent.to(comm.device))[0]) < budget_s
    found.carrier, found.audits = carrier(comm), audit.epochs
    if request is not None:
        state = trainers[drawn].state()
        found.after = {n: TimelineResult.of(t, request, state) for n, t in trainers.items()}
    if comm.rank:  # results are equal on all ranks; one of them tells
        found.before, found.after = {}, {}
    return found


def _epoch(
    trainer: SnapshotRankTrainer, losses: list[float], *, timing: bool
) -> tuple[float, dict[str, float]]:
    """Seconds of an epoch and of its phases."""
    meter = trainer.meter
    meter.reset()
    meter.timing = timing
    start = time.perf_counter()
    losses.append(trainer.train_epoch())
    seconds = time.perf_counter() - start
    meter.timing = False  # waiting at the barrier is none of an epoch's phases
    if not timing:
        waited = meter.spent["communicate_wait"]
        return seconds, {"communicate": waited, "compute": seconds - waited}
    spent = meter.phases()
    # Waiting in exchanges may be noted under either of its names.
    waited = spent.get("exchange", 0.0) + spent.get("communicate", 0.0)
    own = {phase: spent.get(phase, 0.0) for phase in ("compute", "update")}
    return seconds, {**own, "communicate": waited}
