"""The edges of a stream as rows by source, in time order, and the share of them that is kept.

T-GCN (section 6.1.2) keeps the graph in host memory as compressed rows. Here a row holds 32-bit
neighbours and edge ids and exact float64 times: 16 bytes an edge, enough for the 1.47 billion edges
of its largest graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal

import torch
from torch import Tensor

from dgbench.kernels_cuda._checks import check_ids, check_vector
from dgbench.kernels_cuda.build_info import extension
from dgbench.runtime.errors import InvalidInputError, unknown_key

__all__ = ["EdgeTable", "keep_share", "share_of"]

LARGEST: Final = 2**31 - 1
"""Most vertices and most edges: ids have 32 bits inside."""
_CPU: Final = torch.device("cpu")
ROUNDING: Final = ("nearest", "random")


@dataclass(frozen=True, eq=False)
class EdgeTable:
    """K records of E edges over N vertices: row v lists what v's edges lead to.

    Rows are in time order, equal times in order of arrival. K is E, or 2E where each edge stands at
    both of its ends (a self edge twice at its one).

    Attributes:
        indptr: int64[N + 1].
        dst: int32[K], the other end.
        eid: int32[K], the place of the edge in the stream it was built from.
        t: float64[K].
        num_edges: E.
        undirected: whether every edge stands at both ends.
    """

    indptr: Tensor
    dst: Tensor
    eid: Tensor
    t: Tensor
    num_edges: int
    undirected: bool = False

    @staticmethod
    def build(
        src: Tensor,
        dst: Tensor,
        t: Tensor,
        num_nodes: int,
        undirected: bool = False,
        *,
        threads: int | None = None,
    ) -> EdgeTable:
        """Sort E edges into rows by counting; the order of edges decides among equal times.

        Args:
            src, dst: int64[E] in [0, num_nodes).
            t: float64[E] or int64[E], finite. Edges out of time order are sorted first, stably;
                their ids stay their places in the arrays given.
            num_nodes: N, below 2^31. E is below 2^31 too.
            undirected: keep each edge at both ends; else at its source.
            threads: OpenMP threads, torch's number if None. The result does not depend on it.

        Raises:
            InvalidInputError: wrong dtypes or lengths, ids out of range, times that are not finite.
        """
        if not 0 <= num_nodes <= LARGEST:
            raise InvalidInputError(f"num_nodes is {num_nodes}, allowed are 0 to {LARGEST}")
        count = src.numel() if isinstance(src, Tensor) else None
        if count is not None and count > LARGEST:
            raise InvalidInputError(f"src has {count} elements, allowed are {LARGEST} at most")
        for name, ids in (("src", src), ("dst", dst)):
            check_vector(ids, name, torch.int64, count)
            check_ids(ids, name, num_nodes)
        if isinstance(t, Tensor) and t.dtype == torch.int64:
            t = t.to(torch.float64)
        check_vector(t, "t", torch.float64, count)
        bad = (~torch.isfinite(t)).nonzero()
        if bad.numel():
            raise InvalidInputError(f"t[{int(bad[0])}] is {float(t[bad[0]])}, times must be finite")
        order = None
        if bool((t[1:] < t[:-1]).any()):
            order = torch.sort(t, stable=True).indices
            src, dst, t = src[order], dst[order], t[order]
        records = src.numel() * (2 if undirected else 1)
        indptr = torch.empty(num_nodes + 1, dtype=torch.int64)
        neighbours, eids = (torch.empty(records, dtype=torch.int32) for _ in range(2))
        times = torch.empty(records, dtype=torch.float64)
        extension(_CPU).build_edge_table(
            src.contiguous(), dst.contiguous(), t.contiguous(), order, undirected, indptr,
            neighbours, eids, times, thread_count(threads),
        )  # fmt: skip
        return EdgeTable(indptr, neighbours, eids, times, src.numel(), undirected)

    @property
    def num_nodes(self) -> int:
        """N."""
        return self.indptr.numel() - 1

    @property
    def num_records(self) -> int:
        """K."""
        return self.t.numel()

    @property
    def nbytes(self) -> int:
        """Bytes of all four arrays."""
        return sum(a.numel() * a.element_size() for a in (self.indptr, self.dst, self.eid, self.t))

    @cached_property
    def degrees(self) -> Tensor:
        """int64[N], records in each row."""
        return self.indptr.diff()

    @cached_property
    def rows(self) -> Any:
        """The table as the compiled samplers take it; checked when it is first asked for."""
        arrays = (self.indptr, self.dst, self.eid, self.t)
        return extension(_CPU).EdgeRows(*arrays, self.num_edges, self.undirected)


def share_of(counts: Tensor, share: float) -> Tensor:
    """int64, `share` of each of int64 `counts`, to the nearest whole number, halves up."""
    return torch.floor(counts.double() * share + 0.5).long().clamp_(max=counts)


def keep_share(
    table: EdgeTable,
    share: float = 0.5,
    *,
    seed: int = 0,
    rounding: Literal["nearest", "random"] = "nearest",
    threads: int | None = None,
) -> Tensor:
    """Keep `share` of every vertex's edges: the node-wise sample of the whole graph to train on.

    Out of a row of d edges, k are kept without replacement, every choice of k as likely as any
    other (to 2^-32 for each decision; T-GCN 6.1.2 keeps "half of each neighbourhood").

    Args:
        table: directed, so that every edge is in one row.
        share: in [0, 1].
        seed: in [0, 2^64).
        rounding: `nearest` takes k = floor(share d + 1/2), so that with half an only edge stays;
            `random` rounds share d up with the probability of its fraction, so that every edge is
            kept with probability `share` and the whole is `share` of the graph on average.
        threads: OpenMP threads, torch's number if None. The result does not depend on it.

    Returns:
        bool[E] by edge id.

    Raises:
        InvalidInputError: a share out of range, an undirected table.
        UnknownKeyError: another rounding.
    """
    if table.undirected:
        raise InvalidInputError(
            "table is undirected: an edge in two rows may be kept in one and not in the other",
            hint="build it with undirected=False",
        )
    if not 0 <= share <= 1:
        raise InvalidInputError(f"share is {share}, allowed are 0 to 1")
    check_seed(seed)
    if table.indptr.device.type == "cuda" and rounding in ROUNDING:
        from dgbench.kernels_cuda.edge_sampling.device import keep_share as keep_on_device

        return keep_on_device(table, share, seed=seed, rounding=rounding)
    if rounding == "nearest":
        needed = share_of(table.degrees, share)
    elif rounding == "random":
        exact = table.degrees.double() * share
        fractions = torch.empty(table.num_nodes, dtype=torch.float64)
        extension(_CPU).row_uniforms(seed, fractions, thread_count(threads))
        needed = torch.floor(exact + fractions).long().clamp_(max=table.degrees)
    else:
        raise unknown_key("rounding", rounding, ROUNDING)
    keep = torch.empty(table.num_edges, dtype=torch.bool)
    extension(_CPU).keep_share(table.rows, needed, seed, keep, thread_count(threads))
    return keep


def check_seed(seed: int) -> None:
    """Check that a seed has 64 bits.

    Raises:
        InvalidInputError: with what is allowed.
    """
    if not 0 <= seed < 2**64:
        raise InvalidInputError(f"seed is {seed}, allowed is 0 <= x < 2^64")


def thread_count(threads: int | None) -> int:
    """OpenMP threads of a call.

    Raises:
        InvalidInputError: fewer than one.
    """
    if threads is None:
        return torch.get_num_threads()
    if not 1 <= threads <= 1 << 16:
        raise InvalidInputError(f"threads is {threads}, allowed are 1 to {1 << 16}")
    return threads
