"""Time of a round's fetches with a dynamic cache and with static ones, turn by turn."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from torch import Tensor

from dgbench.lab.compare import observe_speedup, take_control, with_control
from dgbench.lab.result_checks import ResultCheck, equal, of_contender
from dgbench.runtime.statistics import median
from dgbench.systems.base import Measurement, RunContext
from dgbench.systems.gnnflow.cache import FeatureCache, FeatureTable
from dgbench.systems.gnnflow.experiments.accesses import PRESAMPLING, Access, Accesses
from dgbench.systems.gnnflow.experiments.cache_checks import (
    LoopedCache,
    counts_check,
    shortened,
)
from dgbench.systems.gnnflow.experiments.sample_checks import by_subject
from dgbench.systems.gnnflow.experiments.settings import EPOCHS, LAMBDA, StreamGraph
from dgbench.systems.gnnflow.rounds import Round
from dgbench.systems.gnnflow.static_cache import PRESAMPLED_EPOCHS, Visits

KINDS: Final = ("node", "edge")
CONTENDERS: Final = {"dynamic": 0, "static": 1, "static with reuse": 2}
"""Interval in rounds at which each contender chooses its contents ahead; 0 is never."""
ROUNDS: Final = {"smoke": 3, "quick": 4, "full": 16, "paper": 40}
BATCHES: Final = 4
"""Of a round, as a GPU of the paper's eight has with TGN on Netflix."""
BATCH: Final = {
    "smoke": {"tgn": 50, "tgat": 10, "dysat": 10},
    "quick": {"tgn": 100, "tgat": 15, "dysat": 15},
    "full": {"tgn": 1000, "tgat": 150, "dysat": 150},
    "paper": {"tgn": 4000, "tgat": 600, "dysat": 600},
}


def time_rounds(
    graph: StreamGraph, model: str, context: RunContext, *, control: bool = False
) -> Measurement:
    """Seconds of fetching and of choosing by round, for all contenders in turns.

    Every contender serves the same batches. For a static cache the time to sample two epochs
    ahead, to count visits and to load rows belongs to its fetching (section 6.2).
    """
    preset = context.preset
    batch = BATCH[preset][model]
    accesses = Accesses(graph, model, preset, batch=batch, chunks=1)
    last, size = accesses.count("edge"), BATCHES * batch
    count = min(ROUNDS[preset], last // (2 * size))
    rounds = [Round(i, last - (count - i) * size, last - (count - i - 1) * size)
              for i in range(count)]  # fmt: skip
    tables = {kind: FeatureTable(random_rows(accesses, kind)) for kind in KINDS}
    contenders = with_control(CONTENDERS, on=control)
    caches = {name: caches_of(accesses, tables, name) for name in contenders}
    init: dict[str, list[float]] = {name: [] for name in contenders}
    fetch: dict[str, list[float]] = {name: [] for name in contenders}
    unique = dict.fromkeys(KINDS, 0)
    for one in (rounds[0], *rounds):  # the first one twice: it warms up
        epochs = [list(accesses.epoch(one, e)) for e in range(EPOCHS)]
        for name in contenders if one.number % 2 == 0 else reversed(contenders):
            every = contenders[name]
            began = time.perf_counter()
            if every and one.number % every == 0:
                choose(accesses, one, caches[name])
            chose = time.perf_counter()
            serve(caches[name], epochs, restoration=not every)
            init[name].append(chose - began)
            fetch[name].append(time.perf_counter() - chose)
        for kind in KINDS:  # each id once a batch
            unique[kind] += sum(
                np.unique(access.of(kind).numpy()).size for batches in epochs for access in batches
            )
    counts = {f"{n} {k}": caches[n][k].counts for n in CONTENDERS for k in KINDS}
    checks = [
        equal(
            "counters",
            {key: one.unique for key, one in counts.items()},
            {key: unique[key.split()[-1]] for key in counts},
            against="ids sorted by numpy",
        ),
        *accesses.checks(),
    ]
    missed = {key: one.unique_misses for key, one in counts.items()}  # before more is fetched
    few = [[shortened(access) for access in batches] for batches in epochs]
    for name in CONTENDERS:
        own = rows_checks(name, caches[name], tables, [epochs[-1][-1], epochs[0][0]])
        checks += of_contender(name, own)
        if not CONTENDERS[name]:
            own = served_checks(caches_of(accesses, tables, name), few, name)
            checks += of_contender(name, own)
    apart = max(check.gap for check in checks if check.of == "rows")
    found = Measurement(data=accesses.describe(), deviation={"output": apart})
    found.checks = by_subject(checks)
    for name in CONTENDERS:
        chosen, fetched = sum(init[name][1:]), sum(fetch[name][1:])
        found.observe("phase_time", chosen / count, setting=name, phase="init")
        found.observe("phase_time", fetched / count, setting=name, phase="fetch")
        found.observe("time_share", chosen / (chosen + fetched), setting=name, phase="init")
        for kind in KINDS:
            rows = missed[f"{name} {kind}"]
            found.observe("requests", rows, setting=name, of=kind, statistic="missed")
            size = tables[kind].table[:1].nbytes
            found.observe("features_sent", rows * size, setting=name, of=kind)
    totals = {n: [a + b for a, b in zip(init[n][1:], fetch[n][1:], strict=True)] for n in init}
    take_control(found, totals)
    ours = totals["dynamic"]
    for baseline in ("static", "static with reuse"):
        observe_speedup(found, totals[baseline], ours, setting="dynamic", baseline=baseline)
    found.observe("round_time", median(ours), samples=ours)
    found.warmup = 1
    found.observe("rounds", count)
    found.observe("batch_size", batch)
    found.notes.append(f"rounds of {BATCHES} batches of {batch} events; features are random")
    return found


def random_rows(accesses: Accesses, kind: str) -> Tensor:
    """float32[count, dim], random: what a row holds changes no time."""
    made = torch.empty(accesses.count(kind), accesses.dim(kind))
    return made.uniform_(generator=torch.Generator().manual_seed(accesses.task.seed))


def caches_of(
    accesses: Accesses, tables: dict[str, FeatureTable], name: str
) -> dict[str, FeatureCache]:
    """Empty caches of the paper's size for one of `CONTENDERS`."""
    policy = "static" if CONTENDERS.get(name) else "lru"  # `AGAIN` is a dynamic one
    return {
        kind: FeatureCache(
            tables[kind], accesses.capacity(kind), policy=policy, admission=LAMBDA
        )
        for kind in KINDS
    }  # fmt: skip


def choose(accesses: Accesses, one: Round, caches: dict[str, FeatureCache]) -> None:
    """GNNLab's initialisation: sample the round ahead, count visits, load the rows."""
    visits = {kind: Visits(accesses.count(kind)) for kind in KINDS}
    for epoch in range(PRESAMPLED_EPOCHS):
        for access in accesses.epoch(one, PRESAMPLING + epoch):
            for kind in KINDS:
                visits[kind].add(access.of(kind))
    for kind, cache in caches.items():
        cache.fill(visits[kind].top(cache.capacity))


def serve(
    caches: dict[str, FeatureCache], epochs: Sequence[Sequence[Access]], *, restoration: bool
) -> None:
    """All epochs of a round; with `restoration` each begins with what the round began with."""
    starts = {k: cache.snapshot() for k, cache in caches.items()} if restoration else {}
    for number, batches in enumerate(epochs):
        if number:
            for kind, start in starts.items():
                caches[kind].restore(start)
        for access in batches:
            for kind, cache in caches.items():
                cache.fetch(access.of(kind), update=restoration)


def rows_checks(
    name: str,
    caches: dict[str, FeatureCache],
    tables: dict[str, FeatureTable],
    batches: Sequence[Access],
) -> list[ResultCheck]:
    """Checks that caches give the rows of their tables, as they stand."""
    return [
        equal(
            "rows", {f"{kind}s, {name}": cache.fetch(access.of(kind), update=False)},
            {f"{kind}s, {name}": tables[kind].table[access.of(kind)]}, against="rows of the table",
        )
        for kind, cache in caches.items()
        for access in batches
    ]  # fmt: skip


def served_checks(
    caches: dict[str, FeatureCache], epochs: Sequence[Sequence[Access]], name: str
) -> list[ResultCheck]:
    """Checks of `serve` with restoration, by empty caches and a few ids, request by request."""
    serve(caches, epochs, restoration=True)
    found = []
    for kind, cache in caches.items():
        loop = LoopedCache(cache.capacity, "lru", LAMBDA)
        start = loop.snapshot()
        for batches in epochs:
            loop.restore(start)
            for access in batches:
                loop.fetch(access.of(kind).tolist())
        found.append(counts_check(cache.counts, loop.counts, f"{name} {kind}"))
    return found
