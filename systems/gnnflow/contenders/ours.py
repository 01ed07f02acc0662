"""Contenders of this project: the store that grows in place, and rows that are built anew."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from dgbench.kernels_cuda.tcsr import Tcsr, build_tcsr, sample_tcsr_hops
from dgbench.kernels_cuda.temporal_sample import sample_hops
from dgbench.kernels_cuda.temporal_store import TemporalStore
from dgbench.systems.gnnflow.contenders.base import ContenderEvents, GraphStoreContender

STEP = 100_000
"""Edges that are inserted at a time where a graph is built."""


class _Counted(GraphStoreContender):
    """Draws of its own for every call, so that two calls differ."""

    ours = True

    def __init__(self, *, threads: int = 1) -> None:
        super().__init__(threads=threads)
        self.draw = 0  # of the last call

    def _next(self) -> int:
        self.draw += 1
        return self.draw

    @abstractmethod
    def records(self) -> Callable[[int], tuple[Tensor, Tensor, Tensor]]:
        """vertex -> (neighbours, edges, times) in order of time."""

    def first_hop(self, answer: Any) -> tuple[Tensor, Tensor]:
        hop = answer[0][0]
        roots = torch.arange(hop.nodes.numel())
        return torch.repeat_interleave(roots, hop.offsets.diff()), hop.eids


class BlockStoreContender(_Counted):
    """GNNFlow's store of this project."""

    name = "blocks"
    title = "blocks, in place"
    in_place = True

    def build(self, events: ContenderEvents) -> None:
        self.store = TemporalStore(events.num_nodes, undirected=True)
        for at in range(0, len(events), STEP):
            self._insert(events, at, at + STEP)

    def add(self, events: ContenderEvents, old: int) -> None:
        self._insert(events, old, len(events))

    def records(self) -> Callable[[int], tuple[Tensor, Tensor, Tensor]]:
        return self.store.neighbours

    def _insert(self, events: ContenderEvents, first: int, last: int) -> None:
        part = slice(first, last)
        self.store.insert(events.src[part], events.dst[part], events.t[part])

    def sample(self, nodes: Tensor, times: Tensor, fanouts: Sequence[int], policy: str) -> Any:
        return sample_hops(
            self.store, nodes, times, fanouts, policy=policy, draw=self._next(),
            threads=self.threads,
        )  # fmt: skip


class Rebuilt(_Counted):
    """TGL's way: a sorted row per vertex, built from all events whenever some are new."""

    name = "tcsr"
    title = "T-CSR, rebuilt"
    note = "TGL's way, written anew with exact times"

    def build(self, events: ContenderEvents) -> None:
        self.rows = build_tcsr(
            events.num_nodes, events.src, events.dst, events.t, undirected=True,
            threads=self.threads,
        )  # fmt: skip

    def add(self, events: ContenderEvents, old: int) -> None:
        self.build(events)

    def sample(self, nodes: Tensor, times: Tensor, fanouts: Sequence[int], policy: str) -> Any:
        return sample_tcsr_hops(
            self.rows, nodes, times, fanouts, policy=policy, draw=self._next(),
            threads=self.threads,
        )  # fmt: skip

    def records(self) -> Callable[[int], tuple[Tensor, Tensor, Tensor]]:
        return records_of_rows(self.rows)


def records_of_rows(rows: Tcsr) -> Callable[[int], tuple[Tensor, Tensor, Tensor]]:
    """vertex -> (neighbours int64[d], edges int64[d], times float64[d]), oldest first."""

    def find(vertex: int) -> tuple[Tensor, Tensor, Tensor]:
        mine = slice(int(rows.indptr[vertex]), int(rows.indptr[vertex + 1]))
        return rows.neighbours[mine], rows.eids[mine], rows.times[mine]

    return find
