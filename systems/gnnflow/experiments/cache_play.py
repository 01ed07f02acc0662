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
from typing import Final

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
) -> Played:
    """Sample the last rounds of a stream, with `WARM` before them, once for all caches.

    Of a longer round the first `most_events` are taken. Other arguments: see `Accesses`.
    """
    whole = Accesses(graph, model, preset)
    batch = max(1, round(SETTINGS[model].batch * whole.count("edge") / NETFLIX_EDGES))
    accesses = Accesses(graph, model, preset, gpus=gpus, batch=batch)
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
    """An empty cache for `node` or `edge` rows of one float, `times` the paper's size."""
    table = FeatureTable(torch.zeros(played.accesses.count(kind), 1))
    capacity = played.accesses.capacity(kind, times)
    return FeatureCache(table, capacity, policy=policy, admission=admission)


def dynamic(
    played: Played, cache: FeatureCache, kind: str, *, reuse: bool = True, restoration: bool = True
) -> CacheCounts:
    """Hits of an empty cache that is renewed by batch, over the counted rounds.

    With `reuse` contents are kept from round to round, with `restoration` each epoch begins with
    those of the round's begin.
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
            for access in batches:
                cache.fetch(access.of(kind))
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
            ahead = (access.of(kind) for access in played.ahead[number])
            cache.fill(presampled(played.accesses.count(kind), ahead, cache.capacity))
        before = replace(cache.counts)
        for batches in epochs:
            for access in batches:
                cache.fetch(access.of(kind))
        if number % every and number >= WARM:
            stale.requests += cache.counts.requests - before.requests
            stale.hits += cache.counts.hits - before.hits
    return cache.counts, stale


def requests_check(found: int, batches: Iterable[Access], kind: str, part: str) -> ResultCheck:
    """A check that all ids of all batches were asked for."""
    wanted = sum(len(access.of(kind).numpy()) for access in batches)
    return equal("counters", {part: found}, {part: wanted}, against="ids of all batches")
