"""The ring that destinations are passed round: the best one of a machine, and the paper's own.

A round takes G phases. In a phase every device swaps with one neighbour on the ring, in the next
with the other one, so that a phase lasts as long as the slowest of its pairs: a doubled link gains
time only where *all* pairs of its phase are doubled. Algorithm 6 names pairs by number, and on the
published table of a DGX-1 three of its eight pairs have a single link. Exchanging the numbers 1 and
3, and 5 and 7, gives a ring of doubled links only, which the search here finds by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from dgbench.runtime.errors import InvalidInputError

LITERAL: Final = (0, 1, 2, 3, 7, 6, 5, 4)
"""The ring of Algorithm 6: swaps 0-1, 2-3, 7-6, 5-4, then 1-2, 3-7, 6-5, 4-0."""
RELABELLED: Final = (0, 3, 2, 1, 4, 7, 6, 5)
"""New numbers of GPU 0 to 7 with which Algorithm 6 uses doubled links only."""
MAX_EXACT_DEVICES: Final = 10
"""Devices up to which all rings are looked at."""

Pairs = tuple[tuple[int, int], ...]


class KnownLinks(Protocol):
    """Links of G devices among which a ring is looked for: `links.Links`, `MeasuredLinks`."""

    @property
    def size(self) -> int:
        """G."""
        ...

    def bricks(self, i: int, j: int) -> int:
        """Bonded links of a pair, 0 without or where they are not known."""
        ...

    def bandwidth(self, i: int, j: int) -> float:
        """Bytes per second and direction."""
        ...


@dataclass(frozen=True, slots=True, order=True)
class RingQuality:
    """Quality of a ring; smaller is better.

    Attributes:
        not_direct: neighbours without a link of their own.
        seconds: of two phases, for a byte that every device sends; the slowest pairs decide.
        not_doubled: neighbours with fewer than two bricks.
        narrow: bricks of all pairs, negative.
    """

    not_direct: int
    seconds: float
    not_doubled: int
    narrow: int


def pairs(ring: Sequence[int]) -> tuple[Pairs, Pairs]:
    """The swaps of even phases and of odd ones: neighbours on the ring, by turns.

    Two devices swap with each other in both; one has none.

    Raises:
        InvalidInputError: an odd number of devices, which cannot all swap at once.
    """
    size = len(ring)
    if size == 1:
        return (), ()
    if size % 2:
        raise InvalidInputError(
            f"{size} devices cannot all swap with a neighbour", hint="shift instead of swapping"
        )
    even = tuple((ring[i], ring[i + 1]) for i in range(0, size, 2))
    odd = tuple((ring[i], ring[(i + 1) % size]) for i in range(1, size, 2))
    return even, odd


def quality(links: KnownLinks, ring: Sequence[int]) -> RingQuality:
    """Quality of a ring on a machine; of an odd one all neighbours are one phase.

    Raises:
        InvalidInputError: not every device once.
    """
    if sorted(ring) != list(range(links.size)):
        raise InvalidInputError(f"'ring' is {list(ring)}, needed: each of {links.size} once")
    size = len(ring)
    every = [(ring[i], ring[(i + 1) % size]) for i in range(size)] if size > 1 else []
    sides = [every[0::2], every[1::2]] if size % 2 == 0 else [every, every]
    return RingQuality(
        sum(not links.bricks(i, j) for i, j in every),
        sum(max((1 / links.bandwidth(i, j) for i, j in side), default=0.0) for side in sides),
        sum(links.bricks(i, j) < 2 for i, j in every),
        -sum(links.bricks(i, j) for i, j in every),
    )


def best_ring(links: KnownLinks) -> tuple[int, ...]:
    """The best ring of a machine by `RingQuality`, the first one in order among equals.

    All rings are searched up to `MAX_EXACT_DEVICES` devices; beyond, rings grown from every
    device by the widest link and then improved by turning stretches round.
    """
    if links.size <= 3:
        return tuple(range(links.size))
    if links.size <= MAX_EXACT_DEVICES:
        return _Search(links).run()
    return _grown(links)


class _Search:
    """Depth first over rings from device 0, leaving what cannot become better."""

    def __init__(self, links: KnownLinks) -> None:
        self.links, self.size = links, links.size
        span = range(self.size)
        self.cost = [[0.0 if i == j else 1 / links.bandwidth(i, j) for j in span] for i in span]
        self.wide = [[links.bricks(i, j) for j in span] for i in span]
        self.least = min(self.cost[i][j] for i in span for j in span if i != j)
        self.most = max(max(row) for row in self.wide)
        self.ring = [0]
        self.best: RingQuality | None = None
        self.found: tuple[int, ...] = tuple(span)

    def run(self) -> tuple[int, ...]:
        self._extend(0, (0.0, 0.0), 0, 0)
        return self.found

    def _extend(self, missing: int, slow: tuple[float, float], narrow: int, wide: int) -> None:
        last, placed = self.ring[-1], len(self.ring)
        closing = placed == self.size
        for near in [0] if closing else range(1, self.size):
            if near in self.ring and not closing:
                continue
            count, cost = self.wide[last][near], self.cost[last][near]
            odd = (placed - 1) % 2
            sides = slow if self.size % 2 == 0 else (max(slow),) * 2
            both = self.size % 2 == 1
            slower = (
                max(sides[0], cost) if both or not odd else sides[0],
                max(sides[1], cost) if both or odd else sides[1],
            )
            rest = self.size - placed
            now = missing + (not count), narrow + (count < 2)
            bound = RingQuality(
                now[0] + (rest if not self.most else 0),
                sum(max(side, self.least) if rest else side for side in slower),
                now[1] + (rest if self.most < 2 else 0),
                -(wide + count + rest * self.most),
            )
            if self.best is not None and not bound < self.best:
                continue
            if closing:
                self.best, self.found = bound, tuple(self.ring)
                continue
            self.ring.append(near)
            self._extend(now[0], slower, now[1], wide + count)
            self.ring.pop()


def _grown(links: KnownLinks) -> tuple[int, ...]:
    best: tuple[RingQuality, tuple[int, ...]] | None = None
    for start in range(links.size):
        ring, left = [start], set(range(links.size)) - {start}
        while left:
            here = ring[-1]
            ring.append(
                min(left, key=lambda d: (1 / links.bandwidth(here, d), (d - here) % links.size))
            )
            left.remove(ring[-1])
        found = _turned(links, ring)
        if best is None or found < best:
            best = found
    assert best is not None
    return best[1]


def _turned(links: KnownLinks, ring: list[int]) -> tuple[RingQuality, tuple[int, ...]]:
    """Turn stretches round for as long as that makes the ring better."""
    best = quality(links, ring)
    better = True
    while better:
        better = False
        for i in range(1, len(ring) - 1):
            for j in range(i + 1, len(ring)):
                other = ring[:i] + ring[i : j + 1][::-1] + ring[j + 1 :]
                found = quality(links, other)
                if found < best:
                    best, ring, better = found, other, True
    zero = ring.index(0)
    ring = ring[zero:] + ring[:zero]
    # The same ring from another device swaps the phases of an even ring, which changes nothing.
    return quality(links, ring), tuple(ring)
