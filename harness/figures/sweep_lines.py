"""Lines over a size, the usual half of a sweep."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

from dgbench.harness.figures import style
from dgbench.harness.figures.guides import draw_guide
from dgbench.harness.figures.names import early_labels
from dgbench.harness.figures.palette import INK, SECONDARY, looks
from dgbench.lab.charts import subject_and_form

_NESTED = (3.6, 2.0, 0.8)
"""Widths in points of lines that lie on each other, so that each shows beside the next."""
_FEW = 4
"""Marks of a line where the option `marks` is "few": enough to tell curves of many points apart."""


def draw_lines(axes, points, series, options, legend, named) -> None:
    good = [p for p in points if not p.get("failed")]
    _scales(axes, points, good, options)
    for point in filter(is_paper, good):
        style.paper_mark(axes, point["x"], point["y"])
    good = [p for p in good if not is_paper(p)]
    ends, early = [], []
    last = max((p["x"] for p in good), default=None)
    nested = _NESTED if options.get("together") else ()
    longest = max((sum(p["series"] == name for p in good) for name in series), default=0)
    sparse = -(-longest // _FEW) if options.get("marks") == "few" else 0
    for number, (name, look) in enumerate(series.items()):
        mine = sorted((p for p in good if p["series"] == name), key=lambda p: p["x"])
        if not mine:
            continue
        xs, ys = [p["x"] for p in mine], [p["y"] for p in mine]
        width = nested[min(number, len(nested) - 1)] if nested else 1.4 if look.strong else 1.0
        for first, second in itertools.pairwise(mine):  # solid only between measurements
            dashed = first.get("projected") or second.get("projected")
            axes.plot([first["x"], second["x"]], [first["y"], second["y"]], color=look.mark.colour,
                      zorder=3 + 0.01 * number, lw=width, solid_capstyle="round",
                      ls=style.PROJECTED_DASHES if dashed else "-")  # fmt: skip
        for place, point in enumerate(mine):
            if nested and place % len(series) != number:
                continue  # each series marks points of its own, so that no mark covers another
            if sparse and place % sparse != number % sparse:
                continue
            style.interval(axes, point.get("low"), point.get("high"), point["x"],
                           look.mark.colour, vertical=True)  # fmt: skip
            style.dot(
                axes,
                point["x"],
                point["y"],
                look,
                hollow=bool(point.get("projected") or point.get("below")),
            )
        if xs[-1] == last:
            ends.append((ys[-1], look.title, look.strong, INK))
        else:  # a line that stops early carries its name where it stops
            early.append((xs[-1], ys[-1], look))
    if not legend:  # where there is a legend, names inside the panel would only cover lines
        early_labels(axes, early)
    _gaps(axes, [p for p in points if p.get("failed")])
    draw_guide(axes, options, good)
    if not named:
        ends = []
    if options.get("hline") is not None:
        axes.axhline(options["hline"], color=SECONDARY, lw=0.8, ls=(0, (4, 2)), zorder=1)
        if options.get("hline_label"):
            ends.append((options["hline"], options["hline_label"], False, SECONDARY))
    style.end_labels(axes, ends)


def _scales(axes, points, good, options) -> None:
    width = axes.get_position().width * axes.figure.get_size_inches()[0]
    height = axes.get_position().height * axes.figure.get_size_inches()[1]
    base = options.get("base", 10)
    xs = sorted({p["x"] for p in points})
    log_x = options.get("xlog", True) and min(xs, default=1) > 0
    log_y = options.get("ylog", True)
    ys = [v for p in good for v in (p["y"], *style.ends(p))]
    if options.get("hline") is not None:
        ys.append(options["hline"])
    log_y = log_y and min(ys, default=1) > 0
    if log_x:
        axes.set_xscale("log")
        limits = style.log_limits(xs, pad=1.15)
        axes.set_xlim(*limits)
        if base == 2 or len(xs) <= 8:
            labels = [style.tick_text(x) for x in xs]
            keep = _apart(xs, labels, limits, width)
            axes.xaxis.set_ticks([xs[i] for i in keep], labels=[labels[i] for i in keep])
            axes.xaxis.set_ticks([], minor=True)
        else:
            style.log_axis(axes.xaxis, *limits, room=width)
    elif all(float(x).is_integer() for x in xs):
        axes.locator_params(axis="x", integer=True, nbins=8)
    if log_y:
        axes.set_yscale("log")
        span = max(ys, default=1.0) / min(ys, default=1.0)
        low, high = style.log_limits(ys, pad=max(1.04, min(1.25, span**0.1)))
        gaps = sum(bool(p.get("failed")) for p in points)
        limits = low, high * (high / low) ** (0.09 * gaps)  # headroom for their words
        axes.set_ylim(*limits)
        style.log_axis(axes.yaxis, *limits, room=3 * height)
    else:
        top = max(ys, default=1.0)
        gaps = sum(bool(p.get("failed")) for p in points)
        if options.get("from_zero", True):
            low, top = min([0.0, *ys]), max(top, 0.0)
        else:
            low = min(ys, default=0.0)
        spare = 0.08 * (top - low)
        foot = 0.0 if low == 0.0 and options.get("from_zero", True) else low - spare
        ceiling = top + (1 + gaps) * spare
        axes.set_ylim(foot, ceiling if ceiling > foot else foot + 1.0)
        axes.locator_params(axis="y", nbins=5)
    axes.grid(True)
    axes.set_xlabel(axis_words(options.get("xlabel", ""), log_x))
    axes.set_ylabel(axis_words(options.get("ylabel", ""), log_y))


def _apart(xs, labels, limits, width) -> list[int]:
    """Indices of ticks whose labels do not collide, the last one always among them."""
    span = math.log(limits[1] / limits[0])
    kept: list[int] = []
    for i in reversed(range(len(xs))):
        at = width * math.log(xs[i] / limits[0]) / span
        room = style.text_width(labels[i]) / 2 + 0.06
        if not kept:
            kept.append(i)
            continue
        other = width * math.log(xs[kept[-1]] / limits[0]) / span
        if other - at > room + style.text_width(labels[kept[-1]]) / 2:
            kept.append(i)
    return kept[::-1]


def _gaps(axes, points) -> None:
    """Each missing value: a hatched box at its x on the upper edge, and words beside it."""
    (x0, x1), log = axes.get_xlim(), axes.get_xscale() == "log"
    size = [axes.get_position().width, axes.get_position().height]
    size = size * axes.figure.get_size_inches()
    tall = 0.13 / size[1]
    for number, point in enumerate(points):
        x = float(point["x"])
        at = math.log(x / x0) / math.log(x1 / x0) if log else (x - x0) / (x1 - x0)
        top = 1.0 - number * (tall + 0.02)
        style.hatched(axes, at - 0.06 / size[0], top - tall, 0.12 / size[0], tall,
                      transform=axes.transAxes, clip_on=False)  # fmt: skip
        title = looks([point["series"]])[point["series"]].title
        words = f"{title}: {style.failure_words(point, {}, 1.3)}"
        left = at > 0.5
        axes.text(at + (-0.09 if left else 0.09) / size[0], top - tall / 2, words,
                  transform=axes.transAxes, ha="right" if left else "left", va="center",
                  fontsize=style.CELL, color=INK, zorder=7,
                  bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8})  # fmt: skip


def axis_words(label: str, log: bool) -> str:
    return f"{label} (log)" if log and label and "(log" not in label else label


def is_paper(point: Mapping[str, Any]) -> bool:
    """Return True if a point is a printed value, drawn as a black tick without a line."""
    printed = point.get("paper") or subject_and_form(str(point["series"]))[1] == "paper"
    return bool(printed) and not point.get("failed")
