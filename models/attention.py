"""Attention over neighbours of a graph and over the steps of packed sequences.

`attend_rows` and `packed_attention` take the compiled form (`kernels_cuda.attention`) where there
is one for the arguments: float32, on a device with compiled operators. Elsewhere, and as the
reference of tests, there are `plain_attend_rows` and `plain_packed_attention`.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from dgbench.kernels_cuda import attention as compiled

ENTRIES_AT_ONCE = 1 << 16
"""Entries of a graph for which `attend_rows` holds values at a time."""
PAIRS_AT_ONCE = 1 << 24
"""Entries of the mask of `packed_attention` that exist at a time, over all heads."""


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

    Args:
        indptr, indices: rows v and their columns u, int64[R + 1] and int32[E]; columns 0 .. R - 1
            are the rows themselves, further ones are vertices that others own. Entries must not
            hold loops: every row gets one.
        values: float [C, K, D], C columns, K heads.
        source: float [C, K].
        target: float [R, K].
        slope: of the leaky rectifier below zero.

    Returns:
        [R, K, D]; differentiable once in `values`, `source` and `target`.
    """
    if compiled.serves("attend_rows", values, values.shape[-1]):
        return compiled.attend_rows(indptr, indices, values, source, target, slope)
    return plain_attend_rows(indptr, indices, values, source, target, slope)


def plain_attend_rows(
    indptr: Tensor,
    indices: Tensor,
    values: Tensor,
    source: Tensor,
    target: Tensor,
    slope: float = 0.2,
) -> Tensor:
    """`attend_rows` in plain torch, of any floating type."""
    rows = torch.arange(target.shape[0], device=values.device)
    receivers = torch.cat([torch.repeat_interleave(rows, indptr.diff()), rows])
    senders = torch.cat([indices.long(), rows])
    score = functional.leaky_relu(
        source.index_select(0, senders) + target.index_select(0, receivers), slope
    )
    top = torch.full_like(target, -torch.inf).scatter_reduce(
        0, receivers.unsqueeze(1).expand_as(score), score.detach(), "amax"
    )
    weight = (score - top.index_select(0, receivers)).exp()
    total = torch.zeros_like(target).index_add(0, receivers, weight)
    share = weight / total.index_select(0, receivers)
    return _WeighedSum.apply(share, values, senders, receivers, target.shape[0])


class _WeighedSum(torch.autograd.Function):
    """Sums of weighed values over the entries of each row, some entries at a time.

    Autograd's own form would keep two tensors of values for every entry until the backward pass.
    """

    @staticmethod
    def forward(ctx, share, values, senders, receivers, rows):
        ctx.save_for_backward(share, values, senders, receivers)
        out = values.new_zeros(rows, *values.shape[1:])
        for weight, u, v in _some(share, senders, receivers):
            out.index_add_(0, v, values.index_select(0, u).mul_(weight.unsqueeze(-1)))
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        share, values, senders, receivers = ctx.saved_tensors
        to_share, to_values = torch.empty_like(share), torch.zeros_like(values)
        for target, weight, u, v in _some(to_share, share, senders, receivers):
            arriving = grad.index_select(0, v)
            torch.sum(arriving * values.index_select(0, u), dim=-1, out=target)
            to_values.index_add_(0, u, arriving.mul_(weight.unsqueeze(-1)))
        return to_share, to_values, None, None, None


def _some(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    return zip(*(t.split(ENTRIES_AT_ONCE) for t in tensors), strict=True)


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

    The mask is block diagonal: minus infinity between steps of different sequences of a row (DGC,
    section 5.1.2). The compiled form leaves out what it hides; the plain form makes it for a few
    rows at a time.

    Args:
        q, k, v: float [T, N, H], N rows of T steps; H is cut into heads.
        sequence: int64[T, N], which sequence a step belongs to, -1 for none; the steps of one
            sequence stand one behind the other. None: every row is one sequence.
        heads: divides H; scores are divided by sqrt(H / heads).
        causal: a step sees no later one.
        own: bool[T, N], the steps whose results are wanted; others get zeros and pass no gradient
            on. None: all.

    Returns:
        [T, N, H]; differentiable, once in the compiled form. Where a row holds nothing the numbers
        mean nothing.
    """
    if compiled.serves("packed_attention", q, q.shape[-1] // max(1, heads)):
        return compiled.packed_attention(q, k, v, sequence, heads=heads, causal=causal, own=own)
    return plain_packed_attention(q, k, v, sequence, heads=heads, causal=causal, own=own)


def plain_packed_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    sequence: Tensor | None = None,
    *,
    heads: int = 1,
    causal: bool = False,
    own: Tensor | None = None,
) -> Tensor:
    """`packed_attention` in plain torch, of any floating type and differentiable twice."""
    steps, rows, width = q.shape
    if q.numel() == 0:
        return torch.zeros_like(v)
    at_once = max(1, PAIRS_AT_ONCE // (steps * steps * heads))
    later = torch.ones(steps, steps, dtype=torch.bool, device=q.device).triu(1) if causal else None
    out = []
    for first in range(0, rows, at_once):
        part = slice(first, first + at_once)
        split = [
            t[:, part].reshape(steps, -1, heads, width // heads).permute(1, 2, 0, 3)
            for t in (q, k, v)
        ]
        mask = None
        if sequence is not None:
            ids = sequence[:, part].t()
            mask = (ids.unsqueeze(1) == ids.unsqueeze(2)).unsqueeze(1)  # [rows, 1, T, T]
        if later is not None:
            mask = ~later if mask is None else mask & ~later
        made = functional.scaled_dot_product_attention(*split, attn_mask=mask)
        out.append(made.permute(2, 0, 1, 3).reshape(steps, -1, width))
    whole = torch.cat(out, dim=1)
    return whole if own is None else torch.where(own.unsqueeze(-1), whole, 0)
