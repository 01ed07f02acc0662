"""One graph layer over several snapshots, by each contender of Figure 11 (section 5.3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import torch
from torch import Tensor

from dgbench.datasets.transforms import factors
from dgbench.kernels_cuda.aggregate import aggregate_parts, spmm
from dgbench.kernels_cuda.csr import Csr
from dgbench.systems.base.race import relative
from dgbench.systems.base.training import coordinates
from dgbench.systems.pipad.engine import merging_pays
from dgbench.systems.pipad.paper_kernel import operand_of
from dgbench.systems.pipad.partitions import Partitions, on_device

CAP: Final = 32
"""Entries of a slice at most, the paper's."""
Layer = Callable[[], list[Tensor]]
"""The forward pass of a layer: aggregation and update of each snapshot."""


def pyg_layer(csrs: Sequence[Csr], x: Tensor, weight: Tensor) -> Layer:
    """PyG's released GCNConv, one snapshot after another; it normalises in every call."""
    from torch_geometric.nn import GCNConv

    conv = GCNConv(weight.shape[0], weight.shape[1], bias=False)
    conv.lin.weight = torch.nn.Parameter(weight.t().contiguous())
    conv = conv.to(x.device).requires_grad_(False)
    edges = [torch.stack(coordinates(csr)).to(x.device) for csr in csrs]
    return lambda: [conv(x[i], edge) for i, edge in enumerate(edges)]


def csr_layer(csrs: Sequence[Csr], x: Tensor, weight: Tensor) -> Layer:
    """A product with the normalised adjacency in CSR per snapshot (GE-SpMM's place).

    On the CPU torch's CSR product (MKL where torch has it), on CUDA our GE-SpMM-style kernel.
    """
    if x.device.type != "cuda":
        return torch_layer(csrs, x, weight)
    from dgbench.kernels_cuda.variants import spmm_gespmm

    matrices = [on_device(_normalised(csr), x.device) for csr in csrs]
    return lambda: [spmm_gespmm(m, x[i]) @ weight for i, m in enumerate(matrices)]


def torch_layer(csrs: Sequence[Csr], x: Tensor, weight: Tensor) -> Layer:
    """torch's CSR product per snapshot with 32-bit ids: cuSPARSE on CUDA, else MKL or torch."""
    matrices = [on_device(_normalised(csr), x.device) for csr in csrs]
    shape = (csrs[0].num_rows, csrs[0].num_cols)
    sparse = [
        torch.sparse_csr_tensor(m.indptr.to(torch.int32), m.indices, m.values, shape)
        for m in matrices
    ]
    return lambda: [(matrix @ x[i]) @ weight for i, matrix in enumerate(sparse)]


def published_layer(partitions: Partitions, times: range, x: Tensor, weight: Tensor) -> Layer:
    """Aggregation of the merged partition by Algorithm 1, then one stacked product (4.1, 4.2)."""
    part = partitions.partition(times)
    operand = operand_of(
        part.parts, part.row_scale, part.col_scale, cap=CAP, vector=True, back=False
    )
    coalesced = x.transpose(0, 1).contiguous()  # [N, S, F]; stored so, as the paper does
    y = torch.empty_like(coalesced)

    def merged() -> list[Tensor]:
        operand.forward(coalesced, y)
        return list((y @ weight).unbind(1))

    return merged


def pipad_layer(partitions: Partitions, times: range, x: Tensor, weight: Tensor) -> Layer:
    """Aggregation by a product of ours, merged where caches ask for it, and one stacked product."""
    if merging_pays(*x.shape):
        part = partitions.partition(times)
        coalesced = x.transpose(0, 1).contiguous()  # [N, S, F]; stored so, as the paper does

        def merged() -> list[Tensor]:
            y = aggregate_parts(
                part.parts, coalesced, part.row_scale, part.col_scale, self_loop=True
            )
            return list((y @ weight).unbind(1))

        return merged
    single = [partitions.snapshot(t) for t in times]

    def one_by_one() -> list[Tensor]:
        rows = [
            spmm(csr, x[i], row_scale=row, col_scale=col, self_loop=True)
            for i, (csr, row, col) in enumerate(single)
        ]
        return list((torch.stack(rows) @ weight).unbind(0))

    return one_by_one


def single_layer(partitions: Partitions, times: range, x: Tensor, weight: Tensor) -> Layer:
    """Our engine without techniques: aggregation and update of one snapshot after another."""
    single = [partitions.snapshot(t) for t in times]
    return lambda: [
        spmm(csr, x[i], row_scale=row, col_scale=col, self_loop=True) @ weight
        for i, (csr, row, col) in enumerate(single)
    ]


def _normalised(csr: Csr) -> Csr:
    """A-hat with its loops and coefficients written out, rows ascending."""
    scale, _ = factors(csr, "sym")
    source, target = coordinates(csr)
    loops = torch.arange(csr.num_rows)
    source, target = torch.cat([source, loops]), torch.cat([target, loops])
    order = torch.argsort(target * csr.num_cols + source)
    source, target = source[order], target[order]
    indptr = torch.zeros(csr.num_rows + 1, dtype=torch.int64)
    indptr[1:] = torch.bincount(target, minlength=csr.num_rows).cumsum(0)
    return Csr(indptr, source.to(torch.int32), csr.num_cols, scale[source] * scale[target])


def layer_deviation(
    found: Sequence[Tensor], csrs: Sequence[Csr], x: Tensor, weight: Tensor
) -> float:
    """Largest relative deviation from A-hat x W in float64."""
    worst = 0.0
    for i, csr in enumerate(csrs):
        a = _normalised(csr)
        source, target = coordinates(a)
        rows = x[i].double().cpu()
        y = torch.zeros_like(rows).index_add_(0, target, rows[source] * a.values.double()[:, None])
        worst = max(worst, relative(found[i].cpu(), y @ weight.double().cpu()))
    return worst
