"""Aggregation by the paper's own kernel: slices, thread groups, atomic sums (4.2, Algorithm 1).

The default kernel gives each row one owner and needs no atomics; this one is kept for fidelity and
for the ablation. On the CPU it is played through lane by lane, which is slow.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dgbench.kernels_cuda.aggregate.prepared import prepare_parts
from dgbench.kernels_cuda.overlap import PartTopology
from dgbench.kernels_cuda.transpose import transpose
from dgbench.kernels_cuda.variants import aggregate_parts_sliced


def transposed(parts: PartTopology) -> PartTopology:
    """The parts of the transposed snapshots: overlap and remainders transpose one by one."""
    return PartTopology(transpose(parts.over), [transpose(part) for part in parts.exclusive])


class SlicedAggregation(torch.autograd.Function):
    """y = R (A + I) C x over a partition; backward runs the same kernel over the transpose.

    The paper leaves the backward pass open. x, y: float32[N, S, F]; scales float32[N, S];
    `options` are the kernel's (`cap`, `vector`).
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        parts: PartTopology,
        back: PartTopology,
        row_scale: Tensor,
        col_scale: Tensor,
        options: dict[str, Any],
    ) -> Tensor:
        ctx.back, ctx.options = back, options
        ctx.save_for_backward(row_scale, col_scale)
        return _apply(parts, x, row_scale, col_scale, options)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        row_scale, col_scale = ctx.saved_tensors
        dx = _apply(ctx.back, grad, col_scale, row_scale, ctx.options)
        return dx, None, None, None, None, None


class ScatteredSlices(torch.autograd.Function):
    """The same over parts that were just sent; backward scatters from these very parts.

    x, y: float32[N, S, F]; scales float32[N, S].
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        parts: PartTopology,
        row_scale: Tensor,
        col_scale: Tensor,
        options: dict[str, Any],
    ) -> Tensor:
        ctx.parts = parts
        ctx.save_for_backward(row_scale, col_scale)
        return _apply(parts, x, row_scale, col_scale, options)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        row_scale, col_scale = ctx.saved_tensors
        parts = ctx.parts
        lists = prepare_parts(parts).forward(parts.over, grad.dtype, False)
        dx = torch.ops.dgbench.aggregate_scatter(
            *lists, grad.contiguous(), row_scale, col_scale, True, parts.over.num_cols
        )
        return dx, None, None, None, None


def _apply(
    parts: PartTopology, x: Tensor, outer: Tensor, inner: Tensor, options: dict[str, Any]
) -> Tensor:
    scaled = (x * inner[:, :, None]).contiguous()
    return (aggregate_parts_sliced(parts, scaled, **options) + scaled) * outer[:, :, None]
