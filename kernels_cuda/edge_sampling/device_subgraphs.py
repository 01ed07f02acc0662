"""Subgraphs on a device: walks of their frontiers, their vertices, and the edges in between."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

from dgbench.kernels_cuda.build_info import stream_of
from dgbench.kernels_cuda.edge_sampling.table import EdgeTable

__all__ = ["induced_edges", "members_of", "vertices_of"]

SLOT_BYTES: Final = 16
WIDTHS: Final = (False, True)
"""Widths of sums in the order of trying: False for 32 bits, True for 64."""

AT_ONCE: Final = 1 << 26
"""Elements of an intermediate array; what is larger is worked on set by set."""


def members_of(
    table: EdgeTable,
    frontier: int,
    draws: int,
    count: int,
    replacement: bool,
    by_degree: bool,
    seed: int,
    stream: int,
    native: Any,
    memory: str | None = None,
) -> tuple[Tensor, int]:
    """Walk `count` frontiers.

    A tree has sums of 32 bits; where a frontier's degrees do not fit them, all are walked again
    with 64.

    Args:
        stream: of the first subgraph's random numbers; the next one has the next.
        memory: where trees and slots lie: `shared`, `tree` (the slots in the device's memory), or
            `device`; None for the closest that has room for all subgraphs.

    Returns:
        int32[count, ceil(N / 32)]: a bit for every vertex; and how many slots came to a vertex
        without edges.
    """
    device = table.indptr.device
    words = (table.num_nodes + 31) // 32
    nodes = native.frontier_nodes(frontier)
    memory = _memory(nodes, frontier, count, device) if memory is None else memory
    occupied = table.degrees.nonzero().squeeze(1).to(torch.int32)
    options = {"dtype": torch.int64, "device": device}
    for wide in WIDTHS:
        members = torch.zeros(count, words, dtype=torch.int32, device=device)
        reseeded = torch.zeros(count, **options)
        overflow = torch.zeros(count, dtype=torch.int32, device=device)
        slots = trees = wide_trees = None
        if wide or memory != "shared":
            slots = torch.empty(2 * count * frontier, **options)
        if wide:
            wide_trees = torch.empty(count * nodes, **options)
        elif memory == "device":
            trees = torch.empty(count * nodes, dtype=torch.int32, device=device)
        if count:
            native.walk_frontier(
                table.indptr, table.dst, occupied, frontier, draws, replacement, by_degree, seed,
                stream, members.view(-1), slots, trees, wide_trees, reseeded, overflow,
                *(stream_of(device) or (0,)),
            )  # fmt: skip
        if not bool(overflow.any()):
            break
    return members, int(reseeded.sum())


def _memory(nodes: int, frontier: int, count: int, device: torch.device) -> str:
    """Where a walk's memory goes: as near as lets the most subgraphs walk at once."""
    limit, processors = 227 << 10, 1
    if device.type == "cuda":
        info = torch.cuda.get_device_properties(device)
        limit = getattr(info, "shared_memory_per_block_optin", 48 << 10)
        processors = info.multi_processor_count
    tree, both = 4 * nodes, 4 * nodes + SLOT_BYTES * frontier
    if both <= limit and count <= processors * max(limit // both, 1):
        return "shared"
    if tree <= limit:
        return "tree"
    return "device"


def vertices_of(members: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    """Bits to lists: int64[S + 1] and the vertices of each set, int64[M] ascending."""
    count, words = members.shape
    bits = torch.arange(32, dtype=torch.int32, device=members.device)
    at_once = max(1, AT_ONCE // max(32 * words, 1))
    sets = [members.new_empty(0, dtype=torch.int64)]
    vertices = [members.new_empty(0, dtype=torch.int64)]
    for begin in range(0, count, at_once):
        some = members[begin : begin + at_once]
        found = ((some[:, :, None] >> bits) & 1).view(some.shape[0], -1).nonzero()
        sets.append(found[:, 0] + begin)
        vertices.append(found[:, 1])
    owner = torch.cat(sets)
    numbers = torch.arange(count + 1, device=members.device)
    return torch.searchsorted(owner, numbers), torch.cat(vertices)


def induced_edges(table: EdgeTable, offsets: Tensor, vertices: Tensor) -> tuple[Tensor, Tensor]:
    """`edge_sampling.induced_edges` on the device of the table."""
    device = table.indptr.device
    count = offsets.numel() - 1
    begin = table.indptr[vertices]
    degree = table.indptr[vertices + 1] - begin
    before = torch.zeros(vertices.numel() + 1, dtype=torch.int64, device=device)
    torch.cumsum(degree, 0, out=before[1:])
    bounds, records = offsets.tolist(), before[offsets].tolist()
    at_once = max(1, AT_ONCE // max(table.num_nodes, 1))
    found, owners = [vertices.new_empty(0)], [vertices.new_empty(0)]
    s = 0
    while s < count:
        stop = s + 1
        while stop < min(count, s + at_once) and records[stop + 1] - records[s] <= AT_ONCE:
            stop += 1
        mine = slice(bounds[s], bounds[stop])
        some = vertices[mine]
        # Place of a vertex's set among those worked on.
        owner = torch.repeat_interleave(offsets[s : stop + 1].diff())
        is_member = torch.zeros(stop - s, table.num_nodes, dtype=torch.bool, device=device)
        is_member[owner, some] = True
        which = torch.repeat_interleave(degree[mine])
        item = torch.arange(which.numel(), device=device)
        record = begin[mine][which] + item - (before[mine][which] - records[s])
        other = table.dst[record].long()
        kept = is_member[owner[which], other]
        if table.undirected:
            # At both ends: once, at the smaller; a self edge stands twice in a row, side by side.
            here = some[which]
            again = (other == here) & (record > begin[mine][which])
            again &= table.eid[record] == table.eid[(record - 1).clamp(min=0)]
            kept &= (other >= here) & ~again
        found.append(table.eid[record[kept]].long())
        owners.append(owner[which[kept]] + s)
        s = stop
    numbers = torch.arange(count + 1, device=device)
    return torch.searchsorted(torch.cat(owners), numbers), torch.cat(found)
