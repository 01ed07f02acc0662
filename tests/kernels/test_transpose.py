"""transpose against a dense transpose and against a stable sort."""

from __future__ import annotations

import torch
from csr_cases import random_csr
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_checks import on_threads, same_csr

from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.transpose import transpose


def stable(csr):
    """The transpose by one stable sort of the columns: slow, and obviously right."""
    rows = torch.repeat_interleave(torch.arange(csr.num_rows), csr.indptr.diff())
    order = torch.argsort(csr.indices.long(), stable=True)
    counts = torch.bincount(csr.indices.long(), minlength=csr.num_cols)
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    values = None if csr.values is None else csr.values[order]
    return Csr(indptr, rows[order].int(), csr.num_rows, values)


@settings(max_examples=80, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 6), max_size=12), columns=st.integers(0, 9),
    width=st.sampled_from([None, 1, 3]), seed=st.integers(0, 99),
)  # fmt: skip
def test_equals_a_stable_sort(lengths, columns, width, seed):
    """Also with duplicates, columns out of order and several values per entry."""
    g = torch.Generator().manual_seed(seed)
    indptr = torch.tensor([0, *(lengths if columns else [])]).cumsum(0)
    nnz = int(indptr[-1])
    indices = torch.randint(0, columns or 1, (nnz,), generator=g).int()
    values = None
    if width is not None:
        values = torch.randn(nnz, *([] if width == 1 else [width]), generator=g)
    csr = Csr(indptr, indices, columns, values)
    same_csr(transpose(csr), stable(csr))


def test_large_on_several_threads():
    csr = random_csr(1, 1000, 700, 0.2, weighted=True)
    for turned in on_threads(lambda: transpose(csr), (1, 2, 7)):
        same_csr(turned, stable(csr))
