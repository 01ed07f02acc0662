"""Caches served with the batches of a continuous training: what the cache experiments share.

What hits does not hang on the width of a row, so rows are one float wide here.

The paper's rounds, batches and caches are in proportion to graphs of 100 M edges and more. On a
graph of E edges batches are E / 100 M of the printed ones: a cache of 3 per mille of the edges then
holds as many batches as it does on Netflix. Eight GPUs share the events of a round, each with a
cache of its own; one of them is played.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, Final

import torch

from dgbench.kernels_cuda.row_cache import Policy
from dgbench.lab.result_checks import ResultCheck, equal
from dgbench.systems.base import Preset
from dgbench.systems.gnnflow.cache import CacheCounts, FeatureCache, FeatureTable
from dgbench.systems.gnnflow.experiments.accesses import PRESAMPLING, Access, Accesses
from dgbench.systems.gnnflow.experiments.settings import EPOCHS, LAMBDA, SETTINGS, StreamGraph
from dgbench.systems.gnnflow.rounds import Round
from dgbench.systems.gnnflow.static_cache import PRESAMPLED_EPOCHS, presampled

KINDS: Final = ("node", "edge")
NETFLIX_EDGES: Final = 100_480_507
"""Edges of the graph of Figure 14, whose batches have the printed size."""
GPUS: Final = 8
"""Of section 6.1, whose scenario the figure has."""
WARM: Final = 2
"""Rounds at the start that fill caches and are not counted."""
FEW_ROUNDS, FEW_EPOCHS, FEW_BATCHES, FEW_IDS = 4, 2, 2, 120
"""Rounds, epochs of a round, batches of an epoch, and ids of a batch that are played again by a
cache in plain Python."""
COUNTS: Final = ("requests", "hits", "unique", "unique_hits")
BY_LOOP: Final = "cache in plain Python"


@dataclass(frozen=True, slots=True)
class Played:
    """Batches by round and epoch.

    Attributes:
        accesses: where they came from.
        rounds: of the stream.
        epochs: [round][epoch][batch] of the training.
        ahead: [round][batch], what a static cache samples ahead.
    """

    accesses: Accesses
    rounds: Sequence[Round]
    epochs: list[list[list[Access]]]
    ahead: list[list[Access]]

    def counted(self) -> Iterator[Access]:
        """The batches that hit rates are counted over."""
        for one in self.epochs[WARM:]:
            for epoch in one:
                yield from epoch


def record(
    graph: StreamGraph,
    model: str,
    preset: Preset,
    rounds: int,
    most_events: int,
    *,
    gpus: int = GPUS,
    **fields: object,
) -> Played:
    """Sample the last rounds of a stream once, for all caches.

    Args:
        graph, model, preset, gpus, **fields: see `Accesses`.
        rounds: counted ones; `WARM` come before them.
        most_events: of a round; the first ones of a longer round are taken.
    """
    whole = Accesses(graph, model, preset, **fields)
    batch = max(1, round(SETTINGS[model].batch * whole.count("edge") / NETFLIX_EDGES))
    accesses = Accesses(graph, model, preset, gpus=gpus, **{**fields, "batch": batch})
    taken = [
        Round(one.number, one.first, min(one.last, one.first + most_events))
        for one in accesses.rounds(WARM + rounds)
    ]
    return Played(
        accesses,
        taken,
        [[list(accesses.epoch(one, e)) for e in range(EPOCHS)] for one in taken],
        [
            [a for e in range(PRESAMPLED_EPOCHS) for a in accesses.epoch(one, PRESAMPLING + e)]
            for one in taken
        ],
    )


def narrow(
    played: Played, kind: str, times: float, policy: Policy = "lru", admission: float = LAMBDA
) -> FeatureCache:
    """An empty cache for `node` or `edge` rows of one float.

    Args:
        played: names the ids.
        kind: `node` or `edge`.
        times: capacity in multiples of the paper's share.
        policy, admission: of `FeatureCache`.
    """
    table = FeatureTable(torch.zeros(played.accesses.count(kind), 1))
    capacity = played.accesses.capacity(kind, times)
    return FeatureCache(table, capacity, policy=policy, admission=admission)


def serve(cache: FeatureCache, batches: Iterable[Access], kind: str) -> None:
    """Fetch what the batches ask for."""
    for access in batches:
        cache.fetch(access.of(kind))


def dynamic(
    played: Played, cache: FeatureCache, kind: str, *, reuse: bool = True, restoration: bool = True
) -> CacheCounts:
    """Hits of a cache that is renewed by batch, over the counted rounds.

    Args:
        played: the batches.
        cache: empty.
        kind: `node` or `edge`.
        reuse: keep the contents from round to round; else each begins empty.
        restoration: begin each epoch with the contents of the round's begin.
    """
    nothing = torch.empty(0, dtype=torch.int64)
    for number, epochs in enumerate(played.epochs):
        if number == WARM:
            cache.reset_counts()
        if not reuse:
            cache.fill(nothing)
        start = cache.snapshot()
        for epoch, batches in enumerate(epochs):
            if restoration and epoch:
                cache.restore(start)
            serve(cache, batches, kind)
    return cache.counts


def static(
    played: Played, cache: FeatureCache, kind: str, *, every: int = 1
) -> tuple[CacheCounts, CacheCounts]:
    """Hits of GNNLab's cache, chosen anew in every so many-th round by sampling it ahead.

    Returns:
        Counts of all counted rounds, and of those of them that began without a new choice.
    """
    stale = CacheCounts()
    for number, epochs in enumerate(played.epochs):
        if number == WARM:
            cache.reset_counts()
        if number % every == 0:
            cache.fill(chosen(played, number, kind, cache.capacity))
        before = replace(cache.counts)
        for batches in epochs:
            serve(cache, batches, kind)
        if number % every and number >= WARM:
            for name in COUNTS:
                more = getattr(cache.counts, name) - getattr(before, name)
                setattr(stale, name, getattr(stale, name) + more)
    return cache.counts, stale


def chosen(played: Played, number: int, kind: str, capacity: int) -> torch.Tensor:
    """int64[k], what GNNLab keeps for a round."""
    ahead = (access.of(kind) for access in played.ahead[number])
    return presampled(played.accesses.count(kind), ahead, capacity)


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
        rounds=played.rounds[:FEW_ROUNDS],
        epochs=[
            [[shortened(access) for access in epoch[:FEW_BATCHES]] for epoch in one[:FEW_EPOCHS]]
            for one in played.epochs[:FEW_ROUNDS]
        ],
        ahead=[
            [shortened(access) for access in one[:FEW_BATCHES]] for one in played.ahead[:FEW_ROUNDS]
        ],
    )


def shortened(access: Access) -> Access:
    """The first ids that a batch asks for."""
    return Access(access.nodes[:FEW_IDS], access.edges[:FEW_IDS], access.events)


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


def counts_check(found: Any, wanted: dict[str, int], part: str) -> ResultCheck:
    """A check of `CacheCounts` against those of a loop."""
    own = {f"{name} of {part}": getattr(found, name) for name in wanted}
    exact = {f"{name} of {part}": count for name, count in wanted.items()}
    return equal("counters", own, exact, against=BY_LOOP)


def requests_check(found: int, batches: Iterable[Access], kind: str, part: str) -> ResultCheck:
    """A check that all ids of all batches were asked for."""
    wanted = sum(len(access.of(kind).numpy()) for access in batches)
    return equal("counters", {part: found}, {part: wanted}, against="ids of all batches")
