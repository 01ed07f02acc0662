"""One rank alone and P ranks in turns, epoch by epoch: a speed-up whose pairs are neighbours.

Rank 0 trains all of it by itself while the others wait, then all of them train it together. What
disturbs the machine disturbs both, and clocks of phases run in the epochs that are timed, so that
phases and totals are of the same epochs.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, Final

import torch

from dgbench.lab.result_checks import ResultCheck
from dgbench.runtime.collectives import (
    Communicator,
    LocalCommunicator,
    Traffic,
    TrafficMatrix,
    stack,
)
from dgbench.runtime.errors import InvalidInputError
from dgbench.runtime.meter import Meter
from dgbench.runtime.ranks import launch
from dgbench.systems.base.rank_audit import AuditedEpochs, RankAudit, draw_seed
from dgbench.systems.base.timeline import TimelineWorkload
from dgbench.systems.esdg.oracle import ResultRequest, TimelineOracle, TimelineResult
from dgbench.systems.esdg.partition_trainer import SnapshotRankTrainer

if TYPE_CHECKING:
    from dgbench.datasets import SnapshotSequence

WARM: Final = 2
"""Turns before the first that counts."""

PHASES: Final = ("compute", "communicate", "update")


@dataclass(slots=True)
class ScalingTurns:
    """Result of the turns; `alone` and `together` are the two sides.

    Attributes:
        seconds: of each turn's epoch by side, the slowest rank's.
        shares: of an epoch by side and phase, mean over ranks and turns. What is left of 1 are
            ranks that were done before the slowest, and what is no phase.
        losses: of every epoch by side, warm-up included.
        traffic: of one epoch on P ranks.
        prepare_s: the slowest rank's seconds to lay its share out.
        notes: what readers have to know.
        before, after: results by side, before the first epoch and after the last one, where they
            were asked for; the later ones with parameters of `together`.
        audits: of drawn epochs that count, by side.
    """

    seconds: dict[str, list[float]]
    shares: dict[str, dict[str, float]]
    losses: dict[str, list[float]]
    traffic: TrafficMatrix
    prepare_s: float
    notes: list[str]
    before: dict[str, TimelineResult]
    after: dict[str, TimelineResult]
    audits: dict[str, AuditedEpochs]

    def checks(self, oracle: TimelineOracle) -> list[ResultCheck]:
        """Comparisons of both sides with the oracle."""
        checks = oracle.trained_checks(self.before, self.after, self.losses)
        return [*checks, *oracle.audited(self.audits, self.losses)]


def take_scaling_turns(
    workload: TimelineWorkload,
    data: SnapshotSequence,
    ranks: int,
    *,
    least: int,
    budget_s: float,
    timeout_s: float = 60.0,
    device: str = "cpu",
    request: ResultRequest | None = None,
) -> ScalingTurns:
    """Train on one rank and on `ranks` by the snapshot partition, an epoch of each per turn.

    Args:
        workload, data: what both sides train.
        ranks: P, at least 2; processes of this machine with one thread each.
        least: turns that count, at least.
        budget_s: seconds to go on for, warm-up included.
        timeout_s: of the group.
        device: `cpu`, or `cuda` where each rank has one of its own.
        request: asks for results; None: for none.

    Raises:
        InvalidInputError: fewer than two ranks, or no turn.
        RankError: a rank failed.
    """
    if ranks < 2 or least < 1:
        raise InvalidInputError(f"'ranks' is {ranks} and 'least' {least}; at least 2 and 1 needed")
    found = launch(
        _take,
        ranks,
        (workload, data, least, budget_s, request, draw_seed()),
        timeout_s=timeout_s,
        device=device,
        threads=1,
        seed=workload.seed,
    )
    first = found[0]
    together = [max(turn) for turn in zip(*(f.seconds["together"] for f in found), strict=True)]
    seconds = {"alone": first.seconds["alone"], "together": together}
    sides = {"alone": [first], "together": list(found)}
    return ScalingTurns(
        seconds=seconds,
        shares={side: _shares(seconds[side], sides[side], side) for side in sides},
        losses=first.losses,
        traffic=stack([f.traffic for f in found]),
        prepare_s=max(f.prepare_s for f in found),
        notes=first.notes,
        before=first.before,
        after=first.after,
        audits=first.audits,
    )


def _shares(
    totals: Sequence[float], ranks: Sequence[_ScalingRankOutput], side: str
) -> dict[str, float]:
    """Means over turns and ranks of a phase's seconds over the turn's."""
    return {
        phase: fmean(
            turn[phase] / total
            for rank in ranks
            for turn, total in zip(rank.phases[side], totals, strict=True)
        )
        for phase in PHASES
    }


@dataclass(slots=True)
class _ScalingRankOutput:
    """Output of one rank, by side and turn; only rank 0 has the side `alone`."""

    seconds: dict[str, list[float]]
    phases: dict[str, list[dict[str, float]]]
    losses: dict[str, list[float]]
    traffic: Traffic
    prepare_s: float
    notes: list[str]
    before: dict[str, TimelineResult] = field(default_factory=dict)
    after: dict[str, TimelineResult] = field(default_factory=dict)
    audits: dict[str, AuditedEpochs] = field(default_factory=dict)


def _take(
    comm: Communicator,
    workload: TimelineWorkload,
    data: SnapshotSequence,
    least: int,
    budget_s: float,
    request: ResultRequest | None,
    seed: int,
) -> _ScalingRankOutput:
    """Be one rank; `seed` is that of the audited epochs."""
    begin = time.perf_counter()
    trainers = {"together": SnapshotRankTrainer(comm, workload, data)}
    prepare_s = time.perf_counter() - begin
    if comm.rank == 0:
        meter = Meter(device=str(comm.device))
        single = LocalCommunicator(device=comm.device, meter=meter, seed=workload.seed)
        trainers["alone"] = SnapshotRankTrainer(single, workload, data)
    found = _ScalingRankOutput(
        {s: [] for s in trainers}, {s: [] for s in trainers}, {s: [] for s in trainers},
        Traffic(comm.rank, comm.size), prepare_s, list(trainers["together"].notes),
    )  # fmt: skip
    if request is not None:
        found.before = {side: TimelineResult.of(t, request) for side, t in trainers.items()}
    audit = RankAudit(comm, seed, WARM, least=least)
    for side, trainer in trainers.items():
        audit.open(side, trainer)
    gc.collect()
    begin, turn, going = time.perf_counter(), -WARM, True
    while going:
        for side in ("alone", "together") if turn % 2 == 0 else ("together", "alone"):
            comm.barrier()
            if side not in trainers:
                continue
            comm.traffic.clear()
            seconds, phases = _epoch(trainers[side], found.losses[side])
            audit.after(side, len(found.losses[side]))
            if turn >= 0:
                found.seconds[side].append(seconds)
                found.phases[side].append(phases)
            if side == "together" and turn == 0:
                found.traffic.sent = {k: counts.copy() for k, counts in comm.traffic.sent.items()}
        turn += 1
        # The first rank's clock decides, so that all stop together.
        spent = torch.tensor([time.perf_counter() - begin], dtype=torch.float64)
        going = turn < least or float(comm.broadcast(spent.to(comm.device))[0]) < budget_s
    if request is not None:
        state = trainers["together"].state()
        found.after = {s: TimelineResult.of(t, request, state) for s, t in trainers.items()}
    found.audits = audit.epochs
    if comm.rank:
        found.before, found.after = {}, {}
    for trainer in trainers.values():
        trainer.close()
    return found


def _epoch(trainer: SnapshotRankTrainer, losses: list[float]) -> tuple[float, dict[str, float]]:
    """Seconds of an epoch and of its phases."""
    meter = trainer.meter
    meter.reset()
    meter.timing = True
    start = time.perf_counter()
    losses.append(trainer.train_epoch())
    seconds = time.perf_counter() - start
    meter.timing = False  # waiting at the barrier is none of an epoch's phases
    return seconds, named(meter.phases())


def named(spent: Mapping[str, float]) -> dict[str, float]:
    """Seconds of `PHASES`; waiting in exchanges may be noted under either of its names."""
    waited = spent.get("exchange", 0.0) + spent.get("communicate", 0.0)
    return {
        "compute": spent.get("compute", 0.0),
        "communicate": waited,
        "update": spent.get("update", 0.0),
    }
