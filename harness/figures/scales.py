"""Axes: plain ticks on log axes, limits around values, and intervals too wide to set any."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from dgbench.harness.figures.words import WIDE, text_width

_FINE = (1, 1.1, 1.2, 1.3, 1.5, 1.7, 2, 2.5, 3, 4, 5, 6, 7, 8, 9)


def ratio_ticks(low: float, high: float) -> list[float]:
    """Plain places for ticks on a log axis: 1 2 5 10, with more or fewer as the range asks."""
    decades = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    found: list[float] = []
    for steps in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7), _FINE):
        denser = [s * 10.0**d for d in decades for s in steps if low <= s * 10.0**d <= high]
        if len(denser) > 6 and len(found) >= 2:
            break
        if len(denser) > len(found):
            found = denser
        if len(found) >= 4:
            break
    return found if len(found) <= 6 else found[::2]


def log_axis(axis: Any, low: float, high: float, *, unit: str = "", room: float = 9.0) -> None:
    """A log axis with plain tick labels; `room` (inches) thins ticks that would collide."""
    ticks = ratio_ticks(low, high)
    labels = [f"{tick_text(t)}{unit}" for t in ticks]
    while len(ticks) > 2 and sum(text_width(t) + 0.10 for t in labels) > room:
        ticks, labels = ticks[::2], labels[::2]
    axis.set_ticks(ticks, labels=labels)
    axis.set_ticks([], minor=True)


def tick_text(value: float) -> str:
    """A tick's number: 0.5, 20, 2 000, 1M, 30G."""
    if value >= 1e12:
        return f"{value / 1e12:g}T"
    if value >= 1e9:
        return f"{value / 1e9:g}G"
    if value >= 1e6:
        return f"{value / 1e6:g}M"
    if value >= 1e4:
        return f"{value / 1e3:g}k"
    return f"{value:g}"


def log_limits(values: Iterable[float], *, pad: float = 1.18, include: float | None = None):
    """Limits of a log axis around positive values."""
    found = [v for v in values if v is not None and v > 0 and math.isfinite(v)]
    if include is not None:
        found.append(include)
    if not found:
        return 0.5, 2.0
    low, high = min(found), max(found)
    if high / low < 1.5:
        low, high = low / 1.25, high * 1.25
    return low / pad, high * pad


def ends(point: Any, low: str = "low", high: str = "high") -> list[float]:
    """The ends of a point's interval for an axis; none where the interval is too wide."""
    first, last = point.get(low), point.get(high)
    if not first or not last or first <= 0 or last / first > WIDE:
        return []
    return [first, last]
