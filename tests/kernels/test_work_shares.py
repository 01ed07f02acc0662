"""Shares of a product add up to the product, whatever they are cut from."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.slices import SlicedCsr, slice_csr
from dgbench.kernels_cuda.work_shares import time_shares
from dgbench.runtime.errors import InvalidInputError


def dense_and_csr(rows: int, cols: int, share: float, seed: int) -> tuple[torch.Tensor, Csr]:
    draw = torch.Generator().manual_seed(seed)
    dense = (torch.rand(rows, cols, generator=draw) < share).float()
    indptr = torch.zeros(rows + 1, dtype=torch.int64)
    indptr[1:] = dense.sum(1).long().cumsum(0)
    return dense, Csr(indptr, dense.nonzero()[:, 1].to(torch.int32), cols)


@settings(deadline=None, max_examples=40)
@given(
    rows=st.integers(1, 30),
    cols=st.integers(1, 70),
    share=st.sampled_from([0.0, 0.1, 0.9]),
    d=st.integers(1, 9),
    shares=st.integers(1, 40),
    cap=st.sampled_from([1, 3, 32]),
    seed=st.integers(0, 99),
)
def test_every_division_gives_the_product(rows, cols, share, d, shares, cap, seed) -> None:
    dense, csr = dense_and_csr(rows, cols, share, seed)
    x = torch.randn(cols, d, generator=torch.Generator().manual_seed(seed))
    for matrix in (csr, slice_csr(csr, cap)):
        found = time_shares(matrix, x, shares, repeats=2)
        assert torch.allclose(found.y, dense @ x, atol=1e-4)
        assert found.seconds.shape == (shares,)
        assert 0 <= found.balanced <= found.actual


def test_malformed_arguments_are_named() -> None:
    _, csr = dense_and_csr(4, 6, 0.5, 1)
    x = torch.ones(6, 2)
    with pytest.raises(InvalidInputError, match="shares is 0"):
        time_shares(csr, x, 0)
    with pytest.raises(InvalidInputError, match="repeats is 0"):
        time_shares(csr, x, 2, repeats=0)
    with pytest.raises(InvalidInputError, match="x has 5 rows, expected 6"):
        time_shares(csr, torch.ones(5, 2), 2)
    with pytest.raises(InvalidInputError, match="float32"):
        time_shares(csr, x.double(), 2)


def test_ids_out_of_range_never_reach_the_loop() -> None:
    _, csr = dense_and_csr(4, 6, 0.5, 1)
    x = torch.ones(6, 2)
    far = Csr(csr.indptr, csr.indices + 6, 6)
    with pytest.raises(ValueError, match="indices"):
        time_shares(far, x, 2)
    cut = slice_csr(csr, 2)
    wild = SlicedCsr(cut.row_indices - 9, cut.slice_offsets, cut.indices, None, 2, 4, 6)
    with pytest.raises(ValueError, match="targets"):
        time_shares(wild, x, 2)
