"""Operators over the edges of an interval: sums over partners, products of rows, groups.

An interval names vertices by *rows* 0 .. n - 1 of dense arrays (see `local_rows`). All sums are
added in the order of the edges, one thread per row, so results do not depend on threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dgbench.kernels_cuda._checks import FLOATS, check_ids
from dgbench.kernels_cuda._dispatch import call
from dgbench.kernels_cuda.interact.device import group_rows, piece_room
from dgbench.runtime.errors import InvalidInputError

__all__ = [
    "Groups",
    "LocalRows",
    "PartnerSums",
    "edge_dots",
    "group_edges",
    "local_rows",
    "partner_sums",
]


@dataclass(frozen=True, eq=False)
class Groups:
    """Edges grouped by one of their ends, in their order inside a group.

    Attributes:
        offsets: int64[n + 1]: where the edges of each row begin in `order`.
        order: int64[P]: edges.
    """

    offsets: Tensor
    order: Tensor

    @cached_property
    def counts(self) -> Tensor:
        """int32[n]: edges of each row; not to be written to."""
        return self.offsets.diff().to(torch.int32)


class PartnerSums(NamedTuple):
    """Sums over the partners of rows, by role.

    Attributes:
        sum_s: floating [n_s, H]: of `e_dst` over a row's edges as a source.
        count_s: int32[n_s].
        sum_g: floating [n_g, H]: of `e_src` over a row's edges as a destination.
        count_g: int32[n_g].
    """

    sum_s: Tensor
    count_s: Tensor
    sum_g: Tensor
    count_g: Tensor


class LocalRows(NamedTuple):
    """Vertices of some edges, and the edges in their rows.

    Rows come in four classes, one behind the other, each ascending by id: only source; source and
    destination or negative; destination but no source; only negative. So sources are rows
    [0, sources), what is scored as a target rows [targets, len(ids)), ends rows [0, ends).

    Attributes:
        ids: int64[U] vertices.
        src, dst, neg: int64[B] rows; `neg` is empty where none was given.
        sources, targets, ends: see above.
    """

    ids: Tensor
    src: Tensor
    dst: Tensor
    neg: Tensor
    sources: int
    targets: int
    ends: int


def group_edges(rows: Tensor, num_rows: int) -> Groups:
    """Group edges by a row of each: a stable counting sort.

    Args:
        rows: int64[P] in [0, num_rows).
        num_rows: n.

    Raises:
        InvalidInputError: another dtype, or a row out of range.
    """
    _check_rows(rows, "rows", num_rows)
    if rows.device.type == "cuda":
        return Groups(*group_rows(rows, num_rows))
    offsets = torch.empty(num_rows + 1, dtype=torch.int64, device=rows.device)
    order = torch.empty_like(rows)
    call("interact_group", rows.device, rows.contiguous(), offsets, order)
    return Groups(offsets, order)


def partner_sums(
    src: Tensor,
    dst: Tensor,
    e_src: Tensor,
    e_dst: Tensor,
    *,
    last: bool = False,
    by_src: Groups | None = None,
    by_dst: Groups | None = None,
) -> PartnerSums:
    """Add up each row's partners by role: two sparse products of one pass each, not differentiable.

    Args:
        src, dst: int64[B], rows of `e_src` and of `e_dst`.
        e_src, e_dst: floating [n_s, H], [n_g, H], same dtype and device.
        last: take each row's last partner instead of the sum; counts are then 1 or 0.
        by_src, by_dst: edges grouped by source and destination, where they are known.

    Raises:
        InvalidInputError: with the argument's name, what was found and what is allowed.
    """
    _check_pairs(src, dst, e_src, e_dst, ("e_src", "e_dst"))
    by_src = group_edges(src, e_src.shape[0]) if by_src is None else by_src
    by_dst = group_edges(dst, e_dst.shape[0]) if by_dst is None else by_dst
    found: list[Tensor] = []
    for groups, other, x in ((by_src, dst, e_dst), (by_dst, src, e_src)):
        sums = _sums(groups, other, None, x.detach(), last=last)
        counts = groups.counts
        found += [sums, counts.clamp(max=1) if last else counts]
    return PartnerSums(*found)


def edge_dots(
    src: Tensor,
    dst: Tensor,
    left: Tensor,
    right: Tensor,
    *,
    by_src: Groups | None = None,
    by_dst: Groups | None = None,
) -> Tensor:
    """[P]: the product of row `src` of `left` with row `dst` of `right`; differentiable in both.

    The gradients are two sparse products over the edges grouped by either end; the groups are made
    in the backward pass where they are not given.

    Args:
        src, dst: int64[P].
        left, right: floating [n, H], [m, H], same dtype and device.
        by_src, by_dst: the groups.

    Raises:
        InvalidInputError: as `partner_sums`.
    """
    _check_pairs(src, dst, left, right, ("left", "right"))
    return _EdgeDots.apply(src, dst, left, right, by_src, by_dst)


class _EdgeDots(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        src: Tensor,
        dst: Tensor,
        left: Tensor,
        right: Tensor,
        by_src: Groups | None,
        by_dst: Groups | None,
    ) -> Tensor:
        left, right = left.contiguous(), right.contiguous()
        ctx.save_for_backward(src, dst, left, right)
        ctx.groups = by_src, by_dst
        out = left.new_empty(src.numel())
        call("interact_dots", left.device, src, dst, left, right, out)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        src, dst, left, right = ctx.saved_tensors
        by_src, by_dst = ctx.groups
        grad = grad.contiguous()
        d_left = d_right = None
        if ctx.needs_input_grad[2]:
            by_src = group_edges(src, left.shape[0]) if by_src is None else by_src
            d_left = _sums(by_src, dst, grad, right)
        if ctx.needs_input_grad[3]:
            by_dst = group_edges(dst, right.shape[0]) if by_dst is None else by_dst
            d_right = _sums(by_dst, src, grad, left)
        return None, None, d_left, d_right, None, None


def _sums(
    groups: Groups, other: Tensor, weight: Tensor | None, x: Tensor, *, last: bool = False
) -> Tensor:
    """[n, H]: of x over the other ends of each row's edges, weighted; or that of its last edge."""
    out = x.new_empty(groups.offsets.numel() - 1, x.shape[1])
    scratch = (piece_room(other.numel(), x),) if x.device.type == "cuda" else ()
    call(
        "interact_sums", x.device, groups.offsets, groups.order, other, weight, x.contiguous(), out,
        last, *scratch,
    )  # fmt: skip
    return out


def local_rows(src: Tensor, dst: Tensor, neg: Tensor | None, scratch: Tensor) -> LocalRows:
    """The vertices that edges name, each once, and the edges in their rows. On the CPU.

    Args:
        src, dst: int64[B] vertices.
        neg: int64[B] vertices to be scored as targets too, or None.
        scratch: int32[N], all -1 before and after; N bounds the ids.

    Raises:
        InvalidInputError: dtype, length, or an id out of range.
    """
    limit = scratch.numel()
    for name, ids in (("src", src), ("dst", dst), ("neg", neg)):
        if ids is not None:
            _check_rows(ids, name, limit)
    if dst.numel() != src.numel() or (neg is not None and neg.numel() != src.numel()):
        raise InvalidInputError("src, dst and neg must be equally long")
    if scratch.dtype != torch.int32 or scratch.device.type != "cpu":
        raise InvalidInputError("scratch must be int32 on the CPU")
    neg = src.new_empty(0) if neg is None else neg.contiguous()
    rows = torch.empty(2 * src.numel() + neg.numel(), dtype=torch.int64)
    ids = torch.empty_like(rows)
    counts = torch.zeros(4, dtype=torch.int64)
    call(
        "interact_local_rows", src.device, src.contiguous(), dst.contiguous(), neg, scratch, ids,
        rows, counts,
    )  # fmt: skip
    only, both, target, extra = counts.tolist()
    size = src.numel()
    return LocalRows(
        ids[: only + both + target + extra],
        rows[:size],
        rows[size : 2 * size],
        rows[2 * size :],
        only + both,
        only,
        only + both + target,
    )


def _check_rows(rows: Tensor, name: str, limit: int) -> None:
    if not isinstance(rows, Tensor) or rows.dtype != torch.int64 or rows.dim() != 1:
        raise InvalidInputError(f"{name} must be a torch.int64 tensor with one dimension")
    if rows.device.type == "cpu":  # looking at them on a device would wait for it
        check_ids(rows, name, limit)


def _check_pairs(
    src: Tensor, dst: Tensor, left: Tensor, right: Tensor, names: tuple[str, str]
) -> None:
    for name, x in zip(names, (left, right), strict=True):
        if not isinstance(x, Tensor) or x.dtype not in FLOATS or x.dim() != 2:
            raise InvalidInputError(f"{name} must be floating with two dimensions")
    if left.dtype != right.dtype or left.device != right.device:
        raise InvalidInputError(
            f"{names[0]} is {left.dtype} on {left.device}, {names[1]} is {right.dtype} on "
            f"{right.device}; they must agree"
        )
    if left.shape[1] != right.shape[1]:
        raise InvalidInputError(
            f"{names[0]} has {left.shape[1]} columns, {names[1]} {right.shape[1]}; they must agree"
        )
    _check_rows(src, "src", left.shape[0])
    _check_rows(dst, "dst", right.shape[0])
    if src.numel() != dst.numel():
        raise InvalidInputError(f"src has {src.numel()} edges, dst {dst.numel()}")
    if src.device != left.device or dst.device != left.device:
        raise InvalidInputError(f"src and dst must lie on {left.device}, as {names[0]}")
