"""Events as cliques of co-authors: a paper joins all of its authors at one time."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from dgbench.kernels_cuda.twins import (
    SLOT_CLIQUE,
    RankCopySpec,
    exact_log2,
    rank_copy,
    uniforms,
)
from dgbench.runtime.errors import InvalidInputError

LARGEST_GROUP = 512


def group_sizes(groups: int, mean: float, seed: int) -> np.ndarray:
    """Sizes int64[groups]: 2 plus a geometric number of mean `mean` - 2."""
    u = uniforms(seed, 0, groups, SLOT_CLIQUE)
    if mean == 2:
        return np.full(groups, 2, np.int64)
    stay = (mean - 2) / (mean - 1)  # P(size > n + 1 | size > n)
    more = np.floor(exact_log2(1.0 - u) / exact_log2(np.array([stay]))[0])
    return np.minimum(2 + more.astype(np.int64), LARGEST_GROUP)


def _attempt(
    spec: RankCopySpec, mean: float, groups: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Members and their group, int64 each, without a repeated member inside a group."""
    sizes = group_sizes(groups, mean, seed)
    total = int(sizes.sum())
    # The source side of a graph with one destination is exactly "arrive, remember or rank".
    one_side = replace(
        spec,
        events=total,
        num_dst=1,
        repeat=0.0,
        reply=0.0,
        loop=0.0,
        simple=False,
        reach_src=max(1, round(spec.reach_src * total / spec.events)),
        reach_dst=1,
        reach_pair=1,
    )
    member, _ = rank_copy(one_side, seed)
    group = np.repeat(np.arange(groups), sizes)
    _, kept = np.unique(group * np.int64(spec.num_src) + member, return_index=True)
    kept.sort()
    return member[kept], group[kept]


def clique_stream(
    spec: RankCopySpec, mean: float, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Edges in cliques: src, dst, group, each int64[events].

    Group sizes are 2 plus a geometric number, with mean `mean`, at most `LARGEST_GROUP`; the
    last group is cut so that the number of events is exact. Members are drawn like sources:
    those due to arrive, otherwise from memory or by rank; one that is drawn twice for a group
    counts once. `group` holds for every event the number of the first event of its group. A
    vertex may stay without an edge if its only group was cut.

    Raises:
        InvalidInputError: a mean below 2, two sides of vertices, or more vertices than the
            groups have room for.
    """
    if spec.num_dst or not mean >= 2:
        raise InvalidInputError(
            f"cliques need one pool of vertices and a mean of at least 2, got {mean}"
        )
    # Geometric sizes: the mean number of pairs is m (m - 1) - (m - 2) / 2 less what repeats take.
    groups = max(1, math.ceil(spec.events / max(1.0, mean * (mean - 1) - (mean - 2) / 2)))
    for _ in range(64):
        if groups * mean > spec.num_src:
            member, group = _attempt(spec, mean, groups, seed)
            sizes = np.bincount(group, minlength=groups)
            pairs = sizes * (sizes - 1) // 2
            made = int(pairs.sum())
            if made >= spec.events:
                return _edges(member, sizes, pairs, spec.events)
            groups = math.ceil(groups * min(2.0, 1.02 * spec.events / max(made, 1)))
        else:
            groups = math.ceil(groups * 1.25) + 1
    raise InvalidInputError(
        f"no cliques of mean size {mean:g} give {spec.events} events over {spec.num_src} vertices"
    )


def _edges(
    member: np.ndarray, sizes: np.ndarray, pairs: np.ndarray, events: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    first_member = np.cumsum(sizes) - sizes
    first_event = np.cumsum(pairs) - pairs
    owner = np.repeat(np.arange(len(sizes)), pairs)[:events]
    p = np.arange(events) - first_event[owner]
    high = ((1.0 + np.sqrt(1.0 + 8.0 * p)) / 2.0).astype(np.int64)  # pairs (low, high), low < high
    low = p - high * (high - 1) // 2
    base = first_member[owner]
    return member[base + low], member[base + high], first_event[owner]
