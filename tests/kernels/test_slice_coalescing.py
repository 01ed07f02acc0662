"""Algorithm 1 of PiPAD against a dense product in float64: on the CPU, and lane by lane.

Lane by lane the host plays the functors that the device kernel calls
(variants/slice_coalescing.hpp).
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from csr_cases import csr_of, random_csr, snapshot_groups
from hypothesis import given
from hypothesis import strategies as st

from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.overlap import PartTopology
from dgbench.kernels_cuda.slices import slice_csr
from dgbench.kernels_cuda.variants import (
    aggregate_parts_sliced,
    scatter_sliced,
    spmm_gespmm,
    spmm_sliced,
)
from dgbench.kernels_cuda.variants.memory_model import thread_groups
from dgbench.runtime.errors import InvalidInputError, UnsupportedError


def dense(csr: Csr) -> np.ndarray:
    """float64[rows, columns]; repeated entries add up."""
    out = np.zeros((csr.num_rows, csr.num_cols))
    for row in range(csr.num_rows):
        for p in range(int(csr.indptr[row]), int(csr.indptr[row + 1])):
            out[row, int(csr.indices[p])] += 1.0 if csr.values is None else float(csr.values[p])
    return out


def features(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@given(
    seed=st.integers(0, 999),
    density=st.sampled_from([0.0, 0.05, 0.4, 1.0]),
    d=st.sampled_from([1, 2, 3, 4, 6, 8, 9, 12, 16, 24, 31, 32, 33, 48, 64, 66, 128, 132]),
    cap=st.sampled_from([1, 8, 16, 32, 64]),
    weighted=st.booleans(),
    coalesce=st.booleans(),
    vector=st.booleans(),
    lanes=st.booleans(),
)
def test_equals_the_product(seed, density, d, cap, weighted, coalesce, vector, lanes):
    csr = random_csr(seed, 7, 90, density, weighted=weighted)
    x = features(seed, 90, d)
    y = spmm_sliced(slice_csr(csr, cap), x, coalesce=coalesce, vector=vector, lanes=lanes)
    expected = dense(csr) @ x.double().numpy()
    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-5, atol=1e-4)


def test_slices_of_one_row_in_one_warp_add_up():
    """A row of 100 entries is four slices, all in one warp at d = 2."""
    csr = csr_of([[], list(range(100)), [3]], 100)
    x = features(0, 100, 2)
    assert thread_groups(2) == 4
    y = spmm_sliced(slice_csr(csr), x)
    np.testing.assert_allclose(y.numpy(), dense(csr) @ x.double().numpy(), rtol=1e-5, atol=1e-5)


def test_adds_to_a_column_block_and_leaves_the_rest():
    csr = csr_of([[0, 2], [1]], 3)
    wide, out = features(1, 3, 8), torch.ones(2, 8)
    spmm_sliced(slice_csr(csr), wide[:, 2:4], out=out[:, 4:6])
    expected = np.ones((2, 8))
    expected[:, 4:6] += dense(csr) @ wide[:, 2:4].double().numpy()
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-5)


@given(group=snapshot_groups(), width=st.sampled_from([1, 2, 6, 16]))
def test_a_partition_equals_its_snapshots_one_by_one(group, width):
    x = features(len(group), group[0].num_cols, len(group), width)
    parts = PartTopology.build(group)
    begin = features(1, group[0].num_rows, len(group), width)
    y = aggregate_parts_sliced(parts, x)
    added = aggregate_parts_sliced(parts, x, out=begin.clone())
    for i, csr in enumerate(group):
        expected = dense(csr) @ x[:, i].double().numpy()
        np.testing.assert_allclose(y[:, i].numpy(), expected, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(added.numpy(), (begin + y).numpy(), rtol=1e-5, atol=1e-4)


@given(
    seed=st.integers(0, 99),
    snapshots=st.sampled_from([1, 2, 3, 5, 8]),
    width=st.sampled_from([1, 2, 3, 8, 12, 33]),
    scattered=st.booleans(),
)
def test_lanes_and_registers_add_the_same(seed, snapshots, width, scattered):
    """With weights of an entry for each snapshot, as an overlap has them."""
    csr = random_csr(seed, 40, 40, 0.2, weighted=True)
    weights = features(seed, csr.nnz, snapshots)
    sliced = slice_csr(Csr(csr.indptr, csr.indices, 40, weights), 8)
    x = features(seed + 1, 40, snapshots * width)
    product = scatter_sliced if scattered else spmm_sliced
    found, played = (product(sliced, x, lanes=lanes) for lanes in (False, True))
    for i in range(snapshots):
        block = slice(i * width, (i + 1) * width)
        matrix = dense(Csr(csr.indptr, csr.indices, 40, weights[:, i]))
        expected = (matrix.T if scattered else matrix) @ x[:, block].double().numpy()
        for y in (found, played):
            np.testing.assert_allclose(y[:, block].numpy(), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("product", [spmm_sliced, scatter_sliced])
def test_threads_change_no_bit(product):
    csr = random_csr(5, 300, 300, 0.3)  # more entries than one thread is given
    sliced, x = slice_csr(csr, 8), features(2, 300, 37)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            found.append(product(sliced, x))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, found[0]) for one in found[1:])


def test_refusals():
    csr = csr_of([[0, 2], [1]], 3)
    sliced = slice_csr(csr)
    with pytest.raises(InvalidInputError, match="x has 2 rows, expected 3"):
        spmm_sliced(sliced, torch.zeros(2, 4))
    with pytest.raises(InvalidInputError, match=r"x is torch\.float64"):
        spmm_sliced(sliced, torch.zeros(3, 4).double())
    with pytest.raises(InvalidInputError, match="stride 3"):
        spmm_sliced(sliced, torch.zeros(4, 3).T)
    with pytest.raises(InvalidInputError, match="out has 5 columns"):
        spmm_sliced(sliced, torch.zeros(3, 4), out=torch.zeros(2, 5))
    with pytest.raises(UnsupportedError, match="CUDA kernel"):
        spmm_gespmm(csr, torch.zeros(3, 4))
    weighted = slice_csr(Csr(csr.indptr, csr.indices, 3, torch.ones(3, 2)))
    with pytest.raises(InvalidInputError, match="2 weights of an entry for 3 columns"):
        spmm_sliced(weighted, torch.zeros(3, 3))
    parts, x, out = PartTopology.build([csr]), torch.zeros(3, 1, 2), torch.zeros(2, 1, 3)
    with pytest.raises(InvalidInputError, match=r"out has shape \[2, 1, 3\]"):
        aggregate_parts_sliced(parts, x, out=out)
