"""One rank's share of an epoch, run alone: what a rank computes, without its communication.

The code is that of the ranks (`RankTrainer`), on a communicator whose other ranks do not exist.
What they would send is zeros of the right shape, so the seconds mean something and the values do
not. Ranks are alike up to one step or vertex, and rank 0 has the longer share.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor

from dgbench.datasets import SnapshotSequence
from dgbench.runtime.collectives import Communicator, TrafficMatrix
from dgbench.runtime.collectives.communicator import Reduction
from dgbench.runtime.collectives.exchange import Arrived, Ticket
from dgbench.runtime.errors import InvalidInputError, UnsupportedError
from dgbench.systems.base.timeline import TimelineWorkload
from dgbench.systems.esdg.partition_trainer import RankTrainer

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

    def _begin(self, x: Tensor, send: tuple[int, ...], receive: tuple[int, ...]) -> Ticket:
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
class Share:
    """A measured share.

    Attributes:
        size, nodes: P and N. steps: snapshots that the rank convolves.
        samples: seconds of each epoch, exchanges taken off.
    """

    size: int
    nodes: int
    steps: int
    samples: list[float]

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
) -> list[Share]:
    """Time rank 0's share of an epoch on one thread; the shares take turns.

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
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        trainers = []
        for data, size in wanted:
            steps = len(data) - (workload.task != "class")
            trainers.append(RankTrainer(Alone(size), workload, data, blocks=blocks_of(steps, size)))
        samples: list[list[float]] = [[] for _ in trainers]
        for turn in range(turns + 1):
            order = range(len(trainers))
            for i in order if turn % 2 else reversed(order):
                seconds = _epoch(trainers[i])
                if turn:
                    samples[i].append(seconds)
    finally:
        torch.set_num_threads(before)
    found = []
    for (data, size), trainer, taken in zip(wanted, trainers, samples, strict=True):
        steps = sum(len(trainer.split.held(block)) for block in trainer.blocks)
        found.append(Share(size, data.num_nodes, steps, taken))
    return found


def _epoch(trainer: RankTrainer) -> float:
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
