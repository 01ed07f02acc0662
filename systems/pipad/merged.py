"""Aggregation of a frame over its partitions, all of them in one step of the autograd graph.

Cutting a frame, laying its rows side by side and putting results together costs torch several
nodes per partition, forward and again backward; on graphs of a few hundred vertices that is more
than the products. Here it is plain copies inside one node.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dgbench.kernels_cuda.aggregate import multiply, variant_of
from dgbench.kernels_cuda.aggregate.prepared import prepare_parts
from dgbench.systems.pipad.partitions import SnapshotPartition


class PartitionAggregation(torch.autograd.Function):
    """y_t = R_t (A_t + I) C_t x_t for x float32[W, N, F] and partitions that follow each other and
    cover the frame; gives [W, N, F]. Each partition is one product over coalescent rows (4.2)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, partitions: Sequence[SnapshotPartition]) -> Tensor:
        ctx.partitions = partitions
        return _aggregate(x, partitions, transposed=False)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _aggregate(grad, ctx.partitions, transposed=True), None


def _aggregate(x: Tensor, partitions: Sequence[SnapshotPartition], *, transposed: bool) -> Tensor:
    x = x.detach()
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    sizes = [len(part.times) for part in partitions]
    for part, source, result in zip(partitions, x.split(sizes), y.split(sizes), strict=True):
        coalesced = source.transpose(0, 1).contiguous()  # [N, S, F]
        out = torch.empty_like(coalesced)
        topology, over = prepare_parts(part.parts), part.parts.over
        ordered = variant_of(coalesced).ordered
        scales = part.row_scale, part.col_scale
        if transposed:
            arrays, scales = topology.transposed(over, x.dtype, ordered), scales[::-1]
        else:
            arrays = topology.forward(over, x.dtype, ordered)
        multiply(arrays, coalesced, out, *scales, True)
        result.copy_(out.transpose(0, 1))
    return y
