"""Aggregation kernels of the papers under their own names, to race and to compare with.

The product's own operator is `aggregate.spmm`; these keep the structure that the papers describe.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dgbench.kernels_cuda.build_info import extension, stream_of
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.csr_check import check_layout
from dgbench.kernels_cuda.memory_model import thread_groups, vector_width
from dgbench.kernels_cuda.overlap import PartTopology
from dgbench.kernels_cuda.slices import DEFAULT_CAP, SlicedCsr, slice_unchecked
from dgbench.runtime.errors import InvalidInputError, UnsupportedError


def spmm_sliced(
    sliced: SlicedCsr,
    x: Tensor,
    *,
    out: Tensor | None = None,
    coalesce: bool = True,
    vector: bool = True,
) -> Tensor:
    """y = A x by PiPAD's kernel (PPoPP 2023, 4.3): a warp per group of slices, atomic sums.

    On CUDA the order of the additions, and so the last bits, vary from run to run. On the CPU the
    warp is played through lane by lane: exact in its structure, for tests, and slow.

    Args:
        sliced: the matrix, at most one value per entry; one that `slice_csr` made. Its columns are
            not checked again.
        x: float32[num_cols, d]; rows may lie apart, columns must be adjacent.
        out: float32[num_rows, d] to add to, as x; a new zero matrix where None.
        coalesce: several slices per warp below width 32 (thread-aware slice coalescing).
        vector: two or four floats per lane where the width allows it.

    Returns:
        `out`, or the new float32[num_rows, d].

    Raises:
        InvalidInputError: shapes, dtypes or devices that do not fit.
        UnsupportedError: a CUDA tensor where the CUDA operators are not built.
    """
    _check(x, "x", sliced.num_cols, sliced.indices.device)
    if sliced.values is not None and sliced.values.dim() != 1:
        raise InvalidInputError(
            f"sliced.values has {sliced.values.dim()} dimensions, expected one value per entry",
            hint="the kernel serves snapshots together only without weights of their own",
        )
    d = x.shape[1]
    if out is None:
        out = torch.zeros(sliced.num_rows, d, device=x.device)
    _check(out, "out", sliced.num_rows, x.device)
    if out.shape[1] != d:
        raise InvalidInputError(f"out has {out.shape[1]} columns, x has {d}")
    if d == 0 or sliced.num_slices == 0:
        return out
    groups = thread_groups(d, coalesce)
    extension(x.device).aggregate_sliced(
        sliced.row_indices,
        sliced.slice_offsets,
        sliced.indices,
        sliced.values,
        x.detach(),
        out.detach(),
        groups,
        vector_width(d) if vector and groups == 1 else 1,
        *stream_of(x.device),
    )
    return out


def aggregate_parts_sliced(
    parts: PartTopology,
    x: Tensor,
    *,
    cap: int = DEFAULT_CAP,
    coalesce: bool = True,
    vector: bool = True,
) -> Tensor:
    """All S snapshots of a partition as the paper does it: 1 + S launches over sliced parts.

    Args:
        parts: unweighted parts (the factored normalisation scales features before and after).
        x: float32[num_cols, S, F], contiguous.
        cap: entries of a slice at most.
        coalesce: as for `spmm_sliced`.
        vector: as for `spmm_sliced`.

    Returns:
        float32[num_rows, S, F].

    Raises:
        InvalidInputError: weighted parts, or shapes that do not fit.
        UnsupportedError: a CUDA tensor where the CUDA operators are not built.
    """
    if x.dim() != 3 or x.shape[1] != parts.num_snapshots or not x.is_contiguous():
        raise InvalidInputError(
            f"x has shape {list(x.shape)}, expected contiguous "
            f"[{parts.over.num_cols}, {parts.num_snapshots}, F]"
        )
    if parts.over.values is not None:
        raise InvalidInputError(
            "parts are weighted, expected unweighted snapshots",
            hint="factor the normalisation into row and column scales",
        )
    width = x.shape[2]
    wide = x.view(x.shape[0], -1)  # [N, S F]
    y = torch.zeros(parts.over.num_rows, wide.shape[1], device=x.device)
    options = {"coalesce": coalesce, "vector": vector}
    spmm_sliced(slice_unchecked(parts.over, cap), wide, out=y, **options)
    for i, part in enumerate(parts.exclusive):
        columns = slice(i * width, (i + 1) * width)
        spmm_sliced(slice_unchecked(part, cap), wide[:, columns], out=y[:, columns], **options)
    return y.view(-1, parts.num_snapshots, width)


def spmm_gespmm(csr: Csr, x: Tensor) -> Tensor:
    """y = A x in the manner of GE-SpMM, the aggregation of the paper's PyGT-G baseline; CUDA only.

    One warp per row and column tile, 32 entries staged at a time, two tiles per warp from width 64.

    Args:
        csr: the matrix; its columns are not checked here.
        x: float32[num_cols, F], contiguous.

    Returns:
        float32[num_rows, F].

    Raises:
        InvalidInputError: shapes, dtypes or devices that do not fit.
        UnsupportedError: a CPU tensor, or the CUDA operators are not built.
    """
    check_layout(csr, "csr")
    _check(x, "x", csr.num_cols, csr.indptr.device)
    if x.device.type != "cuda":
        raise UnsupportedError(
            f"spmm_gespmm is a CUDA kernel, x lies on {x.device}",
            hint="use dgbench.kernels_cuda.aggregate.spmm on the CPU",
        )
    if csr.values is not None and csr.values.dim() != 1:
        raise InvalidInputError("csr.values must hold one value per entry")
    y = torch.empty(csr.num_rows, x.shape[1], device=x.device)
    extension(x.device).spmm_gespmm(
        csr.indptr, csr.indices, csr.values, x.detach().contiguous(), y, *stream_of(x.device)
    )
    return y


def _check(x: Tensor, name: str, rows: int, device: torch.device) -> None:
    if x.dtype != torch.float32 or x.dim() != 2:
        raise InvalidInputError(
            f"{name} is {x.dtype} with {x.dim()} dimensions, expected torch.float32 with 2"
        )
    if x.shape[0] != rows:
        raise InvalidInputError(f"{name} has {x.shape[0]} rows, expected {rows}")
    if x.device != device:
        raise InvalidInputError(f"{name} lies on {x.device}, expected {device}")
    if x.shape[1] > 1 and x.stride(1) != 1:
        raise InvalidInputError(
            f"{name} has stride {x.stride(1)} between columns, expected 1",
            hint="pass `.contiguous()`",
        )
