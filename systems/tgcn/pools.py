"""A training set drawn from the pools of Figure 7: unions of neighbourhoods, and shared ones.

Algorithm 4 samples around every vertex: layer by layer, half of the union of the neighbourhoods
that the layer before reached; what all roots drew is trained on. Section 6.3 samples 50 % of the
edges for that. All roots together reach nearly all edges, each of them several times, so that both
can only hold with fewer roots: they are taken in random order until the share of all edges is in
the set, and of the last root's edges as many as that takes. Edges stand at both ends, as Figure 7's
do; without, a graph with two kinds of vertices has no second layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from dgbench.kernels_cuda.edge_sampling import (
    EdgeSample,
    EdgeTable,
    sample_layerwise,
    sample_nodewise,
    sample_subgraph,
    share_of,
)
from dgbench.kernels_cuda.edge_sampling.device import table_on
from dgbench.runtime.errors import InvalidInputError, unknown_key

KINDS: Final = ("rows", "union", "layer", "subgraph")
"""Pools that a training set is drawn from: every source's edges on their own; unions of
neighbourhoods, each root on its own; pools that batches of roots share; subgraphs by a frontier."""
LAYERS: Final = 2
"""Layers around a root: as many as the network has (section 6.1.2)."""
LAYER_ROOTS: Final = 512
"""Roots that share a pool in layer-wise sampling."""
FRONTIER: Final = 10_000
SUBGRAPHS: Final = 100
"""Slots of a frontier and subgraphs, each of |E| / 100 draws (section 6.3, as read)."""


@dataclass(frozen=True, slots=True, eq=False)
class PooledSample:
    """A training set and what it was drawn from.

    Attributes:
        edges: int64[K] ids, ascending.
        roots: int64[R], in the order taken.
        pools: int64[P, L], edges that there were to draw from, by root (or batch) and layer.
        drawn: int64[P, L], edges drawn of these.
        width: roots of a pool, the last pool's may be fewer.
    """

    edges: Tensor
    roots: Tensor
    pools: Tensor
    drawn: Tensor
    width: int


def sample_pools(
    table: EdgeTable,
    share: float,
    *,
    kind: str = "union",
    layers: int = LAYERS,
    method: str = "sis",
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> PooledSample:
    """Draw pool after pool until a share of all edges is in the set.

    Args:
        table: on the CPU, undirected.
        share: of all edges, to the nearest, and of each pool.
        kind: `union`: a pool a root and layer; `layer`: `LAYER_ROOTS` roots share one.
        layers: around a root.
        method: how an edge is drawn, see `weighted.METHODS`.
        seed: of the order of roots, the draws, and which edges of the last pool are left out.
        device: that draws; a GPU knows `sis` and `keys`.

    Raises:
        UnknownKeyError: another kind. InvalidInputError: a directed table, or a share out of range.
    """
    if kind not in ("union", "layer"):
        raise unknown_key("kind", kind, ("union", "layer"))
    if not table.undirected:
        raise InvalidInputError("table is directed, pools are drawn from edges at both ends")
    if not 0 < share <= 1:
        raise InvalidInputError(f"share is {share}, allowed are more than 0, to 1")
    numbers = torch.Generator().manual_seed(seed)
    occupied = table.degrees.nonzero().squeeze(1)
    roots = occupied[torch.randperm(occupied.numel(), generator=numbers)]
    wanted = int(share_of(torch.tensor([table.num_edges]), share))
    there = table if torch.device(device).type == "cpu" else table_on(table, device)
    width = 1 if kind == "union" else LAYER_ROOTS
    taken = torch.zeros(table.num_edges, dtype=torch.bool)
    count = first = met = 0
    pools: list[Tensor] = []
    drawn: list[Tensor] = []
    while count < wanted and first < roots.numel():
        # As many as hold about as much as the graph together: what is drawn does not depend on it.
        some = max(1, min(64, table.num_edges * len(pools) // max(1, met)))
        chunk = roots[first : first + width * some]
        how = {
            "share": share, "layers": layers, "method": method, "seed": seed,
            "first": first // width,
        }  # fmt: skip
        if kind == "union":
            sample = sample_nodewise(there, chunk.to(device), **how)
        else:
            sample = sample_layerwise(there, chunk.to(device), batch=width, **how)
        for group, eids in enumerate(_groups(sample)):
            fresh = eids[~taken[eids]].unique()
            surplus = count + fresh.numel() - wanted
            if surplus > 0:
                order = torch.randperm(fresh.numel(), generator=numbers)
                fresh = fresh[order[: fresh.numel() - surplus]]
            taken[fresh] = True
            count += fresh.numel()
            pools.append(sample.pools[group : group + 1].cpu())
            met += int(pools[-1].sum())
            drawn.append(torch.tensor([_sizes(sample, group)]))
            first = min(first + width, roots.numel())
            if count == wanted:
                break
    none = torch.empty(0, layers, dtype=torch.int64)
    return PooledSample(
        taken.nonzero().squeeze(1), roots[:first], torch.cat([none, *pools]),
        torch.cat([none, *drawn]), width,
    )  # fmt: skip


def sample_subgraphs(
    table: EdgeTable,
    *,
    frontier: int = FRONTIER,
    count: int = SUBGRAPHS,
    method: str = "sis",
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> list[Tensor]:
    """Edges of subgraphs by a moving frontier (Algorithm 5), int64 ids, ascending.

    Subgraphs without an edge are left out; if none has one, the first stays.

    Args:
        table: on the CPU, undirected.
        frontier: slots. count: subgraphs, of |E| / count draws each. method, seed: of the draws.
        device: that draws; the same subgraphs as on the CPU.
    """
    draws = max(1, table.num_edges // count)
    there = table if torch.device(device).type == "cpu" else table_on(table, device)
    sample = sample_subgraph(there, frontier, draws, count=count, method=method, seed=seed)
    sizes = sample.edge_offsets.diff().tolist()
    sets = [eids.sort().values for eids in sample.eids.cpu().split(sizes)]
    return [eids for eids in sets if eids.numel()] or sets[:1]


def _groups(sample: EdgeSample) -> list[Tensor]:
    """Edge ids that each root (or batch) drew in all layers, on the CPU."""
    cut = [
        layer.eids.cpu().split(layer.offsets.diff().tolist()) for layer in sample.layers
    ]  # by layer
    return [torch.cat(parts) for parts in zip(*cut, strict=True)]


def _sizes(sample: EdgeSample, group: int) -> list[int]:
    """Edges that a root (or batch) drew, by layer."""
    return [int(x.offsets[group + 1] - x.offsets[group]) for x in sample.layers]
