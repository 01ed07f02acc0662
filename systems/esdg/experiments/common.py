"""Helpers of the experiments on the graph difference: lives of edges, and byte counts from them.

No snapshot is made for a count: how many entries a smoothed snapshot has, gains and loses follows
from how long its edges wait between occurrences (`datasets.transforms.EdgeLives`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from dgbench import datasets
from dgbench.datasets import EventStream
from dgbench.datasets.transforms import EdgeLives, equal_windows
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.difference import Index, difference_bytes, plain_bytes
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
        return self._cut(slice(0, steps))

    def last(self, steps: int | None) -> Changes:
        """The last `steps` snapshots; all for None."""
        return self if steps is None else self._cut(slice(-steps, None))

    def _cut(self, where: slice) -> Changes:
        return Changes(self.entries[where], self.added[where], self.removed[where])

    @property
    def share(self) -> float:
        """delta: (a + r) / n over all snapshots but the first; 0 where they hold nothing."""
        entries = int(self.entries[1:].sum())
        return float((self.added[1:] + self.removed[1:]).sum() / entries) if entries else 0.0

    def each_plain(self, index: Index = "int64", *, loops: int = 0) -> np.ndarray:
        """Bytes of each snapshot as coordinates, int64[T]."""
        return (self.entries + loops) * plain_bytes(1, index)

    def each(self, index: Index = "int64", *, fallback: bool = True, loops: int = 0) -> np.ndarray:
        """Bytes of each snapshot against the one before it, int64[T].

        Args:
            index: type of the indices.
            fallback: as coordinates where that is less.
            loops: entries that every snapshot holds beside its own: N where A + I is sent.
        """
        changed = (self.added + self.removed) * difference_bytes(1, 0, 0, index)
        sent = changed + (self.entries + loops) * difference_bytes(0, 0, 1, index)
        return np.minimum(sent, self.each_plain(index, loops=loops)) if fallback else sent

    def plain(self, index: Index = "int64") -> int:
        """Bytes of all snapshots as coordinates."""
        return int(self.each_plain(index).sum())

    def sent(
        self,
        restarts: Collection[int] = (0,),
        *,
        index: Index = "int64",
        fallback: bool = True,
        loops: int = 0,
    ) -> int:
        """Bytes of all snapshots, as `each`, but plain where the one before is not there.

        Args:
            restarts: snapshots that go plain; 0 always does.
            index, fallback, loops: as in `each`.
        """
        sent = self.each(index, fallback=fallback, loops=loops)
        whole = [0, *restarts]
        sent[whole] = self.each_plain(index, loops=loops)[whole]
        return int(sent.sum())


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
        events = datasets.open_events(graph.name, scale=graph.scale(preset))
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


def formula(share: float, index: Index = "int64") -> float:
    """The gain of a difference: 20 / (4 + 16 delta), with int32 12 / (4 + 8 delta)."""
    return plain_bytes(1, index) / (
        difference_bytes(0, 0, 1, index) + share * difference_bytes(1, 0, 0, index)
    )
