"""Moving rows between the tables of a worker, with backward passes that are copies as well.

Autograd's own forms of these add into a table of zeros for each use of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dgbench.runtime.meter import Meter


class _Take(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.rows = x.shape[0]
        return x.index_select(0, index)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (index,) = ctx.saved_tensors
        out = grad.new_zeros(ctx.rows, *grad.shape[1:])
        return out.index_add_(0, index, grad), None


def take_rows(x: Tensor, index: Tensor) -> Tensor:
    """Rows of `x` [R, W] by int64[S]; differentiable, a row may be taken more than once."""
    return _Take.apply(x, index)


class _Arrange(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor, back: Tensor) -> Tensor:
        ctx.save_for_backward(back)
        return x.index_select(0, index)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (back,) = ctx.saved_tensors
        return grad.index_select(0, back), None, None


def arrange(x: Tensor, index: Tensor, back: Tensor) -> Tensor:
    """Rows of `x` [R, W] in another order, with fillers in between: [M, W].

    Args:
        x: every row of it is placed exactly once.
        index: int64[M], the row that comes to each place; any row where a filler is.
        back: int64[R], the place of each row. Gradients of fillers go nowhere.
    """
    return _Arrange.apply(x, index, back)


class _Split(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, sizes: Sequence[int], meter: Meter, phase: str
    ) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.meter, ctx.phase, ctx.shapes = meter, phase, [(n, *x.shape[1:]) for n in sizes]
        return x.split(sizes)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, None, None, None]:
        ctx.meter.turn(ctx.phase)
        there = next((grad for grad in grads if grad is not None), None)
        if there is None:
            return None, None, None, None
        parts = zip(grads, ctx.shapes, strict=True)
        whole = torch.cat([there.new_zeros(shape) if g is None else g for g, shape in parts])
        return whole, None, None, None


def split_rows(x: Tensor, sizes: Sequence[int], meter: Meter, phase: str) -> tuple[Tensor, ...]:
    """Runs of the rows of `x`, where they lie; their gradients are written behind each other.

    Args:
        x: [R, W].
        sizes: of the runs, R in all.
        meter, phase: what the backward pass is charged to.
    """
    return _Split.apply(x, sizes, meter, phase)


class _Tie(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, *others: Tensor) -> Tensor:
        ctx.like = [(t.shape, t.dtype) for t in others]
        return x.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        return grad, *(grad.new_zeros(shape, dtype=dtype) for shape, dtype in ctx.like)


def tie(x: Tensor, *others: Tensor) -> Tensor:
    """`x`, whose backward pass also runs those of `others`, with gradients of zero.

    An exchange must run backwards on every worker, also where nothing of it is read.
    """
    others = tuple(t for t in others if t.requires_grad)
    return _Tie.apply(x, *others) if others and torch.is_grad_enabled() else x


class _Turn(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, meter: Meter, phase: str) -> Tensor:
        ctx.meter, ctx.phase = meter, phase
        return x.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        ctx.meter.turn(ctx.phase)
        return grad, None, None


def turn(x: Tensor, meter: Meter, phase: str) -> Tensor:
    """`x`; when its gradient arrives, the meter goes on with another phase."""
    return _Turn.apply(x, meter, phase) if meter.timing and x.requires_grad else x
