"""Counting every edge-life and every M-transform of a sequence at once, without making any.

An entry of a smoothed snapshot is alive because the edge occurred less than l snapshots ago. So how
many entries there are, come and go follows from one table: how long each occurrence waits for the
next one of its edge. Sorting the occurrences once gives the table; then any l costs a few sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from torch import Tensor

from dgbench.datasets.transforms.stacks import flatten
from dgbench.kernels_cuda.csr import Csr
from dgbench.runtime.errors import InvalidInputError
from dgbench.runtime.fields import check_count

CHUNK = 1 << 22
"""Occurrences looked at together: bounds the memory beside the sorted keys."""


@dataclass(frozen=True)
class EdgeLives:
    """Histogram of gaps between occurrences of an edge, by snapshot.

    An edge-life l and an M-transform of window l keep the same entries (they differ in their
    values), so the counts are those of both.

    Attributes:
        waits: int64[T, T]; `waits[t, g]` is the number of edges of raw snapshot t whose next
            occurrence is g snapshots later, `waits[t, 0]` of those that have none.
    """

    waits: np.ndarray

    @classmethod
    def of_events(
        cls, src: Tensor, dst: Tensor, bins: Tensor, num_snapshots: int, num_nodes: int
    ) -> EdgeLives:
        """From timed edges, as `edge_snapshots` takes them; self loops are left out.

        Args:
            src, dst: int64[E], vertex ids in [0, num_nodes).
            bins: int64[E], raw snapshot of each, in [0, num_snapshots), in any order.
            num_snapshots: T. num_nodes: N.

        Raises:
            InvalidInputError: lengths that differ, ids or bins out of range, or a graph whose
                N * N * T does not fit 63 bits.
        """
        return cls._of(src, dst, bins, num_snapshots, num_nodes, loops=False)

    @classmethod
    def of_snapshots(cls, snapshots: Sequence[Csr]) -> EdgeLives:
        """From raw snapshots; self loops that they hold count.

        Raises:
            InvalidInputError: snapshots of different sizes, or too large a graph.
        """
        if not snapshots:
            return cls(np.zeros((0, 0), np.int64))
        plain = [Csr(csr.indptr, csr.indices, csr.num_cols) for csr in snapshots]
        src, dst, step, _ = flatten(plain)
        return cls._of(src, dst, step, len(plain), plain[0].num_rows, loops=True)

    @classmethod
    def _of(
        cls, src: Tensor, dst: Tensor, bins: Tensor, steps: int, nodes: int, *, loops: bool
    ) -> EdgeLives:
        columns = [column.numpy() for column in (src, dst, bins)]
        _check_columns(columns, steps, nodes)
        keys = np.empty(len(bins), np.int64)
        used = 0
        for first in range(0, len(keys), CHUNK):
            one, two, step = (column[first : first + CHUNK] for column in columns)
            found = (two * nodes + one) * steps + step
            if not loops:
                found = found[one != two]
            keys[used : used + len(found)] = found
            used += len(found)
        keys = keys[:used]
        keys.sort()
        waits = np.zeros(steps * steps, np.int64)
        for first in range(0, used, CHUNK):
            waits += _waits(keys[first : first + CHUNK + 1], steps, last=first + CHUNK >= used)
        return cls(waits.reshape(steps, steps))

    @property
    def steps(self) -> int:
        """T."""
        return len(self.waits)

    def raw(self) -> np.ndarray:
        """Distinct edges of each raw snapshot, int64[T]."""
        return self.waits.sum(1)

    def entries(self, life: int) -> np.ndarray:
        """nnz of each snapshot smoothed with this edge-life or window, int64[T]."""
        _check_life(life)
        left = self._left
        total = np.zeros(self.steps, np.int64)
        for age in range(min(life, self.steps)):
            total[age:] += left[: self.steps - age, age]
        return total

    def added(self, life: int) -> np.ndarray:
        """Entries of each smoothed snapshot that the one before lacks, int64[T]."""
        _check_life(life)
        added = self.raw()
        for wait in range(1, min(life, self.steps - 1) + 1):
            added[wait:] -= self.waits[: self.steps - wait, wait]
        return added

    def removed(self, life: int) -> np.ndarray:
        """Entries of the snapshot before each that it lacks, int64[T]; 0 for the first."""
        _check_life(life)
        removed = np.zeros(self.steps, np.int64)
        if life < self.steps:
            removed[life:] = self._left[: self.steps - life, life]
        return removed

    @cached_property
    def _left(self) -> np.ndarray:
        """[T, T]: edges of snapshot t that do not occur again within g snapshots."""
        if not self.steps:
            return self.waits
        again = self.waits.copy()
        again[:, 0] = 0
        return self.raw()[:, None] - again.cumsum(1)


def _waits(keys: np.ndarray, steps: int, *, last: bool) -> np.ndarray:
    """Flat table of sorted occurrences; unless `last`, the last key only ends a wait."""
    pairs, step = np.divmod(keys, steps)
    wait = np.zeros(len(keys), np.int64)
    again = pairs[1:] == pairs[:-1]
    wait[:-1][again] = (step[1:] - step[:-1])[again]
    kept = np.ones(len(keys), bool)
    kept[:-1] = ~(again & (wait[:-1] == 0))  # the same edge once more in one snapshot
    if not last:
        kept[-1] = False
    return np.bincount((step * steps + wait)[kept], minlength=steps * steps)


def _check_life(life: int) -> None:
    check_count("life", life)


def _check_columns(columns: Sequence[np.ndarray], steps: int, nodes: int) -> None:
    if len({len(column) for column in columns}) != 1:
        raise InvalidInputError(f"lengths differ: {[len(column) for column in columns]}")
    if nodes * nodes * max(1, steps) >= 2**63:
        raise InvalidInputError(
            f"{nodes} vertices and {steps} snapshots are too many to count together",
            hint="N * N * T must stay below 2**63",
        )
    for name, column, most in zip(
        ("src", "dst", "bins"), columns, (nodes, nodes, steps), strict=True
    ):
        if len(column) and not 0 <= int(column.min()) <= int(column.max()) < most:
            raise InvalidInputError(f"{name} has values outside 0 .. {most - 1}")
