"""Sliced CSR against cutting each row with a Python loop."""

from __future__ import annotations

import pytest
import torch
from csr_cases import csr_of, random_csr
from hypothesis import given
from hypothesis import strategies as st

from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.slices import coo_words, csr_words, slice_count, slice_csr
from dgbench.runtime.errors import InvalidInputError


def cut(csr: Csr, cap: int) -> tuple[list[int], list[int]]:
    rows, offsets = [], []
    for row in range(csr.num_rows):
        for begin in range(int(csr.indptr[row]), int(csr.indptr[row + 1]), cap):
            rows.append(row)
            offsets.append(begin)
    return rows, [*offsets, csr.nnz]


@given(
    seed=st.integers(0, 999),
    rows=st.integers(0, 12),
    cols=st.integers(1, 150),
    density=st.sampled_from([0.0, 0.02, 0.3, 1.0]),
    cap=st.sampled_from([1, 2, 7, 8, 16, 32, 64, 1000]),
    weighted=st.booleans(),
)
def test_equals_the_loop_and_comes_back(seed, rows, cols, density, cap, weighted):
    csr = random_csr(seed, rows, cols, density, weighted=weighted)
    sliced = slice_csr(csr, cap)
    expected_rows, expected_offsets = cut(csr, cap)
    assert sliced.row_indices.tolist() == expected_rows
    assert sliced.slice_offsets.tolist() == expected_offsets
    assert sliced.row_indices.dtype == torch.int32
    assert sliced.slice_offsets.dtype == torch.int64
    assert sliced.num_slices == slice_count(csr, cap)
    back = sliced.to_csr()
    assert torch.equal(back.indptr, csr.indptr)
    assert back.indices is csr.indices
    assert back.values is csr.values


def test_words_by_hand():
    """Rows of 0, 33, 0, 32 and 1 entries: slices 0 + 2 + 0 + 1 + 1 = 4, nnz 66."""
    csr = csr_of([[], list(range(33)), [], list(range(32)), [7]], 40)
    sliced = slice_csr(csr)
    assert sliced.row_indices.tolist() == [1, 1, 3, 4]
    assert sliced.slice_offsets.tolist() == [0, 32, 33, 65, 66]
    assert sliced.words() == 2 * 66 + 2 * 4 + 1
    assert sliced.words(with_values=False) == 66 + 2 * 4 + 1
    assert csr_words(csr) == 2 * 66 + 5 + 1
    assert csr_words(csr, with_values=False) == 66 + 5 + 1
    assert (coo_words(66), coo_words(66, with_values=False)) == (3 * 66, 2 * 66)


def test_hypersparse_takes_less_than_csr_and_a_hub_is_cut_evenly():
    empty_rows = csr_of([[]] * 999 + [[0, 5]], 10)
    assert slice_csr(empty_rows).words() == 2 * 2 + 2 + 1 < csr_words(empty_rows)
    hub = Csr(torch.tensor([0, 100_000]), torch.arange(100_000, dtype=torch.int32), 100_000)
    sliced = slice_csr(hub)
    lengths = sliced.slice_offsets.diff()
    assert sliced.num_slices == 3125
    assert lengths.min() == lengths.max() == 32


def test_unsorted_and_repeated_columns_are_kept():
    sliced = slice_csr(csr_of([[3, 1, 3]], 4), cap=2)
    assert sliced.indices.tolist() == [3, 1, 3]
    assert sliced.slice_offsets.tolist() == [0, 2, 3]


def test_refusals_name_the_argument():
    good = csr_of([[0, 1], [1]], 2)
    with pytest.raises(InvalidInputError, match="cap is 0"):
        slice_csr(good, 0)
    with pytest.raises(InvalidInputError, match="0 <= column < 2"):
        slice_csr(csr_of([[0, 2]], 2))
    with pytest.raises(InvalidInputError, match="0 <= column < 2"):
        slice_csr(csr_of([[-1]], 2))
    with pytest.raises(InvalidInputError, match=r"indptr.*at row [01]"):
        slice_csr(Csr(torch.tensor([0, 5, 3]), good.indices, 2))
    with pytest.raises(InvalidInputError, match="expected 0 to nnz"):
        slice_csr(Csr(torch.tensor([0, 1, 2]), good.indices, 2))
    with pytest.raises(InvalidInputError, match=r"indices is torch\.int64"):
        slice_csr(Csr(good.indptr, good.indices.long(), 2))
    with pytest.raises(InvalidInputError, match="not contiguous"):
        slice_csr(Csr(good.indptr, torch.arange(6, dtype=torch.int32)[::2], 9))
    with pytest.raises(InvalidInputError, match="values has 1 entries"):
        slice_csr(Csr(good.indptr, good.indices, 2, torch.ones(1)))
    with pytest.raises(InvalidInputError, match="indptr is empty"):
        slice_csr(Csr(good.indptr[:0], good.indices[:0], 2))
