"""Statistics of event streams that twins are fitted to and compared by.

Arrays are numpy: src, dst int64[E], t float64[E] non-decreasing. Snapshot statistics take the
window of every event, int64[E] in 0 .. T - 1 (`windows`). Each function says what happens to
degenerate input; none raises on an empty stream unless stated.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from dgbench.datasets.twins.fit import distinct_pairs

__all__ = [
    "balance",
    "burstiness",
    "degree_percentiles",
    "degrees",
    "distinct_pairs",
    "edge_life_growth",
    "gini",
    "hub",
    "lists",
    "overlap",
    "presence",
    "reciprocity",
    "sampled_overlap",
    "vertex_overlap",
    "windows",
]


def windows(t: np.ndarray, window: float, count: int) -> np.ndarray:
    """Window of every event, from the first time; events after the last window belong to it."""
    if not len(t):
        return np.zeros(0, np.int64)
    return np.minimum(((t - t[0]) // window).astype(np.int64), count - 1)


def degrees(ids: np.ndarray) -> np.ndarray:
    """Ascending degrees of the vertices that occur, int64[n]."""
    counts = np.bincount(ids) if len(ids) else np.zeros(0, np.int64)
    return np.sort(counts[counts > 0])


def degree_percentiles(ids: np.ndarray) -> tuple[int, int, int, int]:
    """50th, 90th, 99th percentile and largest degree of a side; zeros when it is empty."""
    d = degrees(ids)
    if not len(d):
        return 0, 0, 0, 0
    return tuple(round(x) for x in np.percentile(d, (50, 90, 99, 100)))


def hub(ids: np.ndarray) -> float:
    """Largest degree over the number of events."""
    return float(degrees(ids)[-1] / len(ids)) if len(ids) else 0.0


def gini(degree: np.ndarray) -> float:
    """Gini coefficient of degrees (zeros included as given); 0 for an empty or zero array."""
    d = np.sort(degree)
    total = d.sum()
    if total == 0:
        return 0.0
    return float(1.0 + 1.0 / len(d) - 2.0 * np.cumsum(d, dtype=np.float64).sum() / total / len(d))


def balance(degree: np.ndarray) -> float:
    """Balanced inequality ratio: the top share x of vertices holds share 1 - x of the edges."""
    d = np.sort(degree)[::-1].astype(np.float64)
    if not d.sum():
        return 0.5
    held = np.cumsum(d) / d.sum()
    share = np.arange(1, len(d) + 1) / len(d)
    return float(share[np.argmax(share + held >= 1.0)])


def reciprocity(src: np.ndarray, dst: np.ndarray) -> float:
    """Share of the distinct pairs without loops whose reverse is also there."""
    base = np.int64(max(src.max(initial=0), dst.max(initial=0)) + 1)
    pairs = np.unique((src * base + dst)[src != dst])
    if not len(pairs):
        return 0.0
    return float(np.isin((pairs % base) * base + pairs // base, pairs).mean())


def overlap(src: np.ndarray, dst: np.ndarray, window: np.ndarray) -> float:
    """Mean Jaccard similarity of the pair sets of adjacent windows (both empty: left out)."""
    base = np.int64(dst.max(initial=0) + 1)
    return _adjacent_jaccard(src * base + dst, window)


def vertex_overlap(src: np.ndarray, dst: np.ndarray, window: np.ndarray) -> float:
    """Mean Jaccard similarity of the sets of active vertices of adjacent windows."""
    return _adjacent_jaccard(np.concatenate([src, dst]), np.concatenate([window, window]))


def presence(src: np.ndarray, dst: np.ndarray, window: np.ndarray, count: int) -> float:
    """Mean share of the windows between a vertex's first and last event, both included."""
    ids = np.concatenate([src, dst])
    at = np.concatenate([window, window])
    if not len(ids):
        return 0.0
    first = np.full(ids.max() + 1, count, np.int64)
    last = np.full(ids.max() + 1, -1, np.int64)
    np.minimum.at(first, ids, at)
    np.maximum.at(last, ids, at)
    seen = last >= 0
    return float((last - first + 1)[seen].mean() / count)


def edge_life_growth(
    src: np.ndarray, dst: np.ndarray, window: np.ndarray, count: int, life: int
) -> float:
    """Non-zeros of all snapshots when an edge stays for `life` windows, over those when it does
    not; repeated pairs inside a snapshot count once. 1 for an empty stream."""
    base = np.int64(dst.max(initial=0) + 1)
    keys = np.unique((src * base + dst) * np.int64(count) + window)
    if not len(keys):
        return 1.0
    pair, at = keys // count, keys % count
    stays = np.minimum(life, count - at)
    same = pair[1:] == pair[:-1]
    stays[:-1][same] = np.minimum(stays[:-1], at[1:] - at[:-1])[same]
    return float(stays.sum() / len(keys))


def burstiness(src: np.ndarray, dst: np.ndarray, t: np.ndarray) -> float:
    """Mean of (s - m) / (s + m) over vertices with at least ten events, m and s being mean and
    standard deviation of the times between their events (all at one time: 0); 0 if there is no
    such vertex."""
    ids, at = np.concatenate([src, dst]), np.concatenate([t, t])
    order = np.lexsort((at, ids))
    ids, at = ids[order], at[order]
    gap, owner = np.diff(at)[ids[1:] == ids[:-1]], ids[1:][ids[1:] == ids[:-1]]
    size = int(ids.max(initial=-1)) + 1
    n = np.bincount(owner, minlength=size)
    enough = n >= 9
    if not enough.any():
        return 0.0
    mean = np.bincount(owner, gap, size)[enough] / n[enough]
    square = np.bincount(owner, gap * gap, size)[enough] / n[enough]
    spread = np.sqrt(np.maximum(square - mean * mean, 0.0))
    total = mean + spread
    return float(
        np.mean(np.divide(spread - mean, total, out=np.zeros_like(total), where=total > 0))
    )


def lists(src: np.ndarray, dst: np.ndarray, *, threshold: int = 64) -> tuple[float, int]:
    """Lengths of block lists when edges arrive in batches and are stored at both ends.

    The batch is max(200, E / 1000) edges.

    Returns:
        Mean list with adaptive blocks (a new block holds what is left of the batch, at least
        min(degree after it, threshold)), and the longest list with one block a vertex and batch.
    """
    events = len(src)
    if not events:
        return 0.0, 0
    batch = max(200, events // 1000)
    size = int(max(src.max(), dst.max())) + 1
    degree, room = np.zeros(size, np.int64), np.zeros(size, np.int64)
    adaptive, straw = np.zeros(size, np.int64), np.zeros(size, np.int64)
    for first in range(0, events, batch):
        part = slice(first, first + batch)
        v, new = np.unique(np.concatenate([src[part], dst[part]]), return_counts=True)
        left = new - np.minimum(new, room[v])
        grown = left > 0
        degree[v] += new
        block = np.maximum(left, np.minimum(degree[v], threshold))
        room[v] = np.where(grown, block - left, room[v] - new)
        adaptive[v] += grown
        straw[v] += 1
    return float(adaptive[degree > 0].mean()), int(straw.max())


def sampled_overlap(
    src: np.ndarray, dst: np.ndarray, rounds: np.ndarray, *, fanout: int = 10, seed: int = 0
) -> tuple[float, float]:
    """Mean Jaccard similarity of the vertex sets and of the event sets that adjacent rounds
    touch: both endpoints of a round's events, and up to `fanout` of the earlier events of each
    (one hop, uniform, all of them where there are fewer)."""
    rng = np.random.default_rng(seed)
    events = len(src)
    owner = np.concatenate([src, dst])
    other = np.concatenate([dst, src])
    event = np.concatenate([np.arange(events)] * 2)
    order = np.lexsort((event, owner))
    owner, other, event = owner[order], other[order], event[order]
    start = np.searchsorted(owner, np.arange(owner.max(initial=-1) + 2))
    key = owner * np.int64(events + 1) + event
    nodes, edges = _AdjacentOverlap(len(start)), _AdjacentOverlap(events)
    bounds = np.searchsorted(rounds, np.arange(rounds.max(initial=-1) + 2))
    for r in range(len(bounds) - 1):
        part = slice(bounds[r], bounds[r + 1])
        roots = np.concatenate([src[part], dst[part]])
        at = np.concatenate([np.arange(part.start, part.stop)] * 2)
        low = start[roots]
        have = np.searchsorted(key, roots * np.int64(events + 1) + at) - low
        few = have <= fanout
        picks = np.arange(fanout)
        taken = np.where(
            few[:, None], picks, np.floor(rng.random((len(roots), fanout)) * have[:, None])
        ).astype(np.int64)
        valid = taken < have[:, None]
        where = (low[:, None] + taken)[valid]
        nodes.add(np.concatenate([roots, other[where]]))
        edges.add(event[where])
    return nodes.mean, edges.mean


class _AdjacentOverlap:
    """Mean Jaccard similarity of adjacent sets of ids below `size`, without sorting them."""

    def __init__(self, size: int) -> None:
        self._place = np.zeros(size, np.int64)  # of an id in the set that is added
        self._last = np.full(size, -1, np.int64)  # set that an id was seen in
        self._count, self._before = 0, 0
        self._values: list[float] = []

    def add(self, ids: np.ndarray) -> None:
        """Take the next set; ids may repeat."""
        places = np.arange(len(ids))
        self._place[ids] = places
        ids = ids[self._place[ids] == places]
        both = np.count_nonzero(self._last[ids] == self._count - 1) if self._count else 0
        if self._count and (len(ids) or self._before):
            self._values.append(both / (len(ids) + self._before - both))
        self._last[ids] = self._count
        self._count, self._before = self._count + 1, len(ids)

    @property
    def mean(self) -> float:
        """Mean over adjacent sets of which one has an id; 0 without any."""
        return float(np.mean(self._values)) if self._values else 0.0


def _adjacent_jaccard(keys: np.ndarray, window: np.ndarray) -> float:
    if not len(keys):
        return 0.0
    count = int(window.max()) + 1
    order = np.lexsort((keys, window))
    keys, window = keys[order], window[order]
    new = np.ones(len(keys), bool)
    new[1:] = (keys[1:] != keys[:-1]) | (window[1:] != window[:-1])
    keys, window = keys[new], window[new]
    bounds = np.searchsorted(window, np.arange(count + 1))
    return _mean_jaccard([keys[bounds[b] : bounds[b + 1]] for b in range(count)])


def _mean_jaccard(sets: list[np.ndarray]) -> float:
    values = []
    for a, b in pairwise(sets):
        if len(a) or len(b):
            both = len(np.intersect1d(a, b, assume_unique=True))
            values.append(both / (len(a) + len(b) - both))
    return float(np.mean(values)) if values else 0.0
