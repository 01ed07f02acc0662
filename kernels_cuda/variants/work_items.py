"""Load balance of a sparse product's rows, or of their slices, over a device's workers.

PiPAD's Figure 12 (PPoPP 2023, section 5.4) compares the time of a kernel with the time it would
take if its work were evenly divided, for CSR and for sliced CSR. On the CPU every row or slice is
timed alone, one thread, and then handed out to workers in order, each taking the next item when it
is free, as the multiprocessors of a device do. The number of cores here does not matter.
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
class ItemTimes:
    """Times of the work items of one product y = A x.

    Attributes:
        seconds: float64[items], shortest of the passes, rows or slices in order.
        entries: int64[items], entries of each.
        y: float32[num_rows, d], the product.
    """

    seconds: Tensor
    entries: Tensor
    y: Tensor

    def actual(self, workers: int) -> float:
        """Seconds until the last of `workers` is done; raises ValueError below 1 worker."""
        return extension(self.seconds.device).hand_out(self.seconds, workers)

    def balanced(self, workers: int) -> float:
        """Seconds if all work on entries were divided evenly; empty items are no work."""
        return float(self.seconds[self.entries > 0].sum()) / workers


def time_items(matrix: Csr | SlicedCsr, x: Tensor, *, repeats: int = 5) -> ItemTimes:
    """Time every row (CSR) or slice (sliced CSR) of an unweighted matrix.

    A row without entries is an item too: a kernel with a warp per row starts one for it. Each time
    holds one reading of the clock, some 20 ns.

    Args:
        matrix: on the CPU; values are not used.
        x: float32[num_cols, d], contiguous.
        repeats: passes over all items, of which the shortest counts.

    Raises:
        InvalidInputError: a count below 1, or arrays that do not fit.
        UnsupportedError: the matrix does not lie on the CPU.
    """
    if repeats < 1:
        raise InvalidInputError(f"repeats is {repeats}, allowed are values from 1")
    if matrix.indices.device.type != "cpu":
        raise UnsupportedError(
            f"items are timed on the CPU, the matrix lies on {matrix.indices.device}"
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
    seconds = torch.empty(targets.numel(), dtype=torch.float64)
    extension(x.device).time_items(
        offsets, targets, matrix.indices, x.detach(), y, seconds, repeats
    )
    return ItemTimes(seconds, offsets.diff(), y)
