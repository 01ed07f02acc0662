"""Hops around the roots of a batch on the CPU: one array for all of them, filled by one call.

How the array is divided stands in `cpu_hops.hpp`. The targets of a hop are those of the hop before
and then their neighbours, so hops are views of the same vertices and times, and what one hop names
lies in one piece.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Final

import torch
from torch import Tensor

from dgbench.kernels_cuda.temporal_sample.samples import Sample
from dgbench.kernels_cuda.workspace import SMALLEST, Workspace

MAX_UNCOUNTED: Final = 1 << 24
"""Capacity for the neighbours of a hop up to which it is allocated without counting them first."""
_WORDS: Final = torch.empty(0, dtype=torch.int64)
_memory: Final = Workspace()
"""Of samples alone: other operators ask for other sizes, and it would be given back each time."""


def sample_batch(
    fill: Callable[[list[int], Tensor], Sequence[int]],
    refuse: Callable[[int], None],
    roots: int,
    fanouts: tuple[int, ...],
    snapshots: int,
    prop_time: bool,
) -> list[list[Sample]]:
    """Samples by snapshot and hop.

    Args:
        fill: (most neighbours by hop, array) -> numbers of neighbours, of a compiled sampler.
        refuse: called with a root that cannot be asked for; raises.
        roots, fanouts, snapshots, prop_time: of the batch.
    """
    known: dict[int, int] = {}  # neighbours of hops that were counted first
    while True:
        capacities, targets, words = _sizes(
            roots, fanouts, snapshots, prop_time, tuple(known.items()), MAX_UNCOUNTED
        )
        if words < SMALLEST // 8:  # one call instead of three: between steps 14 us, not 42
            out = torch.empty(words, dtype=torch.int64)
        else:
            out = _memory.empty((_rounded(words),), _WORDS)[:words]
        counts = fill(capacities, out)
        if counts[-1] < 0:
            refuse(-1 - counts[-1])
        hop = (len(counts) - 1) % len(fanouts)
        if counts[-1] <= capacities[hop]:
            return _cut(out, targets, counts, fanouts, prop_time)
        known[hop] = counts[-1]


@functools.lru_cache(maxsize=256)
def _sizes(
    roots: int,
    fanouts: tuple[int, ...],
    snapshots: int,
    prop_time: bool,
    known: tuple[tuple[int, int], ...],
    max_uncounted: int,
) -> tuple[list[int], list[int], int]:
    """Neighbours of each hop at most, 0 where these are so many that they are counted first;
    vertices before each hop and behind the last at most; words of the array."""
    counted = dict(known)
    capacities, targets = [], [roots]
    for hop, fanout in enumerate(fanouts):
        most = targets[-1] * fanout
        capacities.append(counted.get(hop, most if most <= max_uncounted else 0))
        targets.append(targets[-1] + capacities[-1])
    return capacities, targets, snapshots * _words(targets, prop_time)


def _words(targets: list[int], prop_time: bool) -> int:
    """Words of one snapshot."""
    by_hop = 2 * sum(targets[:-1]) + len(targets) - 1
    return 3 * targets[-1] - targets[0] + by_hop + (targets[-2] if prop_time else 0)


def _cut(
    out: Tensor,
    targets: list[int],
    counts: Sequence[int],
    fanouts: tuple[int, ...],
    prop_time: bool,
) -> list[list[Sample]]:
    """The samples, views of the array."""
    bits, found, at = out.view(torch.float64), [], 0
    roots, most = targets[0], targets[-1]
    for first in range(0, len(counts), len(fanouts)):
        # Where these stand of vertex 0; an edge has the place of its neighbour.
        nodes, times, eids = at, at + most, at + 2 * most - roots
        ends, at = times, at + 3 * most - roots
        if prop_time:
            ends, at = at, at + targets[-2]
        live, hops = roots, []
        for fanout, count, capacity in zip(fanouts, counts[first:], targets, strict=False):
            offsets, positions, upto = at, at + capacity + 1, live + count
            at = positions + capacity
            sample = Sample(
                out[nodes : nodes + live], bits[ends : ends + live],
                out[positions : positions + live], out[offsets : offsets + live + 1],
                out[nodes + live : nodes + upto], out[eids + live : eids + upto],
                bits[times + live : times + upto], fanout,
            )  # fmt: skip
            hops.append(sample)
            live = upto
        found.append(hops)
    return found


def _rounded(words: int) -> int:
    """As many or up to an eighth more: few sizes, so that memory is used again."""
    step = 1 << max(0, words.bit_length() - 4)
    return -(-words // step) * step
