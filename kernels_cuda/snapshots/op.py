"""From timed edges to one adjacency matrix per snapshot."""

from __future__ import annotations

import torch
from torch import Tensor

from dgbench.kernels_cuda._checks import check_ids, check_vector
from dgbench.kernels_cuda.build_info import extension
from dgbench.kernels_cuda.csr import Csr
from dgbench.runtime.errors import InvalidInputError


def edge_snapshots(
    src: Tensor,
    dst: Tensor,
    bins: Tensor,
    num_snapshots: int,
    num_nodes: int,
    *,
    weight: Tensor | None = None,
    edge_life: int = 1,
    symmetric: bool = False,
    drop_self_loops: bool = True,
    weighted: bool = False,
) -> list[Csr]:
    """Group timed edges into snapshots, merging duplicates.

    Snapshot t holds the edges of the raw bins t - edge_life + 1 .. t (ESDG, section 5.1, where an
    edge lives for several snapshots); with an edge life of 1 that is bin t alone. Rows are
    destinations, columns sources, ascending. Time is linear in events and in entries written;
    rows are shared among threads, and the result does not depend on their number.

    Args:
        src, dst: int64[E], vertex ids in [0, num_nodes), on the CPU.
        bins: int64[E], raw snapshot of each event, in [0, num_snapshots), in any order.
        num_snapshots: number of snapshots T.
        num_nodes: number of vertices N; each matrix is N x N.
        weight: float32[E] or None, read only with `weighted`.
        edge_life: number of bins an edge lives, at least 1.
        symmetric: also insert each edge the other way round. An edge that is there in both
            directions is one entry each way, with the weights of both; a self loop counts once.
        drop_self_loops: leave out edges from a vertex to itself.
        weighted: give each entry the sum of its events' weights, or their number where `weight` is
            None. Otherwise entries carry no value.

    Returns:
        T matrices; the empty list for T = 0.

    Raises:
        InvalidInputError: wrong dtype, device, length or range of an argument.
    """
    check_vector(src, "src", torch.int64)
    events = src.numel()
    check_vector(dst, "dst", torch.int64, events)
    check_vector(bins, "bins", torch.int64, events)
    if weight is not None:
        check_vector(weight, "weight", torch.float32, events)
    _check_count("num_snapshots", num_snapshots, 0)
    _check_count("num_nodes", num_nodes, 0)
    _check_count("edge_life", edge_life, 1)
    check_ids(src, "src", num_nodes)
    check_ids(dst, "dst", num_nodes)
    check_ids(bins, "bins", num_snapshots)
    if num_snapshots == 0:
        return []

    builder = extension(src.device).EdgeSnapshots(
        src.contiguous(),
        dst.contiguous(),
        bins.contiguous(),
        weight.detach().contiguous() if weighted and weight is not None else None,
        num_snapshots,
        num_nodes,
        min(edge_life, num_snapshots),
        symmetric,
        drop_self_loops,
        weighted,
        torch.get_num_threads(),
    )
    indptr = [torch.empty(num_nodes + 1, dtype=torch.int64) for _ in range(num_snapshots)]
    builder.count(indptr)
    sizes = [int(offsets[-1]) for offsets in indptr]
    indices = [torch.empty(size, dtype=torch.int32) for size in sizes]
    values = [torch.empty(size, dtype=torch.float32) for size in sizes] if weighted else []
    builder.fill(indptr, indices, values)
    return [
        Csr(offsets, columns, num_nodes, values[t] if weighted else None)
        for t, (offsets, columns) in enumerate(zip(indptr, indices, strict=True))
    ]


def _check_count(name: str, found: int, least: int) -> None:
    if isinstance(found, bool) or not isinstance(found, int) or not least <= found < 2**31:
        raise InvalidInputError(f"{name} is {found!r}, expected an integer in [{least}, 2^31)")
