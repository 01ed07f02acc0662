"""The device's `spmm` in each of its forms, to show what the others are for."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from dgbench.kernels_cuda.aggregate import segments
from dgbench.kernels_cuda.aggregate.prepared import FEW_ENTRIES, prepare
from dgbench.kernels_cuda.build_info import extension, stream_of
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.variants.op import check_kernel
from dgbench.runtime.errors import InvalidInputError

TILED_WIDTH: Final = 16
"""Columns of a product by tiles at most."""

_OWNER_ALONE, _SEGMENTS, _TILES = 1, 2, 3  # AggregateForm of aggregate/cuda_launchers.h


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
    return _run(csr, x, "spmm_row_owner", _OWNER_ALONE)


def spmm_segments(csr: Csr, x: Tensor) -> Tensor:
    """y = A x on a device with long rows cut into segments, and a group of lanes for any other row.

    What `spmm` does for wide rows of x. Arguments, result and errors as for `spmm_row_owner`.
    """
    return _run(csr, x, "spmm_segments", _SEGMENTS)


def spmm_tiles(csr: Csr, x: Tensor) -> Tensor:
    """y = A x on a device with as many rows and entries for every block as for any other.

    What `spmm` does for up to 8 columns where rows have 4 entries on average. Arguments, result
    and errors as for `spmm_row_owner`; x has up to `TILED_WIDTH` columns, A more than 8192 entries.
    """
    if x.dim() == 2 and x.shape[1] > TILED_WIDTH:
        raise InvalidInputError(
            f"x has {x.shape[1]} columns, spmm_tiles takes up to {TILED_WIDTH}",
            hint="use spmm_segments",
        )
    if csr.nnz <= FEW_ENTRIES:
        raise InvalidInputError(
            f"csr has {csr.nnz} entries, spmm_tiles takes more than {FEW_ENTRIES}",
            hint="use spmm_segments",
        )
    return _run(csr, x, "spmm_tiles", _TILES)


def _run(csr: Csr, x: Tensor, name: str, form: int) -> Tensor:
    check_kernel(csr, "csr", x, name)
    x = x.detach().contiguous()
    y = torch.empty(csr.num_rows, x.shape[1], device=x.device)
    table = None
    if form != _OWNER_ALONE:
        table = prepare(csr).forward(csr, x.dtype, ordered=False)[6]
    lists = (csr.indptr, csr.indices, csr.values, None, None, None, table)
    extension(x.device).spmm(
        *lists[:3], table, x, y, None, None, False, *stream_of(x.device),
        form=form, **segments(lists, x.unsqueeze(1)),
    )  # fmt: skip
    return y
