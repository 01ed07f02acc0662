"""Streams of edges that samplers of neighbours are raced on, and what is right of their answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dgbench.lab.result_checks import ResultCheck, at_most

EXPONENT, SHIFT = 0.9, 10
"""A vertex of rank r is an end with a probability that follows (r + 10) ^ -0.9."""
COMPARED = 2000
"""Targets of a hop that are compared, at most."""


class RacedHop(NamedTuple):
    """Neighbours of one hop: targets and their times, and whom each edge was drawn for."""

    nodes: Tensor
    times: Tensor
    target: Tensor
    eids: Tensor


@dataclass(frozen=True, eq=False)
class Stream:
    """Undirected edges in time order, no loops; the id of an edge is its place.

    Attributes:
        vertices: N. src, dst: int64[E]. t: float64[E], whole numbers below 2^24.
    """

    vertices: int
    src: Tensor
    dst: Tensor
    t: Tensor

    @classmethod
    def power_law(cls, vertices: int, edges: int, seed: int = 1) -> Stream:
        """Both ends by the same power law."""
        draw = np.random.default_rng(seed)
        weight = (np.arange(vertices) + SHIFT) ** -EXPONENT
        sums = np.cumsum(weight / weight.sum())
        names = draw.permutation(vertices)
        src, dst = names[np.searchsorted(sums, draw.random((2, edges))).clip(max=vertices - 1)]
        dst = np.where(src == dst, (dst + 1) % vertices, dst)
        t = np.sort(draw.integers(0, 2**24, edges)).astype(np.float64)
        return cls(vertices, *(torch.from_numpy(array.copy()) for array in (src, dst, t)))

    def __len__(self) -> int:
        return self.src.numel()

    def roots(self, first: int, count: int) -> tuple[Tensor, Tensor]:
        """Sources, destinations and random vertices of `count` edges, each at its edge's time."""
        part = slice(first, first + count)
        draw = torch.Generator().manual_seed(1 + first)
        negatives = torch.randint(self.vertices, (len(self.src[part]),), generator=draw)
        return torch.cat([self.src[part], self.dst[part], negatives]), self.t[part].repeat(3)

    @cached_property
    def rows(self) -> tuple[np.ndarray, np.ndarray]:
        """Edges of each vertex in order of time: where a vertex's begin, and their ids."""
        ends = np.concatenate([self.src.numpy(), self.dst.numpy()])
        eids = np.tile(np.arange(len(self)), 2)
        order = np.lexsort((eids, ends))
        starts = np.searchsorted(ends[order], np.arange(self.vertices + 1))
        return starts, eids[order]

    def edges_before(self, vertex: int, time: float) -> np.ndarray:
        """Ids of the edges of a vertex that are older than a time, oldest first."""
        starts, eids = self.rows
        mine = eids[starts[vertex] : starts[vertex + 1]]
        return mine[: np.searchsorted(self.t.numpy()[mine], time)]

    def check(self, hops: Sequence[RacedHop], fanout: int, policy: str) -> ResultCheck:
        """Compare samples with a search through all edges of each vertex.

        Recent ones are the newest before the target's time; uniform ones any of these, each once,
        as many as there are up to the fan-out.
        """
        wrong = total = 0
        for hop in hops:
            order = torch.argsort(hop.target, stable=True)
            cuts = torch.searchsorted(
                hop.target[order].contiguous(), torch.arange(len(hop.nodes) + 1)
            ).numpy()
            eids = hop.eids[order].numpy()
            for at in range(0, len(hop.nodes), max(1, len(hop.nodes) // COMPARED)):
                right = self.edges_before(int(hop.nodes[at]), float(hop.times[at]))
                count = min(fanout, len(right))
                allowed = right[len(right) - count :] if policy == "recent" else right
                good = len(np.intersect1d(eids[cuts[at] : cuts[at + 1]], allowed))
                wrong += max(count, cuts[at + 1] - cuts[at]) - good
                total += max(count, 1)
        return at_most(
            "samples", wrong / max(1, total), 0.0, against="search through all edges",
            compared=total,
        )  # fmt: skip
