"""Results of temporal samplers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Padded:
    """A sample as rectangles.

    Attributes:
        index: int64[R, fanout], places in the sample's flat arrays, 0 where there is none.
        mask: bool[R, fanout], whether there is one.
    """

    index: Tensor
    mask: Tensor


@dataclass(frozen=True, slots=True)
class Sample:
    """One hop of one snapshot: R targets and the K neighbours sampled for them.

    Attributes:
        nodes, times: int64[R], float64[R], the targets; a target looks at what was before its time.
        positions: int64[R], what the targets' random numbers are counted by.
        offsets: int64[R + 1], where each target's neighbours begin and end.
        neighbours, eids, edge_times: int64[K], int64[K], float64[K].
        fanout: neighbours of a target at most.
        uncounted: whether arrays have room for the most targets and neighbours, which nobody has
            counted yet: the first `offsets[-1]` neighbours hold, and targets behind the last one
            have none.
    """

    nodes: Tensor
    times: Tensor
    positions: Tensor
    offsets: Tensor
    neighbours: Tensor
    eids: Tensor
    edge_times: Tensor
    fanout: int
    uncounted: bool = False

    def padded(self) -> Padded:
        """The neighbours as R rows of `fanout` places."""
        places = self.offsets[:-1, None] + torch.arange(self.fanout, device=self.offsets.device)
        mask = places < self.offsets[1:, None]  # [R, fanout]
        return Padded(places.masked_fill_(~mask, 0), mask)


@dataclass(frozen=True, slots=True)
class Walks:
    """Walks backwards in time.

    Attributes:
        nodes: int64[R, length + 1], the root first, -1 where a walk has ended.
        times: float64[R, length + 1], the root's time, then those of the edges; nan where ended.
        eids: int64[R, length], the edges walked, -1 where a walk has ended.
    """

    nodes: Tensor
    times: Tensor
    eids: Tensor
