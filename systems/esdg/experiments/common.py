"""Helpers of the experiments on the graph difference: lives of edges, and byte counts from them.

No snapshot is made for a count: how many entries a smoothed snapshot has, gains and loses follows
from how long its edges wait between occurrences (`datasets.transforms.EdgeLives`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from dgbench import datasets
from dgbench.datasets import EventStream
from dgbench.datasets.transforms import EdgeLives, equal_windows
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.difference import difference_bytes, plain_bytes
from dgbench.kernels_cuda.snapshots import edge_snapshots
from dgbench.systems.base import Preset
from dgbench.systems.base.data import describe
from dgbench.systems.esdg.experiments.settings import SnapshotGraph


@dataclass(frozen=True, slots=True)
class Changes:
    """Entries of each snapshot of a sequence, and those that came and went against the last one.

    Attributes:
        entries, added, removed: int64[T]. Everything in the first snapshot was added.
    """

    entries: np.ndarray
    added: np.ndarray
    removed: np.ndarray

    @classmethod
    def of(cls, lives: EdgeLives, life: int) -> Changes:
        """After an edge-life, or an M-transform with a window, of this length."""
        return cls(lives.entries(life), lives.added(life), lives.removed(life))

    def first(self, steps: int) -> Changes:
        """The first `steps` snapshots."""
        return Changes(self.entries[:steps], self.added[:steps], self.removed[:steps])

    def each_plain(self) -> np.ndarray:
        """Bytes of each snapshot as coordinates, int64[T]."""
        return self.entries * plain_bytes(1)

    def each(self, *, fallback: bool = True) -> np.ndarray:
        """Bytes of each snapshot against the one before it, int64[T]; with `fallback` as
        coordinates where that is less."""
        changed = (self.added + self.removed) * difference_bytes(1, 0, 0)
        sent = changed + self.entries * difference_bytes(0, 0, 1)
        return np.minimum(sent, self.each_plain()) if fallback else sent

    def plain(self) -> int:
        """Bytes of all snapshots as coordinates."""
        return int(self.each_plain().sum())

    def sent(self, *, fallback: bool = True) -> int:
        """Bytes of all snapshots, as `each`, the first one as coordinates."""
        return int(self.each_plain()[0] + self.each(fallback=fallback)[1:].sum())


@dataclass(frozen=True, slots=True)
class Occurrences:
    """A graph at a preset's size.

    Attributes:
        events: as they are. bins: int64[E], raw snapshot of each. steps: T.
        data: the `data` field of a measurement.
    """

    events: EventStream
    bins: Tensor
    steps: int
    data: dict[str, Any]

    @classmethod
    def of(cls, graph: SnapshotGraph, preset: Preset) -> Occurrences:
        """Open the events and cut their time into the paper's number of windows, or the card's."""
        steps = int(graph.bins or datasets.card(graph.name).default_snapshots)
        return cls.cut(datasets.open_events(graph.name, scale=graph.scale(preset)), steps)

    @classmethod
    def cut(cls, events: EventStream, steps: int) -> Occurrences:
        """Events whose time is cut into equal windows."""
        bins, _ = equal_windows(events.t, steps)
        return cls(events, bins.long(), steps, describe(events))  # type: ignore[arg-type]

    def lives(self) -> EdgeLives:
        """Gaps between the occurrences of its edges."""
        events = self.events
        return EdgeLives.of_events(events.src, events.dst, self.bins, self.steps, events.num_nodes)

    def snapshots(self, *, life: int = 1, weighted: bool = False) -> list[Csr]:
        """Its snapshots with an edge life; `weighted`: entries count their occurrences."""
        events = self.events
        return edge_snapshots(
            events.src,
            events.dst,
            self.bins,
            self.steps,
            events.num_nodes,
            edge_life=life,
            weighted=weighted,
        )


def smallest_length(fits: Callable[[int], bool], most: int) -> int | None:
    """The smallest length of a smoothing that fits, as all longer ones do; None beyond `most`."""
    found = 1 + bisect_left(range(1, most + 1), True, key=fits)
    return found if found <= most else None
