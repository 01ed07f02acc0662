"""Aggregation by the paper's own kernel: slices, thread groups, atomic sums (4.2, Algorithm 1).

The default kernel gives each row one owner and needs no atomics; this one is kept for fidelity and
for the ablation. On the CPU it is played through lane by lane, which is slow.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dgbench.kernels_cuda.overlap import PartTopology
from dgbench.kernels_cuda.transpose import transpose
from dgbench.kernels_cuda.variants import aggregate_parts_sliced


def transposed(parts: PartTopology) -> PartTopology:
    """The parts of the transposed snapshots: overlap and remainders transpose one by one."""
    return PartTopology(transpose(parts.over), [transpose(part) for part in parts.exclusive])


class SlicedAggregation(torch.autograd.Function):
    """y = R (A + I) C x over a partition; backward runs the same kernel over the transpose.

    The paper leaves the backward pass open. x, y: float32[N, S, F]; scales float32[N, S].
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        parts: PartTopology,
        back: PartTopology,
        row_scale: Tensor,
        col_scale: Tensor,
    ) -> Tensor:
        ctx.back = back
        ctx.save_for_backward(row_scale, col_scale)
        return _apply(parts, x, row_scale, col_scale)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        row_scale, col_scale = ctx.saved_tensors
        return _apply(ctx.back, grad, col_scale, row_scale), None, None, None, None


def _apply(parts: PartTopology, x: Tensor, outer: Tensor, inner: Tensor) -> Tensor:
    scaled = (x * inner[:, :, None]).contiguous()
    return (aggregate_parts_sliced(parts, scaled) + scaled) * outer[:, :, None]
