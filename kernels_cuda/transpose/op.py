"""Transposition of a sparse matrix."""

from __future__ import annotations

import torch

from dgbench.kernels_cuda._dispatch import call
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.csr.check import check_csr


def transpose(csr: Csr) -> Csr:
    """The transposed matrix, by a stable parallel counting sort.

    Entries keep the order of their rows, so columns ascend inside a row of the result, whatever
    their order in the input; duplicate entries stay. Values follow, also where an entry has
    several (float32[nnz, S]). Linear in rows, columns and entries. A CUDA matrix is transposed on
    the CPU and copied back: it is done once per topology.

    Args:
        csr: a matrix of any shape.

    Returns:
        A new matrix on the device of `csr`; nothing is shared with the input.

    Raises:
        InvalidInputError: a matrix that breaks the layout, see `Csr`.
    """
    check_csr(csr, "csr")
    return transpose_unchecked(csr)


def transpose_unchecked(csr: Csr) -> Csr:
    """As `transpose`, for a matrix that has passed `check_csr`."""
    device = csr.indptr.device
    cpu = torch.device("cpu")
    indptr, indices = csr.indptr.to(cpu), csr.indices.to(cpu)
    values = None if csr.values is None else csr.values.detach().to(cpu)
    out_indptr = torch.empty(csr.num_cols + 1, dtype=torch.int64)
    out_indices = torch.empty_like(indices)
    out_values = None if values is None else torch.empty_like(values)
    call(
        "transpose",
        cpu,
        indptr,
        indices,
        values,
        csr.num_cols,
        out_indptr,
        out_indices,
        out_values,
    )
    return Csr(
        out_indptr.to(device),
        out_indices.to(device),
        csr.num_rows,
        None if out_values is None else out_values.to(device),
    )
