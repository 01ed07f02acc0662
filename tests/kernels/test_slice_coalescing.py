"""Algorithm 1 of PiPAD, lane by lane on the host, against a dense product in float64.

The host plays the functors that the device kernel calls (variants/slice_coalescing.hpp).
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
from dgbench.kernels_cuda.variants import aggregate_parts_sliced, spmm_gespmm, spmm_sliced
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
)
def test_equals_the_product(seed, density, d, cap, weighted, coalesce, vector):
    csr = random_csr(seed, 7, 90, density, weighted=weighted)
    x = features(seed, 90, d)
    y = spmm_sliced(slice_csr(csr, cap), x, coalesce=coalesce, vector=vector)
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
    plain = [Csr(csr.indptr, csr.indices, csr.num_cols) for csr in group]
    x = features(len(group), plain[0].num_cols, len(group), width)
    y = aggregate_parts_sliced(PartTopology.build(plain), x)
    for i, csr in enumerate(plain):
        expected = dense(csr) @ x[:, i].double().numpy()
        np.testing.assert_allclose(y[:, i].numpy(), expected, rtol=1e-5, atol=1e-4)


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
    weighted = Csr(csr.indptr, csr.indices, 3, torch.ones(3))
    with pytest.raises(InvalidInputError, match="weighted"):
        aggregate_parts_sliced(PartTopology.build([weighted]), torch.zeros(3, 1, 2))
