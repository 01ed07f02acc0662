"""transpose against a stable sort."""

from __future__ import annotations

import torch
from csr_cases import rows_of
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_checks import same_csr

from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.transpose import transpose


def stable(csr):
    """The transpose by one stable sort of the columns: slow, and obviously right."""
    order = torch.argsort(csr.indices.long(), stable=True)
    counts = torch.bincount(csr.indices.long(), minlength=csr.num_cols)
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    values = None if csr.values is None else csr.values[order]
    return Csr(indptr, rows_of(csr)[order].int(), csr.num_rows, values)


@settings(max_examples=30, deadline=None)
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
