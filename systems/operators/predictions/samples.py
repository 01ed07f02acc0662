"""Predicted workloads: temporal samples and inserts (C), the feature cache (D), draws (E)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from dgbench.kernels_cuda.edge_sampling import sample_subgraph
from dgbench.kernels_cuda.edge_sampling.device import table_on
from dgbench.kernels_cuda.row_cache import open_row_cache
from dgbench.kernels_cuda.tcsr import build_tcsr, sample_tcsr_hops
from dgbench.kernels_cuda.temporal_sample import sample_hops
from dgbench.kernels_cuda.temporal_store import GROWN, BlockPolicy, TemporalStore
from dgbench.kernels_cuda.temporal_store.device import DeviceStore
from dgbench.kernels_cuda.weighted import draw_without_replacement
from dgbench.kernels_cuda.weighted.device import draw_sets
from dgbench.systems.operators.experiments.device_draws import skewed_edges, table_of
from dgbench.systems.operators.experiments.placements import (
    ResidentInserts,
    arrays_of,
    fetch,
    roots,
    stream,
)
from dgbench.systems.operators.predictions.case import PredictedCase, at, differing

REDDIT = (10_984, 672_447)
GDELT = (16_682, 191_290_882)
"""Vertices, edges."""
HUB = 4.22
"""Power that sends a tenth of GDELT's edges to one vertex: 16 682^(-1 / 4.22)."""
LATER = (500_000, 10_000_000)
"""The same of a graph that a batch is inserted into."""
INSERTED = 100_000
ROW, CAPACITY, ASKED = 186, 574_000, 198_000
"""Floats of a row, rows of the cache, rows of a fetch."""
TABLE = 4
"""Rows of the feature table, times the cache: all of GDELT's would be 142 GB."""
FRONTIER, FRONTIERS = 10_000, 100
HOST = "no placements on a CPU: its own sampler"


def sampled(store: TemporalStore, there: DeviceStore | None, rows: Any, batch: int,
            fanouts: list[int], policy: str, note: str = "") -> PredictedCase:  # fmt: skip
    """Samples around 3 x batch roots; rows: the graph as sorted rows, to compare with."""
    asked = roots(store, batch, 1)
    how = {"policy": policy, "seed": 3}
    if there is None:
        run, note = partial(sample_hops, store, *asked, fanouts, draw=1, **how), HOST
    else:
        run = partial(there.sample_hops, *asked, fanouts, draw=1, **how)

    def deviation() -> float:
        return unlike(run(), sample_tcsr_hops(rows, *asked, fanouts, draw=1, **how))

    return PredictedCase(run, deviation, note=note)


def unlike(found: Any, right: Any) -> float:
    """Largest share of elements of an array of samples that differ."""
    own, wanted = arrays_of(found), arrays_of(right)
    return max(differing(own[name], wanted[name]) for name in wanted)


def small_graph(share: float, device: str) -> Iterator[tuple[str, PredictedCase]]:
    """Sampling from Reddit's counts, and inserts."""
    vertices, edges = at(share, REDDIT[0], 50), at(share, REDDIT[1], 500)
    events = stream(edges, vertices)
    store = TemporalStore(vertices, policy=BlockPolicy("grown", 512), undirected=True)
    store.insert(*events)
    rows = build_tcsr(vertices, *events, undirected=True)
    still = DeviceStore(store, "cuda") if device == "cuda" else None
    batch = at(share, 600)
    note = "a thread searches for each root; no form with 16 lanes"
    yield "C1 one hop", sampled(store, still, rows, batch, [10], "recent", note)
    store = TemporalStore(vertices, policy=BlockPolicy("grown", 512), undirected=True)
    store.insert(*events)
    there = DeviceStore(store, "cuda") if device == "cuda" else None
    size = at(share, INSERTED)

    def insert() -> None:
        store.insert(*stream(size, vertices, store.last_time + 1))

    def update() -> object:
        return there.update() if there else insert()

    def deviation() -> float:
        """The graph after an insert, against one that was made with it."""
        if there is not None:
            insert()
        update()
        made = TemporalStore(vertices, undirected=True)
        count = store.num_events - edges
        made.insert(*events)
        for _ in range(count // size):
            made.insert(*stream(size, vertices, made.last_time + 1))
        asked = roots(store, 20, 2)
        found = (there.sample_hops if there else partial(sample_hops, store))(*asked, [10], seed=1)
        return unlike(found, sample_hops(made, *asked, [10], seed=1))

    note = "the host inserts; this brings what changed" if there else "the host's insert"
    yield "C3", PredictedCase(update, deviation, before=insert if there else None, note=note)


def resident_graph(share: float, device: str) -> Iterator[tuple[str, PredictedCase]]:
    """Inserts into a graph that lives on the device."""
    vertices, edges = at(share, LATER[0], 50), at(share, LATER[1], 500)
    for name, sent in (("C3 on the device", False), ("C3 on the device, sent", True)):
        ingest = ResidentInserts(GROWN, vertices, edges, at(share, INSERTED), device, sent=sent)

        def deviation(ingest: ResidentInserts = ingest) -> float:
            asked = roots(ingest().store, 20, 2)
            found = ingest.sample_hops(*asked, [10], seed=1)
            return unlike(found, sample_hops(ingest.store, *asked, [10], seed=1))

        note = "" if ingest.on_device else "the host's insert"
        yield name, PredictedCase(ingest, deviation, before=ingest.ready, note=note)


def skewed(edges: int, vertices: int, device: str) -> tuple[torch.Tensor, ...]:
    """Events on the host, a tenth of them at one vertex of GDELT's 16 682; drawn on the device."""
    draw = torch.Generator(device).manual_seed(11)
    at = torch.rand(edges, generator=draw, dtype=torch.float64, device=device).pow_(HUB)
    src = at.mul_(vertices).long().cpu()
    dst = torch.randint(vertices, (edges,), generator=draw, device=device).cpu()
    return src, dst, torch.arange(edges).double()


def large_graph(share: float, device: str) -> Iterator[tuple[str, PredictedCase]]:
    """Two hops from GDELT's counts, by where the graph lies."""
    vertices, edges = at(share, GDELT[0], 50), at(share, GDELT[1], 500)
    events = skewed(edges, vertices, device)
    store = TemporalStore.static(vertices, *events)
    rows = build_tcsr(vertices, *events) if share < 1 else None
    del events
    batch = at(share, 4000)
    for name, placement, policy in (
        ("C1 two hops", "cuda", "recent"),
        ("C2 fences, recent", "guided", "recent"),
        ("C2 fences, uniform", "guided", "uniform"),
        ("C2 search over the link", "hybrid", "recent"),
    ):
        there = DeviceStore(store, placement) if device == "cuda" else None
        yield name, sampled(store, there, rows, batch, [10, 10], policy)


def cache(share: float, device: str) -> Iterator[tuple[str, PredictedCase]]:
    capacity, asked = at(share, CAPACITY, 40), at(share, ASKED, 20)
    draw = torch.Generator().manual_seed(7)
    table = torch.rand(TABLE * capacity, ROW, generator=draw)
    if device == "cuda":
        table = table.pin_memory()
    held = open_row_cache(len(table), ROW, capacity, limit=capacity, device=device)
    fetch(held, torch.arange(capacity), table, device)
    for name, missed in (("D1 all hits", 0.0), ("D1 30 % misses", 0.3)):
        out = round(missed * asked)
        ids = torch.cat([
            torch.randint(capacity, (asked - out,), generator=draw),
            torch.randint(capacity, len(table), (out,), generator=draw),
        ])[torch.randperm(asked, generator=draw)]  # fmt: skip
        run = partial(fetch, held, ids, table, device, update=False)
        note = "lookup, gather and a new result; ids come from the host"
        yield name, PredictedCase(run, partial(deviates, run, table, ids), note=note)
    if not hasattr(held, "_victims"):
        return  # the CPU's cache evicts inside of its update
    for _ in range(3):  # rows of several ages
        fetch(held, torch.randint(capacity, (asked,), generator=draw), table, device)
    wanted = round(0.3 * asked)
    run = partial(held._victims, wanted, 0)

    def deviation() -> float:
        ages = held.state().last.tolist()
        newest = held._batch
        oldest = sorted(range(len(ages)), key=lambda s: (ages[s] == newest, ages[s], s))
        return differing(run(), torch.tensor(sorted(oldest[:wanted])))

    yield "D1 evict", PredictedCase(run, deviation, note="a stable sort by torch; no histogram")


def deviates(run: Any, table: torch.Tensor, ids: torch.Tensor) -> float:
    return differing(run(), table[ids])


def draws(share: float, device: str) -> Iterator[tuple[str, PredictedCase]]:
    for name, items in (("E1 half of 1e6", 1e6), ("E1 half of 1e8", 1e8)):
        n = at(share, items)
        weights = torch.rand(n, generator=torch.Generator().manual_seed(n)) + 0.1
        there, k = weights.to(device), n // 2
        run: Any = partial(draw_without_replacement, weights, k, seed=1)
        note = "the CPU's keys"
        if device == "cuda":
            bounds = torch.tensor([0, n, 0, k], device=device)
            run = partial(
                draw_sets, bounds[:1], bounds[1:2], bounds[2:], weights=there, seed=1, total=k,
                largest=n,
            )  # fmt: skip
            note = "without a look at the weights"

        def deviation(run: Any = run, weights: torch.Tensor = weights, k: int = k) -> float:
            found = run()
            found = getattr(found, "items", found)
            return differing(found, draw_without_replacement(weights, k, seed=1, threads=1))

        yield name, PredictedCase(run, deviation, note=note)
    vertices = at(share, 5e5, 100)
    table = table_of(*skewed_edges(vertices, at(share, 1e7, 2000)), vertices)
    there, count = table_on(table, device), at(share, 20_000, 20)
    how = {"induced": False, "seed": 1, "replacement": True}
    run = partial(sample_subgraph, there, FRONTIER, count, count=FRONTIERS, **how)

    def first() -> float:
        right = sample_subgraph(table, FRONTIER, count, count=1, threads=1, **how)
        stop = int(right.offsets[-1])
        return differing(run().vertices[:stop], right.vertices)

    note = f"{FRONTIERS} frontiers of {FRONTIER}, a draw of one, with what begins and ends a call"
    yield "E1 frontier draw", PredictedCase(run, first, per=count, note=note)
