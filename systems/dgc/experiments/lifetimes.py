"""Sizes of a graph over time: edges per snapshot, and who is present when, by each rule.

Nothing is made of a snapshot for a count: a vertex is present by when it has edges.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dgbench import datasets
from dgbench.datasets import EventStream
from dgbench.datasets.transforms import equal_windows
from dgbench.lab.result_checks import ResultCheck, equal
from dgbench.systems.base import Preset
from dgbench.systems.base.data import describe
from dgbench.systems.dgc.experiments.settings import ChunkedGraph

RULES = ("edges", "span", "tail")
"""Presence of a vertex: where it has an edge, from its first to its last, from its first on."""


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """When edges and vertices of a graph are there.

    Attributes:
        steps: T.
        nodes: N, with those that never have an edge.
        events: without self loops.
        pairs: distinct ordered pairs of vertices.
        edges: int64[T], distinct edges of each snapshot without self loops.
        active: int64[T], vertices with an edge in each snapshot.
        first, last: int64[M], the first and last snapshot of each vertex that ever has an edge.
        window: length of a snapshot in the data's unit of time.
        data: the `data` field of a measurement.
        alive: vertices that ever have an edge, counted apart.
    """

    steps: int
    nodes: int
    events: int
    pairs: int
    edges: np.ndarray
    active: np.ndarray
    first: np.ndarray
    last: np.ndarray
    window: float
    data: dict[str, Any]
    alive: int

    @classmethod
    def of(cls, graph: ChunkedGraph, preset: Preset) -> Lifetimes:
        """Open a graph and cut its time into the paper's number of windows, or the card's."""
        steps = int(graph.bins or datasets.card(graph.name).default_snapshots)
        events = datasets.open_events(graph.name, scale=graph.scale(preset))
        return cls.of_events(events, steps)

    @classmethod
    def of_events(cls, events: EventStream, steps: int) -> Lifetimes:
        """Cut time into this many windows of equal length. Self loops are left out.

        Raises:
            InvalidInputError: fewer than one window.
        """
        bins, cuts = equal_windows(events.t, steps)
        src, dst, bins = (np.asarray(x, dtype=np.int64) for x in (events.src, events.dst, bins))
        kept = src != dst
        src, dst, bins = src[kept], dst[kept], bins[kept]
        nodes = events.num_nodes
        # N^2 T of the largest graph, Amazon, is 2^51.
        edge = _distinct((src * nodes + dst) * steps + bins)
        there = _distinct(np.concatenate([src, dst]) * steps + np.tile(bins, 2))
        entity, step = there // steps, there % steps
        begins = np.flatnonzero(np.diff(entity, prepend=-1))
        ends = np.append(begins[1:], entity.size) - 1 if begins.size else begins
        return cls(
            steps=steps,
            nodes=nodes,
            events=int(src.size),
            pairs=int(np.count_nonzero(np.diff(edge // steps, prepend=-1))),
            edges=np.bincount(edge % steps, minlength=steps),
            active=np.bincount(step, minlength=steps),
            first=step[begins],
            last=step[ends],
            window=float(cuts[-1] - cuts[0]) / steps,
            data=describe(events),  # type: ignore[arg-type]
            alive=int(np.count_nonzero(np.bincount(np.concatenate([src, dst])))),
        )

    def check(self) -> ResultCheck:
        """A check that counts which follow from each other agree."""
        own = (self.first.size, self.vertices("span"), self.vertices("tail"))
        wanted = (self.alive, int(self.lengths.sum()), int((self.steps - self.first).sum()))
        names = ("vertices", "first to last", "first to end")
        found, forms = (dict(zip(names, each, strict=True)) for each in (own, wanted))
        return equal("counts of events", found, forms, against="closed forms")

    def present(self, rule: str) -> np.ndarray:
        """int64[T], vertices present in each snapshot by one of `RULES`."""
        if rule == "edges":
            return self.active
        changes = np.bincount(self.first, minlength=self.steps + 1)
        if rule == "span":
            changes = changes - np.bincount(self.last + 1, minlength=self.steps + 1)
        return np.cumsum(changes)[: self.steps]

    def vertices(self, rule: str) -> int:
        """Vertices summed over snapshots, by one of `RULES`: V of the supergraph."""
        return int(self.present(rule).sum())

    @property
    def lengths(self) -> np.ndarray:
        """int64[M], steps of each sequence from a vertex's first to its last edge."""
        return self.last - self.first + 1


def _distinct(keys: np.ndarray) -> np.ndarray:
    """Distinct keys, ascending; sorting takes a fifth of the time of numpy's hashing `unique`."""
    keys = np.sort(keys)
    return keys[np.diff(keys, prepend=-1) != 0]


def gini(values: np.ndarray) -> float:
    """Gini index of values >= 0: 0 where all are equal, near 1 where one holds everything."""
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    total = ordered.sum()
    if not total:
        return 0.0
    ranks = np.arange(1, ordered.size + 1)
    return float((2 * ranks - ordered.size - 1) @ ordered / (ordered.size * total))


def quarters(values: np.ndarray) -> list[float]:
    """Means of four runs of equally many values; the first runs take what is left over."""
    return [float(part.mean()) if part.size else 0.0 for part in np.array_split(values, 4)]
