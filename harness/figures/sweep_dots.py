"""Dots over categories, the other half of a sweep."""

from __future__ import annotations

import math

from dgbench.harness.figures import style
from dgbench.harness.figures.palette import SECONDARY
from dgbench.harness.figures.panels import order, row_label
from dgbench.harness.figures.sweep_lines import axis_words, is_paper


def draw_dots(axes, points, series, options) -> None:
    """Categories as rows, one dot a series, sorted by the first series' value."""
    good = [p for p in points if not p.get("failed")]
    names = order(points, "x")
    first = next(iter(series), None)
    value = {p["x"]: p["y"] for p in reversed(good) if p["series"] == first}
    if options.get("sort", True):
        names.sort(key=lambda n: value.get(n, math.inf))
    ys = [v for p in good for v in (p["y"], *style.ends(p))]
    width = axes.get_position().width * axes.figure.get_size_inches()[0]
    log = options.get("ylog", True) and min(ys, default=1) > 0
    if log:
        axes.set_xscale("log")
        limits = style.log_limits(ys)
        style.log_axis(axes.xaxis, *limits, room=width)
    else:
        low, high = min([0.0, *ys]), max([0.0, *ys])
        spare = 0.1 * (high - low)
        limits = (low - spare if low < 0 else 0.0, high + spare or 1.0)
        axes.locator_params(axis="x", nbins=5)
        if low < 0:
            axes.axvline(0.0, color=SECONDARY, lw=0.6, zorder=0.5)
    axes.set_xlim(*limits)
    axes.set_ylim(len(names) - 0.5, -0.5)
    labels = {n: row_label(n, [p for p in points if p["x"] == n]) for n in names}
    axes.set_yticks(range(len(names)), labels=[labels[n] for n in names])
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")
    axes.set_xlabel(axis_words(options.get("ylabel", ""), log))
    if options.get("hline") is not None:
        axes.axvline(options["hline"], color=SECONDARY, lw=0.8, ls=(0, (4, 2)))
    for y, name in enumerate(names):
        here = [p for p in points if p["x"] == name]
        failed = [p for p in here if p.get("failed")]
        if failed:
            style.hatched(axes, limits[0], y - 0.35, limits[1] - limits[0], 0.7)
            words = _failure_words(failed, series, width)
            axes.text(0.5, y, words, ha="center", va="center",
                      transform=axes.get_yaxis_transform(), fontsize=style.CELL, zorder=7,
                      bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0})  # fmt: skip
        axes.axhline(y, color=style.GRID, lw=0.5, zorder=0.4)
        step = min(0.12, 0.8 / max(1, len(here) - 1))  # all dots of a row lie within it
        for index, point in enumerate(here):
            if point.get("failed"):
                continue
            if is_paper(point):
                style.paper_tick(axes, point["y"], y, 0.3)
                continue
            look = series[point["series"]]
            offset = (index - (len(here) - 1) / 2) * step if len(here) > 3 else 0.0
            style.interval(axes, point.get("low"), point.get("high"), y + offset, look.mark.colour)
            if point.get("projected"):
                style.stem(axes, limits[0], point["y"], y + offset, look.mark.colour)
            style.dot(
                axes,
                point["y"],
                y + offset,
                look,
                hollow=bool(point.get("projected") or point.get("below")),
            )


def _failure_words(failed, series, room: float) -> str:
    """Why the values of a row are missing: with the names of their series where there are more."""
    if len(series) == 1:
        return style.failure_words(failed[0], {}, room)
    named = [{**p, "failed_system": series[p["series"]].title} for p in failed]
    words = (style.failure_words(point, {}, room / len(named)) for point in named)
    return "; ".join(dict.fromkeys(words))
