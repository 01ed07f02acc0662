"""Ways to deal out the work that take turns inside one group of ranks, epoch by epoch.

What disturbs the machine then disturbs all of them alike, and ratios are formed turn by turn. The
processes, their data and their links are the same for all.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

import torch

from dgbench.lab.compare import AGAIN
from dgbench.lab.result_checks import ResultCheck
from dgbench.runtime.collectives import Communicator, Traffic, TrafficMatrix, stack
from dgbench.runtime.ranks import TRAINING, launch
from dgbench.systems.base import Measurement
from dgbench.systems.base.rank_audit import AuditedEpochs, RankAudit, draw_seed
from dgbench.systems.base.timeline import TimelineWorkload
from dgbench.systems.base.transport import Transport, bind, carrier, use_transport
from dgbench.systems.esdg.oracle import ResultRequest, TimelineOracle, TimelineResult
from dgbench.systems.esdg.partition_trainer import SnapshotRankTrainer

if TYPE_CHECKING:
    from dgbench.datasets import SnapshotSequence

WARM = 2
"""Turns before the first that counts."""

PHASES = ("compute", "communicate")


@dataclass(slots=True)
class SnapshotRaceResult:
    """Result of a race of contenders.

    Attributes:
        seconds: of each epoch by contender, the slowest rank's.
        phases: seconds per epoch by contender, mean over ranks: `communicate` is the time that a
            rank stands still for others (which on fewer cores than ranks includes waiting for a
            core), `compute` the rest.
        traffic: of one epoch, by contender.
        prepare_s: the slowest rank's seconds to cut its matrices and make its lists.
        losses: of every epoch, by contender; warm-up included.
        before, after: where they were asked for, results of one contender that is drawn before the
            first epoch, and of all after the last one, with the parameters of that one.
        audits: of drawn epochs that count, by contender.
        carrier: what carried rows between the ranks, in words.
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

    def observe_times(self, found: Measurement, dimension: str, of: type = str) -> None:
        """Add seconds of an epoch and of its phases, by contender in this dimension.

        Args:
            found: what they are added to.
            dimension: that tells contenders apart.
            of: type of its values.
        """
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
    transport: Transport = "auto",
    request: ResultRequest | None = None,
) -> SnapshotRaceResult:
    """Train every contender on the same ranks, one epoch each per turn, in alternating order.

    Args:
        workload, data: what all of them train.
        ranks: P, at least 1; processes of this machine with one thread each, with
            `auto` kept on cores where these can be shared out evenly.
        contenders: name -> arguments of `SnapshotRankTrainer`.
        least: turns that count, at least.
        budget_s: seconds to go on for, warm-up included.
        timeout_s: of the whole group.
        device: `cpu`, or `cuda` where each rank has one of its own; then the host waits for no
            exchange, and waiting is a part of `compute`.
        transport: what carries rows between ranks, see `use_transport`.
        request: asks for results; None: for none.

    Raises:
        RankError: a rank failed.
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
            request,
            random.SystemRandom().choice(list(contenders)),
            draw_seed(),
        ),
        timeout_s=timeout_s,
        device=device,
        threads=1,
        seed=workload.seed,
        preload=TRAINING,
    )
    first = found[0]
    names = list(contenders)
    return SnapshotRaceResult(
        seconds={n: [max(turn) for turn in zip(*(f.seconds[n] for f in found))] for n in names},  # noqa: B905
        phases={
            n: {
                "communicate": sum(f.waited[n] for f in found) / ranks,
                "compute": sum(sum(f.seconds[n]) / len(f.seconds[n]) - f.waited[n] for f in found)
                / ranks,
            }
            for n in names
        },
        traffic={n: stack([f.traffic[n] for f in found]) for n in names},
        prepare_s={n: max(f.prepare_s[n] for f in found) for n in names},
        losses=first.losses,
        before=first.before,
        after=first.after,
        audits=first.audits,
        carrier=first.carrier,
    )


@dataclass(slots=True)
class _SnapshotRaceRankOutput:
    """Output of one rank."""

    seconds: dict[str, list[float]]
    waited: dict[str, float]
    traffic: dict[str, Traffic]
    prepare_s: dict[str, float]
    losses: dict[str, list[float]]
    before: dict[str, TimelineResult]
    after: dict[str, TimelineResult]
    audits: dict[str, AuditedEpochs]
    carrier: str = ""


def _take(
    comm: Communicator,
    workload: TimelineWorkload,
    data: SnapshotSequence,
    contenders: dict[str, dict[str, Any]],
    least: int,
    budget_s: float,
    transport: Transport,
    request: ResultRequest | None,
    drawn: str,
    seed: int,
) -> _SnapshotRaceRankOutput:
    """Be one rank.

    Args:
        drawn: contender whose parameters all are asked with in the end.
        seed: of the audited epochs.
    """
    use_transport(comm, transport)
    if transport == "auto":
        # Only pipes crowd ranks on one core; under Gloo a fixed place makes shares less even.
        bind(comm.rank, comm.size)
    found = _SnapshotRaceRankOutput({}, {}, {}, {}, {}, {}, {}, {})
    audit = RankAudit(comm, seed, WARM, least=least)
    trainers: dict[str, SnapshotRankTrainer] = {}
    for name, options in contenders.items():
        comm.barrier()
        begin = time.perf_counter()
        trainers[name] = trainer = SnapshotRankTrainer(comm, workload, data, **options)
        found.prepare_s[name] = time.perf_counter() - begin
        if request is not None and name == drawn:
            found.before[name] = TimelineResult.of(trainer, request)
        found.seconds[name], found.losses[name], found.waited[name] = [], [], 0.0
        audit.open(name, trainer)
    gc.collect()
    names = list(contenders)
    begin, turn, going = time.perf_counter(), -WARM, True
    while going:
        for name in names if turn % 2 == 0 else reversed(names):
            comm.traffic.clear()
            comm.barrier()
            before = comm.meter.spent["communicate_wait"]
            start = time.perf_counter()
            loss = trainers[name].train_epoch()
            took = time.perf_counter() - start
            found.losses[name].append(loss)
            audit.after(name, len(found.losses[name]))
            if turn < 0:
                continue
            found.seconds[name].append(took)
            found.waited[name] += comm.meter.spent["communicate_wait"] - before
            if turn == 0:
                found.traffic[name] = _copied(comm.traffic)
        turn += 1
        # The first rank's clock decides, so that all stop together.
        spent = torch.tensor([time.perf_counter() - begin], dtype=torch.float64)
        going = turn < least or float(comm.broadcast(spent.to(comm.device))[0]) < budget_s
    found.waited = {name: waited / turn for name, waited in found.waited.items()}
    found.carrier, found.audits = carrier(comm), audit.epochs
    if request is not None:
        state = trainers[drawn].state()
        found.after = {n: TimelineResult.of(t, request, state) for n, t in trainers.items()}
    if comm.rank:  # results are equal on all ranks; one of them tells
        found.before, found.after = {}, {}
    return found


def _copied(traffic: Traffic) -> Traffic:
    copy = Traffic(traffic.rank, traffic.size)
    copy.sent = {key: counts.copy() for key, counts in traffic.sent.items()}
    return copy
