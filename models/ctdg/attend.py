"""Attention over sampled neighbours, with nothing kept or made that can be had again.

Compiled over ragged rows where there is such a form (`kernels_cuda.attention.temporal_attention`);
else over dense rows by one autograd function instead of twenty small operators. A batch of TGAT has
20,000 targets of ten neighbours, so every tensor of the size of these is dear, and most of all its
memory, whose pages are cleared each time that it is fresh. Blocks are those of a `Workspace`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dgbench.kernels_cuda.attention import serves, temporal_attention
from dgbench.kernels_cuda.workspace import scratch
from dgbench.models.ctdg.time_encoding import cosines

if TYPE_CHECKING:
    from dgbench.models.ctdg.base import Neighbourhood


def attend(
    around: Neighbourhood,
    query: Tensor,
    neighbours: Tensor,
    edges: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
) -> Tensor:
    """Weighed sums of what neighbours are, z = [h_u | e_uv | cos(weight age + bias)], by head.

    Shares are softmax(query z) over the neighbours of a target.

    Args:
        around: where K neighbours belong among R targets of `fanout` places.
        query: [R, heads, D + E + T].
        neighbours: [K, D].
        edges: [K, E] without gradient, or None for E = 0.
        weight, bias: [T, 1] and [T] of the encoding of ages, or None for T = 0.

    Returns:
        [R, heads, D + E + T], zeros for a target without neighbours; differentiable once in all but
        `edges`.
    """
    if serves("temporal_attention", query, query.shape[2]):
        hop = around.hop
        asked = query.transpose(0, 1)
        return temporal_attention(
            hop.offsets, hop.times, hop.edge_times, asked, neighbours, edges, weight, bias
        ).transpose(0, 1)
    return attend_dense(around, query, neighbours, edges, weight, bias)


def attend_dense(
    around: Neighbourhood,
    query: Tensor,
    neighbours: Tensor,
    edges: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
) -> Tensor:
    """`attend` over rows of `fanout` places, in torch operators, on any device and in float64."""
    return _Attend.apply(around, query, neighbours, edges, weight, bias)


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        around: Neighbourhood,
        query: Tensor,
        neighbours: Tensor,
        edges: Tensor | None,
        weight: Tensor | None,
        bias: Tensor | None,
    ) -> Tensor:
        parts = [around.spread(neighbours)]
        if edges is not None:
            parts.append(around.spread(edges))
        age = None
        if weight is not None:
            age = around.ages()
            parts.append(cosines(age, weight, bias))
        widths = [part.shape[2] for part in parts]
        asked = query.split(widths, dim=2)
        score = torch.bmm(asked[0], parts[0].transpose(1, 2))
        for q, part in zip(asked[1:], parts[1:], strict=True):
            score.baddbmm_(q, part.transpose(1, 2))
        share = _softmax(score, around.mask)
        seen = torch.cat([torch.bmm(share, part) for part in parts], dim=2)
        ctx.around, ctx.widths = around, widths
        ctx.save_for_backward(query, share, age, weight, bias, *parts)
        return seen

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        query, share, age, weight, bias, *parts = ctx.saved_tensors
        given = grad.split(ctx.widths, dim=2)
        to_share = torch.bmm(given[0], parts[0].transpose(1, 2))
        for g, part in zip(given[1:], parts[1:], strict=True):
            to_share.baddbmm_(g, part.transpose(1, 2))
        to_share -= (share * to_share).sum(-1, keepdim=True)
        to_score = to_share.mul_(share)
        to_query = torch.cat([torch.bmm(to_score, part) for part in parts], dim=2)
        # z enters the sums by its share and the scores by the query: one product for both.
        by = torch.cat([share, to_score], dim=1).transpose(1, 2)
        to_rows = to_weight = to_bias = None
        if ctx.needs_input_grad[2]:
            of = torch.cat([given[0], query[:, :, : ctx.widths[0]]], dim=1)
            to_rows = ctx.around.gather(torch.bmm(by, of))
        if weight is not None:
            of = torch.cat([given[-1], query[:, :, -ctx.widths[-1] :]], dim=1)
            slope = torch.bmm(by, of, out=scratch.empty(parts[-1].shape, query)).flatten(0, 1)
            slope *= cosines(age, weight, bias, sines=True).flatten(0, 1)
            to_weight = (age.to(slope.dtype).view(1, -1) @ slope).neg_().t()
            to_bias = slope.sum(0).neg_()
        return None, to_query, to_rows, None, to_weight, to_bias


def _softmax(score: Tensor, mask: Tensor | None) -> Tensor:
    """Softmax over the last dimension where the mask holds, zero elsewhere; [R, heads, fanout]."""
    if mask is None:
        return score.softmax(-1)
    free = ~mask.unsqueeze(1)
    # The most negative number instead of -inf: a row without neighbours must not become NaN.
    score = score.masked_fill_(free, torch.finfo(score.dtype).min)
    return score.softmax(-1).masked_fill_(free, 0)
