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
from dgbench.kernels_cuda.workspace import Workspace

MAX_UNCOUNTED: Final = 1 << 24
"""Capacity for the neighbours of a hop up to which it is allocated without counting them first."""
_WORDS: Final = torch.empty(0, dtype=torch.int64)
_memory: Final = Workspace()
"""Of samples alone: other operators ask for other sizes, and it would be given back each time."""


def sample_batch(
    fill: Callable[[tuple[int, ...], Tensor], Sequence[int]],
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
        capacities = _capacities(roots, fanouts, known)
        sizes = _sizes(roots, capacities, snapshots, prop_time)
        words = sum(sizes)
        out = _memory.empty((_rounded(words),), _WORDS)[:words]
        counts = fill(capacities, out)
        if counts[-1] < 0:
            refuse(-1 - counts[-1])
        hop = (len(counts) - 1) % len(fanouts)
        if counts[-1] <= capacities[hop]:
            return _cut(out, sizes, counts, roots, fanouts, prop_time)
        known[hop] = counts[-1]


def _capacities(roots: int, fanouts: tuple[int, ...], known: dict[int, int]) -> tuple[int, ...]:
    """Neighbours of each hop at most; 0 where these are so many that they are counted first."""
    targets, found = roots, []
    for hop, fanout in enumerate(fanouts):
        most = targets * fanout
        found.append(known.get(hop, most if most <= MAX_UNCOUNTED else 0))
        targets += found[-1]
    return tuple(found)


@functools.lru_cache(maxsize=64)
def _sizes(
    roots: int, capacities: tuple[int, ...], snapshots: int, prop_time: bool
) -> tuple[int, ...]:
    """Words of the parts of the array, in order."""
    targets, by_hop = roots, []
    for capacity in capacities:
        by_hop += [targets + 1, targets]
        targets += capacity
    times = [targets - capacities[-1]] if prop_time else []
    return (targets, targets, targets - roots, *times, *by_hop) * snapshots


def _cut(
    out: Tensor,
    sizes: tuple[int, ...],
    counts: Sequence[int],
    roots: int,
    fanouts: tuple[int, ...],
    prop_time: bool,
) -> list[list[Sample]]:
    """The samples, views of the array."""
    parts, found = iter(out.split_with_sizes(sizes)), []
    for first in range(0, len(counts), len(fanouts)):
        nodes, times, eids = next(parts), next(parts).view(torch.float64), next(parts)
        ends = next(parts).view(torch.float64) if prop_time else times
        taken = counts[first : first + len(fanouts)]
        free = eids.numel() - sum(taken)
        new_nodes, new_times = (a.split_with_sizes((roots, *taken, free)) for a in (nodes, times))
        new_eids = eids.split_with_sizes((*taken, free))
        live, hops = roots, []
        for hop, fanout in enumerate(fanouts):
            offsets, positions = next(parts), next(parts)
            sample = Sample(
                nodes[:live], ends[:live], positions[:live], offsets[: live + 1],
                new_nodes[hop + 1], new_eids[hop], new_times[hop + 1], fanout,
            )  # fmt: skip
            hops.append(sample)
            live += taken[hop]
        found.append(hops)
    return found


def _rounded(words: int) -> int:
    """As many or up to an eighth more: few sizes, so that memory is used again."""
    step = 1 << max(0, words.bit_length() - 4)
    return -(-words // step) * step
