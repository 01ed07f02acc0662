"""The checks that a matrix passes before a compiled loop follows its offsets."""

from __future__ import annotations

import torch
from torch import Tensor

from dgbench.kernels_cuda.build_info import extension, stream_of
from dgbench.kernels_cuda.csr.csr import Csr
from dgbench.runtime.errors import InvalidInputError


def check_layout(csr: Csr, argument: str) -> None:
    """Check devices, dtypes, contiguity and lengths; reads no element.

    Raises:
        InvalidInputError: with the argument's name, what was found and what is allowed.
    """
    _check_array(csr.indptr, f"{argument}.indptr", torch.int64, csr.indptr.device)
    _check_array(csr.indices, f"{argument}.indices", torch.int32, csr.indptr.device)
    if csr.indptr.numel() == 0:
        raise InvalidInputError(
            f"{argument}.indptr is empty, expected rows + 1 offsets",
            hint="a matrix without rows has the one offset 0",
        )
    if not 0 <= csr.num_cols < 2**31 or csr.num_rows >= 2**31:
        raise InvalidInputError(
            f"{argument} has shape {csr.num_rows} x {csr.num_cols}, allowed are sizes below 2^31"
        )
    if csr.values is None:
        return
    # The overlap of S weighted snapshots holds one row of S weights per entry.
    _check_array(csr.values, f"{argument}.values", torch.float32, csr.indptr.device, (1, 2))
    if len(csr.values) != csr.nnz:
        raise InvalidInputError(
            f"{argument}.values has {len(csr.values)} entries, expected nnz = {csr.nnz}"
        )


def check_csr(csr: Csr, argument: str, *, ascending: bool = False) -> None:
    """Check a matrix completely, in one pass over its entries. On CUDA this waits for the device.

    Args:
        csr: the matrix.
        argument: its name in messages.
        ascending: also demand strictly ascending columns in each row (so no duplicates).

    Raises:
        InvalidInputError: a layout error, offsets that decrease or do not span [0, nnz], a column
            outside [0, num_cols), or (with `ascending`) a disordered or repeated column.
    """
    check_layout(csr, argument)
    first, last = int(csr.indptr[0]), int(csr.indptr[-1])
    if (first, last) != (0, csr.nnz):
        raise InvalidInputError(
            f"{argument}.indptr runs from {first} to {last}, expected 0 to nnz = {csr.nnz}"
        )
    device = csr.indptr.device
    found = torch.full((3,), -1, dtype=torch.int64, device=device)
    extension(device).check_csr(csr.indptr, csr.indices, csr.num_cols, found, *stream_of(device))
    bounds, column, order = found.tolist()
    if bounds >= 0:
        raise InvalidInputError(
            f"{argument}.indptr decreases or leaves [0, {csr.nnz}] at row {bounds}: "
            f"{csr.indptr[bounds : bounds + 2].tolist()}"
        )
    if column >= 0:
        row = _row(csr, column)
        raise InvalidInputError(
            f"{argument}.indices must satisfy 0 <= column < {csr.num_cols}, "
            f"row {column} holds [{int(row.min())}, {int(row.max())}]"
        )
    if ascending and order >= 0:
        row = _row(csr, order)
        repeated = row.unique().numel() < row.numel()
        what = "repeats a column" if repeated else "is not in ascending order"
        raise InvalidInputError(
            f"{argument}.indices: row {order} {what}, expected strictly ascending columns",
            hint="merge duplicate edges and sort each row when the snapshot is made",
        )


def _row(csr: Csr, row: int) -> Tensor:
    return csr.indices[int(csr.indptr[row]) : int(csr.indptr[row + 1])]


def _check_array(
    array: Tensor,
    name: str,
    dtype: torch.dtype,
    device: torch.device,
    dims: tuple[int, ...] = (1,),
) -> None:
    if array.dtype != dtype or array.dim() not in dims:
        raise InvalidInputError(
            f"{name} is {array.dtype} with {array.dim()} dimensions, "
            f"expected {dtype} with {' or '.join(map(str, dims))}"
        )
    if array.device != device:
        raise InvalidInputError(f"{name} lies on {array.device}, expected {device}")
    if not array.is_contiguous():
        raise InvalidInputError(f"{name} is not contiguous", hint="pass `.contiguous()`")
