"""The synthetic graphs of Figures 13 and 14 (section 7.3.1), made from a seed.

All have the same totals: 5 M vertices and 2 M edges over 100 snapshots, summed over snapshots. One
family varies the edges of a snapshot, a normal distribution around 20 K, the other the vertices of
a snapshot, and with them how long sequences are. What the paper leaves open is decided here:

- a draw below zero becomes zero, and all are scaled to the total;
- vertices enter where a snapshot has more than the one before it, and random ones leave where it
  has fewer, so lengths of sequences follow from the numbers of vertices;
- a vertex has an edge where it enters and where it leaves, as far as edges last, since presence is
  read off edges; all other ends are random (`random`), or meet four times in five in a group of 32
  vertices (`groups`): at random there is nothing that a partition could find.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import torch

from dgbench.datasets import Origin, SnapshotSequence
from dgbench.datasets.transforms import degree_features, degree_targets
from dgbench.kernels_cuda.snapshots import edge_snapshots
from dgbench.runtime.errors import InvalidInputError, unknown_key

VERTICES: Final = 5_000_000
EDGES: Final = 2_000_000
STEPS: Final = 100
FAMILIES: Final = ("spatial", "temporal")
ENDS: Final = ("random", "groups")
GROUP: Final = 32
WITHIN: Final = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Synthetic:
    """One synthetic graph.

    Attributes:
        family: what varies: edges per snapshot (`spatial`) or vertices per snapshot (`temporal`).
        level: standard deviation over mean of what varies.
        ends: which vertices an edge joins, `random` or `groups`.
        scale: of the totals of vertices and edges; the number of snapshots stays.
        steps: T.
        seed: of all draws.
    """

    family: Literal["spatial", "temporal"]
    level: float
    ends: Literal["random", "groups"] = "random"
    scale: float = 1.0
    steps: int = STEPS
    seed: int = 1

    def check(self) -> Synthetic:
        """Return self; raise InvalidInputError or UnknownKeyError for a field out of range."""
        if self.family not in FAMILIES:
            raise unknown_key("family", self.family, FAMILIES)
        if self.ends not in ENDS:
            raise unknown_key("ends", self.ends, ENDS)
        if not 0 <= self.level <= 10:
            raise InvalidInputError(f"level is {self.level!r}, allowed are 0 to 10")
        if self.steps < 2:
            raise InvalidInputError(f"steps is {self.steps!r}, allowed are numbers from 2")
        if not 0 < self.scale <= 1 or self.scale * VERTICES < 4 * self.steps:
            raise InvalidInputError(
                f"scale is {self.scale!r}; allowed are shares up to 1 that leave 4 vertices of "
                f"{VERTICES} for each of {self.steps} snapshots"
            )
        return self

    @property
    def name(self) -> str:
        """As in the `dataset` of a row."""
        return f"synthetic-{self.family}"

    def vertices(self) -> np.ndarray:
        """int64[T], vertices of each snapshot; at least 2."""
        rng = np.random.default_rng([self.seed, 1])
        level = self.level if self.family == "temporal" else 0.0
        total = round(self.scale * VERTICES)
        return np.maximum(2, _draw(rng, total, self.steps, level))

    def edges(self) -> np.ndarray:
        """int64[T], edges of each snapshot."""
        rng = np.random.default_rng([self.seed, 2])
        level = self.level if self.family == "spatial" else 0.0
        return _draw(rng, round(self.scale * EDGES), self.steps, level)

    def snapshots(self) -> SnapshotSequence:
        """T snapshots with in-degree and out-degree as features.

        Repeated edges of a snapshot are merged, so that a few of the drawn ones are missing.

        Raises:
            InvalidInputError, UnknownKeyError: a field out of range.
        """
        self.check()
        sources, targets, nodes = self._join()
        bins = np.repeat(np.arange(self.steps), [part.size for part in sources])
        csrs = edge_snapshots(
            *(torch.from_numpy(np.concatenate(parts)) for parts in (sources, targets)),
            torch.from_numpy(bins),
            self.steps,
            nodes,
        )
        note = "made by a generator of our own; the paper prints totals and a distribution only"
        return SnapshotSequence(
            topology=csrs,
            features=degree_features(csrs, 2),
            targets=degree_targets(csrs),
            num_nodes=nodes,
            origin=Origin(self.name, "real", scale=self.scale, seed=self.seed, notes=(note,)),
        )

    def described(self) -> dict[str, object]:
        """The `data` field of a measurement."""
        return {
            "dataset": self.name,
            "twin": False,
            "scale": self.scale,
            "note": "the paper's family of synthetic graphs, from a generator of our own",
        }

    def _join(self) -> tuple[list[np.ndarray], list[np.ndarray], int]:
        """Sources and targets of each snapshot's edges, and how many vertices there were."""
        rng = np.random.default_rng([self.seed, 3])
        counts, edges = self.vertices(), self.edges()
        alive, nodes = np.arange(counts[0]), int(counts[0])
        entered = alive
        sources, targets = [], []
        for t in range(self.steps):
            following = int(counts[t + 1]) if t + 1 < self.steps else 0
            gone = max(0, alive.size - following)
            leaves = np.zeros(alive.size, dtype=bool)
            leaves[rng.permutation(alive.size)[:gone]] = True
            must = np.union1d(entered, alive[leaves])
            source, target = self._edges(rng, alive, must, int(edges[t]))
            sources.append(source)
            targets.append(target)
            new = max(0, following - alive.size)
            entered = np.arange(nodes, nodes + new)
            alive = np.concatenate([alive[~leaves], entered])
            nodes += new
        return sources, targets, nodes

    def _edges(
        self, rng: np.random.Generator, alive: np.ndarray, must: np.ndarray, count: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """`count` edges among the vertices `alive` (ascending), first of all between `must`."""
        first = rng.integers(0, alive.size, count)
        needed = np.searchsorted(alive, rng.permutation(must)[: 2 * count])
        first[: min(count, needed.size)] = needed[:count]
        second = (first + 1 + rng.integers(0, alive.size - 1, count)) % alive.size
        if self.ends == "groups":
            # Those of a group that are alive lie together, as `alive` ascends.
            group = alive[first] // GROUP
            low = np.searchsorted(alive, group * GROUP)
            size = np.searchsorted(alive, (group + 1) * GROUP) - low
            near = (size > 1) & (rng.random(count) < WITHIN)
            step = 1 + (rng.random(count) * (size - 1)).astype(np.int64)
            second = np.where(near, low + (first - low + step) % size, second)
        rest = needed[count:]
        second[: rest.size] = np.where(rest != first[: rest.size], rest, second[: rest.size])
        return alive[first], alive[second]


def _draw(rng: np.random.Generator, total: int, count: int, level: float) -> np.ndarray:
    """int64[count] >= 0 of a normal distribution, clipped at 0 and scaled to a total.

    The same seed gives the same draws at every level, only further apart.
    """
    numbers = np.maximum(0.0, 1.0 + level * rng.standard_normal(count))
    if not numbers.sum():
        numbers[:] = 1.0
    ends = np.rint(np.cumsum(numbers) * (total / numbers.sum())).astype(np.int64)
    return np.diff(ends, prepend=0)
