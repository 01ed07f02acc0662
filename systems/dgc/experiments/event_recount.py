"""Recount of a graph's events: edges of snapshots and lifetimes of vertices, by `numpy.unique`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dgbench.datasets.transforms import equal_windows
from dgbench.lab.result_checks import ResultCheck, equal
from dgbench.systems.dgc.recount import AGAINST, drawn

if TYPE_CHECKING:
    from dgbench.datasets import EventStream
    from dgbench.systems.dgc.experiments.lifetimes import Lifetimes

MAX_EVENTS = 5_000_000
"""Events up to which all are recounted; of more, those of some drawn snapshots."""
SNAPSHOTS = 3


class EventRecount:
    """Edges and vertices of equal windows, counted from the events.

    Attributes:
        steps: T.
        window: length of a snapshot in the data's unit of time.
        drawn: snapshots that were recounted: all, or drawn ones and the last.
        edges, active: int64[T], distinct edges and vertices with one; -1 where not recounted.
        first, last: int64[M], first and last snapshot of each vertex that ever has an edge.
    """

    def __init__(self, events: EventStream, steps: int) -> None:
        self.steps, self.nodes = steps, events.num_nodes
        src, dst = (np.asarray(side, dtype=np.int64) for side in (events.src, events.dst))
        times = np.asarray(events.t, dtype=np.float64)
        cuts = equal_windows(events.t, steps)[1].numpy()
        self.window = float(times.max() - times.min()) / steps if times.size else 0.0
        self.even = bool(np.allclose(np.diff(cuts), (cuts[-1] - cuts[0]) / steps, rtol=1e-6))
        bins = np.clip(np.searchsorted(cuts, times, side="right") - 1, 0, steps - 1)
        if cuts[0] == cuts[-1]:
            bins = np.zeros_like(bins)
        kept = src != dst
        src, dst, bins = src[kept], dst[kept], bins[kept]
        self.events = int(src.size)
        self.all = self.events <= MAX_EVENTS
        every = list(range(steps))
        self.drawn = every if self.all else sorted({*drawn(every, SNAPSHOTS), steps - 1})
        self.edges, self.active = (np.full(steps, -1, np.int64) for _ in range(2))
        order = np.argsort(bins, kind="stable")
        begin = np.searchsorted(bins[order], np.arange(steps + 1))
        for t in self.drawn:
            mine = order[begin[t] : begin[t + 1]]
            self.edges[t] = np.unique(src[mine] * self.nodes + dst[mine]).size
            self.active[t] = np.unique(np.concatenate([src[mine], dst[mine]])).size
        self.pairs = np.unique(src * self.nodes + dst).size if self.all else -1
        first, last = np.full(self.nodes, steps), np.full(self.nodes, -1)
        for side in (src, dst):
            np.minimum.at(first, side, bins)
            np.maximum.at(last, side, bins)
        alive = last >= 0
        self.first, self.last = first[alive], last[alive]

    def present(self, rule: str) -> np.ndarray:
        """int64[T], vertices present by a rule of `lifetimes.RULES`."""
        if rule == "edges":
            return self.active
        begun = np.searchsorted(np.sort(self.first), np.arange(self.steps), side="right")
        if rule == "tail":
            return begun
        return begun - np.searchsorted(np.sort(self.last), np.arange(self.steps), side="left")

    @property
    def lengths(self) -> np.ndarray:
        """int64[M], steps from the first to the last edge of each vertex."""
        return self.last - self.first + 1

    def check(self, found: Lifetimes) -> ResultCheck:
        """A check that counts of snapshots and lifetimes of vertices are these."""
        own = {
            "edges": found.edges[self.drawn], "active": found.active[self.drawn],
            "first": found.first, "last": found.last,
            "sizes": np.array([found.steps, found.nodes, found.events, found.pairs]),
        }  # fmt: skip
        pairs = self.pairs if self.all else found.pairs
        wanted = {
            "edges": self.edges[self.drawn], "active": self.active[self.drawn],
            "first": self.first, "last": self.last,
            "sizes": np.array([self.steps if self.even else -1, self.nodes, self.events, pairs]),
        }  # fmt: skip
        return equal("counts of events", own, wanted, against=AGAINST)
