"""Aggregation by the paper's own kernel: slices, thread groups, atomic sums (4.2, Algorithm 1).

What snapshots share is one launch over coalescent features, what is each one's own a launch each.
Our own products give each row one owner and write it once; PiPAD runs with them by default, and
with this as it was published. A snapshot alone goes by slices, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.overlap import PartTopology
from dgbench.kernels_cuda.slices import SlicedCsr
from dgbench.kernels_cuda.transpose import transpose
from dgbench.kernels_cuda.variants import (
    SlicedParts,
    aggregate_parts_sliced,
    known_slices,
    scatter_parts_sliced,
)
from dgbench.kernels_cuda.workspace import scratch


@dataclass(frozen=True, slots=True)
class SlicedOperand:
    """R (A + I) C of S snapshots in slices.

    Attributes:
        parts: their topology. back: that of the transposes; None scatters from `parts` backward.
        row_scale, col_scale: float32[N, S].
        vector: lanes load two or four floats at once where the width calls for them.
    """

    parts: SlicedParts
    back: SlicedParts | None
    row_scale: Tensor
    col_scale: Tensor
    vector: bool

    @property
    def nbytes(self) -> int:
        """Bytes of what was made for it: slices, and the transposes that they are of."""
        return _sizes(self.parts, columns=False) + (
            0 if self.back is None else _sizes(self.back, columns=True)
        )

    def forward(self, x: Tensor, y: Tensor) -> None:
        """y = R (A + I) C x, float32[N, S, F]; y is contiguous."""
        self._multiply(self.parts, x, y, self.col_scale, self.row_scale)

    def backward(self, grad: Tensor, dx: Tensor) -> None:
        """dx = C (A + I)^T R grad, float32[N, S, F]; dx is contiguous."""
        self._multiply(self.back, grad, dx, self.row_scale, self.col_scale)

    def _multiply(
        self, parts: SlicedParts | None, x: Tensor, y: Tensor, inner: Tensor, outer: Tensor
    ) -> None:
        """y = outer (A + I) inner x, from the slices of the transpose where `parts` is None."""
        scaled = scratch.empty(y.shape, y)
        torch.mul(x, inner[:, :, None], out=scaled)
        y.copy_(scaled)  # every vertex counts itself
        if parts is None:
            scatter_parts_sliced(self.parts, scaled, out=y, vector=self.vector)
        else:
            aggregate_parts_sliced(parts, scaled, out=y, vector=self.vector)
        y.mul_(outer[:, :, None])

    def snapshot(self, i: int) -> SlicedOperand:
        """Snapshot i alone; shares the group's slices."""
        scales = (scale[:, i : i + 1].contiguous() for scale in (self.row_scale, self.col_scale))
        back = None if self.back is None else _alone(self.back, i)
        return SlicedOperand(_alone(self.parts, i), back, *scales, self.vector)


def _sizes(parts: SlicedParts, *, columns: bool) -> int:
    total = 0
    for piece in (parts.over, *parts.exclusive):
        total += piece.row_indices.nbytes + piece.slice_offsets.nbytes
        if columns:
            total += piece.indices.nbytes
            total += 8 * (piece.num_rows + 1)  # row offsets, which the slices were cut by
            total += 0 if piece.values is None else piece.values.nbytes
    return total


def _alone(parts: SlicedParts, i: int) -> SlicedParts:
    over = parts.over
    values = None if over.values is None else over.values[:, i].contiguous()
    lists = over.row_indices, over.slice_offsets, over.indices
    shared = SlicedCsr(*lists, values, over.cap, over.num_rows, over.num_cols)
    return SlicedParts(shared, [parts.exclusive[i]])


def transposed(parts: PartTopology | Csr) -> PartTopology | Csr:
    """The transposed snapshots: overlap and remainders transpose one by one."""
    if isinstance(parts, Csr):
        return transpose(parts)
    return PartTopology(transpose(parts.over), [transpose(part) for part in parts.exclusive])


def operand_of(
    parts: PartTopology | Csr,
    row_scale: Tensor,
    col_scale: Tensor,
    *,
    cap: int,
    vector: bool,
    back: bool,
) -> SlicedOperand:
    """The operand of a partition, or of one snapshot; slices that arrived are taken as they are.

    Args:
        parts: topology of S snapshots, or of one. row_scale, col_scale: [N, S], or [N].
        cap: entries of a slice at most.
        vector: as `SlicedOperand`.
        back: also cut the transposes, so that the backward pass gathers.
    """
    if row_scale.dim() == 1:
        row_scale, col_scale = row_scale[:, None], col_scale[:, None]
    turned = known_slices(transposed(parts), cap) if back else None
    return SlicedOperand(known_slices(parts, cap), turned, row_scale, col_scale, vector)


class SlicedAggregation(torch.autograd.Function):
    """y_t = R_t (A_t + I) C_t x_t for x float32[W, N, F] and groups of `sizes` snapshots that
    follow each other and cover the frame; gives [W, N, F].

    The paper leaves the backward pass open: the same kernel over the transpose, or scattering from
    the same slices. `operands` is called once and walked through while computing, so that a group
    may still be on its way while the one before is aggregated.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, sizes: Sequence[int], operands: Callable[[], Iterable[SlicedOperand]]
    ) -> Tensor:
        ctx.sizes, ctx.operands = sizes, []

        def each() -> Iterable[Callable[[Tensor, Tensor], None]]:
            for operand in operands():
                ctx.operands.append(operand)
                yield operand.forward

        return _each_group(x, sizes, each())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return _each_group(grad, ctx.sizes, [one.backward for one in ctx.operands]), None, None


def _each_group(
    x: Tensor, sizes: Sequence[int], products: Iterable[Callable[[Tensor, Tensor], None]]
) -> Tensor:
    x = x.detach()
    y = scratch.empty(x.shape, x)
    for source, result, product in zip(x.split(sizes), y.split(sizes), products, strict=True):
        coalescent = result.transpose(0, 1)  # [N, S, F]
        out = coalescent if len(result) == 1 else scratch.empty(coalescent.shape, x)
        product(source.transpose(0, 1), out)
        if out is not coalescent:
            result.copy_(out.transpose(0, 1))
    return y
