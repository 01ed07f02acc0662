"""Fill of the grids: use of the devices' time under a cut of the vertices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dgbench.runtime.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class GridBalance:
    """The fill of T x G x G grids.

    Attributes:
        largest: edges of the largest grid, in means over all grids.
        busy: devices that train on average where a phase lasts as long as its fullest grid; G
            where all grids of each phase are equal.
    """

    largest: float
    busy: float


def balance(counts: Tensor, assignments: Sequence[Sequence[int]] | None = None) -> GridBalance:
    """Judge the fill of grids.

    Args:
        counts: int64[T, G, G], edges of each grid.
        assignments: for each phase the destination part that each device trains
            (`Schedule.assignments`); None: in turns, device i has part (i + p) mod G in phase p.

    Raises:
        InvalidInputError: a shape that is not [T, G, G], or no edges.
    """
    if counts.dim() != 3 or counts.shape[1] != counts.shape[2] or not int(counts.sum()):
        raise InvalidInputError(
            f"'counts' is {list(counts.shape)} with {int(counts.sum())} edges; needed: [T, G, G] "
            "and at least one edge"
        )
    parts = counts.shape[1]
    every = torch.arange(parts)
    phases = assignments or [((every + p) % parts).tolist() for p in range(parts)]
    total = float(counts.sum())
    fullest = sum(int(counts[:, every, torch.tensor(row)].amax(1).sum()) for row in phases)
    return GridBalance(
        largest=float(counts.max()) * counts.numel() / total,
        busy=total / fullest,
    )
