"""Cutting a time line into windows, by time value and not by row count."""

from __future__ import annotations

import math

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


def fixed_windows(t: Tensor, length: float, start: float | None = None) -> tuple[Tensor, Tensor]:
    """Cut time into windows of a fixed length, from `start` (default t[0]) to the last event.

    Args:
        t: float64[E], non-decreasing.
        length: length of a window in the unit of `t`, > 0 and finite.
        start: where the first window begins; must not lie after t[0].

    Returns:
        bins int64[E] and edges float64[count + 1]. An event at a boundary is in the later
        window, so the last window may hold only events at its very beginning.
    """
    if not (math.isfinite(length) and length > 0):
        raise InvalidInputError(f"length is {length!r}; a finite number > 0 is allowed")
    if t.numel() == 0:
        return torch.zeros(0, dtype=torch.int64), torch.zeros(1, dtype=torch.float64)
    begin = float(t[0]) if start is None else float(start)
    if begin > float(t[0]):
        raise InvalidInputError(f"start is {begin}; it must not lie after t[0] = {float(t[0])}")
    count = math.floor((float(t[-1]) - begin) / length) + 1
    if count > _TOO_MANY:
        raise InvalidInputError(f"length {length} would make {count} windows")
    edges = begin + length * torch.arange(count + 1, dtype=torch.float64)
    if float(edges[-1]) <= float(t[-1]):  # the division above was rounded down across a boundary
        count += 1
        edges = torch.cat([edges, edges[-1:] + length])
    return _bins(t, edges, count), edges


def _bins(t: Tensor, edges: Tensor, count: int) -> Tensor:
    bins = torch.searchsorted(edges[1:-1].contiguous(), t.contiguous(), right=True)
    return bins.clamp_(0, count - 1)


def _positive(name: str, value: int) -> None:
    if not isinstance(value, int) or value < 1 or value > _TOO_MANY:
        raise InvalidInputError(f"{name} is {value!r}; an integer from 1 to {_TOO_MANY} is allowed")
