"""Caches served with the batches of a continuous training: what the cache experiments share.

What hits does not hang on the width of a row, so rows are one float wide here.

The paper's rounds, batches and caches are in proportion to graphs of 100 M edges and more. On a
graph of E edges batches are E / 100 M of the printed ones: a cache of 3 per mille of the edges then
holds as many batches as it does on Netflix. Eight GPUs share the events of a round, each with a
cache of its own; one of them is played.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import torch

from dgbench.kernels_cuda.row_cache import Policy
from dgbench.systems.base import Measurement, Preset
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


def observe_counts(found: Measurement, counts: CacheCounts, **which: Any) -> None:
    """Add the hits of a cache and its hit rates, over all requests and over different ids."""
    found.observe("hit_rate", counts.hit_rate, **which)
    found.observe("hit_rate", counts.unique_hit_rate, statistic="unique", **which)
    found.observe("requests", counts.hits, statistic="hits", **which)


def scaled_batch(model: str, edges: int) -> int:
    """Events of a batch on a graph with so many edges; see the module."""
    return max(1, round(SETTINGS[model].batch * edges / NETFLIX_EDGES))


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
    batch = scaled_batch(model, whole.count("edge"))
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
            for name in ("requests", "hits", "unique", "unique_hits"):
                more = getattr(cache.counts, name) - getattr(before, name)
                setattr(stale, name, getattr(stale, name) + more)
    return cache.counts, stale


def chosen(played: Played, number: int, kind: str, capacity: int) -> torch.Tensor:
    """int64[k], what GNNLab keeps for a round."""
    ahead = (access.of(kind) for access in played.ahead[number])
    return presampled(played.accesses.count(kind), ahead, capacity)
