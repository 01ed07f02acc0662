"""transpose against a dense transpose and against a stable sort."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.transpose import transpose
from dgbench.runtime.errors import InvalidInputError


def stable(csr):
    """The transpose by one stable sort of the columns: slow, and obviously right."""
    rows = torch.repeat_interleave(torch.arange(csr.num_rows), csr.indptr.diff())
    order = torch.argsort(csr.indices.long(), stable=True)
    counts = torch.bincount(csr.indices.long(), minlength=csr.num_cols)
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    values = None if csr.values is None else csr.values[order]
    return Csr(indptr, rows[order].int(), csr.num_rows, values)


def same(a, b):
    assert a.num_cols == b.num_cols
    assert torch.equal(a.indptr, b.indptr)
    assert torch.equal(a.indices, b.indices)
    assert (a.values is None) == (b.values is None)
    assert a.values is None or torch.equal(a.values, b.values)


@settings(max_examples=80, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 6), max_size=12),
    columns=st.integers(1, 9),
    width=st.sampled_from([None, 1, 3]),
    seed=st.integers(0, 99),
)
def test_equals_a_stable_sort(lengths, columns, width, seed):
    """Also with duplicates, columns out of order and several values per entry."""
    g = torch.Generator().manual_seed(seed)
    indptr = torch.tensor([0, *lengths]).cumsum(0)
    nnz = int(indptr[-1])
    indices = torch.randint(0, columns, (nnz,), generator=g).int()
    values = None
    if width is not None:
        values = torch.randn(nnz, *([] if width == 1 else [width]), generator=g)
    csr = Csr(indptr, indices, columns, values)
    same(transpose(csr), stable(csr))


def test_large_on_several_threads():
    g = torch.Generator().manual_seed(1)
    counts = torch.randint(0, 300, (1000,), generator=g)
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    nnz = int(indptr[-1])
    indices = torch.randint(0, 700, (nnz,), generator=g).int()
    csr = Csr(indptr, indices, 700, torch.randn(nnz, generator=g))
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 7):
            torch.set_num_threads(threads)
            same(transpose(csr), stable(csr))
    finally:
        torch.set_num_threads(before)


def test_twice_is_the_matrix_with_sorted_rows():
    csr = Csr(torch.tensor([0, 2, 2, 3]), torch.tensor([0, 3, 1]).int(), 4, torch.rand(3))
    same(transpose(transpose(csr)), csr)


@pytest.mark.parametrize("columns", [0, 5])
def test_no_rows(columns):
    csr = Csr(torch.zeros(1, dtype=torch.int64), torch.zeros(0, dtype=torch.int32), columns)
    out = transpose(csr)
    assert out.num_rows == columns
    assert out.num_cols == 0
    assert out.nnz == 0


def test_bad_matrices_are_refused():
    indptr = torch.tensor([0, 1, 2])
    for indices in ([0, 5], [0, -1]):
        with pytest.raises(InvalidInputError, match="0 <= column < 5"):
            transpose(Csr(indptr, torch.tensor(indices).int(), 5))
    with pytest.raises(InvalidInputError, match=r"csr\.indptr"):
        transpose(Csr(torch.tensor([0, 3, 2]), torch.tensor([0, 1]).int(), 5))
