"""The one sparse layout that every operator takes."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Csr:
    """A sparse matrix in compressed rows; row = destination vertex, column = source vertex.

    Aggregation over it gives every vertex the sum over its in-neighbours.

    Attributes:
        indptr: int64[rows + 1], non-decreasing, starts at 0 and ends at nnz.
        indices: int32[nnz], columns, ascending inside a row.
        num_cols: number of columns.
        values: float32[nnz] or None (every stored entry counts as 1).
    """

    indptr: Tensor
    indices: Tensor
    num_cols: int
    values: Tensor | None = None

    @property
    def num_rows(self) -> int:
        return self.indptr.numel() - 1

    @property
    def nnz(self) -> int:
        return self.indices.numel()
