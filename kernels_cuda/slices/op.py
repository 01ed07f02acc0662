"""Sliced CSR: adjacency rows cut into pieces of bounded length (PiPAD, PPoPP 2023, section 4.1).

A row of the matrix gives `ceil(length / cap)` slices and an empty row none, so the work of one
unit is bounded by `cap` whatever the degree, and a hypersparse matrix stores nothing for the
vertices without edges. Space in words of four bytes, as the paper counts it (an offset is one
word): sliced CSR 2 nnz + 2 slices + 1, CSR 2 nnz + rows + 1, COO 3 nnz.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from dgbench.kernels_cuda.build_info import extension, stream_of
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.csr.check import check_csr, check_layout
from dgbench.runtime.errors import InvalidInputError

DEFAULT_CAP: Final = 32
"""Entries of a slice at most; the paper's value, one per lane of a warp."""


@dataclass(frozen=True, slots=True)
class SlicedCsr:
    """A sparse matrix in slices of at most `cap` entries of one row each.

    Attributes:
        row_indices: int32[slices], row of each slice, non-decreasing.
        slice_offsets: int64[slices + 1], first entry of each slice; ends at nnz.
        indices: int32[nnz], columns (shared with the matrix it was cut from).
        values: float32[nnz], or float32[nnz, S] for an overlap part, or None.
        cap: entries of a slice at most.
        num_rows: number of rows.
        num_cols: number of columns.
    """

    row_indices: Tensor
    slice_offsets: Tensor
    indices: Tensor
    values: Tensor | None
    cap: int
    num_rows: int
    num_cols: int

    @property
    def num_slices(self) -> int:
        return self.row_indices.numel()

    @property
    def nnz(self) -> int:
        return self.indices.numel()

    def words(self, with_values: bool = True) -> int:
        """Words of four bytes: 2 nnz + 2 slices + 1, one nnz less without values."""
        return (2 if with_values else 1) * self.nnz + 2 * self.num_slices + 1


def slice_csr(csr: Csr, cap: int = DEFAULT_CAP) -> SlicedCsr:
    """Cut a matrix into slices; the columns and values are shared, not copied.

    Args:
        csr: the matrix, on the CPU or on a CUDA device; its rows need not be sorted.
        cap: entries of a slice at most, from 1.

    Raises:
        InvalidInputError: cap below 1, or a matrix that is malformed.
        UnsupportedError: a CUDA matrix where the CUDA operators are not built.
    """
    _check_cap(cap)
    check_csr(csr, "csr")
    return slice_unchecked(csr, cap)


def slice_unchecked(csr: Csr, cap: int) -> SlicedCsr:
    """`slice_csr` for a matrix that was checked before or made by dgbench itself."""
    device = csr.indptr.device
    native, stream = extension(device), stream_of(device)
    first = torch.zeros_like(csr.indptr)  # [rows + 1]
    native.count_slices(csr.indptr, cap, first[1:], *stream)
    torch.cumsum(first[1:], 0, out=first[1:])
    slices = int(first[-1])
    row_indices = torch.empty(slices, dtype=torch.int32, device=device)
    slice_offsets = torch.empty(slices + 1, dtype=torch.int64, device=device)
    slice_offsets[-1] = csr.nnz
    native.fill_slices(csr.indptr, first, cap, row_indices, slice_offsets, *stream)
    return SlicedCsr(
        row_indices, slice_offsets, csr.indices, csr.values, cap, csr.num_rows, csr.num_cols
    )


def slice_count(csr: Csr, cap: int = DEFAULT_CAP) -> int:
    """Number of slices that `slice_csr` would make: sum over the rows of ceil(length / cap).

    Raises:
        InvalidInputError: cap below 1, or a wrong layout.
    """
    _check_cap(cap)
    check_layout(csr, "csr")
    if csr.indptr.device.type == "cpu":
        return extension(csr.indptr.device).count_pieces([csr.indptr], cap)[0]
    lengths = csr.indptr[1:] - csr.indptr[:-1]
    return int(((lengths + (cap - 1)) // cap).sum())


def csr_words(csr: Csr, with_values: bool = True) -> int:
    """Words of four bytes of plain CSR: 2 nnz + rows + 1, one nnz less without values."""
    return (2 if with_values else 1) * csr.nnz + csr.num_rows + 1


def coo_words(nnz: int, with_values: bool = True) -> int:
    """Words of four bytes of a coordinate list: 3 nnz, one nnz less without values."""
    return (3 if with_values else 2) * nnz


def _check_cap(cap: int) -> None:
    if cap < 1:
        raise InvalidInputError(
            f"cap is {cap}, allowed are values from 1", hint=f"the paper uses {DEFAULT_CAP}"
        )
