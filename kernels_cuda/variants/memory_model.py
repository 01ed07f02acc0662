"""Counts of global memory loads for aggregation kernels, from the topology alone.

The claims on requests and transactions (PiPAD, PPoPP 2023, figures 5 and 11) name quantities that
follow from the access pattern, so they are counted exactly, without a device. A **request** is one
load instruction of one warp; a **transaction** is one aligned sector of 32 bytes (8 words of four
bytes) that the request touches. Arrays are taken to begin on a sector boundary and feature rows to
be padded to whole sectors, so a row of d floats costs ceil(d / 8) transactions. Offsets count as
words of four bytes, as in the paper's formulas. Only loads are counted: the output is written once
per row by a row owner, once per slice by the atomic kernel (`len(slice_work)` rows of d floats).

Kernels:
    GE-SpMM like (the paper's G baseline): one warp per row and per tile of columns; two row
        pointers, empty rows included; 32 (column, value) pairs staged at a time; each warp of a
        tile reads the adjacency again.
    PiPAD: a warp takes g = `thread_groups(d)` adjacent slices; one load each for slice begins,
        ends and rows; pieces of d entries of each slice staged at a time; step k of the compute
        loop loads the k-th neighbour's row of all g slices with one request.
    Gather and scatter (PyG): elementwise kernels over [nnz, D] messages with int64 indices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from torch import Tensor

from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.overlap import PartTopology
from dgbench.kernels_cuda.slices import DEFAULT_CAP, SlicedCsr, slice_unchecked
from dgbench.runtime.errors import InvalidInputError

WARP: Final = 32
SECTOR_WORDS: Final = 8
"""Words of four bytes in a sector of 32 bytes."""
MAX_THREAD_GROUPS: Final = 4
"""Slices of a warp at most: 32 lanes / 4 = 8 words, one whole sector per group."""
VECTOR_WIDTHS: Final = (1, 2, 4)


@dataclass(frozen=True, slots=True)
class LoadCounts:
    """Loads of a kernel: warp requests and 32-byte transactions. Adds up with `+`."""

    requests: int
    transactions: int

    def __add__(self, other: LoadCounts) -> LoadCounts:
        return LoadCounts(self.requests + other.requests, self.transactions + other.transactions)


def row_transactions(d: int) -> int:
    """Sectors of one feature row of d floats: ceil(d / 8)."""
    return _ceil(_positive(d, "d"), SECTOR_WORDS)


def row_requests(d: int, vector: int = 1) -> int:
    """Warp loads of one feature row of d floats, `vector` floats per lane: ceil(d / (32 v)).

    Raises:
        InvalidInputError: d below 1, or a vector width other than 1, 2 or 4.
    """
    if vector not in VECTOR_WIDTHS:
        raise InvalidInputError(f"vector is {vector}, allowed are 1, 2 and 4")
    return _ceil(_positive(d, "d"), WARP * vector)


def vector_width(d: int) -> int:
    """Floats per lane that the dimension-aware kernel takes for width d (paper 4.3): 1, 2 or 4."""
    if _positive(d, "d") > 2 * WARP and d % 4 == 0:
        return 4
    return 2 if d > WARP and d % 2 == 0 else 1


def thread_groups(d: int, coalesce: bool = True) -> int:
    """Slices that a warp works on at once: min(4, floor(32 / d)), 1 from width 32 on.

    Taken as a bound, not as the fixed 4 of the printed algorithm, which would need more than 32
    lanes for d > 8.
    """
    groups = min(MAX_THREAD_GROUPS, WARP // _positive(d, "d"))
    return max(1, groups) if coalesce else 1


def lane_occupancy(d: int, coalesce: bool = True) -> float:
    """Share of the lanes that compute: g d / 32 below width 32, else d / (32 ceil(d / 32))."""
    if _positive(d, "d") < WARP:
        return thread_groups(d, coalesce) * d / WARP
    return d / (WARP * _ceil(d, WARP))


def dense_side_counts(nnz: int, D: int, vector: int = 1) -> LoadCounts:
    """Loads of neighbour rows, one row per request or more: nnz times a row's counts."""
    return LoadCounts(nnz * row_requests(D, vector), nnz * row_transactions(D))


def gespmm_adjacency(csr: Csr, D: int, *, weighted: bool = True) -> LoadCounts:
    """Adjacency loads of the GE-SpMM-like kernel: pointers of every row, staged pairs.

    Each of the ceil(D / 32) column tiles (ceil(D / 64) from D = 64, where a warp makes two) reads
    two row pointers per row and, per 32 entries, one request for columns and one for values.
    """
    indptr = _numpy(csr.indptr)
    tiles = _ceil(D, WARP if _positive(D, "D") < 2 * WARP else 2 * WARP)
    begin, end = chunk_bounds(indptr, WARP)
    arrays = 2 if weighted else 1
    pointer_loads = 2 * csr.num_rows
    return LoadCounts(
        tiles * (pointer_loads + arrays * len(begin)),
        tiles * (pointer_loads + arrays * int(_sectors(begin, end).sum())),
    )


def gespmm_loads(csr: Csr, D: int, *, weighted: bool = True) -> LoadCounts:
    """All loads of the GE-SpMM-like kernel for one snapshot of width D, scalar loads."""
    return gespmm_adjacency(csr, D, weighted=weighted) + dense_side_counts(csr.nnz, D)


def sliced_adjacency(
    sliced: SlicedCsr, d: int, *, weighted: bool = False, coalesce: bool = True
) -> LoadCounts:
    """Adjacency loads of PiPAD's kernel: three words per slice, entries staged d at a time.

    Without coalescing, or from width 32 on, a warp holds one slice and stages 32 at a time.
    """
    offsets = _numpy(sliced.slice_offsets)
    groups = thread_groups(d, coalesce)
    piece = d if groups > 1 else WARP
    first = np.arange(0, sliced.num_slices, groups, dtype=np.int64)
    last = np.minimum(first + groups, sliced.num_slices)
    # slice begins, slice ends, rows: runs of g words; the ends are the begins one word on
    runs = 2 * int(_sectors(first, last).sum()) + int(_sectors(first + 1, last + 1).sum())
    arrays = 2 if weighted else 1
    requests, transactions = 3 * len(first), runs
    begin, end = offsets[:-1], offsets[1:]
    group = np.arange(sliced.num_slices, dtype=np.int64) // groups
    for step in range(_ceil(sliced.cap, piece)):
        active = begin + step * piece < end
        low = begin[active] + step * piece
        high = np.minimum(low + piece, end[active])
        of = group[active]
        # slices of a group follow each other in memory: neighbours may meet in one sector
        met = (of[1:] == of[:-1]) & (low[1:] // SECTOR_WORDS == (high[:-1] - 1) // SECTOR_WORDS)
        requests += arrays * len(np.unique(of))
        transactions += arrays * (int(_sectors(low, high).sum()) - int(met.sum()))
    return LoadCounts(requests, transactions)


def sliced_dense(
    sliced: SlicedCsr, d: int, *, coalesce: bool = True, vector: bool = True
) -> LoadCounts:
    """Loads of neighbour rows by PiPAD's kernel, exact over the groups of slices.

    A group of g slices needs as many requests as its longest slice has entries.
    """
    width = vector_width(d) if vector else 1
    steps = int(slice_work(sliced, d, coalesce=coalesce).sum())
    return LoadCounts(steps * row_requests(d, width), sliced.nnz * row_transactions(d))


def sliced_loads(
    sliced: SlicedCsr,
    d: int,
    *,
    weighted: bool = False,
    coalesce: bool = True,
    vector: bool = True,
) -> LoadCounts:
    """All loads of PiPAD's kernel over one part of coalescent width d."""
    return sliced_adjacency(sliced, d, weighted=weighted, coalesce=coalesce) + sliced_dense(
        sliced, d, coalesce=coalesce, vector=vector
    )


def partition_loads(
    parts: PartTopology,
    D: int,
    *,
    cap: int = DEFAULT_CAP,
    weighted: bool = False,
    coalesce: bool = True,
    vector: bool = True,
) -> LoadCounts:
    """All loads of PiPAD's kernels over a partition: overlap at S D, each exclusive part at D."""
    total = LoadCounts(0, 0)
    widths = [parts.num_snapshots * D, *[D] * parts.num_snapshots]
    for part, width in zip((parts.over, *parts.exclusive), widths, strict=True):
        sliced = slice_unchecked(part, cap)
        total += sliced_loads(sliced, width, weighted=weighted, coalesce=coalesce, vector=vector)
    return total


def row_work(csr: Csr) -> np.ndarray:
    """Entries per work unit of a warp-per-row kernel: int64[rows], empty rows included."""
    return np.diff(_numpy(csr.indptr))


def slice_work(sliced: SlicedCsr, d: int, *, coalesce: bool = True) -> np.ndarray:
    """Steps per warp of PiPAD's kernel: the longest slice of each group, int64[ceil(s / g)]."""
    lengths = np.diff(_numpy(sliced.slice_offsets))
    if not len(lengths):
        return lengths
    return np.maximum.reduceat(lengths, np.arange(0, len(lengths), thread_groups(d, coalesce)))


def imbalance(work: np.ndarray) -> float:
    """Largest over mean work of a unit; 1 for no units or no work."""
    mean = float(work.mean()) if len(work) else 0.0
    return float(work.max()) / mean if mean > 0 else 1.0


def chunk_bounds(indptr: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Begin and end of the pieces of at most `size` entries of each row, in storage order."""
    per_row = -(-np.diff(indptr) // size)
    row = np.repeat(np.arange(len(per_row)), per_row)
    before = np.cumsum(per_row) - per_row
    begin = indptr[row] + (np.arange(len(row)) - before[row]) * size
    return begin, np.minimum(begin + size, indptr[row + 1])


def _sectors(begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Sectors that each run of words [begin, end) touches; runs must not be empty."""
    return (end - 1) // SECTOR_WORDS - begin // SECTOR_WORDS + 1


def _numpy(array: Tensor) -> np.ndarray:
    return array.cpu().numpy()


def _ceil(value: int, size: int) -> int:
    return -(-value // size)


def _positive(value: int, name: str) -> int:
    if value < 1:
        raise InvalidInputError(f"{name} is {value}, allowed are values from 1")
    return value
