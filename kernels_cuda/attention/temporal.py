"""Attention of targets to their sampled neighbours, in the ragged rows that a sampler returns."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dgbench.kernels_cuda._checks import check_vector
from dgbench.kernels_cuda._dispatch import call
from dgbench.kernels_cuda.workspace import scratch
from dgbench.runtime.errors import InvalidInputError


def temporal_attention(
    offsets: Tensor,
    times: Tensor,
    edge_times: Tensor,
    query: Tensor,
    neighbours: Tensor,
    edges: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
) -> Tensor:
    """Weighed sums of z = [neighbour | edge | cos(weight age + bias)], by target and head.

    Shares are softmax(query z) over the neighbours of a target; an age is the time from an edge to
    its target. On the CPU, float32; the same bits for every number of threads. Nothing of the size
    of z is kept for the backward pass but what is given, and a share per neighbour and head.

    Args:
        offsets: int64[R + 1], where the neighbours of each target begin.
        times, edge_times: float64[R] of the targets, float64[K] of the edges.
        query: [H, R, D + E + T], H heads.
        neighbours: [K, D].
        edges: [K, E] without gradient, or None for E = 0.
        weight, bias: [T, 1] and [T] of the encoding of ages, or None for T = 0.

    Returns:
        [H, R, D + E + T], zeros for a target without neighbours; differentiable once in `query`,
        `neighbours`, `weight` and `bias`.

    Raises:
        InvalidInputError: a shape or dtype that does not fit, or offsets that fall.
        UnsupportedError: no compiled operator for that device.
    """
    _check(offsets, times, edge_times, query, neighbours, edges, weight, bias)
    return _TemporalAttention.apply(
        offsets, times, edge_times, query, neighbours, edges, weight, bias
    )


def _check(
    offsets: Tensor,
    times: Tensor,
    edge_times: Tensor,
    query: Tensor,
    neighbours: Tensor,
    edges: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
) -> None:
    floats = {"query": (query, 3), "neighbours": (neighbours, 2), "edges": (edges, 2)}
    floats |= {"weight": (weight, 2), "bias": (bias, 1)}
    for name, (array, dims) in floats.items():
        if array is not None and (array.dtype != torch.float32 or array.dim() != dims):
            raise InvalidInputError(
                f"{name} is {array.dtype} with {array.dim()} dimensions, expected torch.float32 "
                f"with {dims}"
            )
    if (weight is None) != (bias is None):
        raise InvalidInputError("weight and bias belong together, one of them is None")
    targets, entries = query.shape[1], neighbours.shape[0]
    check_vector(offsets, "offsets", torch.int64, targets + 1, device=query.device)
    check_vector(times, "times", torch.float64, targets, device=query.device)
    check_vector(edge_times, "edge_times", torch.float64, entries, device=query.device)
    if edges is not None and edges.shape[0] != entries:
        raise InvalidInputError(f"edges has {edges.shape[0]} rows, expected {entries}")
    if weight is not None and tuple(weight.shape) != (bias.numel(), 1):
        raise InvalidInputError(
            f"weight has shape {list(weight.shape)}, expected [{bias.numel()}, 1] as bias has "
            f"{bias.numel()} elements"
        )
    width = sum(a.shape[-1] for a in (neighbours, edges, bias) if a is not None)
    if query.shape[2] != width or query.shape[0] < 1:
        raise InvalidInputError(
            f"query has shape {list(query.shape)}, expected at least one head and {width} columns, "
            "those of neighbours, edges and bias together"
        )


class _TemporalAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        offsets: Tensor,
        times: Tensor,
        edge_times: Tensor,
        query: Tensor,
        neighbours: Tensor,
        edges: Tensor | None,
        weight: Tensor | None,
        bias: Tensor | None,
    ) -> Tensor:
        rows = [offsets, times, edge_times, query, neighbours, edges]
        rows = [array if array is None else array.detach().contiguous() for array in rows]
        encoding = [None, None]
        if weight is not None:
            encoding = [weight.detach().flatten(), bias.detach().contiguous()]
        out = scratch.empty(query.shape, query)
        share = query.new_empty(neighbours.shape[0], query.shape[0])
        try:
            call("temporal_attention_forward", query.device, *rows, *encoding, out, share)
        except ValueError as error:
            raise InvalidInputError(str(error)) from error
        ctx.save_for_backward(*rows, *encoding, share)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        *given, share = ctx.saved_tensors
        query, neighbours, weight = given[3], given[4], given[6]
        to_query = scratch.empty(query.shape, query)
        to_neighbours = to_weight = to_bias = None
        if ctx.needs_input_grad[4]:
            to_neighbours = scratch.empty(neighbours.shape, neighbours)
        if weight is not None:
            to_weight, to_bias = torch.empty_like(weight), torch.empty_like(weight)
        call(
            "temporal_attention_backward", query.device, *given, share, grad.contiguous(),
            to_query, to_neighbours, to_weight, to_bias,
        )  # fmt: skip
        of_weight = None if to_weight is None else to_weight.unsqueeze(1)
        return None, None, None, to_query, to_neighbours, None, of_weight, to_bias
