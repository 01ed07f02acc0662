"""One rank's share of an epoch, run alone: what a rank computes, without its communication.

The code is that of the ranks (`SnapshotRankTrainer`), on a communicator whose other ranks do not
exist. They would send zeros of the right shape, so the seconds mean something and the values do
not. Ranks are alike up to one step or vertex, and rank 0 has the longer share.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

import torch
from torch import Tensor

from dgbench.datasets import SnapshotSequence
from dgbench.lab.result_checks import ResultCheck, equal
from dgbench.runtime.collectives import Communicator, TrafficMatrix
from dgbench.runtime.collectives.communicator import Reduction
from dgbench.runtime.collectives.exchange import Arrived, PendingExchange
from dgbench.runtime.errors import InvalidInputError, UnsupportedError
from dgbench.systems.base.timeline import TimelineWorkload
from dgbench.systems.esdg.experiments.recount import parted
from dgbench.systems.esdg.oracle import TimelineOracle, TimelineResult
from dgbench.systems.esdg.partition_trainer import SnapshotRankTrainer

HELD_STEPS = 25
"""Snapshots that a rank holds at a time. With all of a long timeline in one block it is the
allocator of this machine that is measured."""


class Alone(Communicator):
    """A rank whose group never answers: an exchange gives zeros at once.

    Attributes:
        away_s: seconds inside exchanges, to be taken off. Packing and unpacking is not in them.
    """

    def __init__(self, size: int, *, rank: int = 0) -> None:
        super().__init__(rank, size)
        self.away_s = 0.0

    def barrier(self) -> None:
        """Return at once."""

    def all_traffic(self) -> TrafficMatrix:
        """Refused: the other ranks do not exist.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError("a rank that runs alone knows its own traffic only")

    def _begin(self, x: Tensor, send: tuple[int, ...], receive: tuple[int, ...]) -> PendingExchange:
        start = time.perf_counter()
        out = x.new_zeros((sum(receive), *x.shape[1:]))
        self._keep(out, receive).copy_(x.split(list(send))[self.rank])
        self.away_s += time.perf_counter() - start
        return Arrived(out)

    def _exchange_sizes(self, send: tuple[int, ...]) -> list[int]:
        raise UnsupportedError("what other ranks would tell is not known to a rank that runs alone")

    def _all_reduce(self, x: Tensor, op: Reduction) -> Tensor:
        return x.clone()

    def _all_gather(self, x: Tensor, rows: tuple[int, ...]) -> Tensor:
        out = x.new_zeros((sum(rows), *x.shape[1:]))
        self._keep(out, rows).copy_(x)
        return out

    def _broadcast(self, x: Tensor, root: int) -> Tensor:
        return x.clone()

    def _keep(self, out: Tensor, rows: Sequence[int]) -> Tensor:
        return out[sum(rows[: self.rank]) : sum(rows[: self.rank + 1])]


@dataclass(frozen=True, slots=True)
class MeasuredShare:
    """A measured share.

    Attributes:
        size, nodes: P and N. steps: snapshots that the rank convolves.
        samples: seconds of each epoch, exchanges taken off.
        checks: comparisons of the share, where it was drawn for them; of its steps, always.
    """

    size: int
    nodes: int
    steps: int
    samples: list[float]
    checks: list[ResultCheck] = field(default_factory=list)

    @property
    def vertex_steps(self) -> int:
        """Vertices times steps of the convolutions; T N / P where P divides T."""
        return self.steps * self.nodes

    @property
    def seconds(self) -> float:
        """Median of the samples."""
        return median(self.samples)


def blocks_of(steps: int, size: int) -> int:
    """As few blocks as let each of `size` ranks hold at most `HELD_STEPS` snapshots."""
    return max(1, -(-steps // (HELD_STEPS * size)))


def take_shares(
    workload: TimelineWorkload,
    wanted: Sequence[tuple[SnapshotSequence, int]],
    *,
    turns: int = 3,
) -> list[MeasuredShare]:
    """Time rank 0's share of an epoch on one thread; the shares take turns.

    Before and after, the smallest share and another that is drawn are compared with an oracle that
    has zeros where other ranks would send something. A share of everything is drawn where there is
    no other, for it takes the oracle longest.

    Args:
        workload: of all graphs, which may differ in their number of vertices.
        wanted: a graph and P, for each share.
        turns: epochs of each share after one that warms up.

    Returns:
        In the order of `wanted`.

    Raises:
        InvalidInputError: nothing wanted, or no turn.
    """
    if turns < 1 or not wanted:
        raise InvalidInputError(f"{turns} turns of {len(wanted)} shares; at least one of each")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        trainers = []
        for data, size in wanted:
            steps = len(data) - (workload.task != "class")
            trainers.append(
                SnapshotRankTrainer(Alone(size), workload, data, blocks=blocks_of(steps, size))
            )
        compared = {}
        for i in _drawn(wanted):
            data, size = wanted[i]
            oracle = TimelineOracle(workload, data, share=(size, len(trainers[i].blocks)))
            compared[i] = oracle, TimelineResult.of(trainers[i], oracle.request)
        samples: list[list[float]] = [[] for _ in trainers]
        for turn in range(turns + 1):
            order = range(len(trainers))
            for i in order if turn % 2 else reversed(order):
                seconds = _epoch(trainers[i])
                if turn:
                    samples[i].append(seconds)
        checks = {}
        for i, (oracle, before) in compared.items():
            name = f"share of {wanted[i][1]} ranks"
            checks[i] = oracle.checks_of({name: trainers[i]}, {name: before})
    finally:
        torch.set_num_threads(threads)
    found = []
    for i, ((data, size), trainer) in enumerate(zip(wanted, trainers, strict=True)):
        steps = sum(len(trainer.split.held(block)) for block in trainer.blocks)
        blocks = parted(range(trainer.task.steps), len(trainer.blocks))
        own = sum(len(parted(block, size)[0]) for block in blocks)
        check = equal("counters", steps, own, against="steps dealt out one by one")
        share = MeasuredShare(size, data.num_nodes, steps, samples[i], [check, *checks.get(i, [])])
        found.append(share)
    return found


def _drawn(wanted: Sequence[tuple[SnapshotSequence, int]]) -> list[int]:
    """Places of the smallest share, and of another that is drawn, which are compared."""
    # Vertices times steps of each, and so what its oracle costs.
    work = [data.num_nodes * len(data) / size for data, size in wanted]
    least = work.index(min(work))
    others = [i for i, (_, size) in enumerate(wanted) if i != least and size > 1]
    others = others or [i for i in range(len(wanted)) if i != least]
    return [least, *random.SystemRandom().sample(others, min(1, len(others)))]


def _epoch(trainer: SnapshotRankTrainer) -> float:
    comm = trainer.comm
    assert isinstance(comm, Alone)
    away, start = comm.away_s, time.perf_counter()
    trainer.train_epoch()
    return max(1e-9, time.perf_counter() - start - (comm.away_s - away))


def copy_rate(budget_s: float = 0.1) -> float:
    """Bytes per second that one thread copies, read and written counted, at its best."""
    source = torch.ones(16 << 20)
    target = torch.empty_like(source).copy_(source)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    best, end = float("inf"), time.perf_counter() + budget_s
    try:
        while best == float("inf") or time.perf_counter() < end:
            start = time.perf_counter()
            target.copy_(source)
            best = min(best, time.perf_counter() - start)
    finally:
        torch.set_num_threads(before)
    return 2 * source.nbytes / best
