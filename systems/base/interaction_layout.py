"""How the edges of a range of time are laid out in steps, and steps in optimiser steps.

A *step* is a set of edges that are scored from the same state: an interval, a t-batch, or one edge.
A *group* is the steps of one optimiser step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dgbench.kernels_cuda.build_info import extension
from dgbench.runtime.errors import InvalidInputError

if TYPE_CHECKING:
    from dgbench.systems.base.interactions import InteractionData

Group = list[Tensor]
"""int64[B] event ordinals of each step, ascending."""


def t_batches(src: Tensor, dst: Tensor, neg: Tensor | None, num_nodes: int) -> Tensor:
    """int64[B]: the t-batch of each event (JODIE, KDD 2019, section 4.2), in one pass.

    No vertex occurs in two events of a batch, and an event comes after all earlier events of its
    ends. A negative is only read: its event comes after what was written there before and not
    after what is written later. So going batch by batch is going event by event, exactly.

    Args:
        src, dst: int64[B] in the order of time.
        neg: int64[B], or None.
        num_nodes: N.

    Raises:
        InvalidInputError: lengths that differ, or ids out of range.
    """
    if dst.numel() != src.numel() or (neg is not None and neg.numel() != src.numel()):
        raise InvalidInputError("src, dst and neg must be equally long")
    return _Batcher(num_nodes)(src, dst, neg)


class _Batcher:
    """`t_batches` with scratch that is kept from call to call."""

    def __init__(self, num_nodes: int) -> None:
        self._wrote = torch.full((num_nodes,), -1, dtype=torch.int32)
        self._read = torch.full((num_nodes,), -1, dtype=torch.int32)

    def __call__(self, src: Tensor, dst: Tensor, neg: Tensor | None) -> Tensor:
        batch = torch.empty_like(src)
        others = src.new_empty(0) if neg is None else neg.contiguous()
        try:
            extension(torch.device("cpu")).t_batches(
                src.contiguous(), dst.contiguous(), others, self._wrote, self._read, batch, 1
            )
        except ValueError as error:
            raise InvalidInputError(str(error)) from None
        return batch


def t_batch_groups(data: InteractionData, first: int, last: int, batch: int) -> list[Group]:
    """Events first .. last - 1 in groups of `batch`, each cut into t-batches.

    Batches of t-batches never reach over the border of a group, so that every optimiser step sees
    the same events as one edge by edge.
    """
    events, groups = data.events, []
    batcher = _Batcher(events.num_nodes)
    for begin in range(first, last, batch):
        part = slice(begin, min(begin + batch, last))
        place = batcher(events.src[part], events.dst[part], data.negative[part])
        order = place.sort(stable=True).indices
        sizes = torch.bincount(place).tolist()
        groups.append(list((order + begin).split(sizes)))
    return groups


def edge_groups(first: int, last: int, batch: int) -> list[Group]:
    """Events in groups of `batch`, every edge a step of its own."""
    return [
        list(torch.arange(begin, min(begin + batch, last)).split(1))
        for begin in range(first, last, batch)
    ]


def interval_groups(first: int, last: int, width: int) -> list[Group]:
    """Intervals of `width` events, each a step and an optimiser step."""
    return [[torch.arange(begin, min(begin + width, last))] for begin in range(first, last, width)]
