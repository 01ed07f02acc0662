"""Ranks as threads of this process, for tests: the whole of what is sent is in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor

from dgbench.runtime.collectives import Communicator, TrafficMatrix, stack
from dgbench.runtime.collectives.exchange import Arrived, PendingExchange
from dgbench.runtime.meter import Meter
from dgbench.systems.dgc.trainer import ChunkRankTrainer


class _Exchanges:
    """Exchange of objects between ranks, one operation after the other."""

    def __init__(self, size: int) -> None:
        self.posts: list[Any] = [None] * size
        self.barrier = threading.Barrier(size, timeout=30)

    def share(self, rank: int, what: Any) -> list[Any]:
        self.posts[rank] = what
        self.barrier.wait()
        found = list(self.posts)
        self.barrier.wait()
        return found


class ThreadCommunicator(Communicator):
    """A rank that is a thread."""

    def __init__(self, rank: int, size: int, board: _Exchanges) -> None:
        super().__init__(rank, size, meter=Meter())
        self._board = board

    def barrier(self) -> None:
        self._board.share(self.rank, None)

    def gather_objects(self, what: Any) -> list[Any]:
        return [deepcopy(one) for one in self._board.share(self.rank, deepcopy(what))]

    def all_traffic(self) -> TrafficMatrix:
        return stack(self._board.share(self.rank, deepcopy(self.traffic)))

    def _begin(self, x: Tensor, send: tuple[int, ...], receive: tuple[int, ...]) -> PendingExchange:
        told = ("all_to_all", tuple(x.shape[1:]), x.dtype, x.detach().clone().split(send))
        posts = self._board.share(self.rank, told)
        assert {(p[0], p[1], p[2]) for p in posts} == {told[:3]}, "ranks do different things"
        parts = [post[3][self.rank] for post in posts]
        assert [len(p) for p in parts] == list(receive)
        return Arrived(torch.cat(parts))

    def _exchange_sizes(self, send: tuple[int, ...]) -> list[int]:
        return [p[self.rank] for p in self._board.share(self.rank, send)]

    def _all_reduce(self, x: Tensor, op: str) -> Tensor:
        whole = torch.stack(self._board.share(self.rank, x.detach().clone()))
        return {"sum": whole.sum, "max": whole.amax, "min": whole.amin, "mean": whole.mean}[op](0)

    def _all_gather(self, x: Tensor, rows: tuple[int, ...]) -> Tensor:
        return torch.cat(self._board.share(self.rank, x.detach().clone()))

    def _broadcast(self, x: Tensor, root: int) -> Tensor:
        # A tensor of its own for each rank: they write to it.
        return self._board.share(self.rank, x.detach().clone())[root].clone()


def as_ranks(size: int, function: Callable[..., Any], *args: Any) -> list[Any]:
    """Results of `function(comm, *args)` on each of `size` ranks; the first error is raised."""
    board = _Exchanges(size)
    found: list[Any] = [None] * size
    errors: list[BaseException] = []

    def be(rank: int) -> None:
        torch.set_num_threads(1)
        try:
            found[rank] = function(ThreadCommunicator(rank, size, board), *args)
        except BaseException as error:
            if not isinstance(error, threading.BrokenBarrierError):
                errors.append(error)
            board.barrier.abort()

    threads = [threading.Thread(target=be, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    assert not board.barrier.broken, "ranks waited for each other"
    return found


_ONE_AT_A_TIME = threading.Lock()


def rank_trainer(comm: Communicator, *args: Any, **options: Any) -> ChunkRankTrainer:
    """A rank's trainer of DGC; one thread at a time draws parameters from torch's generator."""
    with _ONE_AT_A_TIME:
        return ChunkRankTrainer(comm, *args, **options)
