"""Samples of a graph's edges on a device; `edge_sampling` has the meaning and calls this.

Sets are drawn for all vertices or pools of a layer at once: by Segment Its Search, as ranges of one
tree of sums (`weighted.device_segment_tree`), or by keys (`weighted.device`), which have the same
distribution. A subgraph's frontier is a chain of draws, which a
warp walks with a tree of sums; subgraphs walk side by side. Kept shares and subgraphs are those of
the CPU, to the edge; samples around roots differ from the CPU's in their random numbers, which here
belong to a candidate's place in the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import torch
from torch import Tensor

from dgbench.kernels_cuda._checks import check_ids
from dgbench.kernels_cuda.build_info import stream_of
from dgbench.kernels_cuda.edge_sampling.device_subgraphs import (
    induced_edges,
    members_of,
    vertices_of,
)
from dgbench.kernels_cuda.edge_sampling.samples import EdgeSample, LayerSample, SubgraphSample
from dgbench.kernels_cuda.edge_sampling.table import EdgeTable, share_of
from dgbench.kernels_cuda.weighted import DrawStats
from dgbench.kernels_cuda.weighted.device import check_key_range, draw_sets, operators
from dgbench.kernels_cuda.weighted.device_segment_tree import DeviceSegmentTree
from dgbench.runtime.errors import InvalidInputError, UnsupportedError

__all__ = ["keep_share", "sample_roots", "sample_rows", "sample_subgraph", "table_on"]

_ROOTS: Final = 4 << 60
_ROWS: Final = 5 << 60
_SUBGRAPHS: Final = 3 << 60  # of edge_sampling/cpu_draws.hpp
_MIX: Final = 0x9E3779B97F4A7C15
ROWS_AT_ONCE: Final = 1 << 25
"""Edges of rows that are drawn from together by `sample_rows`: their tree takes 340 MiB."""


def table_on(table: EdgeTable, device: torch.device | str) -> EdgeTable:
    """The same table with its arrays on a device; 16 bytes an edge and 8 a vertex."""
    arrays = (a.to(device) for a in (table.indptr, table.dst, table.eid, table.t))
    return EdgeTable(*arrays, table.num_edges, table.undirected)


def keep_share(
    table: EdgeTable, share: float, *, seed: int, rounding: str, native: Any = None
) -> Tensor:
    """bool[E] by edge id: what `table.keep_share` keeps, on the table's device."""
    device = table.indptr.device
    native = operators(device) if native is None else native
    call_on = stream_of(device) or (0,)
    if rounding == "nearest":
        needed = share_of(table.degrees, share)
    else:
        fractions = torch.empty(table.num_nodes, dtype=torch.float64, device=device)
        native.row_uniforms(seed, fractions, *call_on)
        exact = table.degrees.double() * share
        needed = torch.floor(exact + fractions).long().clamp_(max=table.degrees)
    keep = torch.empty(table.num_edges, dtype=torch.bool, device=device)
    native.keep_rows(table.indptr, table.eid, needed, seed, keep, *call_on)
    return keep


def sample_rows(
    table: EdgeTable,
    share: float,
    *,
    seed: int,
    device: torch.device | str,
    at_once: int = ROWS_AT_ONCE,
    native: Any = None,
) -> Tensor:
    """Draw a share of every vertex's edges by Segment Its Search on a device: what is trained on.

    Only sums go there, so that graphs fit that are larger than the device. The sample does not
    depend on how many rows are drawn from together.

    Args:
        table: on the CPU, directed.
        share: in [0, 1], to the nearest number of edges, halves up.
        seed: in [0, 2^64).
        device: that draws.
        at_once: edges of rows that are drawn from together; a longer row is drawn from alone.
        native: the compiled functions; those of the device if None.

    Returns:
        int64[K] edge ids on the CPU, ascending.

    Raises:
        InvalidInputError: an undirected table, or a number out of its range.
    """
    if table.undirected:
        raise InvalidInputError("table is undirected: an edge in two rows may be drawn in one")
    if not 0 <= share <= 1 or at_once < 1:
        raise InvalidInputError(
            f"share is {share} and at_once {at_once}, allowed are 0 to 1, and 1 and more"
        )
    needed, parts, first = share_of(table.degrees, share), [], 0
    while first < table.num_nodes:
        begin = int(table.indptr[first])
        last = int(torch.searchsorted(table.indptr, begin + at_once, right=True)) - 1
        last = max(last, first + 1)
        size = int(table.indptr[last]) - begin
        if size:
            edges = (table.indptr[first : last + 1] - begin).to(device)
            weights = torch.ones(size, dtype=torch.int64, device=device)
            items = DeviceSegmentTree(weights, native=native).draw_ranges(
                edges[:-1].contiguous(), edges[1:].contiguous(), needed[first:last].to(device),
                seed=seed, stream=_ROWS + first,
            )  # fmt: skip
            parts.append(items.cpu() + begin)
        first = last
    records = torch.cat([torch.empty(0, dtype=torch.int64), *parts])
    return torch.sort(table.eid[records].long()).values


def sample_roots(
    table: EdgeTable,
    roots: Tensor,
    starts: Tensor,
    space: Literal["vertex", "edges", "vertices"],
    *,
    sizes: Sequence[int],
    share: float,
    layers: int,
    method: str,
    weights: Tensor | Literal["degree"] | None,
    before: Tensor | None,
    seed: int,
    call: int,
    first: int,
    native: Any = None,
) -> EdgeSample:
    """Sample around groups of roots, layer by layer; arguments as `edge_sampling._sample` has them.

    Raises:
        InvalidInputError: a tensor of another dtype or device, weights that keys cannot have.
        UnsupportedError: a method other than `sis` and `keys`.
    """
    device = table.indptr.device
    native = operators(device) if native is None else native
    _check(table, roots, weights, before, method, native)
    starts = starts.to(device)
    groups = starts.numel() - 1
    numbers = torch.arange(groups + 1, device=device)
    group = torch.repeat_interleave(numbers[:-1], starts.diff())
    vertex, bound = roots, before
    seen = [(group, vertex)]
    every: list[LayerSample] = []
    pools: list[Tensor] = []
    drawn = scanned = 0
    for layer in range(layers):
        group, vertex, bound = _arrivals(group, vertex, bound, table.num_nodes)
        begin = table.indptr[vertex]
        count = table.indptr[vertex + 1] - begin
        if bound is not None:
            count = torch.empty_like(vertex)
            native.count_before(
                table.indptr, table.t, vertex, bound, count, *(stream_of(device) or (0,))
            )
        offsets = _running(count)
        of_group = torch.searchsorted(group, numbers)
        total = int(offsets[-1])
        scanned += total
        pool = offsets[of_group]
        how = {
            "size": sizes[layer] if sizes else None,
            "share": share,
            "seed": (seed + layer * _MIX) % 2**64,
            "stream": _ROOTS | call << 40 | first,
            "method": method,
            "native": native,
        }
        if space == "vertices":
            stretch, record = _records(begin, count, offsets)
            candidate, number, sizes_of = _candidates(
                group[stretch], table.dst[record].long(), table.num_nodes, groups
            )
            pools.append(sizes_of)
            items = _draw(_running(sizes_of), _weights_of(table, weights, candidate, None), **how)
            drawn += items.numel()
            chosen = torch.zeros(candidate.numel(), dtype=torch.bool, device=device)
            chosen[items] = True
            kept = chosen[number]
            stretch, record = stretch[kept], record[kept]
        else:
            weighed = None
            if weights is not None:
                record = _records(begin, count, offsets)[1]
                weighed = _weights_of(table, weights, table.dst[record].long(), table.eid[record])
            items = _draw(offsets if space == "vertex" else pool, weighed, **how)
            drawn += items.numel()
            stretch = torch.searchsorted(offsets, items, right=True) - 1
            record = begin[stretch] + items - offsets[stretch]
            pools.append(pool.diff())
        neighbour, eid = table.dst[record].long(), table.eid[record].long()
        where = group[stretch]
        every.append(
            LayerSample(torch.searchsorted(where, numbers), eid, vertex[stretch], neighbour)
        )
        group, vertex = where, neighbour
        bound = None if bound is None else table.t[record]
        seen.append((group, vertex))
    together = [torch.cat(part) for part in zip(*seen, strict=True)]
    # By group, and inside of one in the order of being reached.
    order = torch.sort(together[0], stable=True).indices
    group, nodes, _ = _arrivals(together[0][order], together[1][order], None, table.num_nodes)
    stats = DrawStats(drawn, 0, 0, scanned, 0)
    shape = torch.stack(pools, 1) if pools else starts.new_empty(groups, 0)
    return EdgeSample(tuple(every), torch.searchsorted(group, numbers), nodes, shape, stats)


def _check(
    table: EdgeTable, roots: Tensor, weights: Any, before: Tensor | None, method: str, native: Any
) -> None:
    device = table.indptr.device
    if method not in ("sis", "keys"):
        raise UnsupportedError(
            f"method '{method}' does not run on '{device}'",
            hint="pass 'keys', which has the same distribution, or a table on the CPU",
        )
    for name, array, dtype in (
        ("roots", roots, torch.int64),
        ("before", before, torch.float64),
        ("weights", weights, torch.float64),
    ):
        if isinstance(array, Tensor) and (array.dtype != dtype or array.device != device):
            raise InvalidInputError(
                f"{name} is {array.dtype} on '{array.device}', expected {dtype} on '{device}'"
            )
    check_ids(roots, "roots", table.num_nodes)
    if isinstance(weights, Tensor):
        check_key_range(weights, native=native)


def _running(counts: Tensor) -> Tensor:
    """int64[n + 1], sums of all counts before each."""
    sums = counts.new_zeros(counts.numel() + 1)
    torch.cumsum(counts, 0, out=sums[1:])
    return sums


def _arrivals(
    group: Tensor, vertex: Tensor, bound: Tensor | None, num_nodes: int
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Each vertex of a group once, in order of first arrival, with the latest of its bounds.

    Groups come in ascending order.
    """
    ordered = torch.sort(group * max(num_nodes, 1) + vertex, stable=True)
    is_new = torch.ones_like(ordered.values, dtype=torch.bool)
    is_new[1:] = ordered.values[1:] != ordered.values[:-1]
    at = ordered.indices[is_new]
    order = torch.sort(at).indices
    kept = at[order]
    latest = None
    if bound is not None:
        latest = torch.full_like(kept, -torch.inf, dtype=torch.float64)
        run = is_new.cumsum(0) - 1
        latest.scatter_reduce_(0, run, bound[ordered.indices], "amax")
        latest = latest[order]
    return group[kept], vertex[kept], latest


def _candidates(
    group: Tensor, vertex: Tensor, num_nodes: int, groups: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Distinct vertices of each group by arrival, which of them an edge leads to, and how many."""
    found = torch.unique(group * max(num_nodes, 1) + vertex, return_inverse=True)
    positions = torch.arange(vertex.numel(), device=vertex.device)
    first = torch.full_like(found[0], vertex.numel())
    first.scatter_reduce_(0, found[1], positions, "amin")
    ordered = torch.sort(first)
    place = torch.empty_like(ordered.indices)
    place[ordered.indices] = positions[: place.numel()]
    of_group = torch.searchsorted(
        group[ordered.values], torch.arange(groups + 1, device=vertex.device)
    )
    return vertex[ordered.values], place[found[1]], of_group.diff()


def _records(begin: Tensor, count: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
    """Of every candidate the stretch that it is in, and its record."""
    stretch = torch.repeat_interleave(count)
    item = torch.arange(stretch.numel(), device=begin.device)
    return stretch, begin[stretch] + item - offsets[stretch]


def _weights_of(
    table: EdgeTable, weights: Tensor | str | None, vertex: Tensor, eid: Tensor | None
) -> Tensor | None:
    """float32 or int64, what each candidate weighs; None for one each."""
    if weights is None:
        return None
    if isinstance(weights, Tensor):
        return weights[eid.long()].float()
    return table.degrees[vertex]


def _draw(
    offsets: Tensor,
    weights: Tensor | None,
    *,
    size: int | None,
    share: float,
    seed: int,
    stream: int,
    method: str,
    native: Any,
) -> Tensor:
    """Draw from sets of candidates that lie one behind the other."""
    there = offsets.diff()
    wanted = share_of(there, share) if size is None else there.clamp(max=size)
    if weights is not None:
        positive = _running((weights > 0).long())[offsets].diff()
        wanted = torch.minimum(wanted, positive)
    if method == "sis" and (weights is None or weights.dtype == torch.int64):
        total = int(offsets[-1])
        if total == 0:
            return offsets.new_empty(0)
        whole = offsets.new_ones(total) if weights is None else weights
        return DeviceSegmentTree(whole, native=native).draw_ranges(
            offsets[:-1].contiguous(), offsets[1:].contiguous(), wanted, seed=seed, stream=stream
        )
    return draw_sets(
        offsets[:-1], offsets[1:], _running(wanted), weights=weights, seed=seed, stream=stream,
        native=native,
    ).items  # fmt: skip


def sample_subgraph(
    table: EdgeTable,
    frontier: int,
    draws: int,
    *,
    count: int,
    method: str,
    replacement: bool,
    by_degree: bool,
    induced: bool,
    seed: int,
    call: int,
    first: int,
    native: Any = None,
) -> SubgraphSample:
    """The subgraphs of `edge_sampling.sample_subgraph`, the same as on the CPU.

    Raises:
        UnsupportedError: a method other than `sis`.
    """
    if method != "sis":
        raise UnsupportedError(
            f"method '{method}' does not run on '{table.indptr.device}'",
            hint="pass 'sis', or a table on the CPU",
        )
    native = operators(table.indptr.device) if native is None else native
    members, reseeded = members_of(
        table, frontier, draws, count, replacement, by_degree, seed,
        _SUBGRAPHS | call << 40 | first, native,
    )  # fmt: skip
    offsets, vertices = vertices_of(members, table.num_nodes)
    if induced:
        edge_offsets, eids = induced_edges(table, offsets, vertices)
    else:
        edge_offsets, eids = torch.zeros_like(offsets), offsets.new_empty(0)
    made = count * draws if table.num_records else 0
    stats = DrawStats(made, 0, 0, 0, 0)
    return SubgraphSample(offsets, vertices, edge_offsets, eids, reseeded, stats)
