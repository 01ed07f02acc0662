"""Type 7: is the complexity what they say? Lines over a size, or dots over categories.

Keys of a point: see `docs/figures.md`, kind `sweep`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from dgbench.harness.figures import style
from dgbench.harness.figures.palette import INK, SECONDARY, looks, series_looks
from dgbench.harness.figures.panels import Grid, order

REQUIRED = ("series", "x")
NUMBERS = ("y",)
PROJECTS = True
_LINE_GAP_PT = 8.5


def draw(points: Sequence[dict], options: Mapping[str, Any], context: Any, wide: bool) -> Any:
    """The figure at full or half width."""
    panels = order(points, "panel")
    words = any(isinstance(p["x"], str) for p in points)
    series = series_looks(_drawn_as_lines(points))
    many = len(series) > 4
    if words:
        heights = [style.ROW * len(order([p for p in points if p.get("panel") == q], "x"))
                   for q in panels]  # fmt: skip
        right = 0.12
    else:
        heights = [2.1 if wide else 1.9] * len(panels)
        right = 0.1 + style.label_room([look.title for look in series.values()], most=1.25,
                                       size=style.CELL)  # fmt: skip
    handles = [style.mark_handle(look) for look in series.values()] if words or many else []
    if any(map(_is_paper, points)):
        handles.append(style.paper_handle("_"))
    if any(p.get("projected") for p in points):
        handles.append(style.projected_handle())
    if any(p.get("failed") for p in points):
        handles.append(style.failed_handle())
    grid = Grid(
        panels,
        wide=wide,
        columns=min(2, len(panels)),
        heights=heights,
        labels=[str(x) for x in order(points, "x")] if words else ["000.00"],
        right=right,
        handles=handles,
        footer=style.footer_lines(
            _special(points), context, width=style.FULL if wide else style.HALF
        ),
        below=0.38,
        share_left=False,
        left=None if words else 0.62,
    )
    for panel, axes in grid.axes(context):
        mine = [p for p in points if p.get("panel") == panel]
        (_dots if words else _lines)(axes, mine, series, options)
    return grid.figure


def _is_paper(point: Mapping[str, Any]) -> bool:
    """Whether a point is a printed value, drawn as a black tick without a line."""
    printed = point.get("paper") or str(point["series"]).endswith(", paper")
    return bool(printed) and not point.get("failed")


def _drawn_as_lines(points: Sequence[dict]) -> list[str]:
    return order([p for p in points if not _is_paper(p)], "series")


def _lines(axes, points, series, options) -> None:
    good = [p for p in points if not p.get("failed")]
    _scales(axes, points, good, options)
    for point in filter(_is_paper, good):
        style.paper_mark(axes, point["x"], point["y"])
    good = [p for p in good if not _is_paper(p)]
    ends, early = [], []
    last = max((p["x"] for p in good), default=None)
    for name, look in series.items():
        mine = sorted((p for p in good if p["series"] == name), key=lambda p: p["x"])
        if not mine:
            continue
        xs, ys = [p["x"] for p in mine], [p["y"] for p in mine]
        for first, second in itertools.pairwise(mine):  # solid only between measurements
            dashed = first.get("projected") or second.get("projected")
            axes.plot([first["x"], second["x"]], [first["y"], second["y"]], zorder=3,
                      color=look.mark.colour, lw=1.4 if look.strong else 1.0,
                      ls=style.PROJECTED_DASHES if dashed else "-")  # fmt: skip
        for point in mine:
            style.interval(axes, point.get("low"), point.get("high"), point["x"],
                           look.mark.colour, vertical=True)  # fmt: skip
            style.dot(axes, point["x"], point["y"], look, hollow=bool(point.get("projected")))
        if xs[-1] == last:
            ends.append((xs[-1], ys[-1], look))
        else:  # a line that stops early carries its name where it stops
            early.append((xs[-1], ys[-1], look))
    _early_labels(axes, early)
    _gaps(axes, [p for p in points if p.get("failed")])
    _guide(axes, options)
    if options.get("hline") is not None:
        axes.axhline(options["hline"], color=SECONDARY, lw=0.8, ls=(0, (4, 2)), zorder=1)
        axes.text(0.01, options["hline"], options.get("hline_label", ""), fontsize=style.CELL,
                  transform=axes.get_yaxis_transform(), va="bottom", color=SECONDARY)  # fmt: skip
    _end_labels(axes, ends)


def _side(axes, x: float) -> str:
    """Where a name stands beside a point, so that it stays inside the axes."""
    at = axes.transAxes.inverted().transform(axes.transData.transform((x, 1.0)))[0]
    return "left" if at < 0.3 else "right" if at > 0.7 else "center"


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
    if log_y:
        axes.set_yscale("log")
        low, high = style.log_limits(ys, pad=1.25)
        gaps = sum(bool(p.get("failed")) for p in points)
        limits = low, high * (high / low) ** (0.09 * gaps)  # headroom for their words
        axes.set_ylim(*limits)
        style.log_axis(axes.yaxis, *limits, room=3 * height)
    else:
        top = max(ys, default=1.0)
        gaps = sum(bool(p.get("failed")) for p in points)
        axes.set_ylim(min(0.0, *ys), (1.08 + 0.1 * gaps) * top if top else 1.0)
        axes.locator_params(axis="y", nbins=5)
    axes.grid(True)
    axes.set_xlabel(_said(options.get("xlabel", ""), log_x))
    axes.set_ylabel(_said(options.get("ylabel", ""), log_y))


def _said(label: str, log: bool) -> str:
    return f"{label} (log)" if log and label and "(log" not in label else label


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


def _guide(axes, options) -> None:
    """A dashed guide with the promised slope, low on the right, away from the data."""
    slope = options.get("guide_slope")
    if slope is None:
        return
    (x0, x1), (y0, y1) = axes.get_xlim(), axes.get_ylim()
    if axes.get_xscale() != "log" or axes.get_yscale() != "log":
        return
    start, end = x0 * (x1 / x0) ** 0.5, x0 * (x1 / x0) ** 0.92
    low = y0 * (y1 / y0) ** 0.06
    steps = [start * (end / start) ** (i / 20) for i in range(21)]
    if slope == "log":
        ys = [low * math.log(2 + x) / math.log(2 + start) for x in steps]
        label = "log n"
    else:
        ys = [low * (x / start) ** float(slope) for x in steps]
        label = f"slope {float(slope):g}"
    axes.plot(steps, ys, color=SECONDARY, lw=0.9, ls=(0, (3, 2)), zorder=1)
    axes.text(end, ys[-1], f" {label}", fontsize=style.CELL, color=SECONDARY, va="center")


def _early_labels(axes, ends) -> None:
    """Names above the ends of lines that stop early, stacked where they would cover each other."""
    placed: list[tuple[float, float]] = []
    for x, y, look in sorted(ends, key=lambda end: end[1]):
        across, up = axes.transData.transform((x, y)) / axes.figure.dpi * 72
        at = up + 4
        while any(abs(across - a) < 60 and abs(at - b) < _LINE_GAP_PT for a, b in placed):
            at += 1
        placed.append((across, at))
        axes.annotate(look.title, (x, y), xytext=(0, at - up), va="bottom", ha=_side(axes, x),
                      textcoords="offset points", fontsize=style.CELL, color=INK, zorder=7,
                      fontweight="bold" if look.strong else "normal")  # fmt: skip


def _end_labels(axes, ends) -> None:
    """Names at the ends of lines, pushed apart so that none covers another."""
    if not ends:
        return
    figure = axes.figure
    _, height = figure.get_size_inches()
    placed = []
    for x, y, look in ends:
        at = axes.transData.transform((x, y))[1] / figure.dpi * 72
        placed.append([at, look])
    placed.sort(key=lambda item: item[0])
    low = axes.get_position().y0 * height * 72
    for i, item in enumerate(placed):
        floor = low if i == 0 else placed[i - 1][0] + _LINE_GAP_PT
        item[0] = max(item[0], floor)
    high = axes.get_position().y1 * height * 72 + 4
    for i in reversed(range(len(placed))):
        ceiling = high if i == len(placed) - 1 else placed[i + 1][0] - _LINE_GAP_PT
        placed[i][0] = min(placed[i][0], ceiling)
    right = axes.get_position().x1 + 0.06 / figure.get_size_inches()[0]
    for at, look in placed:
        figure.text(right, at / 72 / height, look.title, va="center", fontsize=style.CELL,
                    fontweight="bold" if look.strong else "normal", color=INK)  # fmt: skip


def _dots(axes, points, series, options) -> None:
    """Categories as rows, one dot a series, sorted by the first series' value."""
    good = [p for p in points if not p.get("failed")]
    names = order(points, "x")
    first = next(iter(series), None)
    value = {p["x"]: p["y"] for p in reversed(good) if p["series"] == first}
    names.sort(key=lambda n: value.get(n, math.inf))
    ys = [v for p in good for v in (p["y"], *style.ends(p))]
    width = axes.get_position().width * axes.figure.get_size_inches()[0]
    log = options.get("ylog", True) and min(ys, default=1) > 0
    if log:
        axes.set_xscale("log")
        limits = style.log_limits(ys)
        style.log_axis(axes.xaxis, *limits, room=width)
    else:
        limits = (0.0, 1.1 * max(ys, default=1.0) or 1.0)
        axes.locator_params(axis="x", nbins=5)
    axes.set_xlim(*limits)
    axes.set_ylim(len(names) - 0.5, -0.5)
    twins = {n: any(p.get("twin") for p in points if p["x"] == n) for n in names}
    axes.set_yticks(range(len(names)), labels=[
        f"{n} (twin)" if twins[n] and "(twin)" not in n else n for n in names
    ])  # fmt: skip
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")
    axes.set_xlabel(_said(options.get("ylabel", ""), log))
    if options.get("hline") is not None:
        axes.axvline(options["hline"], color=SECONDARY, lw=0.8, ls=(0, (4, 2)))
    for y, name in enumerate(names):
        here = [p for p in points if p["x"] == name]
        axes.axhline(y, color=style.GRID, lw=0.5, zorder=0.4)
        for index, point in enumerate(here):
            if point.get("failed"):
                style.hatched(axes, limits[0], y - 0.35, limits[1] - limits[0], 0.7)
                axes.text(0.5, y, style.failure_words(point, {}, width), ha="center", va="center",
                          transform=axes.get_yaxis_transform(), fontsize=style.CELL, zorder=7,
                          bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0})  # fmt: skip
                continue
            if _is_paper(point):
                style.paper_tick(axes, point["y"], y, 0.3)
                continue
            look = series[point["series"]]
            offset = (index - (len(here) - 1) / 2) * 0.12 if len(here) > 3 else 0.0
            style.interval(axes, point.get("low"), point.get("high"), y + offset, look.mark.colour)
            if point.get("projected"):
                style.stem(axes, limits[0], point["y"], y + offset, look.mark.colour)
            style.dot(axes, point["y"], y + offset, look, hollow=bool(point.get("projected")))


def _special(points: Sequence[dict]) -> list[str]:
    items = []
    if points and all(p.get("counted") for p in points if not p.get("failed")):
        items.append("counted exactly, no interval")
    elif any(p.get("low") is not None for p in points):
        items.append("bar: 95 % interval")
    if any(p.get("projected") for p in points):
        items.append(style.PROJECTED)
    if points and all(p.get("twin") for p in points):
        items.append("data: all twins")
    return items


def describe(points: Sequence[dict], options: Mapping[str, Any], context: Any) -> str:
    """One sentence: each series from its first to its last value."""
    parts = []
    for name, look in looks(_drawn_as_lines(points)).items():
        mine = [p for p in points if p["series"] == name and not p.get("failed")]
        if not mine:
            parts.append(f"{look.title} gave no value")
            continue
        values = [p["y"] for p in mine]
        modelled = sum(bool(p.get("projected")) for p in mine)
        said = "" if not modelled else " (projected)" if modelled == len(mine) else (
            f" ({modelled} of {len(mine)} projected)"
        )  # fmt: skip
        span = f"{style.digits(min(values))} to {style.digits(max(values))}"
        parts.append(f"{look.title} {span}{said}")
    failed = sum(bool(p.get("failed")) for p in points)
    what = options.get("ylabel") or "values"
    return f"{what}: " + "; ".join(parts) + (f"; {failed} failed." if failed else ".")
