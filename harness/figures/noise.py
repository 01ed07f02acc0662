"""The noise floor: what a ratio says beside it, and how it is drawn."""

from __future__ import annotations

from typing import Any

from dgbench.harness.figures.palette import NOISE, SECONDARY


def same(value: float, noise: float | None) -> bool:
    """Return True if a ratio lies inside the noise floor."""
    return noise is not None and 1 / (1 + noise) <= value <= 1 + noise


def side(point: Any, noise: float | None) -> str:
    """Classify a ratio: `faster`, `slower`, `same`, or `undecided`.

    It is undecided where its interval holds 1x or reaches into the noise floor.
    """
    if same(point["value"], noise):
        return "same"
    low, high = point.get("low"), point.get("high")
    band = 1 + (noise or 0.0)
    if low is not None and high is not None and low <= band and high >= 1 / band:
        return "undecided"
    return "faster" if point["value"] > 1 else "slower"


def noise_band(axes: Any, noise: float | None, *, horizontal: bool = False) -> None:
    """Line at 1x and the band of the noise floor around it."""
    line = axes.axhline if horizontal else axes.axvline
    span = axes.axhspan if horizontal else axes.axvspan
    if noise is not None:
        span(1 / (1 + noise), 1 + noise, color=NOISE, alpha=0.8, lw=0, zorder=0.5)
    line(1, color=SECONDARY, lw=0.8, zorder=1)
