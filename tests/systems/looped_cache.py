"""GNNFlow's cache and its schedules in plain Python, one id after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from dgbench.systems.gnnflow.experiments.cache_play import WARM, Played

COUNTS = ("requests", "hits", "unique", "unique_hits")


class LoopedCache:
    """A cache of ids, one after the other.

    Args:
        capacity: ids kept.
        policy: `lru`, `lfu`, `fifo` or `static`.
        admission: share of the capacity that one batch may take.
    """

    def __init__(self, capacity: int, policy: str, admission: float) -> None:
        self.capacity, self.policy = capacity, policy
        self.limit = min(capacity, max(1, int(admission * capacity)))
        self.counts = dict.fromkeys(COUNTS, 0)
        self.fill([])

    def fill(self, ids: Sequence[int]) -> None:
        """Keep these ids, never used."""
        self.slots = list(ids)
        self.last, self.score = [0] * len(self.slots), [0] * len(self.slots)
        self.ring = self.batch = 0

    def snapshot(self) -> tuple[Any, ...]:
        """All that is kept."""
        return deepcopy((self.slots, self.last, self.score, self.ring, self.batch))

    def restore(self, state: tuple[Any, ...]) -> None:
        """Keep what a snapshot kept."""
        self.slots, self.last, self.score, self.ring, self.batch = deepcopy(state)

    def fetch(self, ids: Sequence[int]) -> None:
        """Look up a batch, then admit misses."""
        place = {i: slot for slot, i in enumerate(self.slots)}
        misses = Counter(i for i in ids if i not in place)
        hit = {i for i in ids if i in place}
        for name, more in zip(
            COUNTS,
            (len(ids), len(ids) - sum(misses.values()), len(hit) + len(misses), len(hit)),
            strict=True,
        ):
            self.counts[name] += more
        self.batch += 1
        for i in hit:
            self.last[place[i]] = self.batch
            self.score[place[i]] += 1
        if self.policy != "static":
            self._admit(misses)

    def _admit(self, misses: Counter[int]) -> None:
        wanted = min(len(misses), self.limit)
        free = min(wanted, self.capacity - len(self.slots))
        slots = list(range(len(self.slots), len(self.slots) + free))
        if self.policy == "fifo":
            for _ in range(wanted - free):
                slots.append(self.ring)
                self.ring = (self.ring + 1) % self.capacity
        else:
            rank = self.last if self.policy == "lru" else self.score
            spare = [s for s in range(len(self.slots)) if self.last[s] != self.batch]
            slots += sorted(sorted(spare, key=lambda s: (rank[s], s))[: wanted - free])
        order = {i: number for number, i in enumerate(misses)}
        best = sorted(misses, key=lambda i: (-misses[i], order[i]))[: len(slots)]
        for slot, i in zip(slots, sorted(best, key=order.__getitem__), strict=True):
            if slot == len(self.slots):
                self.slots.append(i)
                self.last.append(self.batch)
                self.score.append(1)
            else:
                self.slots[slot], self.last[slot], self.score[slot] = i, self.batch, 1


def looped_dynamic(
    played: Played,
    kind: str,
    capacity: int,
    *,
    policy: str = "lru",
    admission: float,
    reuse: bool = True,
    restoration: bool = True,
) -> dict[str, int]:
    """Counts of a cache that is renewed by batch; the arguments as of `dynamic`."""
    cache = LoopedCache(capacity, policy, admission)
    for number, epochs in enumerate(played.epochs):
        if number == WARM:
            cache.counts = dict.fromkeys(COUNTS, 0)
        if not reuse:
            cache.fill([])
        start = cache.snapshot()
        for epoch, batches in enumerate(epochs):
            if restoration and epoch:
                cache.restore(start)
            for access in batches:
                cache.fetch(access.of(kind).tolist())
    return cache.counts


def looped_static(played: Played, kind: str, capacity: int, every: int) -> dict[str, int]:
    """Counts of a cache that is chosen anew in every so many-th round by sampling it ahead."""
    cache = LoopedCache(capacity, "static", 1.0)
    for number, epochs in enumerate(played.epochs):
        if number == WARM:
            cache.counts = dict.fromkeys(COUNTS, 0)
        if number % every == 0:
            visits = Counter(
                i for access in played.ahead[number] for i in set(access.of(kind).tolist())
            )
            cache.fill(sorted(visits, key=lambda i: (-visits[i], i))[:capacity])
        for batches in epochs:
            for access in batches:
                cache.fetch(access.of(kind).tolist())
    return cache.counts
