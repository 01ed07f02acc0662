"""Time stamps of a twin: so many events a window, spread inside it at random, in order."""

from __future__ import annotations

import math

import numpy as np

from dgbench.datasets.twins.params import ArrivalCurve
from dgbench.kernels_cuda.twins import (
    SLOT_SHUFFLE,
    SLOT_TIME,
    SLOT_WINDOW,
    exact_exp2,
    exact_log2,
    uniforms,
)

LOG2_E = 1.4426950408889634
PERSISTENCE = 0.3
"""Lag-1 coefficient of the windows' modulation."""


def cumulative(curve: ArrivalCurve, x: np.ndarray) -> np.ndarray:
    """Share of the events up to relative time x in [0, 1], without those of the start."""
    if curve.knots:
        return np.interp(x, np.linspace(0.0, 1.0, len(curve.knots)), curve.knots)
    steps = sum(share for _, share in curve.steps)
    rest = 1.0 - curve.start - steps
    y = rest * np.where(x > 0, exact_exp2(curve.power * exact_log2(np.maximum(x, 1e-300))), 0.0)
    for at, share in curve.steps:
        y = y + share * (x >= at)
    return y / (rest + steps)


def window_counts(curve: ArrivalCurve, events: int, windows: int, seed: int) -> np.ndarray:
    """Number of events of each window, int64[windows], adding up to `events` exactly.

    The weights are the increments of the curve times exp(sigma z), z a lag-1 process, with
    sigma^2 = ln(1 + cv^2); they become counts by largest remainder. The events of `curve.start`
    belong to window 0.
    """
    weight = np.diff(cumulative(curve, np.linspace(0.0, 1.0, windows + 1)))
    if curve.cv > 0:
        # exp(sigma z) with sigma^2 = ln(1 + cv^2), in base 2 to stay clear of libm.
        sigma = math.sqrt(exact_log2(np.array([1.0 + curve.cv**2]))[0] / LOG2_E)
        weight = weight * exact_exp2(sigma * LOG2_E * _process(windows, seed))
    start = round(curve.start * events)
    total = math.fsum(weight)
    exact = (events - start) * (weight / total if total > 0 else np.full(windows, 1 / windows))
    counts = np.floor(exact).astype(np.int64)
    short = events - start - int(counts.sum())
    counts[np.argsort(counts - exact, kind="stable")[:short]] += 1
    counts[0] += start
    return counts


def stamps(
    curve: ArrivalCurve,
    events: int,
    windows: int,
    window: float,
    resolution: float,
    seed: int,
    *,
    groups: np.ndarray | None = None,
) -> np.ndarray:
    """Time of every event: float64[events], non-decreasing, in [0, windows * window).

    Args:
        curve, events, windows, seed: see `window_counts`.
        window: length of a window.
        resolution: times are rounded down to multiples of it.
        groups: int64[events], for events that happen together the first event of their group;
            they all get its time.
    """
    counts = window_counts(curve, events, windows, seed)
    start = round(curve.start * events)
    t = np.repeat(np.arange(windows, dtype=np.float64) * window, counts)
    inside = uniforms(seed, 0, events, SLOT_TIME)
    inside[:start] = 0.0
    step = 1 << 22  # bounds the scratch memory; a block is sorted with all of its last window
    ends = np.cumsum(counts)
    first = 0
    while first < events:
        last = int(ends[np.searchsorted(ends, min(first + step, events))])
        part = slice(first, last)
        t[part] += np.floor(inside[part] * (window / resolution)) * resolution
        t[part].sort()
        first = last
    return t if groups is None else t[groups]


def shuffled(events: int, seed: int) -> np.ndarray:
    """A permutation int64[events] of event numbers, for graphs without time stamps."""
    return np.argsort(uniforms(seed, 0, events, SLOT_SHUFFLE), kind="stable")


def _process(windows: int, seed: int) -> np.ndarray:
    """A stationary standard normal lag-1 process, float64[windows]."""
    # The sum of twelve uniform numbers is close enough to normal and exact to the last bit.
    noise = np.full(windows, -6.0)
    for i in range(12):
        noise += uniforms(seed, 0, windows, SLOT_WINDOW + i)
    z = np.empty(windows)
    z[0] = noise[0]
    for b in range(1, windows):
        z[b] = PERSISTENCE * z[b - 1] + math.sqrt(1 - PERSISTENCE**2) * noise[b]
    return z
