"""Samples of a graph whose draws are made by another method: what Figure 7 times (section 6.3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from dgbench.kernels_cuda.edge_sampling import (
    EdgeTable,
    sample_layerwise,
    sample_nodewise,
    sample_subgraph,
)
from dgbench.systems.base import Preset
from dgbench.systems.tgcn.methods import (
    BASE,
    ITS,
    LINEAR,
    TITLES,
    arity_of,
    name_of,
)
from dgbench.systems.tgcn.settings import SHARE

ROOTS: Final = 64
"""Most roots of a node-wise call. A root is passed over if it takes more than its share, below."""
SHARES: Final = 4
"""Roots that must fit into `WORK` and `READ`, at least."""
TRIED: Final = 128
LOOKED: Final = 10
"""Roots that are looked at, and what they may hold together, in `WORK`."""
BATCH: Final = 512
"""Roots that share the pool of a layer-wise call; half, a quarter .. where these do not fit."""
WHOLE_NODE, WHOLE_BATCHES = "whole graph, node-wise", "whole graph, layer-wise in batches"
WHOLE_ONCE, WHOLE_SUBGRAPHS = "whole graph, layer-wise at once", "whole graph, subgraphs"
"""Settings of sampling a whole graph by SIS: what the kinds of sampling cost beside each other."""
MAX_WHOLE: Final = 5_000
"""Vertices of a graph that is sampled whole, at most: all roots of a larger one take minutes."""
SUBGRAPHS: Final = 100
"""Subgraphs of a whole graph, of |E| / 100 draws each (section 6.3)."""
WORK: Final = {"smoke": 1e5, "quick": 3e5, "full": 4e6, "paper": 4e7}
"""Edges that the pools of a node-wise call hold together."""
READ: Final = {"smoke": 1e7, "quick": 3e7, "full": 1e9, "paper": 1e10}
"""Elements that a linear method may read in a call; one that needs more for a root is left out."""
NOTHING: Final = "nothing"
"""A call that draws nothing: what it takes is no part of a gain."""
FRONTIER: Final = 10_000
TENTH: Final = 0.1
"""Both readings of the garbled size of a frontier."""
STEPS: Final = {"smoke": 200, "quick": 4_000, "full": 10_000, "paper": 100_000}
"""Vertices drawn of one subgraph. The paper draws |E| / 100, of Reddit, its smallest, 6,724."""
TASKS: Final = {
    "node 2": "node-wise, 2 layers",
    "node 3": "node-wise, 3 layers",
    "layer": "layer-wise, 2 layers",
    "subgraph 10^4": "subgraph, frontier 10^4",
    "subgraph 10%": "subgraph, frontier 10 % of V",
}
"""Tasks of Figure 7, and the second interpretation of its frontier."""
POOLED: Final = ("sis", "sis8", *ITS, "alias", "reservoir", "keys")
"""Methods for pools of equal weights."""
FRONTIERS: Final = ("sis", "sis8", "brs", "brs rest", "brs_literal", "its_bitmap", "keys")
"""Methods for frontiers. `brs rest` sums up prefix sums from the moved slot on, `brs` all."""
NAMES: Final = TITLES | {
    "brs": "BRS",
    "brs rest": "BRS half",
}

Call = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class SamplingTask:
    """One kind of sampling on one graph.

    Attributes:
        calls: by method, each the same sample by another way to draw.
        left_out: by method, why it is not raced.
        roots: int64[R] of a sample around roots; None of a subgraph.
        frontier, draws: slots and draws of a subgraph.
    """

    calls: dict[str, Call]
    left_out: dict[str, str]
    roots: Tensor | None = None
    frontier: int = 0
    draws: int = 0


def tasks_on(table: EdgeTable, preset: Preset) -> dict[str, SamplingTask]:
    """All kinds of sampling on one graph, by keys of `TASKS`."""
    occupied = table.degrees.nonzero().squeeze(1)
    roots = occupied[torch.randperm(len(occupied), generator=torch.Generator().manual_seed(7))]
    draws = STEPS[preset]
    tenth = max(1, round(TENTH * table.num_nodes))
    return {
        "node 2": node_task(table, roots, 2, preset),
        "node 3": node_task(table, roots, 3, preset),
        "layer": layer_task(table, roots[:BATCH], preset),
        "subgraph 10^4": frontier_task(table, FRONTIER, draws),
        "subgraph 10%": frontier_task(table, tenth, draws),
    }


def chosen(way: str) -> dict[str, Any]:
    """Arguments that choose a way to draw."""
    method, _, rest = way.partition(" ")
    more = {"rebuild": "rest"} if rest else {}
    return {"method": name_of(method), "arity": arity_of(method), **more}


def reads_of(pools: Tensor) -> float:
    """Elements that a scan reads: half of a pool for each of the drawn half."""
    return float((pools.double() ** 2).sum()) / 4


def fits(pools: Tensor, preset: Preset, share: int = 1) -> bool:
    """Return True if linear methods may draw from such pools within a share of their limits."""
    return (
        share * float(pools.sum()) <= WORK[preset] and share * reads_of(pools) <= READ[preset]
    )  # fmt: skip


def node_task(table: EdgeTable, roots: Tensor, layers: int, preset: Preset) -> SamplingTask:
    """Half of the union of neighbourhoods, layer by layer, for each root on its own."""
    kept: list[int] = []
    looked = 0
    pools = torch.empty(0, layers, dtype=torch.int64)
    for i, root in enumerate(roots[:TRIED].split(1)):
        pilot = sample_nodewise(table, root, share=SHARE, layers=layers, threads=1, seed=1, first=i)
        more = torch.cat([pools, pilot.pools])
        if fits(pilot.pools, preset, SHARES):
            if not fits(more, preset):
                break
            pools, kept = more, [*kept, i]
        looked += int(pilot.pools.sum())
        if len(kept) == ROOTS or looked > LOOKED * WORK[preset]:
            break
    if not kept:
        kept, pools = (
            [0],
            sample_nodewise(table, roots[:1], share=SHARE, layers=layers, threads=1, seed=1).pools,
        )
    return pool_task(sample_nodewise, table, roots[torch.tensor(kept)], pools, layers, preset)


def whole_calls(table: EdgeTable) -> dict[str, Call]:
    """Calls of SIS that sample a whole graph, by setting; none of a large one."""
    roots = table.degrees.nonzero().squeeze(1)
    if roots.numel() > MAX_WHOLE:
        return {}
    fixed = {"seed": 1, "threads": 1, **chosen(BASE)}
    layered = {"share": SHARE, "layers": 2, **fixed}
    draws = max(1, table.num_edges // SUBGRAPHS)

    def batches() -> None:
        for some in roots.split(BATCH):
            sample_layerwise(table, some, **layered)

    def subgraphs() -> None:
        for seed in range(SUBGRAPHS):
            sample_subgraph(table, FRONTIER, draws, induced=False, **{**fixed, "seed": seed})

    return {
        WHOLE_NODE: lambda: sample_nodewise(table, roots, **layered),
        WHOLE_BATCHES: batches,
        WHOLE_ONCE: lambda: sample_layerwise(table, roots, **layered),
        WHOLE_SUBGRAPHS: subgraphs,
    }


def layer_task(table: EdgeTable, roots: Tensor, preset: Preset) -> SamplingTask:
    """Half of what a batch of roots reaches, layer by layer."""
    while True:
        pilot = sample_layerwise(table, roots, share=SHARE, layers=2, threads=1, seed=1)
        if len(roots) == 1 or fits(pilot.pools, preset):
            return pool_task(sample_layerwise, table, roots, pilot.pools, 2, preset)
        roots = roots[: len(roots) // 2]


def pool_task(
    sample: Callable[..., Any],
    table: EdgeTable,
    roots: Tensor,
    pools: Tensor,
    layers: int,
    preset: Preset,
) -> SamplingTask:
    """Draws from pools of equal weights; methods that would read too much are left out."""

    def call(way: str) -> Call:
        return lambda: sample(
            table, roots, share=SHARE, layers=layers, seed=1, threads=1, **chosen(way)
        )

    reads = reads_of(pools)
    calls: dict[str, Call] = {}
    absent: dict[str, str] = {}
    for way in POOLED:
        if way in LINEAR and reads > READ[preset]:
            absent[way] = f"skipped: would read about {reads:.0e} elements a call"
        else:
            calls[way] = call(way)
    calls[NOTHING] = lambda: sample(table, roots, share=0.0, layers=1, threads=1)
    return SamplingTask(calls, absent, roots)


def frontier_task(table: EdgeTable, frontier: int, draws: int) -> SamplingTask:
    """One subgraph by a frontier, induced edges left to others: they cost every way the same."""

    def call(way: str) -> Call:
        return lambda: sample_subgraph(
            table, frontier, draws, induced=False, seed=1, threads=1, **chosen(way)
        )

    calls = {way: call(way) for way in FRONTIERS}
    return SamplingTask(calls, {}, frontier=frontier, draws=draws)
