"""Quality of a sample: recall, leaks, duplicates and repeats, against a search by brute force.

The truth is found edge by edge from the events alone; nothing of any contender is used for it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dgbench.systems.gnnflow.contenders.base import ContenderEvents


@dataclass(frozen=True, slots=True)
class SampleQuality:
    """Quality of the first hop of one call.

    Attributes:
        wanted: edges that a perfect answer has: the fanout, or all where there are fewer.
        recall: right edges that were returned, each counted once, of the wanted. Right for
            `recent` are the newest before the root's time (any of those that share the time of the
            oldest of them), for `uniform` all before it.
        returned: edges returned.
        leaks: share of these that are not older than their root's time.
        foreign: share of these that are no edges of their root.
        duplicates: share of these that were returned before for the same root.
    """

    wanted: int
    recall: float
    returned: int
    leaks: float
    foreign: float
    duplicates: float


class ReferenceResult:
    """Edges of the vertices that are asked about, in time order, found by scanning all events."""

    def __init__(self, events: ContenderEvents) -> None:
        self._src, self._dst = events.src.numpy(), events.dst.numpy()
        self._t = events.t.numpy()
        ends = np.concatenate([self._src, self._dst])
        self._order = np.argsort(ends, kind="stable")
        self._start = np.searchsorted(ends[self._order], np.arange(events.num_nodes + 1))

    def edges_before(self, node: int, time: float) -> np.ndarray:
        """Ids of all edges of a vertex with t < time, oldest first; self edges stand twice."""
        half = self._order[self._start[node] : self._start[node + 1]]
        eid = np.sort(half % len(self._t), kind="stable")
        return eid[self._t[eid] < time]

    def judge(
        self,
        nodes: Tensor,
        times: Tensor,
        fanout: int,
        policy: str,
        root: Tensor,
        eid: Tensor,
        *,
        every: int = 1,
    ) -> SampleQuality:
        """Judge what was returned for the roots `nodes` at `times`.

        Args:
            nodes, times: int64[R] and float64[R].
            fanout: neighbours that were asked for per root.
            policy: `recent` or `uniform`.
            root, eid: int64[K] each: which root an edge was returned for, and which edge.
            every: look at each so-manieth root only.
        """
        order = torch.argsort(root, stable=True)
        cuts = torch.searchsorted(root[order].contiguous(), torch.arange(nodes.numel() + 1))
        given, upto = eid[order].numpy(), cuts.numpy()
        wanted = right = returned = leaks = foreign = repeated = 0
        for r in range(0, nodes.numel(), every):
            node, time = int(nodes[r]), float(times[r])
            mine = given[upto[r] : upto[r + 1]]
            truth = self.edges_before(node, time)
            perfect = min(fanout, len(truth))
            good = truth
            if policy == "recent" and perfect:
                good = truth[self._t[truth] >= self._t[truth[-perfect]]]
            wanted += perfect
            right += min(perfect, _shared(mine, good))
            returned += len(mine)
            leaks += int((self._t[mine] >= time).sum())
            foreign += int(((self._src[mine] != node) & (self._dst[mine] != node)).sum())
            strange = np.setdiff1d(mine, truth)  # leaks and foreign edges: each once
            repeated += len(mine) - _shared(mine, np.concatenate([truth, strange]))
        share = max(1, returned)
        return SampleQuality(
            wanted,
            right / wanted if wanted else 1.0,
            returned,
            leaks / share,
            foreign / share,
            repeated / share,
        )


def _shared(found: np.ndarray, allowed: np.ndarray) -> int:
    """Size of the multiset intersection of `found` and `allowed` (self edges twice)."""
    ids, times = np.unique(allowed, return_counts=True)
    mine, count = np.unique(found, return_counts=True)
    at = np.searchsorted(ids, mine)
    at[at == len(ids)] = 0
    known = len(ids) > 0 and ids[at] == mine
    return int(np.minimum(count, times[at])[known].sum()) if len(ids) else 0
