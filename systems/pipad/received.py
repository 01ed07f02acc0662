"""Aggregation over topology as it arrived, forward and backward from the same arrays.

Transposing costs more than one product, and a topology that came over the link is used for one
step. So the gradient is scattered from the rows that were sent (the paper leaves the backward pass
open): one copy of the topology travels and none is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from dgbench.kernels_cuda._dispatch import call
from dgbench.kernels_cuda.aggregate import multiply
from dgbench.kernels_cuda.aggregate.prepared import list_heavy
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.overlap import PartTopology
from dgbench.kernels_cuda.workspace import scratch
from dgbench.systems.pipad.wire import scales_of

Lists = tuple[Tensor | None, ...]
"""indptr, indices, values, ex_indptr, ex_entries, ex_values, order, as the compiled operators."""


@dataclass(frozen=True, slots=True)
class Received:
    """A group of snapshots on the device.

    Attributes:
        times: its snapshots.
        parts: overlap and exclusive parts, or whole snapshots where they travel one by one.
        row_scale, col_scale: float32[N, S], formed from the degrees of what arrived.
        heavy: on CUDA the table of long rows of each snapshot that was asked for alone.
    """

    times: range
    parts: PartTopology | list[Csr]
    row_scale: Tensor
    col_scale: Tensor
    heavy: dict[int, Tensor | None] = field(default_factory=dict)

    @staticmethod
    def of(times: range, found: Sequence[PartTopology | Csr], norm: str) -> Received:
        """From unpacked wires: one partition, or one matrix for each snapshot."""
        scales = [scales_of(parts, norm) for parts in found]
        row, col = (torch.cat(side, dim=1) for side in zip(*scales, strict=True))
        whole = isinstance(found[0], PartTopology)
        return Received(times, found[0] if whole else list(found), row, col)

    @property
    def nnz(self) -> int:
        """Entries read by an aggregation of all snapshots in one call."""
        if isinstance(self.parts, PartTopology):
            return self.parts.over.nnz + sum(part.nnz for part in self.parts.exclusive)
        return sum(csr.nnz for csr in self.parts)

    @property
    def whole_nnz(self) -> int:
        """Entries read by an aggregation of one snapshot after another."""
        if isinstance(self.parts, PartTopology):
            return len(self.times) * self.parts.over.nnz + sum(p.nnz for p in self.parts.exclusive)
        return sum(csr.nnz for csr in self.parts)

    def snapshot(self, i: int) -> Single:
        """Snapshot i alone; shares the group's arrays."""
        if isinstance(self.parts, PartTopology):
            over, rest = self.parts.over, self.parts.exclusive[i]
            values = None if over.values is None else over.values[:, i : i + 1].contiguous()
            lists: Lists = (over.indptr, over.indices, values)
            # For one snapshot the merged list of exclusive entries is the exclusive part itself.
            lists += (rest.indptr, rest.indices, rest.values) if rest.nnz else (None, None, None)
            nnz = over.nnz + rest.nnz
        else:
            csr = self.parts[i]
            values = None if csr.values is None else csr.values[:, None]
            lists = (csr.indptr, csr.indices, values, None, None, None)
            nnz = csr.nnz
        row, col = (s[:, i : i + 1].contiguous() for s in (self.row_scale, self.col_scale))
        if i not in self.heavy:
            self.heavy[i] = list_heavy((*lists, None)) if row.is_cuda else None
        return Single((*lists, self.heavy[i]), row, col, nnz)


@dataclass(frozen=True, slots=True)
class Single:
    """One snapshot's topology as the compiled operators take it; scales float32[N, 1]."""

    lists: Lists
    row_scale: Tensor
    col_scale: Tensor
    nnz: int

    def forward(self, x: Tensor, y: Tensor) -> None:
        """y = R (A + I) C x, both float32[N, F]."""
        wide = x.unsqueeze(1), y.unsqueeze(1)
        multiply(self.lists, *wide, self.row_scale, self.col_scale, True)

    def backward(self, grad: Tensor, dx: Tensor) -> None:
        """dx = C (A + I)^T R grad, both float32[N, F]."""
        wide = grad.unsqueeze(1), dx.unsqueeze(1)
        scales = self.row_scale, self.col_scale
        call("aggregate_parts_scatter", grad.device, *self.lists, *wide, *scales, True)


class ReceivedAggregation(torch.autograd.Function):
    """y_t = R_t (A_t + I) C_t x_t for x float32[W, N, F], a snapshot at a time; gives [W, N, F].

    `snapshots` is called once and walked through while computing, so that a group may still be on
    its way while the one before is aggregated.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, snapshots: Callable[[], Iterator[Single]]) -> Tensor:
        x = x.detach().contiguous()
        y = scratch.empty(x.shape, x)
        ctx.snapshots = []
        for source, result, single in zip(x.unbind(0), y.unbind(0), snapshots(), strict=True):
            single.forward(source, result)
            ctx.snapshots.append(single)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        grad = grad.contiguous()
        dx = scratch.empty(grad.shape, grad)
        for source, result, single in zip(grad.unbind(0), dx.unbind(0), ctx.snapshots, strict=True):
            single.backward(source, result)
        return dx, None
