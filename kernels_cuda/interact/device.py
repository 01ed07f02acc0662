"""Helpers of `interact` on a device: groups of edges by torch, and buffers for partial sums.

Rows that a power law makes long are cut into pieces of `PIECE` edges, whose sums are added up in
the order of the pieces: nothing is added atomically, and the same input always gives the same bits.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

__all__ = ["PIECE", "group_rows", "piece_room"]

PIECE: Final = 64
"""Edges of a row that one group of lanes adds up (interact/cuda_launchers.h)."""


def group_rows(rows: Tensor, num_rows: int) -> tuple[Tensor, Tensor]:
    """Group edges by a row of each, in their order inside a group; see `interact.group_edges`.

    Args:
        rows: int64[P] in [0, num_rows).
        num_rows: below 2^31.

    Returns:
        offsets int64[num_rows + 1] and order int64[P].
    """
    # Half the digits to sort by.
    found = torch.sort(rows.to(torch.int32), stable=True)
    bounds = torch.arange(num_rows + 1, dtype=torch.int32, device=rows.device)
    return torch.searchsorted(found.values, bounds), found.indices


def piece_room(edges: int, like: Tensor) -> Tensor:
    """Scratch of `interact_sums` for so many edges of rows like those of `like`."""
    return like.new_empty(2 * -(-edges // PIECE) * like.shape[1])
