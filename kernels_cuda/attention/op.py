"""Compiled attention: over the neighbours of a graph, and over the steps of packed sequences.

Both are fused: scores, softmax and weighed sum in one call, without a number per entry or per pair
in memory beyond what fits a cache. What is kept for the backward pass is a few numbers per row and
head, from which shares are made again. float32; differentiable once; the same bits for every number
of threads. `models.attention` holds the same in plain torch and chooses between the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.weak import WeakIdKeyDictionary

from dgbench.kernels_cuda._dispatch import call
from dgbench.kernels_cuda.aggregate.prepared import prepare
from dgbench.kernels_cuda.build_info import extension
from dgbench.kernels_cuda.csr import Csr
from dgbench.runtime.errors import InvalidInputError, UnsupportedError

CUDA_WIDTHS = {"attend_rows": 128, "packed_attention": 64}
"""Columns of a head at most on a CUDA device, by function: what its threads hold in registers."""


def serves(name: str, x: Tensor, width: int) -> bool:
    """Return True if there is a compiled form of an attention of this package for `x`.

    Args:
        name: of the function.
        x: one of its floating arguments.
        width: columns of a head.
    """
    if x.dtype != torch.float32 or x.is_meta or x.device.type not in ("cpu", "cuda"):
        return False
    if x.device.type == "cuda" and width > CUDA_WIDTHS.get(name, 0):
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
    _check_width("attend_rows", values.device, width)


def _check_width(name: str, device: torch.device, width: int) -> None:
    if device.type == "cuda" and width > CUDA_WIDTHS[name]:
        raise UnsupportedError(
            f"a head has {width} columns, allowed are {CUDA_WIDTHS[name]} on CUDA",
            hint=f"use `models.{name}`, which takes the plain form there",
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


# --- steps of packed sequences --------------------------------------------------------------------


def packed_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    sequence: Tensor | None = None,
    *,
    heads: int = 1,
    causal: bool = False,
    own: Tensor | None = None,
) -> Tensor:
    """Scaled dot-product attention of each step to the steps of its own sequence.

    The block-diagonal mask of DGC (section 5.1.2) by leaving out what it hides: a sequence of L
    steps of which m are wanted costs m L products of D numbers per head, whatever else stands in
    its row. Where sequences lie is worked out once per `sequence` and `own`, and remembered as long
    as `sequence` lives.

    Args:
        q, k, v: float32 [T, N, H], N rows of T steps; H is cut into heads. Any stride between
            steps and between rows.
        sequence: int64[T, N], which sequence a step belongs to, -1 for none; the steps of one
            sequence stand one behind the other. None: every row is one sequence.
        heads: divides H; scores are divided by sqrt(H / heads).
        causal: a step sees no later one.
        own: bool[T, N], the steps whose results are wanted; others get zeros and pass no gradient
            on. None: all.

    Returns:
        [T, N, H]; differentiable once. Zero where a step is not wanted or in no sequence. Nothing
        is kept for the backward pass but q, k and v.

    Raises:
        InvalidInputError: a shape, dtype or device that does not fit.
        UnsupportedError: no compiled operator for that device or width.
    """
    _check_steps(q, k, v, sequence, heads, own)
    _check_width("packed_attention", q.device, q.shape[2] // heads)
    if q.numel() == 0:
        return torch.zeros_like(v)
    spans = spans_of(sequence, own, q.shape[:2], q.device)
    return _PackedAttention.apply(q, k, v, spans, heads, bool(causal))


def _check_steps(
    q: Tensor, k: Tensor, v: Tensor, sequence: Tensor | None, heads: int, own: Tensor | None
) -> None:
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if not isinstance(tensor, Tensor) or tensor.dtype != torch.float32:
            found = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
            raise InvalidInputError(
                f"{name} is {found}, expected torch.float32",
                hint="`models.packed_attention` takes other types too",
            )
        if tensor.dim() != 3 or tensor.shape != q.shape or tensor.device != q.device:
            raise InvalidInputError(
                f"{name} is {list(tensor.shape)} on '{tensor.device}', expected [T, N, H] as q, "
                f"{list(q.shape)} on '{q.device}'"
            )
    if heads < 1 or q.shape[2] % heads:
        raise InvalidInputError(
            f"heads is {heads}, allowed are divisors of the width {q.shape[2]} of q"
        )
    for name, tensor, dtype in (("sequence", sequence, torch.int64), ("own", own, torch.bool)):
        if tensor is None:
            continue
        if tensor.dtype != dtype or tensor.shape != q.shape[:2] or tensor.device != q.device:
            raise InvalidInputError(
                f"{name} is {tensor.dtype} {list(tensor.shape)} on '{tensor.device}', expected "
                f"{dtype} {list(q.shape[:2])} on '{q.device}'"
            )


@dataclass(frozen=True, slots=True)
class Spans:
    """Where sequences lie in rows of steps.

    Attributes:
        sequence: int32[S, 3]: row, first step and length of each sequence, by row, then step.
        first: int64[S + 1]: where the wanted steps of each sequence begin in `wanted`.
        wanted: int32: wanted steps, counted from their sequence's first, ascending.
        longest: steps of the longest sequence, 0 without any.
        complete: every step of every row is in a sequence and wanted.
        pairs: sum over sequences of wanted steps times steps: the products a head takes.
    """

    sequence: Tensor
    first: Tensor
    wanted: Tensor
    longest: int
    complete: bool
    pairs: int


_spans: WeakIdKeyDictionary = WeakIdKeyDictionary()
"""By `sequence`: (its version, own, own's version, spans), the last few."""
_KEPT = 4
_whole: dict[tuple[Any, ...], Spans] = {}
"""Of rows that are one sequence each, by shape and device."""


def spans_of(
    sequence: Tensor | None, own: Tensor | None, shape: tuple[int, int], device: torch.device
) -> Spans:
    """The spans of `sequence`, an int64[T, N], and the wanted steps `own`, a bool[T, N].

    Args:
        sequence, own, as in `packed_attention`.
        shape: (T, N).
        device: of the result.
    """
    if sequence is None and own is None:
        key = (*shape, str(device))
        if key not in _whole:
            if len(_whole) >= _KEPT:
                _whole.pop(next(iter(_whole)))
            _whole[key] = _find_spans(None, None, shape, device)
        return _whole[key]
    anchor = own if sequence is None else sequence

    def version(t: Tensor | None) -> int:
        return 0 if t is None or t.is_inference() else t._version

    stamp = (version(sequence), id(own), version(own))
    entries = _spans.get(anchor, ())
    for held, known, spans in entries:
        # `held` keeps the other array alive, so that its identity stays taken.
        if known == stamp and (held is own or anchor is own):
            return spans
    spans = _find_spans(sequence, own, shape, device)
    held = None if anchor is own else own
    _spans[anchor] = (*entries, (held, stamp, spans))[-_KEPT:]
    return spans


def _find_spans(
    sequence: Tensor | None, own: Tensor | None, shape: tuple[int, int], device: torch.device
) -> Spans:
    steps, rows = shape
    if sequence is None:
        number = torch.arange(rows, device=device).unsqueeze(1).expand(rows, steps)
    else:
        number = sequence.t()
    number = number.reshape(-1)
    begins = torch.ones(rows, steps, dtype=torch.bool, device=device)
    begins[:, 1:] = number.view(rows, steps).diff(dim=1) != 0
    begins = begins.view(-1)
    place = begins.nonzero().squeeze(1)
    lengths = torch.diff(place, append=place.new_tensor([rows * steps]))
    table = torch.stack([place // steps, place % steps, lengths], dim=1)
    wanted = torch.arange(rows * steps, device=device) - torch.repeat_interleave(place, lengths)
    counts, real = lengths, number[place] >= 0
    if own is not None or not bool(real.all()):  # what is in no sequence drops out
        span = begins.cumsum(0) - 1
        keep = real[span]
        if own is not None:
            keep &= own.t().reshape(-1)
        counts = torch.zeros_like(lengths).index_add_(0, span, keep.to(lengths.dtype))
        wanted = wanted[keep]
        table, lengths, counts = table[real], lengths[real], counts[real]
    first = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return Spans(
        table.to(torch.int32).contiguous(),
        first,
        wanted.to(torch.int32),
        int(lengths.max()) if lengths.numel() else 0,
        wanted.numel() == steps * rows,
        int((lengths * counts).sum()),
    )


def _dense_steps(x: Tensor) -> Tensor:
    x = x.detach()
    return x if x.shape[2] <= 1 or x.stride(2) == 1 else x.contiguous()


class _PackedAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, spans: Spans, heads: int, causal: bool
    ) -> Tensor:
        q, k, v = _dense_steps(q), _dense_steps(k), _dense_steps(v)
        out = q.new_empty(q.shape) if spans.complete else q.new_zeros(q.shape)
        given = (spans.sequence, spans.first, spans.wanted, q, k, v, heads, causal)
        call("packed_attention_forward", q.device, *given, out)
        ctx.save_for_backward(q, k, v)
        ctx.spans, ctx.heads, ctx.causal = spans, heads, causal
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        q, k, v = ctx.saved_tensors
        spans = ctx.spans
        make = torch.empty if spans.complete else torch.zeros
        grads = [make(q.shape, dtype=q.dtype, device=q.device) for _ in range(3)]
        stats = None
        if q.device.type == "cuda":  # a maximum, a factor and a mean of each wanted step and head
            stats = q.new_empty(spans.wanted.numel(), ctx.heads, 3)
        given = (spans.sequence, spans.first, spans.wanted, q, k, v, ctx.heads, ctx.causal)
        call("packed_attention_backward", q.device, *given, _dense_steps(grad), stats, *grads)
        return (*grads, None, None, None)
