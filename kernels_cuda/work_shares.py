"""How evenly a fixed division of a sparse product's rows, or of their slices, shares the work.

PiPAD's Figure 12 (PPoPP 2023, section 5.4) compares the time of a kernel with the time it would
take if all its parts were equally long, for CSR and for sliced CSR. On the CPU the same question is
asked of workers that each get the same number of rows or slices: their shares are played through
one after the other on one thread, so the number of cores does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dgbench.kernels_cuda.build_info import extension
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.slices import SlicedCsr
from dgbench.runtime.errors import InvalidInputError, UnsupportedError


@dataclass(frozen=True, slots=True)
class Shares:
    """Times of the shares of one product y = A x.

    Attributes:
        seconds: float64[shares], the median over the repeats of each share.
        y: float32[num_rows, d], the product.
    """

    seconds: Tensor
    y: Tensor

    @property
    def actual(self) -> float:
        """Seconds until the slowest worker is done."""
        return float(self.seconds.max())

    @property
    def balanced(self) -> float:
        """Seconds if the same work were divided evenly."""
        return float(self.seconds.mean())


def time_shares(matrix: Csr | SlicedCsr, x: Tensor, shares: int, *, repeats: int = 5) -> Shares:
    """Time equal shares of the rows (CSR) or of the slices (sliced CSR) of an unweighted matrix.

    Args:
        matrix: on the CPU; values are not used.
        x: float32[num_cols, d], contiguous.
        shares: workers; each gets the same number of consecutive rows or slices, to one.
        repeats: timed passes over all shares; one more comes first and is dropped.

    Raises:
        InvalidInputError: a count below 1, or arrays that do not fit.
        UnsupportedError: the matrix does not lie on the CPU.
    """
    for name, value in (("shares", shares), ("repeats", repeats)):
        if value < 1:
            raise InvalidInputError(f"{name} is {value}, allowed are values from 1")
    if matrix.indices.device.type != "cpu":
        raise UnsupportedError(
            f"shares are timed on the CPU, the matrix lies on {matrix.indices.device}"
        )
    if x.dtype != torch.float32 or x.dim() != 2 or not x.is_contiguous():
        raise InvalidInputError(
            f"x is {x.dtype} with shape {list(x.shape)}, expected contiguous float32[num_cols, d]"
        )
    if x.shape[0] != matrix.num_cols:
        raise InvalidInputError(f"x has {x.shape[0]} rows, expected {matrix.num_cols}")
    if isinstance(matrix, SlicedCsr):
        offsets, targets = matrix.slice_offsets, matrix.row_indices
    else:
        offsets = matrix.indptr
        targets = torch.arange(matrix.num_rows, dtype=torch.int32)
    y = torch.empty(matrix.num_rows, x.shape[1])
    seconds = torch.empty(repeats + 1, shares, dtype=torch.float64)
    extension(x.device).time_shares(offsets, targets, matrix.indices, x.detach(), y, seconds)
    return Shares(seconds[1:].median(dim=0).values, y)
