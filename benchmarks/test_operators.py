"""Micro-benchmarks of the CPU operators: `pytest benchmarks/test_operators.py`."""

from __future__ import annotations

import pytest
import torch

from dgbench.kernels_cuda.aggregate import aggregate_parts, aggregate_parts_scatter, degrees, spmm
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.overlap import PartTopology
from dgbench.kernels_cuda.snapshots import edge_snapshots
from dgbench.kernels_cuda.transpose import transpose

VERTICES, EVENTS, SNAPSHOTS = 20_000, 400_000, 4


@pytest.fixture(scope="module")
def events():
    g = torch.Generator().manual_seed(1)
    # Squaring pulls ids together, so that degrees are skewed.
    ends = (torch.rand(2, EVENTS, generator=g) ** 2 * VERTICES).long()
    return ends[0], ends[1], torch.randint(0, SNAPSHOTS, (EVENTS,), generator=g)


@pytest.fixture(scope="module")
def snapshots(events) -> list[Csr]:
    return edge_snapshots(*events, SNAPSHOTS, VERTICES, edge_life=3)


@pytest.mark.parametrize("width", [2, 6, 16, 32, 128])
def test_spmm(benchmark, snapshots, width):
    x = torch.rand(VERTICES, width)
    y = benchmark(spmm, snapshots[-1], x)
    assert y.shape == (VERTICES, width)


@pytest.mark.parametrize("operator", [aggregate_parts, aggregate_parts_scatter])
@pytest.mark.parametrize("width", [2, 6, 16])
def test_parts_forward_and_backward(benchmark, snapshots, operator, width):
    parts = PartTopology.build(snapshots)
    x = torch.rand(VERTICES, SNAPSHOTS, width, requires_grad=True)

    def step():
        x.grad = None
        operator(parts, x).sum().backward()
        return x.grad

    assert benchmark(step).shape == x.shape


def test_transpose(benchmark, snapshots):
    assert benchmark(transpose, snapshots[-1]).nnz == snapshots[-1].nnz


def test_degrees(benchmark, snapshots):
    assert benchmark(degrees, snapshots[-1]).sum() == snapshots[-1].nnz


@pytest.mark.parametrize("edge_life", [1, 3])
def test_edge_snapshots(benchmark, events, edge_life):
    made = benchmark(edge_snapshots, *events, SNAPSHOTS, VERTICES, edge_life=edge_life)
    assert len(made) == SNAPSHOTS
