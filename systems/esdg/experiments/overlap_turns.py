"""Numbers of pieces that take turns on one group of ranks, on several kinds of link.

Data, processes and links are the same for all, what disturbs the machine disturbs all of them, and
differences are formed turn by turn.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import TYPE_CHECKING, Final, Literal

import torch

from dgbench.runtime.collectives import GroupCommunicator, LinkEmulation, ProcessorClock
from dgbench.runtime.collectives.group import Method
from dgbench.runtime.errors import InvalidInputError
from dgbench.runtime.ranks import launch
from dgbench.systems.base.rank_audit import AuditedEpochs, RankAudit, draw_seed
from dgbench.systems.base.timeline import TimelineWorkload
from dgbench.systems.esdg.oracle import ResultRequest, TimelineResult
from dgbench.systems.esdg.partition_snapshots import SnapshotSplit
from dgbench.systems.esdg.partition_trainer import SnapshotRankTrainer
from dgbench.systems.esdg.weights import chain_run

if TYPE_CHECKING:
    from dgbench.datasets import SnapshotSequence

MESSAGE_S: Final = 1e-5
"""Seconds per message of emulated links."""

REPEATS: Final = 5
"""Times that the convolutions are timed alone."""


@dataclass(frozen=True, slots=True)
class Medium:
    """Link that exchanges travel on.

    Attributes:
        name: what rows call it.
        method: of the communicator.
        slow: an emulated wire on which an epoch's messages, in one piece, keep a link busy for as
            long as the convolutions beside exchanges or all computing takes; "" for the real link.
    """

    name: str
    method: Method
    slow: Literal["", "convolutions", "computing"] = ""


@dataclass(frozen=True, slots=True)
class Turn:
    """One epoch.

    Attributes:
        seconds: of the slowest rank. exposed: seconds that a rank stood still in exchanges, mean
            over ranks.
    """

    seconds: float
    exposed: float


@dataclass(slots=True)
class OverlapTurns:
    """Result of the turns over media and numbers of pieces.

    Attributes:
        turns: (medium, pieces) -> epochs in order; those of one index are neighbours in time.
        wires: medium -> what was emulated.
        convolve_s: processor seconds of an epoch's convolutions that stand beside an exchange,
            forward and backward, of the slowest rank.
        compute_s: processor seconds of an epoch without waiting, likewise.
        sent_bytes: by the rank that sends most, in an epoch.
        messages, floats: by pieces, of all ranks in an epoch's all-to-alls.
        before, after: results by pieces, before the first epoch and after the last one, where they
            were asked for; the later ones with parameters of the trainer in one piece.
        losses: of every epoch, by pieces.
        audits: of drawn epochs that count, by pieces.
    """

    turns: dict[tuple[str, int], list[Turn]]
    wires: dict[str, LinkEmulation]
    convolve_s: float
    compute_s: float
    sent_bytes: int
    messages: dict[int, int]
    floats: dict[int, int]
    before: dict[str, TimelineResult]
    after: dict[str, TimelineResult]
    losses: dict[str, list[float]]
    audits: dict[str, AuditedEpochs]


@dataclass(slots=True)
class _OverlapRankOutput:
    """Output of one rank."""

    turns: dict[tuple[str, int], list[tuple[float, float]]] = field(default_factory=dict)
    wires: dict[str, LinkEmulation] = field(default_factory=dict)
    convolve_s: float = 0.0
    compute_s: float = 0.0
    sent_bytes: int = 0
    messages: dict[int, int] = field(default_factory=dict)
    floats: dict[int, int] = field(default_factory=dict)
    before: dict[str, TimelineResult] = field(default_factory=dict)
    after: dict[str, TimelineResult] = field(default_factory=dict)
    losses: dict[str, list[float]] = field(default_factory=dict)
    audits: dict[str, AuditedEpochs] = field(default_factory=dict)


def take_overlap_turns(
    workload: TimelineWorkload,
    data: SnapshotSequence,
    ranks: int,
    media: Sequence[Medium],
    pieces: Sequence[int],
    *,
    least: int,
    budget_s: float,
    timeout_s: float = 60.0,
    request: ResultRequest | None = None,
) -> OverlapTurns:
    """Train in turns on the snapshot partition, without checkpoints.

    On emulated wires seconds are those of each rank's own processor (`ProcessorClock`), so ranks
    may be more than cores; on real links they are the machine's.

    Args:
        workload, data: what is trained.
        ranks: P, at least 2.
        media: links, one after the other.
        pieces: numbers of pieces, 1 among them.
        least: turns on each link, at least.
        budget_s: seconds for all links together to go on for.
        timeout_s: of the group.
        request: asks for results; None: for none.

    Raises:
        InvalidInputError: arguments out of range.
        RankError: a rank failed.
    """
    if ranks < 2 or least < 1 or 1 not in pieces:
        raise InvalidInputError(
            f"'ranks' is {ranks}, 'least' {least} and 'pieces' {list(pieces)}; needed: 2 ranks, a "
            "turn and 1 among the pieces"
        )
    found = launch(
        _take,
        ranks,
        (workload, data, tuple(media), tuple(pieces), least, budget_s, request, draw_seed()),
        timeout_s=timeout_s,
        threads=1,
        seed=workload.seed,
    )
    first = found[0]
    turns = {
        key: [
            Turn(max(s for s, _ in turn), fmean(e for _, e in turn))
            for turn in zip(*(rank.turns[key] for rank in found), strict=True)
        ]
        for key in first.turns
    }
    return OverlapTurns(
        turns=turns,
        wires=first.wires,
        convolve_s=first.convolve_s,
        compute_s=first.compute_s,
        sent_bytes=first.sent_bytes,
        messages={k: sum(rank.messages[k] for rank in found) for k in pieces},
        floats={k: sum(rank.floats[k] for rank in found) for k in pieces},
        before=first.before,
        after=first.after,
        losses=first.losses,
        audits=first.audits,
    )


def _take(
    comm: GroupCommunicator,
    workload: TimelineWorkload,
    data: SnapshotSequence,
    media: tuple[Medium, ...],
    pieces: tuple[int, ...],
    least: int,
    budget_s: float,
    request: ResultRequest | None,
    seed: int,
) -> _OverlapRankOutput:
    """Be one rank; audited epochs are drawn by the seed."""
    found = _OverlapRankOutput()
    trainers = {
        k: SnapshotRankTrainer(comm, workload, data, checkpoint=False, pieces=k) for k in pieces
    }
    for k, trainer in trainers.items():
        if request is not None:
            found.before[_named(k)] = TimelineResult.of(trainer, request)
        comm.traffic.clear()
        trainer.train_epoch()
        found.messages[k] = comm.traffic.total("messages", operation="all_to_all")
        found.floats[k] = comm.traffic.total("floats", operation="all_to_all")
    gc.collect()
    plain = trainers[1]
    epochs = []
    for _ in range(3):
        comm.traffic.clear()
        begin = time.thread_time()
        plain.train_epoch()
        epochs.append(time.thread_time() - begin)
    mine = [comm.traffic.total("bytes"), convolution_seconds(plain), median(epochs)]
    most = comm.all_reduce(torch.tensor(mine, dtype=torch.float64), "max").tolist()
    found.sent_bytes, found.convolve_s, found.compute_s = int(most[0]), most[1], most[2]
    audits = {}
    for k, trainer in trainers.items():
        # The first turn on each link warms up.
        audits[k] = RankAudit(comm, seed, len(trainer.losses) + 1, least=least)
        audits[k].open(_named(k), trainer)
    for medium in media:
        clock = None
        comm.method = medium.method
        if medium.slow:
            clock = ProcessorClock()
            busy = found.convolve_s if medium.slow == "convolutions" else found.compute_s
            wire = found.wires[medium.name] = LinkEmulation(MESSAGE_S, found.sent_bytes / busy)
            comm.use_wire(wire, clock=clock)
        turns = _take_on(comm, trainers, audits, clock, least, budget_s / len(media))
        found.turns |= {(medium.name, k): seconds for k, seconds in turns.items()}
        comm.use_wire(None)
    for audit in audits.values():
        found.audits |= audit.epochs
    if request is not None:
        state = plain.state()
        found.after = {_named(k): TimelineResult.of(t, request, state) for k, t in trainers.items()}
    found.losses = {_named(k): list(trainer.losses) for k, trainer in trainers.items()}
    if comm.rank:
        found.before, found.after = {}, {}
    return found


def _named(pieces: int) -> str:
    return f"{pieces} piece{'s' * (pieces > 1)}"


def _take_on(
    comm: GroupCommunicator,
    trainers: dict[int, SnapshotRankTrainer],
    audits: dict[int, RankAudit],
    clock: ProcessorClock | None,
    least: int,
    budget_s: float,
) -> dict[int, list[tuple[float, float]]]:
    """Seconds, and seconds stood still, of turns on one kind of link; the first turn warms up."""
    now = time.perf_counter if clock is None else clock.now
    found: dict[int, list[tuple[float, float]]] = {k: [] for k in trainers}
    begin, turn, going = time.perf_counter(), -1, True
    while going:
        for k in trainers if turn % 2 == 0 else reversed(trainers):
            comm.barrier()
            comm.meter.reset()
            start = now()
            trainers[k].train_epoch()
            seconds = now() - start
            waited = comm.meter.spent["exchange_wait"]
            audits[k].after(_named(k), len(trainers[k].losses))
            if turn >= 0:
                found[k].append((seconds, waited))
        turn += 1
        # The first rank's clock decides, so that all stop together.
        spent = torch.tensor([time.perf_counter() - begin], dtype=torch.float64)
        going = turn < least or float(comm.broadcast(spent)[0]) < budget_s
    return found


def convolution_seconds(trainer: SnapshotRankTrainer) -> float:
    """Processor seconds of this rank's convolutions in an epoch, forward and backward.

    Of layers whose temporal half follows (their outputs are sent) or goes before (their inputs
    arrive). Packing, unpacking and adding up gradients are not among them.
    """
    model, split = trainer.model, trainer.split
    assert isinstance(split, SnapshotSplit)
    parameters = list(model.parameters())
    total = 0.0
    for times in trainer.blocks:
        links, _ = chain_run(model, len(times), ())
        steps, shares = split.held(times), split.shares(times)
        for layer in range(model.num_layers):
            beside = model.has_temporal(layer) or (layer > 0 and model.has_temporal(layer - 1))
            if not steps or not beside:
                continue
            rows = len(steps) * trainer.data.num_nodes
            samples = []
            for _ in range(REPEATS + 1):
                before = torch.randn(
                    rows, model.input_dims[layer], dtype=trainer.dtype, requires_grad=True
                )
                wanted = parameters + [before] * (layer > 0)
                begin = time.thread_time()
                a = split._aggregated(layer, shares, steps, before if layer else None)
                y = split._spatial(layer, times, steps, a, links)
                forward = time.thread_time() - begin
                gradient = torch.ones_like(y)
                begin = time.thread_time()
                torch.autograd.grad(y, wanted, gradient, allow_unused=True)
                samples.append(forward + time.thread_time() - begin)
            total += median(samples[1:])
    return total
