"""Cutting a time line into windows, by time value and not by row count."""

from __future__ import annotations

import torch
from torch import Tensor

from dgbench.runtime.errors import InvalidInputError

_TOO_MANY = 2**31 - 1


def equal_windows(t: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Cut [t[0], t[-1]] into `count` windows of equal length.

    Window k is [edges[k], edges[k + 1]), closed on the right only for the last one, so that
    every event has a window. Where all times are equal they fall into the first.

    Args:
        t: float64[E], non-decreasing.
        count: number of windows, >= 1.

    Returns:
        bins int64[E] in 0 .. count - 1 and edges float64[count + 1].
    """
    _positive("count", count)
    if t.numel() == 0:
        return torch.zeros(0, dtype=torch.int64), torch.zeros(count + 1, dtype=torch.float64)
    first, last = float(t[0]), float(t[-1])
    edges = torch.linspace(first, last, count + 1, dtype=torch.float64)
    edges[0], edges[-1] = first, last
    if first == last:
        return torch.zeros(t.numel(), dtype=torch.int64), edges
    return _bins(t, edges, count), edges


def _bins(t: Tensor, edges: Tensor, count: int) -> Tensor:
    bins = torch.searchsorted(edges[1:-1].contiguous(), t.contiguous(), right=True)
    return bins.clamp_(0, count - 1)


def _positive(name: str, value: int) -> None:
    if not isinstance(value, int) or value < 1 or value > _TOO_MANY:
        raise InvalidInputError(f"{name} is {value!r}; an integer from 1 to {_TOO_MANY} is allowed")
