"""Samples of a graph's edges: around roots, from shared pools, and as subgraphs (T-GCN 2.3, 3).

All draw without replacement, or from a frontier, by a method named as in `weighted.METHODS`: with
another one, only how a single draw is made differs. Readings of the paper, with reasons:

- **Node-wise** by definition samples every vertex's neighbours on their own. Algorithm 4 draws once
  from the union of the neighbours of the layer before; only then the space that is drawn from
  grows with depth. `union` chooses, and Algorithm 4 is the default.
- **Union** keeps edges that join the same pair: it is a multiset of edges, so that "half" is half
  of the edges. A vertex that is reached several times in a layer counts once.
- **Time**: Algorithm 4 never looks at it. With `before`, an edge of a root is a candidate if it
  happened before the root's time, and an edge further out if it happened before one of the sampled
  edges that lead to its vertex. Before means strictly before.
- **Size**: a share s of n candidates is floor(s n + 1/2) of them.
- **Random numbers** by counter: a sample depends on seed, call and the ordinal of the root, pool or
  subgraph; not on threads, nor on how a batch is cut.
- **On a device** (`device.table_on` moves a table there; roots and weights must lie
  there too) kept shares and subgraphs are those of the CPU. Samples around roots are drawn by `sis`
  (weights of an edge's own by keys, as the sums of a tree would round them) or `keys`, the default
  there, have other random numbers than the CPU's, and also depend on how a batch is cut.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, Literal

import torch
from torch import Tensor

from dgbench.kernels_cuda._checks import check_ids, check_vector
from dgbench.kernels_cuda.build_info import extension
from dgbench.kernels_cuda.edge_sampling import device as device_edge_sampling
from dgbench.kernels_cuda.edge_sampling import device_subgraphs
from dgbench.kernels_cuda.edge_sampling.samples import EdgeSample, LayerSample, SubgraphSample
from dgbench.kernels_cuda.edge_sampling.table import EdgeTable, check_seed, keep_share, thread_count
from dgbench.kernels_cuda.weighted import ARITIES, METHODS, DrawStats, check_range
from dgbench.kernels_cuda.weighted.device import KEY_RANGE
from dgbench.kernels_cuda.workspace import Workspace
from dgbench.runtime.errors import InvalidInputError, unknown_key

__all__ = [
    "EdgeSample", "EdgeTable", "LayerSample", "SubgraphSample", "induced_edges", "keep_share",
    "sample_layerwise", "sample_nodewise", "sample_subgraph",
]  # fmt: skip

_CPU: Final = torch.device("cpu")
_SPACES: Final = {"vertex": 0, "edges": 1, "vertices": 2}
_memory: Final = Workspace()
"""Of samples alone, see `temporal_sample`."""
CALLS: Final = 1 << 20
FIRST: Final = 1 << 39


def sample_nodewise(
    table: EdgeTable,
    roots: Tensor,
    sizes: Sequence[int] | None = None,
    *,
    share: float = 0.5,
    layers: int = 2,
    union: bool = True,
    method: str | None = "sis",
    weights: Tensor | Literal["degree"] | None = None,
    before: Tensor | None = None,
    seed: int = 0,
    call: int = 0,
    first: int = 0,
    arity: int = 8,
    threads: int | None = None,
) -> EdgeSample:
    """Sample edges around each root (T-GCN, Algorithm 4), each root on its own.

    Args:
        table: the graph.
        roots: int64[R].
        sizes: edges that a layer draws at most, next to the root first: of the union, or of every
            vertex's neighbours. None for `share` of them in `layers` layers.
        union: draw once from all neighbours of the layer before, as Algorithm 4 is printed; False
            draws from every vertex's neighbours, as node-wise sampling is defined (section 2.3).
        method: how one edge is drawn, see `weighted.METHODS`; None for the fastest that draws by
            these weights: `reservoir` among equal ones, else `sis`, the paper's; on a device
            `keys`.
        weights: float64[E] by edge id, finite and at least 0; `degree`, that of the neighbour; None
            for equal ones. What has no weight is never drawn.
        before: float64[R], not nan: see the module. None looks at all edges.
        seed: in [0, 2^64).
        call: ordinal of the call, below 2^20. The same number repeats the sample.
        first: ordinal of the first root, where the roots are part of a larger batch.
        arity: children of a node of the tree of `sis`: 2 is the paper's.
        threads: OpenMP threads, torch's number if None. The answer does not depend on it.

    Raises:
        InvalidInputError: another dtype or length, a vertex that is not there, nan, a number out of
            its range, weights that the method cannot use.
        UnknownKeyError: another method.
    """
    starts = torch.arange(_count(roots, table) + 1)
    return _sample(
        table, roots, starts, "edges" if union else "vertex", sizes=sizes, share=share,
        layers=layers, method=method, weights=weights, before=before, seed=seed, call=call,
        first=first, arity=arity, threads=threads,
    )  # fmt: skip


def sample_layerwise(
    table: EdgeTable,
    roots: Tensor,
    sizes: Sequence[int] | None = None,
    *,
    share: float = 0.5,
    layers: int = 2,
    batch: int | None = None,
    items: Literal["edges", "vertices"] = "edges",
    method: str | None = "sis",
    weights: Tensor | Literal["degree"] | None = None,
    before: Tensor | None = None,
    seed: int = 0,
    call: int = 0,
    first: int = 0,
    arity: int = 8,
    threads: int | None = None,
) -> EdgeSample:
    """Sample from a pool that all roots of a batch share in each layer (T-GCN 2.3).

    Args:
        batch: roots that share a pool, in the order given; None for all of them.
        items: draw `edges` of the pool; or `vertices` as FastGCN does: distinct neighbours of the
            layer, each with all edges that lead to it.
        Others as `sample_nodewise`. Weights by edge need items="edges".

    Returns:
        R is the number of pools.

    Raises:
        InvalidInputError: as `sample_nodewise`.
        UnknownKeyError: another method, other items.
    """
    count = _count(roots, table)
    if batch is not None and batch < 1:
        raise InvalidInputError(f"batch is {batch}, allowed are 1 and more, or None")
    if items not in ("edges", "vertices"):
        raise unknown_key("items", items, ("edges", "vertices"))
    if items == "vertices" and isinstance(weights, Tensor):
        raise InvalidInputError("weights by edge do not say what a vertex weighs", hint=_BY_EDGE)
    steps = range(0, count, batch or max(count, 1))
    starts = torch.tensor([*steps, count], dtype=torch.int64)
    return _sample(
        table, roots, starts, items, sizes=sizes, share=share, layers=layers, method=method,
        weights=weights, before=before, seed=seed, call=call, first=first, arity=arity,
        threads=threads,
    )  # fmt: skip


def sample_subgraph(
    table: EdgeTable,
    frontier: int,
    draws: int,
    *,
    count: int = 1,
    method: str = "sis",
    replacement: bool | None = None,
    weights: Literal["degree"] | None = "degree",
    rebuild: Literal["whole", "rest"] = "whole",
    induced: bool = True,
    seed: int = 0,
    call: int = 0,
    first: int = 0,
    arity: int = 8,
    threads: int | None = None,
) -> SubgraphSample:
    """Sample subgraphs by moving a frontier (T-GCN, Algorithms 1 and 5; GraphSAINT's walkers).

    A slot of the frontier is drawn in proportion to its vertex's degree; the vertex joins the
    subgraph and the slot moves to one of its neighbours, each of its edges as likely. A slot on a
    vertex without edges, also in the first frontier, gets one with edges, each as likely.

    Args:
        frontier: slots, m; the first vertices are uniform over all.
        draws: vertices drawn for each subgraph, repeats among them.
        count: subgraphs.
        method: how one slot is drawn; `reservoir` needs weights=None.
        replacement: whether the first frontier may repeat vertices; None where m > N only.
        weights: of a slot: the degree of its vertex; None for equal ones.
        rebuild: what `its_*` and `brs*` do to their prefix sums when a slot moves: sum up the
            `whole` table, which is O(m) and what the paper compares with; or the `rest` from the
            slot on, half of that. Other methods ignore it.
        induced: also find the edges between the vertices (Algorithm 1 returns them, Algorithm 5
            the vertices only).
        first: ordinal of the first subgraph. Others as `sample_nodewise`.

    Raises:
        InvalidInputError: as `sample_nodewise`; a frontier larger than the graph without
            replacement.
        UnknownKeyError: another method, or how to rebuild.
    """
    native = extension(_CPU)
    threads = thread_count(threads)
    _check_call(method, arity, seed, call, first)
    nodes = table.num_nodes
    replacement = frontier > nodes if replacement is None else replacement
    check_range("frontier", frontier, 1, 2**31 - 1 if replacement else max(nodes, 1))
    check_range("draws", draws, 0, 2**62)
    check_range("count", count, 0, 2**31 - 1)
    if weights not in ("degree", None):
        raise InvalidInputError(f"weights is {weights!r}, allowed are 'degree' and None")
    if rebuild not in ("whole", "rest"):
        raise unknown_key("rebuild", rebuild, ("whole", "rest"))
    if method == "reservoir" and weights == "degree":
        raise InvalidInputError("method 'reservoir' draws among equal weights only", hint=_EQUAL)
    if table.indptr.device.type == "cuda":
        return device_edge_sampling.sample_subgraph(
            table, frontier, draws, count=count, method=method, replacement=replacement,
            by_degree=weights == "degree", induced=induced, seed=seed, call=call, first=first,
        )  # fmt: skip
    found = native.sample_subgraphs(
        table.rows, frontier, draws, count, method, arity,
        rebuild == "whole", replacement or nodes == 0, weights == "degree", seed, call, first,
        threads,
    )  # fmt: skip
    offsets = torch.empty(count + 1, dtype=torch.int64)
    vertices = _memory.empty((found.vertices(),), offsets)
    found.take(offsets, vertices, threads)
    if induced:
        edge_offsets, eids = induced_edges(table, offsets, vertices, threads=threads)
    else:
        edge_offsets, eids = torch.zeros_like(offsets), offsets.new_empty(0)
    stats = DrawStats(*found.counts())
    return SubgraphSample(offsets, vertices, edge_offsets, eids, found.reseeded, stats)


def induced_edges(
    table: EdgeTable, offsets: Tensor, vertices: Tensor, *, threads: int | None = None
) -> tuple[Tensor, Tensor]:
    """Edges that have both ends among some vertices, for S sets of vertices.

    Args:
        offsets: int64[S + 1], where each set begins and ends.
        vertices: int64[M], ascending in each set, none twice.
        threads: as `sample_nodewise`.

    Returns:
        int64[S + 1] and int64[K], edge ids of each set: every edge once, also of an undirected
        table; by vertex, then time.

    Raises:
        InvalidInputError: another dtype, a vertex that is not there.
    """
    where = table.indptr.device
    check_vector(offsets, "offsets", torch.int64, device=where)
    check_vector(vertices, "vertices", torch.int64, device=where)
    check_ids(vertices, "vertices", table.num_nodes)
    if table.indptr.device.type == "cuda":
        return device_subgraphs.induced_edges(table, offsets, vertices)
    threads = thread_count(threads)
    sets = (offsets.contiguous(), vertices.contiguous())
    found = extension(_CPU).induce(table.rows, *sets, threads)
    starts = torch.empty_like(sets[0])
    eids = _memory.empty((found.edges(),), starts)
    found.take(starts, eids, threads)
    return starts, eids


_BY_EDGE: Final = "pass items='edges', or weights='degree'"
_EQUAL: Final = "pass weights=None, or another method"


def _sample(
    table: EdgeTable,
    roots: Tensor,
    starts: Tensor,
    space: str,
    *,
    sizes: Sequence[int] | None,
    share: float,
    layers: int,
    method: str | None,
    weights: Tensor | Literal["degree"] | None,
    before: Tensor | None,
    seed: int,
    call: int,
    first: int,
    arity: int,
    threads: int | None,
) -> EdgeSample:
    check_ids(roots, "roots", table.num_nodes)
    if before is not None:
        where = table.indptr.device
        check_vector(before, "before", torch.float64, roots.numel(), device=where)
        if bool(before.isnan().any()):
            raise InvalidInputError("before holds nan, allowed are numbers and infinities")
        before = before.contiguous()
    if method is None:
        on_cpu = table.indptr.device.type == "cpu"
        method = ("reservoir" if weights is None else "sis") if on_cpu else "keys"
    _check_call(method, arity, seed, call, first)
    sizes = [] if sizes is None else [int(size) for size in sizes]
    if sizes:
        layers = len(sizes)
        if min(sizes) < 0:
            raise InvalidInputError(f"sizes is {sizes}, allowed are 0 and more")
    elif not 0 <= share <= 1:
        raise InvalidInputError(f"share is {share}, allowed are 0 to 1")
    check_range("layers", layers, 1, 256)
    weigh = _check_weights(table, weights, method)
    if table.indptr.device.type == "cuda":
        return device_edge_sampling.sample_roots(
            table, roots, starts, space, sizes=sizes, share=share, layers=layers, method=method,
            weights=weights, before=before, seed=seed, call=call, first=first,
        )  # fmt: skip
    threads = thread_count(threads)
    found = extension(_CPU).sample_roots(
        table.rows, roots.contiguous(), before, starts, _SPACES[space], weigh,
        weights.contiguous() if isinstance(weights, Tensor) else None, sizes, share, layers,
        method, arity, seed, call, first, threads,
    )  # fmt: skip
    groups = starts.numel() - 1
    every = []
    for layer in range(layers):
        offsets = torch.empty(groups + 1, dtype=torch.int64)
        ids = [_memory.empty((found.edges(layer),), offsets) for _ in range(3)]
        found.take_layer(layer, offsets, *ids, threads)
        every.append(LayerSample(offsets, *ids))
    offsets = torch.empty(groups + 1, dtype=torch.int64)
    nodes = _memory.empty((found.nodes(),), offsets)
    pools = torch.empty(groups, layers, dtype=torch.int64)
    found.take_nodes(offsets, nodes, pools, threads)
    return EdgeSample(tuple(every), offsets, nodes, pools, DrawStats(*found.counts()))


def _count(roots: Tensor, table: EdgeTable) -> int:
    check_vector(roots, "roots", torch.int64, device=table.indptr.device)
    return roots.numel()


def _check_weights(table: EdgeTable, weights: Any, method: str) -> int:
    """Check the candidates' weights and return their kind, as a number for the extension.

    Raises:
        InvalidInputError: weights that cannot be used.
    """
    if weights is None:
        return 0
    if method == "reservoir":
        raise InvalidInputError("method 'reservoir' draws among equal weights only", hint=_EQUAL)
    if isinstance(weights, str):
        if weights != "degree":
            raise InvalidInputError(f"weights is {weights!r}, allowed are 'degree', None, a tensor")
        return 1
    where = table.indptr.device
    check_vector(weights, "weights", torch.float64, table.num_edges, device=where)
    if not bool((torch.isfinite(weights) & (weights >= 0)).all()):
        raise InvalidInputError("weights must be finite and at least 0")
    if method == "keys":
        # Keys are float32; smaller and larger weights would be none, or all alike.
        outside = weights[(weights > 0) & ((weights < 1 / KEY_RANGE) | (weights > KEY_RANGE))]
        if outside.numel():
            raise InvalidInputError(
                f"weights has {float(outside[0])}, allowed for 'keys' are 0 and 2^-60 to 2^60",
                hint="scale the weights",
            )
    elif not math.isfinite(float(weights.sum())):
        raise InvalidInputError(
            "the sum of weights is above the largest float64", hint="scale the weights"
        )
    return 2


def _check_call(method: str, arity: int, seed: int, call: int, first: int) -> None:
    if method not in METHODS:
        raise unknown_key("method", method, METHODS)
    if method == "sis" and arity not in ARITIES:
        raise InvalidInputError(f"arity is {arity}, allowed are {ARITIES}")
    check_seed(seed)
    check_range("call", call, 0, CALLS - 1)
    check_range("first", first, 0, FIRST)
