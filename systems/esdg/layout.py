"""Layout of matrices in coordinate form on the device, and degree scales formed there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dgbench.kernels_cuda.aggregate import spmm
from dgbench.kernels_cuda.aggregate.prepared import trust
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.transpose import transpose_unchecked


@dataclass(frozen=True, slots=True)
class Coordinates:
    """A matrix as the paper's implementation holds it on the device.

    Attributes:
        rows, cols: int64[n], in canonical order.
        values: float32[n], or None for ones.
        num_rows: N; the matrix is square.
    """

    rows: Tensor
    cols: Tensor
    values: Tensor | None
    num_rows: int

    @property
    def nnz(self) -> int:
        return self.rows.numel()

    @classmethod
    def of(cls, csr: Csr) -> Coordinates:
        rows = torch.arange(csr.num_rows, device=csr.indptr.device)
        rows = rows.repeat_interleave(csr.indptr.diff(), output_size=csr.nnz)
        return cls(rows, csr.indices.long(), csr.values, csr.num_rows)

    def compressed(self) -> Csr:
        """The same in compressed rows, made anew."""
        borders = torch.arange(self.num_rows + 1, device=self.rows.device)
        indptr = torch.searchsorted(self.rows, borders)
        return trust(Csr(indptr, self.cols.int(), self.num_rows, self.values))


class CoordinateProduct(torch.autograd.Function):
    """A-hat h from coordinates; compressed rows live for the time of one product.

    Arguments: h [N, H]; the matrix; whether it holds its diagonal; whether its values are those of
    A-hat; `sym` or `mean`.
    """

    @staticmethod
    def forward(
        ctx: Any, h: Tensor, matrix: Coordinates, loops: bool, normalised: bool, norm: str
    ) -> Tensor:
        ctx.given = matrix, loops, normalised, norm
        return CoordinateProduct.multiply(h, matrix, loops, normalised, norm, transposed=False)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        found = CoordinateProduct.multiply(grad.contiguous(), *ctx.given, transposed=True)
        return found, None, None, None, None

    @staticmethod
    def multiply(
        x: Tensor,
        matrix: Coordinates,
        loops: bool,
        normalised: bool,
        norm: str,
        *,
        transposed: bool,
    ) -> Tensor:
        """A-hat x, or its transpose times x, without history."""
        csr = matrix.compressed()
        scales: tuple[Tensor | None, Tensor | None] = None, None
        if not normalised:
            scales = device_scales(csr, norm, x.dtype, loops=loops)
        if transposed:
            csr, scales = trust(transpose_unchecked(csr)), scales[::-1]
        with torch.no_grad():
            return spmm(csr, x.detach(), *scales, self_loop=not loops)


def device_scales(
    csr: Csr, norm: str, dtype: torch.dtype = torch.float32, *, loops: bool
) -> tuple[Tensor, Tensor | None]:
    """`factors` where the matrix lies; columns None for ones.

    Args:
        csr: with its diagonal where `loops` says so, else without.
        norm: `sym` or `mean`.
        dtype: of the scales.
        loops: whether the diagonal is in it.

    Returns:
        [N] each.
    """
    if csr.values is None:
        degree = csr.indptr.diff().double()
    else:
        # One double per entry for a moment: a row number per entry would be the block's peak.
        degree = torch.segment_reduce(csr.values.double(), "sum", offsets=csr.indptr, initial=0)
    if not loops:
        degree = degree + 1
    power = -0.5 if norm == "sym" else -1.0
    scale = torch.where(degree > 0, degree.clamp(min=1e-300) ** power, 0.0).to(dtype)
    return scale, (scale if norm == "sym" else None)
