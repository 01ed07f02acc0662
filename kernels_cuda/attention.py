"""Compiled attention: over the neighbours of a graph, and over the steps of packed sequences.

Both are fused: scores, softmax and weighed sum in one call, without a number per entry or per pair
in memory beyond what fits a cache. What is kept for the backward pass is a few numbers per row and
head, from which shares are made again. float32; differentiable once; the same bits for every number
of threads. `models.attention` holds the same in plain torch and chooses between the two.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.weak import WeakIdKeyDictionary

from dgbench.kernels_cuda._dispatch import call
from dgbench.kernels_cuda._prepared import prepare
from dgbench.kernels_cuda.build_info import extension
from dgbench.kernels_cuda.csr import Csr
from dgbench.runtime.errors import InvalidInputError, UnsupportedError

CUDA_WIDTH = 128
"""Columns of a head at most on a CUDA device: what the lanes of a warp hold."""


def serves(name: str, x: Tensor, width: int) -> bool:
    """Whether there is a compiled form of `attend_rows` or `packed_attention` for `x`.

    Args:
        name: of the function.
        x: one of its floating arguments.
        width: columns of a head.
    """
    if x.dtype != torch.float32 or x.is_meta or x.device.type not in ("cpu", "cuda"):
        return False
    if x.device.type == "cuda" and width > CUDA_WIDTH:
        return False
    try:
        return hasattr(extension(x.device), f"{name}_forward")
    except UnsupportedError:
        return False


def attend_rows(
    indptr: Tensor,
    indices: Tensor,
    values: Tensor,
    source: Tensor,
    target: Tensor,
    slope: float = 0.2,
) -> Tensor:
    """Additive attention of graph attention networks (Velickovic et al., 2018, eq. 3-4).

    e_uv = leaky_relu(source_u + target_v), alpha = softmax of e over the neighbours u of v and v
    itself, result_v = sum of alpha_uv values_u, for each head.

    The derivatives to values and sources go by columns; the transposed matrix is made at the first
    backward pass and remembered as long as `indices` lives, so pass the same tensors again.

    Args:
        indptr, indices: rows v and their columns u, int64[R + 1] and int32[E]; columns 0 .. R - 1
            are the rows themselves, further ones are vertices that others own. Entries must not
            hold loops: every row gets one. Checked once per pair of tensors.
        values: float32 [C, K, D], C columns, K heads; rows may lie apart, a row is dense.
        source: float32 [C, K]; rows may lie apart.
        target: float32 [R, K].
        slope: of the leaky rectifier below zero.

    Returns:
        [R, K, D]; differentiable once in `values`, `source` and `target`. Kept for that: the
        inputs, the result, 3 numbers per row and head, and K D per row with neighbours.

    Raises:
        InvalidInputError: a malformed matrix, or a shape, dtype or device that does not fit.
        UnsupportedError: no compiled operator for that device or width.
    """
    _check_rows(indptr, indices, values, source, target)
    csr = Csr(indptr, indices, values.shape[0])
    prepared = prepare(csr)
    return _AttendRows.apply(values, source, target, csr, prepared, float(slope))


def _check_rows(
    indptr: Tensor, indices: Tensor, values: Tensor, source: Tensor, target: Tensor
) -> None:
    floats = {"values": values, "source": source, "target": target}
    for name, tensor in floats.items():
        if not isinstance(tensor, Tensor) or tensor.dtype != torch.float32:
            found = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
            raise InvalidInputError(
                f"{name} is {found}, expected torch.float32",
                hint="`models.attend_rows` takes other types too",
            )
        if tensor.device != indptr.device:
            raise InvalidInputError(
                f"{name} lies on {tensor.device}, expected {indptr.device} as indptr"
            )
    if values.dim() != 3:
        raise InvalidInputError(f"values has shape {list(values.shape)}, expected [C, K, D]")
    columns, heads, width = values.shape
    rows = indptr.numel() - 1
    for name, length in (("source", columns), ("target", rows)):
        if list(floats[name].shape) != [length, heads]:
            raise InvalidInputError(
                f"{name} has shape {list(floats[name].shape)}, expected {[length, heads]} for "
                f"values {list(values.shape)} and {rows} rows"
            )
    if columns < rows:
        raise InvalidInputError(
            f"values has {columns} rows, expected at least the {rows} rows of the matrix",
            hint="columns 0 .. R - 1 are the rows themselves",
        )
    if values.device.type == "cuda" and width > CUDA_WIDTH:
        raise UnsupportedError(
            f"values has {width} columns a head, allowed are {CUDA_WIDTH} on CUDA",
            hint="use `models.attend_rows`, which takes the plain form there",
        )


def _dense_rows(x: Tensor) -> Tensor:
    """`x` without history, each x[i] dense; rows may lie apart."""
    x = x.detach()
    return x if x.shape[0] == 0 or x[0].is_contiguous() else x.contiguous()


_places: WeakIdKeyDictionary = WeakIdKeyDictionary()
"""By `indices`: indptr, its version, each row's number among rows with neighbours, their count."""


def _busy_rows(csr: Csr) -> tuple[Tensor, int]:
    """(int32[R], how many): what number a row with neighbours has among such rows."""
    known = _places.get(csr.indices)
    stamp = 0 if csr.indptr.is_inference() else csr.indptr._version
    if known is not None and known[0] is csr.indptr and known[1] == stamp:
        return known[2], known[3]
    busy = csr.indptr.diff() > 0
    place = busy.cumsum(0, dtype=torch.int32).sub_(1)
    count = int(place[-1]) + 1 if place.numel() else 0
    _places[csr.indices] = (csr.indptr, stamp, place, count)
    return place, count


class _AttendRows(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        values: Tensor,
        source: Tensor,
        target: Tensor,
        csr: Csr,
        prepared: Any,
        slope: float,
    ) -> Tensor:
        values, source, target = _dense_rows(values), _dense_rows(source), target.contiguous()
        rows, (_, heads, width) = csr.num_rows, values.shape
        out = values.new_empty(rows, heads, width)
        stats = positive = None
        place, count = _busy_rows(csr)
        if any(ctx.needs_input_grad):
            stats = values.new_empty(rows, heads, 3)
            positive = values.new_empty(count, heads, width)
        given = (csr.indptr, csr.indices, values, source, target.detach(), slope, place)
        call("attend_rows_forward", values.device, *given, out, stats, positive)
        if stats is not None:
            ctx.save_for_backward(values, source, target, out, stats, positive)
            ctx.csr, ctx.prepared, ctx.slope, ctx.place = csr, prepared, slope, place
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        values, source, target, out, stats, positive = ctx.saved_tensors
        csr = ctx.csr
        back = ctx.prepared.transposed(csr, torch.float32, False)
        to_values = values.new_empty(values.shape)
        to_source = values.new_empty(source.shape)
        to_target = values.new_empty(target.shape)
        entry = values.new_empty(*target.shape, 4)
        given = (csr.indptr, csr.indices, values, source, target.detach(), ctx.slope, ctx.place)
        call(
            "attend_rows_backward",
            values.device,
            *given,
            *back[:2],
            grad.contiguous(),
            out.detach(),
            stats,
            positive,
            entry,
            to_values,
            to_source,
            to_target,
        )
        return to_values, to_source, to_target, None, None, None
