"""The stream of events that contenders race on where no data is asked for."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from dgbench.systems.gnnflow.contenders.base import ContenderEvents

EXPONENT, SHIFT = 0.9, 10
"""A vertex of rank r is an end with a probability that follows (r + 10) ^ -0.9."""


def synthetic_events(vertices: int, edges: int, *, seed: int = 1) -> ContenderEvents:
    """A power-law stream: both ends by the same law, integer times below 2^24.

    Times stay exact in float32, so that contenders which keep them so lose nothing here.

    Args:
        vertices, edges: N and E.
        seed: of numpy's default generator.
    """
    rng = np.random.default_rng(seed)
    weight = (np.arange(vertices) + SHIFT) ** -EXPONENT
    upto = np.cumsum(weight / weight.sum())
    names = rng.permutation(vertices)
    ends = names[np.searchsorted(upto, rng.random((2, edges))).clip(max=vertices - 1)]
    times = np.sort(rng.integers(0, 2**24, edges)).astype(np.float64)
    return ContenderEvents(vertices, *(torch.from_numpy(a.copy()) for a in (*ends, times)))


def batch_roots(
    events: ContenderEvents, first: int, count: int, *, seed: int = 1
) -> tuple[Tensor, Tensor]:
    """Roots of a batch: sources, destinations and random negatives of `count` events in a row.

    Returns:
        Vertices int64[3 count] and times float64[3 count].
    """
    part = slice(first, first + count)
    src, dst, t = events.src[part], events.dst[part], events.t[part]
    draw = torch.Generator().manual_seed(seed + first)
    negatives = torch.randint(events.num_nodes, (src.numel(),), generator=draw)
    return torch.cat([src, dst, negatives]), t.repeat(3)
