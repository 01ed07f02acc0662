"""Checks of caches: the rules of `kernels_cuda.row_cache` in plain Python, on a few ids."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import torch

from dgbench.lab.result_checks import ResultCheck, equal
from dgbench.systems.gnnflow.experiments.accesses import Access
from dgbench.systems.gnnflow.experiments.settings import LAMBDA

if TYPE_CHECKING:
    from dgbench.systems.gnnflow.experiments.cache_play import Played

ROUNDS: Final = 4
EPOCHS: Final = 2
BATCHES: Final = 2
IDS: Final = 120
"""Rounds, epochs of a round, batches of an epoch, and ids of a batch that are played again."""
COUNTS: Final = ("requests", "hits", "unique", "unique_hits")
BY_LOOP: Final = "cache in plain Python"


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


def few(played: Played) -> Played:
    """A few ids of a few batches, the counted rounds among them."""
    return replace(
        played,
        rounds=played.rounds[:ROUNDS],
        epochs=[
            [[shortened(access) for access in epoch[:BATCHES]] for epoch in one[:EPOCHS]]
            for one in played.epochs[:ROUNDS]
        ],
        ahead=[[shortened(access) for access in one[:BATCHES]] for one in played.ahead[:ROUNDS]],
    )


def shortened(access: Access) -> Access:
    """The first ids that a batch asks for."""
    return Access(access.nodes[:IDS], access.edges[:IDS], access.events)


def looped_dynamic(
    played: Played,
    kind: str,
    capacity: int,
    warm: int,
    *,
    policy: str = "lru",
    admission: float,
    reuse: bool = True,
    restoration: bool = True,
) -> dict[str, int]:
    """Counts of a cache that is renewed by batch; the arguments as of `cache_play.dynamic`."""
    cache = LoopedCache(capacity, policy, admission)
    for number, epochs in enumerate(played.epochs):
        if number == warm:
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


def looped_static(
    played: Played, kind: str, capacity: int, warm: int, every: int
) -> dict[str, int]:
    """Counts of a cache that is chosen anew in every so many-th round by sampling it ahead."""
    cache = LoopedCache(capacity, "static", 1.0)
    for number, epochs in enumerate(played.epochs):
        if number == warm:
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


def counts_check(found: Any, wanted: dict[str, int], part: str) -> ResultCheck:
    """A check of `CacheCounts` against those of a loop."""
    own = {f"{name} of {part}": getattr(found, name) for name in wanted}
    exact = {f"{name} of {part}": count for name, count in wanted.items()}
    return equal("counters", own, exact, against=BY_LOOP)


def requests_check(found: int, batches: Iterable[Access], kind: str, part: str) -> ResultCheck:
    """A check that all ids of all batches were asked for."""
    wanted = sum(len(access.of(kind).numpy()) for access in batches)
    return equal("counters", {part: found}, {part: wanted}, against="ids of all batches")


def listed_check(make: Any, table: torch.Tensor, batches: Sequence[torch.Tensor]) -> ResultCheck:
    """A check of an LRU that admits every miss, one id after the other.

    Args:
        make: capacity -> the cache, on one thread.
        table: its rows.
        batches: int64 ids.
    """
    capacity = max(1, IDS // 4)
    cache, kept, hits = make(capacity), OrderedDict(), 0
    rows, wanted = [], []
    for ids in batches:
        ids = ids[:IDS]
        rows.append(cache.fetch(ids).clone())
        wanted.append(table[ids])
        for i in ids.tolist():
            hits += i in kept
            kept[i] = None
            kept.move_to_end(i)
            if len(kept) > capacity:
                kept.popitem(last=False)
    own = {"hits": cache.hits, "rows": torch.cat(rows)}
    exact = {"hits": hits, "rows": torch.cat(wanted)}
    return equal("counters", own, exact, against=BY_LOOP)


def looped_check(make: Any, table: torch.Tensor, batches: Sequence[torch.Tensor]) -> ResultCheck:
    """The same of a `FeatureCache` under LRU, batch by batch."""
    capacity = max(1, IDS // 4)
    cache = make(capacity)
    loop = LoopedCache(capacity, "lru", LAMBDA)
    own: dict[str, Any] = {}
    exact: dict[str, Any] = {}
    for number, ids in enumerate(batches):
        own[f"rows of batch {number}"] = cache.fetch(ids[:IDS]).clone()
        exact[f"rows of batch {number}"] = table[ids[:IDS]]
        loop.fetch(ids[:IDS].tolist())
    own |= {name: getattr(cache.counts, name) for name in COUNTS}
    return equal("counters", own, exact | loop.counts, against=BY_LOOP)
