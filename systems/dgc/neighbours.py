"""Aggregation over the neighbours of a worker's vertex-steps in a round, by compiled operators."""

from __future__ import annotations

import torch
from torch import Tensor

from dgbench.kernels_cuda.aggregate import spmm
from dgbench.kernels_cuda.csr import Csr
from dgbench.models.attention import attend_rows


class MatrixNeighbours:
    """`models.sequence.Neighbours` over a matrix of rows and columns of one worker.

    Loops are entries of the matrix, so that a product serves rows and neighbours in one pass over
    what is shown.

    Args:
        csr: [R x C], values are A-hat's entries without loops; columns 0 .. R - 1 are the rows.
        loop: float32[R], A-hat's diagonal.
        dtype: of what is shown.

    Attributes:
        rows: R.
    """

    def __init__(self, csr: Csr, loop: Tensor, dtype: torch.dtype = torch.float32) -> None:
        self.rows = csr.num_rows
        self.csr = csr
        self._whole = with_loops(csr, loop)
        self._kept: tuple[Tensor, Tensor] | None = None
        self._dtype = dtype

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Arrays of the matrix."""
        csr = self._whole
        return csr.indptr, csr.indices, csr.values

    def keep(self, shown: Tensor) -> None:
        """Remember A-hat times what is always shown alike, so that it is made once."""
        self._kept = shown, self._product(shown)

    def propagate(self, shown: Tensor) -> Tensor:
        """A-hat shown: [C, W] -> [R, W]."""
        if self._kept is not None and self._kept[0] is shown:
            return self._kept[1]
        return self._product(shown)

    def attend(self, values: Tensor, source: Tensor, target: Tensor, slope: float) -> Tensor:
        """As `models.attend_rows`: [C, K, D] -> [R, K, D]."""
        return attend_rows(self.csr.indptr, self.csr.indices, values, source, target, slope)

    def _product(self, shown: Tensor) -> Tensor:
        if not self.rows:
            return shown[:0]  # what others sent must stay a part of the backward pass
        return spmm(self._whole, shown)


def with_loops(csr: Csr, loop: Tensor) -> Csr:
    """The matrix with an entry on each row's own column, in front of its others.

    Args:
        csr: [R x C], none on the diagonal; values float32[nnz] or None for ones.
        loop: float32[R].
    """
    device = csr.indptr.device
    rows = torch.arange(csr.num_rows, device=device)
    row = torch.repeat_interleave(rows, csr.indptr.diff(), output_size=csr.nnz)
    place = torch.arange(csr.nnz, device=device) + row + 1
    indptr = csr.indptr + torch.arange(csr.num_rows + 1, device=device)
    indices = torch.empty(csr.nnz + csr.num_rows, dtype=torch.int32, device=device)
    values = torch.empty(indices.numel(), dtype=torch.float32, device=device)
    indices[place] = csr.indices
    indices[indptr[:-1]] = rows.to(torch.int32)
    values[place] = torch.ones(csr.nnz, device=device) if csr.values is None else csr.values
    values[indptr[:-1]] = loop.to(torch.float32)
    return Csr(indptr, indices, csr.num_cols, values)
