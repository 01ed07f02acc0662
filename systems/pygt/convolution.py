"""Replacement of a released convolution in the variants R and G."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn

from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.variants import spmm_gespmm


@dataclass(frozen=True, slots=True)
class TwoWayCsr:
    """A-hat by rows for the forward and by columns for the backward product, as GE-SpMM needs.

    Attributes:
        indptr, indices, values: int32[N + 1], int32[nnz], float32[nnz]; rows are destinations.
        t_indptr, t_indices, t_values: the same of the transpose.
    """

    indptr: Tensor
    indices: Tensor
    values: Tensor
    t_indptr: Tensor
    t_indices: Tensor
    t_values: Tensor

    def tensors(self) -> tuple[Tensor, ...]:
        """The six arrays in the order of the fields; what a transfer moves."""
        return (
            self.indptr,
            self.indices,
            self.values,
            self.t_indptr,
            self.t_indices,
            self.t_values,
        )

    @property
    def nnz(self) -> int:
        return self.indices.numel()


def normalised_two_way(csr: Csr) -> TwoWayCsr:
    """Symmetrically normalised A-hat with its loops, both ways, from torch-geometric's numbers."""
    _announce_once()
    from torch_geometric.nn.conv.gcn_conv import gcn_norm

    from dgbench.systems.base.training import coordinates

    edges, scale = gcn_norm(torch.stack(coordinates(csr)), csr.values, csr.num_rows)
    forward = _compressed(edges[1], edges[0], scale, csr.num_rows)
    backward = _compressed(edges[0], edges[1], scale, csr.num_rows)
    return TwoWayCsr(*forward, *backward)


@cache
def _announce_once() -> None:
    """Let torch say here, unheard, that CSR tensors are in beta; it says so once a process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.sparse_csr_tensor([0, 0], [], [], (1, 1))


def _compressed(
    rows: Tensor, columns: Tensor, values: Tensor, size: int
) -> tuple[Tensor, Tensor, Tensor]:
    order = torch.argsort(rows * size + columns)
    indptr = torch.zeros(size + 1, dtype=torch.int32)
    indptr[1:] = torch.bincount(rows, minlength=size).cumsum(0)
    return indptr, columns[order].to(torch.int32), values[order].contiguous()


class _Spmm(torch.autograd.Function):
    """A-hat h with the stored transpose for the gradient; no gradient to A-hat."""

    @staticmethod
    def forward(ctx, h: Tensor, adjacency: TwoWayCsr) -> Tensor:
        ctx.adjacency = adjacency
        return _product(adjacency.indptr, adjacency.indices, adjacency.values, h)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None]:
        a = ctx.adjacency
        return _product(a.t_indptr, a.t_indices, a.t_values, grad.contiguous()), None


def _product(indptr: Tensor, indices: Tensor, values: Tensor, x: Tensor) -> Tensor:
    if _on_cuda(x):
        # Offsets travel as 32 bits, as in GE-SpMM; the kernel of this package takes 64.
        return spmm_gespmm(Csr(indptr.long(), indices, x.shape[0], values), x.contiguous())
    size = (indptr.numel() - 1, x.shape[0])
    return torch.sparse_csr_tensor(indptr, indices, values, size, check_invariants=False) @ x


def _on_cuda(x: Tensor) -> bool:
    return x.is_cuda


def spmm(adjacency: TwoWayCsr, h: Tensor) -> Tensor:
    """A-hat h, float32[N, H], differentiable in h: by MKL's CSR product on the CPU, by a kernel in
    the manner of GE-SpMM on CUDA (PiPAD section 5.1)."""
    return _Spmm.apply(h, adjacency)


class GivenAggregation(nn.Module):
    """Stands where a released first-layer GCNConv stood; its input is aggregated already.

    Keeps that convolution's own parameters. `rows` is read in place of the argument where the
    released class also uses its input for something else (MPNNLSTM's skip columns).
    """

    def __init__(self, released: nn.Module) -> None:
        super().__init__()
        self.lin, self.bias = released.lin, released.bias
        self.rows: Tensor | None = None

    def forward(self, x: Tensor, edge_index: Tensor | None, edge_weight: Tensor | None) -> Tensor:
        return self.lin(x if self.rows is None else self.rows) + self.bias


class BlockSpmm(nn.Module):
    """Stands where a released GCNConv over a block-diagonal window stood: one SpMM per block."""

    def __init__(self, released: nn.Module) -> None:
        super().__init__()
        self.lin, self.bias = released.lin, released.bias
        self.blocks: Sequence[TwoWayCsr] = ()

    def forward(self, x: Tensor, edge_index: Tensor | None, edge_weight: Tensor | None) -> Tensor:
        parts = self.lin(x).chunk(len(self.blocks))
        products = [spmm(a, part) for a, part in zip(self.blocks, parts, strict=True)]
        return torch.cat(products) + self.bias
