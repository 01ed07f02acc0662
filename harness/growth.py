"""Growth test for a number that was read repeatedly: a robust slope against an allowed one.

A leak is steady where noise is not, so the slope is that of Theil (1950) and Sen (1968), the median
over all pairs of readings, with Sen's interval, and Kendall's test says whether there is a trend
at all. A single jump, an outlier or a wave is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dgbench.runtime.errors import InvalidInputError

WARM: Final = 0.2
"""Share of the time at the beginning that is left out: caches fill once."""
MIN_READINGS: Final = 8
"""Readings that decide something."""
CHANCE: Final = 0.01
"""Largest probability of Kendall's test at which a trend is believed."""


@dataclass(frozen=True, slots=True)
class Growth:
    """Result of the growth test of a series.

    Attributes:
        name, unit: of the series. n: readings that were used.
        first, last: median of the first and of the last quarter of them.
        slope, low, high: per hour, with the 95 % interval; None with too few readings.
        chance: probability of such a trend where there is none. allowed: slope per hour.
    """

    name: str
    unit: str
    n: int
    first: float
    last: float
    slope: float | None
    low: float | None
    high: float | None
    chance: float
    allowed: float

    @property
    def word(self) -> str:
        """`grows`, `steady`, or `too short` where there are too few readings."""
        if self.slope is None or self.low is None:
            return "too short"
        # The slope of the middle pair of readings has to be above what is allowed, and its whole
        # interval above zero: a steady leak is, and a plateau after a step is not.
        real = self.low > 0 and self.chance < CHANCE
        return "grows" if real and self.slope > self.allowed else "steady"


def growth_of(
    name: str,
    seconds: Sequence[float],
    values: Sequence[float],
    *,
    allowed: float,
    unit: str = "",
    warm: float = WARM,
) -> Growth:
    """Judge one series.

    Args:
        seconds, values: n readings, in order of time. allowed: slope per hour that is no growth.
        warm: share of the time at the beginning that is left out.

    Raises:
        InvalidInputError: both have not the same length, or there is no reading.
    """
    if len(seconds) != len(values) or not values:
        raise InvalidInputError(f"'{name}' has {len(seconds)} times and {len(values)} values")
    begin = seconds[0] + warm * (seconds[-1] - seconds[0])
    kept = [(t / 3600, v) for t, v in zip(seconds, values, strict=True) if t >= begin]
    times, found = [t for t, _ in kept], [v for _, v in kept]
    quarter = max(1, len(found) // 4)
    first, last = (_median(part) for part in (found[:quarter], found[-quarter:]))
    slope = low = high = None
    chance = 1.0
    if len(found) >= MIN_READINGS and times[-1] > times[0]:
        from scipy.stats import kendalltau, theilslopes

        slope, _, low, high = map(float, theilslopes(found, times, 0.95))
        if min(found) != max(found):  # a constant has no ranks to compare
            chance = float(kendalltau(times, found).pvalue)
    return Growth(name, unit, len(found), first, last, slope, low, high, chance, allowed)


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else sum(ordered[middle - 1 : middle + 1]) / 2
