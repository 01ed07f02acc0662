"""Aggregation of a frame a snapshot at a time, without gathering or scattering its tensors.

Taking a frame apart into snapshots and stacking the results would copy it twice, forward and again
backward; here each snapshot's product is written into its slice of the result.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dgbench.kernels_cuda.aggregate import multiply, variant_of
from dgbench.kernels_cuda.aggregate.prepared import prepare
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.workspace import scratch

Snapshot = tuple[Csr, Tensor, Tensor]
"""Topology N x N, row_scale [N] and col_scale [N] of R (A + I) C."""


class SnapshotAggregation(torch.autograd.Function):
    """y_t = R_t (A_t + I) C_t x_t for x float32[W, N, F] and W snapshots; gives [W, N, F]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, snapshots: list[Snapshot]) -> Tensor:
        ctx.snapshots = snapshots
        return _aggregate(x, snapshots, transposed=False)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _aggregate(grad, ctx.snapshots, transposed=True), None


def _aggregate(x: Tensor, snapshots: list[Snapshot], *, transposed: bool) -> Tensor:
    x = x.detach().contiguous()
    y = scratch.empty(x.shape, x)
    ordered = variant_of(x[0].unsqueeze(1)).ordered if snapshots else False
    for source, result, (csr, row, col) in zip(x.unbind(0), y.unbind(0), snapshots, strict=True):
        prepared = prepare(csr)
        if transposed:
            arrays, row, col = prepared.transposed(csr, x.dtype, ordered), col, row
        else:
            arrays = prepared.forward(csr, x.dtype, ordered)
        multiply(arrays, source.unsqueeze(1), result.unsqueeze(1), row, col, True)
    return y
