"""Layout of the edges of a range of time in steps, and of steps in optimiser steps.

A *step* is a set of edges that are scored from the same state: an interval, a t-batch, or one edge.
A *group* is the steps of one optimiser step. With `strict_time` of the workload edges of one time
are scored from the same state, too, that of before that time: a group ends with the time value that
fills it, and no step parts edges of one time, unless they fill groups of their own (`split`), of a
step each; `InteractionTrainer` then lets them change the state when their time is over.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dgbench.kernels_cuda._checks import check_vector
from dgbench.kernels_cuda.build_info import extension
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.base.time_borders import border_before, time_borders, time_cuts

if TYPE_CHECKING:
    from dgbench.systems.base.interactions import InteractionData

Group = list[Tensor]
"""int64[B] event ordinals of each step, ascending."""


def t_batches(
    src: Tensor, dst: Tensor, neg: Tensor | None, num_nodes: int, t: Tensor | None = None
) -> Tensor:
    """int64[B]: the t-batch of each event (JODIE, KDD 2019, section 4.2), in one pass.

    No vertex occurs in two events of a batch, and an event comes after all earlier events of its
    ends. A negative is only read: its event comes after what was written there before and not
    after what is written later. So going batch by batch is going event by event, exactly, but for
    `propagation`, which changes vertices that an event does not name. With times, events of one
    time are in one batch, and it is going time value by time value.

    Args:
        src, dst: int64[B] in the order of time.
        neg: int64[B], or None.
        num_nodes: N.
        t: float64[B], or None where the order of events decides.

    Raises:
        InvalidInputError: another dtype, shape or length, or ids out of range.
    """
    for name, ids in (("src", src), ("dst", dst), ("neg", neg)):
        if ids is not None:
            check_vector(ids, name, torch.int64, src.numel())
    if t is not None:
        check_vector(t, "t", torch.float64, src.numel())
    return _Batcher(num_nodes)(src, dst, neg, t)


class _Batcher:
    """`t_batches` with scratch that is kept from call to call."""

    def __init__(self, num_nodes: int) -> None:
        self._wrote = torch.full((num_nodes,), -1, dtype=torch.int32)
        self._read = torch.full((num_nodes,), -1, dtype=torch.int32)

    def __call__(self, src: Tensor, dst: Tensor, neg: Tensor | None, t: Tensor | None) -> Tensor:
        batch = torch.empty_like(src)
        others = src.new_empty(0) if neg is None else neg.contiguous()
        times = torch.empty(0, dtype=torch.float64) if t is None else t.contiguous()
        columns = (src.contiguous(), dst.contiguous(), others, times)
        try:
            extension(torch.device("cpu")).t_batches(*columns, self._wrote, self._read, batch, 1)
        except ValueError as error:
            raise InvalidInputError(str(error)) from None
        return batch


def t_batch_groups(
    data: InteractionData,
    first: int,
    last: int,
    batch: int,
    *,
    strict: bool = True,
    split: bool = True,
) -> list[Group]:
    """Events first .. last - 1 in groups of `batch`, each cut into t-batches.

    Batches of t-batches never reach over the border of a group, so that every optimiser step sees
    the same events as one edge by edge.

    Args:
        data: the events. first, last: of them.
        batch: events of a group.
        strict: `strict_time` of the workload; so for the other layouts.
        split: whether a time value that fills several groups is cut into them.
    """
    events, groups = data.events, []
    batcher = _Batcher(events.num_nodes)
    for begin, end in _pieces(data, first, last, batch, strict, split):
        part = slice(begin, end)
        times = events.t[part] if strict else None
        place = batcher(events.src[part], events.dst[part], data.negative[part], times)
        order = place.sort(stable=True).indices
        sizes = torch.bincount(place).tolist()
        groups.append(list((order + begin).split(sizes)))
    return groups


def edge_groups(
    data: InteractionData, first: int, last: int, batch: int, *, strict: bool = True
) -> list[Group]:
    """Events in groups of `batch`, every edge, or all edges of one time, a step of its own."""
    groups = []
    for begin, end in _pieces(data, first, last, batch, strict, split=True):
        sizes = time_borders(data.events.t[begin:end]).diff().tolist() if strict else 1
        groups.append(list(torch.arange(begin, end).split(sizes)))
    return groups


def interval_groups(
    data: InteractionData, first: int, last: int, width: int, *, strict: bool = True
) -> list[Group]:
    """Intervals of `width` events, each a step and an optimiser step."""
    pieces = _pieces(data, first, last, width, strict, split=False)
    return [[torch.arange(begin, end)] for begin, end in pieces]


def _pieces(
    data: InteractionData, first: int, last: int, size: int, strict: bool, split: bool
) -> list[tuple[int, int]]:
    """First event of each group and the one after its last."""
    if not strict:
        return list(pairwise([*range(first, last, size), last]))
    times = data.events.t[first:last]
    found = []
    for begin, end in pairwise(time_cuts(times, size)):
        cuts = [begin, end]
        if split and end - begin > 1.5 * size:  # by its last time value, which is kept apart
            value = int(border_before(times, torch.tensor(end - 1)))
            shares = max(1, round((end - value) / size))
            cuts = [value + (end - value) * share // shares for share in range(shares + 1)]
            cuts = cuts if value == begin else [begin, *cuts]
        found += pairwise(cuts)
    return [(first + begin, first + end) for begin, end in found]
