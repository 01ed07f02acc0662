"""The noise floor: what a ratio says beside it, and how it is drawn."""

from __future__ import annotations

from typing import Any

from dgbench.harness.figures.palette import NOISE, SECONDARY
from dgbench.runtime.statistics import side as side_of
from dgbench.runtime.statistics import within_floor as same


def side(point: Any, noise: float | None) -> str:
    """Classify a ratio: `faster`, `slower`, `same`, or `undecided`.

    It is faster or slower where that is decided (`runtime.statistics.side`), the same where its
    value lies inside the noise floor, and else undecided, as a single pair is.
    """
    which = side_of(point.get("low"), point.get("high"), noise)
    if which:
        return "faster" if which > 0 else "slower"
    return "same" if same(point["value"], noise) else "undecided"


def noise_band(axes: Any, noise: float | None, *, horizontal: bool = False) -> None:
    """Line at 1x and the band of the noise floor around it."""
    line = axes.axhline if horizontal else axes.axvline
    span = axes.axhspan if horizontal else axes.axvspan
    if noise is not None:
        span(1 / (1 + noise), 1 + noise, color=NOISE, alpha=0.8, lw=0, zorder=0.5)
    line(1, color=SECONDARY, lw=0.8, zorder=1)
