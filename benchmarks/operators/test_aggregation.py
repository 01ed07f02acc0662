"""Aggregation over neighbours, formats, and attention over rows."""

from __future__ import annotations

import pytest
import torch
from graphs import EVENTS, SNAPSHOTS, VERTICES, events, million, snapshots, topology_bytes
from work import Work

from dgbench.kernels_cuda.aggregate import aggregate_parts, aggregate_parts_scatter, degrees, spmm
from dgbench.kernels_cuda.attention import attend_rows, packed_attention
from dgbench.kernels_cuda.overlap import PartTopology
from dgbench.kernels_cuda.slices import slice_csr
from dgbench.kernels_cuda.snapshots import edge_snapshots
from dgbench.kernels_cuda.transpose import transpose


@pytest.mark.parametrize("width", [2, 6, 16, 32, 128])
def test_spmm(timed, width):
    csr = snapshots()[-1]
    moved = topology_bytes(csr) + 4 * width * (csr.nnz + VERTICES)
    work = Work(f"{million(csr.nnz)} entries", moved)
    y = timed(work, spmm, csr, torch.rand(VERTICES, width))
    assert y.shape == (VERTICES, width)


@pytest.mark.parametrize("operator", [aggregate_parts, aggregate_parts_scatter])
@pytest.mark.parametrize("width", [2, 16])
def test_parts_forward_and_backward(timed, operator, width):
    parts = PartTopology.build(snapshots())
    x = torch.rand(VERTICES, SNAPSHOTS, width, requires_grad=True)
    entries = sum(csr.nnz for csr in snapshots())
    # forward and backward each gather a row per entry and write one per vertex and snapshot
    moved = 2 * 4 * (parts.words() + width * (entries + VERTICES * SNAPSHOTS))

    def step():
        x.grad = None
        operator(parts, x).sum().backward()
        return x.grad

    found = timed(Work(f"{SNAPSHOTS} snapshots, {million(entries)}", moved), step)
    assert found.shape == x.shape


def test_transpose(timed):
    csr = snapshots()[-1]
    # every entry is written to a place of its own
    work = Work(f"{million(csr.nnz)} entries", 2 * topology_bytes(csr))
    assert timed(work, transpose, csr).nnz == csr.nnz


def test_degrees(timed):
    csr = snapshots()[-1]
    work = Work(f"{million(VERTICES)} rows", csr.indptr.nbytes + 4 * VERTICES)
    assert timed(work, degrees, csr).sum() == csr.nnz


def test_slices(timed):
    csr = snapshots()[-1]
    sliced = slice_csr(csr)
    work = Work(f"{million(csr.nnz)} entries", topology_bytes(csr) + 4 * sliced.words())
    assert timed(work, slice_csr, csr).words() == sliced.words()


@pytest.mark.parametrize("edge_life", [1, 3])
def test_edge_snapshots(timed, edge_life):
    made = edge_snapshots(*events(), SNAPSHOTS, VERTICES, edge_life=edge_life)
    moved = 24 * EVENTS + sum(topology_bytes(csr) for csr in made)
    work = Work(f"{million(EVENTS)} events", moved)
    again = timed(work, edge_snapshots, *events(), SNAPSHOTS, VERTICES, edge_life=edge_life)
    assert len(again) == SNAPSHOTS


@pytest.mark.parametrize("heads", [1, 4])
def test_attend_rows(timed, heads):
    csr, dim = snapshots()[-1], 32 // heads
    values, source = torch.rand(VERTICES, heads, dim), torch.rand(VERTICES, heads)
    moved = topology_bytes(csr) + 4 * heads * (dim + 1) * (csr.nnz + 2 * VERTICES)
    work = Work(f"{million(csr.nnz)} entries, {heads} heads", moved)
    y = timed(work, attend_rows, csr.indptr, csr.indices, values, source, torch.rand_like(source))
    assert y.shape == values.shape


def test_packed_attention(timed):
    steps, rows, width = 16, 20_000, 32
    q, k, v = (torch.rand(steps, rows, width) for _ in range(3))
    # two products of all pairs of steps of a row
    work = Work(
        f"{million(rows)} rows of {steps}", 4 * q.nbytes, products=4 * rows * steps**2 * width
    )
    assert timed(work, packed_attention, q, k, v, heads=2).shape == q.shape
