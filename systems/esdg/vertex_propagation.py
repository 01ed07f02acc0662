"""Parts of vertices without a package: labels that neighbours take over from each other."""

from __future__ import annotations

from typing import Final

import numpy as np

_ROUNDS: Final = 40
_MAX_CELLS: Final = 2**24
"""Vertices times parts that are looked at together."""


def propagate(
    nodes: int,
    size: int,
    rows: np.ndarray,
    cols: np.ndarray,
    times: np.ndarray,
    weight: np.ndarray,
    *,
    imbalance: float,
) -> np.ndarray:
    """Vertices join the part that most of their neighbours are in, as far as parts have room.

    From consecutive ranges of equal weight; in each round a random half of the vertices may move,
    so that neighbours do not change places for ever, and those first that gain most.

    Args:
        nodes, size: N and P.
        rows, cols, times: int64[E], pairs and how strongly each pulls.
        weight: int64[N], at least 1 each.
        imbalance: how much heavier than the mean a part may become; vertices that change places
            are not equally heavy, so that it is kept to about that.

    Returns:
        int64[N], the part of each; always the same for the same arguments.
    """
    ends, others = np.concatenate([rows, cols]), np.concatenate([cols, rows])
    by = np.argsort(ends, kind="stable")
    ends, others = ends[by], others[by]
    strength = np.concatenate([times, times])[by].astype(np.float64)
    begin = np.searchsorted(ends, np.arange(nodes + 1))
    total = weight.sum()
    middle = np.cumsum(weight) - weight / 2
    owner = np.minimum((middle * size / total).astype(np.int64), size - 1)
    capacity, draw = (1 + imbalance) * total / size, np.random.default_rng(1)
    some = max(1, _MAX_CELLS // size)
    for _ in range(_ROUNDS):
        best, gain = np.empty_like(owner), np.empty(nodes)
        for at in range(0, nodes, some):
            stop = min(nodes, at + some)
            own = slice(begin[at], begin[stop])
            key = (ends[own] - at) * size + owner[others[own]]
            pull = np.bincount(key, strength[own], (stop - at) * size).reshape(-1, size)
            each = np.arange(stop - at)
            here = pull[each, owner[at:stop]]
            pull[each, owner[at:stop]] = -1
            best[at:stop] = pull.argmax(1)
            gain[at:stop] = pull[each, best[at:stop]] - here
        willing = np.flatnonzero((gain > 0) & (draw.random(nodes) < 0.5))
        load = np.bincount(owner, weight, size)
        willing = willing[load[best[willing]] <= capacity]
        moving = _agreed(
            owner[willing], best[willing], gain[willing], weight[willing], capacity - load
        )
        if not moving.any():
            break
        owner[willing[moving]] = best[willing[moving]]
    return owner


def _agreed(
    source: np.ndarray, to: np.ndarray, gain: np.ndarray, weight: np.ndarray, capacity: np.ndarray
) -> np.ndarray:
    """Select the moves to make: as many as come the other way, then those that fit."""
    size = len(capacity)
    lane, back = source * size + to, to * size + source
    wanted = np.bincount(lane, weight, size * size)
    moving = _running(lane, gain, weight) <= wanted[back]
    came = np.bincount(to[moving], weight[moving], size)
    went = np.bincount(source[moving], weight[moving], size)
    rest = np.flatnonzero(~moving)
    fits = _running(to[rest], gain[rest], weight[rest]) <= (capacity - came + went)[to[rest]]
    moving[rest[fits]] = True
    return moving


def _running(group: np.ndarray, gain: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Weight of each and of those of its group that gain more."""
    by = np.lexsort((-gain, group))
    total = np.cumsum(weight[by])
    first = np.searchsorted(group[by], group[by])
    found = np.empty(len(by))
    found[by] = total - total[first] + weight[by][first]
    return found
