"""The device's `spmm` without segments of long rows, kept to show what they are for."""

from __future__ import annotations

import torch
from torch import Tensor

from dgbench.kernels_cuda.build_info import extension, stream_of
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.variants.op import check_kernel


def spmm_row_owner(csr: Csr, x: Tensor) -> Tensor:
    """y = A x on a device with one group of lanes per row, however long the row is.

    A row of more than 1024 entries is added up by one block, all others by a part of a warp, so
    that a hub decides how long the whole product takes.

    Args:
        csr: matrix A, N x C, on CUDA; `values` float32[nnz] or None.
        x: float32[C, F], contiguous.

    Returns:
        float32[N, F].

    Raises:
        InvalidInputError: a shape, dtype or device that does not fit.
        UnsupportedError: tensors on the CPU.
    """
    check_kernel(csr, "csr", x, "spmm_row_owner")
    x = x.detach().contiguous()
    y = torch.empty(csr.num_rows, x.shape[1], device=x.device)
    extension(x.device).spmm(
        csr.indptr, csr.indices, csr.values, None, x, y, None, None, False, *stream_of(x.device),
        owner_alone=True,
    )  # fmt: skip
    return y
