"""Lifetime of each edge: one pass over a sequence that serves all groups of snapshots.

PiPAD (PPoPP 2023, 4.1 and 4.3) extracts the overlap of every group of S consecutive snapshots for
several S. Taking each group apart by itself merges every snapshot once per group that holds it.
Here every entry learns once in how many snapshots before and after it is held without a break; a
group is then taken apart by comparing two bytes per entry, and the facts of a group (shared and
distinct entries, slices) are sums. The result is the same as `PartTopology.build`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from dgbench.kernels_cuda.build_info import extension
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.csr.check import check_csr
from dgbench.kernels_cuda.overlap.op import (
    MAX_SNAPSHOTS,
    Granularity,
    PartTopology,
    check_alike,
    check_granularity,
)
from dgbench.kernels_cuda.slices import DEFAULT_CAP
from dgbench.runtime.errors import InvalidInputError

BLOCK_ENTRIES: Final = 4_000_000
"""Entries between two looks at `stop`: some tens of milliseconds."""


@dataclass(frozen=True, slots=True)
class GroupCounts:
    """Exact numbers of one group of S consecutive snapshots.

    Attributes:
        shared: entries of the overlap.
        distinct: entries that any of the snapshots holds.
        entries: entries of all snapshots together.
        slices: slices of the overlap and of all exclusive parts together.
    """

    shared: int
    distinct: int
    entries: int
    slices: int


@dataclass(frozen=True, slots=True)
class EdgeTrace:
    """The life of every entry of T snapshots; made by `trace_edges`.

    Attributes:
        csrs: the T snapshots.
        back: T times uint8[nnz_t]: snapshots before t, without a break, that hold the entry.
        ahead: the same for the snapshots after t. Both stop at 255.
        gaps: int64[T, window + 1]; entries of snapshot t that were last held g snapshots before,
            and in the last place those not held in the window.
        window: largest S that can be asked for.
        cap: entries of a slice.
    """

    csrs: tuple[Csr, ...]
    back: tuple[Tensor, ...]
    ahead: tuple[Tensor, ...]
    gaps: Tensor
    window: int
    cap: int

    @property
    def nbytes(self) -> int:
        """Bytes of `back` and `ahead`."""
        return 2 * sum(lives.numel() for lives in self.back)

    def counts(
        self,
        sizes: Sequence[int],
        *,
        threads: int = 1,
        stop: Callable[[], bool] | None = None,
    ) -> dict[range, GroupCounts] | None:
        """The numbers of the group at every start, for every size; None where `stop` said so.

        Raises:
            InvalidInputError: a size out of 1 .. min(T, window).
        """
        for size in sizes:
            self._check_size(size)
        steps = len(self.csrs)
        found = torch.zeros(len(sizes), steps, 3, dtype=torch.int64)
        indptr = [csr.indptr for csr in self.csrs]
        native = extension(torch.device("cpu"))
        for first, last in _blocks(self.csrs):
            if stop is not None and stop():
                return None
            arguments = (list(sizes), self.cap, found.view(-1), first, last, threads)
            native.count_groups(indptr, list(self.ahead), *arguments)
        entries = [csr.nnz for csr in self.csrs]
        # Entries of each snapshot that the g snapshots before did not hold, [T, window + 1].
        fresh = self.gaps.flip(1).cumsum(1).flip(1).tolist()

        def distinct(start: int, size: int) -> int:
            return sum(fresh[start + k][k + 1] for k in range(size))

        groups = {}
        for size, rows in zip(sizes, found.tolist(), strict=True):
            for start in range(steps - size + 1):
                shared, over_slices, rest_slices = rows[start]
                groups[range(start, start + size)] = GroupCounts(
                    shared=shared,
                    distinct=distinct(start, size),
                    entries=sum(entries[start : start + size]),
                    slices=over_slices + rest_slices,
                )
        return groups

    def split(self, start: int, size: int, shared: int | None = None) -> PartTopology:
        """The parts of snapshots start .. start + size - 1, as `PartTopology.build` makes them.

        Args:
            start: first snapshot.
            size: S, at most `window`.
            shared: entries of the overlap, where they are known.

        Raises:
            InvalidInputError: a group outside the sequence or longer than the window.
        """
        self._check_size(size)
        if not 0 <= start <= len(self.csrs) - size:
            raise InvalidInputError(
                f"start is {start}, allowed are 0 to {len(self.csrs) - size} for {size} snapshots"
            )
        csrs = self.csrs[start : start + size]
        if shared is None:
            shared = int((self.ahead[start] >= size - 1).sum())
        lengths = [shared, *(csr.nnz - shared for csr in csrs)]
        indptr = torch.empty(size + 1, csrs[0].num_rows + 1, dtype=torch.int64)
        columns = torch.empty(sum(lengths) + 1, dtype=torch.int32)
        values = [csr.values for csr in csrs if csr.values is not None]
        over_values = torch.empty(shared, size) if values else None
        rest_values = torch.empty(sum(lengths[1:])) if values else None
        extension(torch.device("cpu")).split_traced(
            [csr.indptr for csr in csrs],
            [csr.indices for csr in csrs],
            values,
            list(self.back[start : start + size]),
            list(self.ahead[start : start + size]),
            shared,
            indptr,
            columns,
            over_values,
            rest_values,
        )
        over_columns, *rest = columns[:-1].split(lengths)
        weights = [None] * size if rest_values is None else rest_values.split(lengths[1:])
        cols = csrs[0].num_cols
        over = Csr(indptr[0], over_columns, cols, over_values)
        exclusive = [Csr(indptr[i + 1], rest[i], cols, weights[i]) for i in range(size)]
        return PartTopology(over, exclusive)

    def _check_size(self, size: int) -> None:
        most = min(self.window, len(self.csrs))
        if not 1 <= size <= most:
            raise InvalidInputError(f"size is {size}, allowed are 1 to {most}")


def trace_edges(
    csrs: Sequence[Csr],
    window: int = 8,
    granularity: Granularity = "edge",
    cap: int = DEFAULT_CAP,
    *,
    threads: int = 1,
    stop: Callable[[], bool] | None = None,
) -> EdgeTrace | None:
    """Follow every entry through the snapshots.

    Args:
        csrs: T >= 1 snapshots on the CPU, of one shape, columns strictly ascending in each row, all
            weighted or none.
        window: largest group that will be asked for, 1 to 32.
        granularity: "edge", or "slice" where only whole slices that stay the same live on.
        cap: entries of a slice at most.
        threads: threads to use; the result does not depend on it.
        stop: asked now and then; True ends the work early.

    Returns:
        The trace, or None where `stop` said so.

    Raises:
        InvalidInputError: arguments out of range or snapshots that `PartTopology.build` refuses.
        UnknownKeyError: another granularity.
    """
    check_granularity(granularity)
    if not csrs or not 1 <= window <= MAX_SNAPSHOTS or cap < 1:
        raise InvalidInputError(
            f"{len(csrs)} snapshots, window {window} and cap {cap}: at least one snapshot, a "
            f"window of 1 to {MAX_SNAPSHOTS} and a cap from 1 are allowed"
        )
    checked: set[int] = set()
    for i, csr in enumerate(csrs):
        if id(csr) not in checked:
            check_csr(csr, f"csrs[{i}]", ascending=True)
            checked.add(id(csr))
    return trace_unchecked(csrs, window, granularity, cap, threads=threads, stop=stop)


def trace_unchecked(
    csrs: Sequence[Csr],
    window: int,
    granularity: Granularity,
    cap: int,
    *,
    threads: int = 1,
    stop: Callable[[], bool] | None = None,
) -> EdgeTrace | None:
    """`trace_edges` for snapshots each of which was checked before."""
    check_alike(csrs)
    native = extension(csrs[0].indptr.device)
    back = [torch.empty(csr.nnz, dtype=torch.uint8) for csr in csrs]
    ahead = [torch.empty(csr.nnz, dtype=torch.uint8) for csr in csrs]
    gaps = torch.zeros(len(csrs), window + 1, dtype=torch.int64)
    indptr, indices = [csr.indptr for csr in csrs], [csr.indices for csr in csrs]
    slice_cap = cap if granularity == "slice" else 0
    for first, last in _blocks(csrs):
        if stop is not None and stop():
            return None
        native.trace_rows(
            indptr, indices, window, slice_cap, back, ahead, gaps, first, last, threads
        )
    return EdgeTrace(tuple(csrs), tuple(back), tuple(ahead), gaps, window, cap)


def _blocks(csrs: Sequence[Csr]) -> list[tuple[int, int]]:
    """Ranges of rows with a bounded number of entries each, if degrees are even."""
    rows, entries = csrs[0].num_rows, sum(csr.nnz for csr in csrs)
    count = max(1, min(rows, -(-max(entries, rows * len(csrs)) // BLOCK_ENTRIES)))
    return [(rows * i // count, rows * (i + 1) // count) for i in range(count)]
