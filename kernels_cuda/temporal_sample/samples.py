"""Results of temporal samplers."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


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
