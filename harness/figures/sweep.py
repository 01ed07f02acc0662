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
from dgbench.harness.figures.panels import Grid, order, row_label

REQUIRED = ("series", "x")
NUMBERS = ("y",)
PROJECTS = True
_LINE_GAP_PT = 8.5
_NESTED = (3.6, 2.0, 0.8)
"""Widths in points of lines that lie on each other, so that each shows beside the next."""
_FEW = 4
"""Marks of a line where the option `marks` is "few": enough to tell curves of many points apart."""
_NAMED = 6
"""More names than these at one panel's right edge stand in the legend only."""


def draw(points: Sequence[dict], options: Mapping[str, Any], context: Any, wide: bool) -> Any:
    """The figure at full or half width."""
    panels = order(points, "panel")
    words = any(isinstance(p["x"], str) for p in points)
    together = bool(options.get("together")) and not words
    series = series_looks(_drawn_as_lines(points), distinct=together)
    limit = 2.4 if wide and len(panels) == 1 else 1.45
    longest = max((style.text_width(k.title, style.CELL) for k in series.values()), default=0.0)
    many = len(series) > 4 or longest > limit or together or not options.get("names", True)
    hline = options.get("hline_label", "") if options.get("hline") is not None else ""
    named = not together and longest <= limit and (not many or _reaching(points) <= _NAMED)
    named = named and options.get("names", True)
    far = (
        words or not named or style.text_width(hline, style.CELL) > limit
    )  # no room beside the line
    if words:
        names = [n for panel in panels for n in _rows_of(points, panel).values()]
        heights = [style.ROW * len(order([p for p in points if p.get("panel") == q], "x"))
                   for q in panels]  # fmt: skip
        right = 0.12
    else:
        heights = [2.1 if wide else 1.9] * len(panels)
        beside = [look.title for look in series.values()] if named else []
        beside += [] if far else [hline]
        right = 0.06 + style.label_room(beside, most=limit + 0.12, size=style.CELL)
    handles = [style.mark_handle(look) for look in series.values()] if words or many else []
    if any(map(_is_paper, points)):
        handles.append(style.paper_handle("_"))
    if any(p.get("projected") for p in points):
        handles.append(style.projected_handle())
    if any(p.get("failed") for p in points):
        handles.append(style.failed_handle())
    if far and hline:
        handles.append(_line_handle(hline))
    grid = Grid(
        panels,
        wide=wide,
        columns=min(2, len(panels)),
        heights=heights,
        labels=names if words else ["000.00"],
        right=right,
        handles=handles,
        footer=style.footer_lines(
            _special(points, together), context, width=style.FULL if wide else style.HALF
        ),
        below=0.38,
        share_left=False,
        left=None if words else 0.62,
    )
    for panel, axes in grid.axes(context):
        mine = [p for p in points if p.get("panel") == panel]
        if words:
            _dots(axes, mine, series, options)
        else:
            shown = {**options, "hline_label": ""} if far else options
            _lines(axes, mine, series, shown, many, named)
    return grid.figure


def _reaching(points: Sequence[dict]) -> int:
    """The most series that reach the right edge of one panel."""
    good = [p for p in points if not p.get("failed") and not _is_paper(p)]
    last: dict[Any, float] = {}
    for p in good:
        last[p.get("panel")] = max(p["x"], last.get(p.get("panel"), p["x"]))
    ends = {(p.get("panel"), p["series"]) for p in good if p["x"] == last[p.get("panel")]}
    return max((sum(panel == q for q, _ in ends) for panel in last), default=0)


def _rows_of(points: Sequence[dict], panel: Any) -> dict[Any, str]:
    """The categories of a panel and how their rows are labelled."""
    mine = [p for p in points if p.get("panel") == panel]
    return {x: row_label(x, [p for p in mine if p["x"] == x]) for x in order(mine, "x")}


def _line_handle(label: str) -> Any:
    """Legend entry of the reference line where rows leave no room beside it."""
    from matplotlib.lines import Line2D

    return Line2D([], [], color=SECONDARY, lw=0.8, ls=(0, (4, 2)), label=label)


def _is_paper(point: Mapping[str, Any]) -> bool:
    """Whether a point is a printed value, drawn as a black tick without a line."""
    printed = point.get("paper") or str(point["series"]).endswith(", paper")
    return bool(printed) and not point.get("failed")


def _drawn_as_lines(points: Sequence[dict]) -> list[str]:
    return order([p for p in points if not _is_paper(p)], "series")


def _lines(axes, points, series, options, legend, named) -> None:
    good = [p for p in points if not p.get("failed")]
    _scales(axes, points, good, options)
    for point in filter(_is_paper, good):
        style.paper_mark(axes, point["x"], point["y"])
    good = [p for p in good if not _is_paper(p)]
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
            style.dot(axes, point["x"], point["y"], look, hollow=bool(point.get("projected")))
        if xs[-1] == last:
            ends.append((ys[-1], look.title, look.strong, INK))
        else:  # a line that stops early carries its name where it stops
            early.append((xs[-1], ys[-1], look))
    if not legend:  # where there is a legend, names inside the panel would only cover lines
        _early_labels(axes, early)
    _gaps(axes, [p for p in points if p.get("failed")])
    _guide(axes, options, good)
    if not named:
        ends = []
    if options.get("hline") is not None:
        axes.axhline(options["hline"], color=SECONDARY, lw=0.8, ls=(0, (4, 2)), zorder=1)
        if options.get("hline_label"):
            ends.append((options["hline"], options["hline_label"], False, SECONDARY))
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


def _guide(axes, options, points) -> None:
    """A dashed guide with the promised slope, where it is furthest from the data."""
    slope = options.get("guide_slope")
    if slope is None or axes.get_xscale() != "log" or axes.get_yscale() != "log":
        return
    (x0, x1), (y0, y1) = axes.get_xlim(), axes.get_ylim()
    wide, tall = math.log(x1 / x0), math.log(y1 / y0)
    label = "log n" if slope == "log" else f"slope {float(slope):g}"
    inches = axes.get_position().width * axes.figure.get_size_inches()[0]
    taken = _along(points, lambda x, y: (math.log(x / x0) / wide, math.log(y / y0) / tall))
    best = None
    for start, low, length in itertools.product(
        (0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.03), (0.06, 0.15, 0.3, 0.45, 0.6), (0.35, 0.25, 0.15)
    ):
        xs = [start + length * i / 20 for i in range(21)]
        ys = [low + _rise(slope, x0, wide, start, x) / tall for x in xs]
        words = xs[-1] + 0.02 + (style.text_width(label, style.CELL) + 0.04) / inches
        if max(ys) > 0.96 or min(ys) < 0.02 or words > 1:
            continue
        mine = [*zip(xs, ys, strict=True), *((xs[-1] + (words - xs[-1]) * i / 4, ys[-1])
                                             for i in range(1, 5))]  # fmt: skip
        near = min((math.dist(a, b) for a in mine for b in taken), default=1.0)
        # Long guides are easier to read; beyond a tenth of the panel, distance adds nothing.
        score = (round(min(near, 0.1), 3), length)
        if best is None or score > best[0]:
            best = (score, xs, ys)
    if best is None:
        return
    _, xs, ys = best
    axes.plot([x0 * math.exp(wide * x) for x in xs], [y0 * math.exp(tall * y) for y in ys],
              color=SECONDARY, lw=0.9, ls=(0, (3, 2)), zorder=1)  # fmt: skip
    axes.text(xs[-1] + 0.02, ys[-1], label, transform=axes.transAxes, fontsize=style.CELL,
              color=SECONDARY, va="center")  # fmt: skip


def _rise(slope: Any, x0: float, wide: float, start: float, x: float) -> float:
    """Log of how much a guide has grown from one place of the axis to another."""
    if slope != "log":
        return float(slope) * wide * (x - start)
    first, here = x0 * math.exp(wide * start), x0 * math.exp(wide * x)
    return math.log(math.log(2 + here) / math.log(2 + first))


def _along(points, place) -> list[tuple[float, float]]:
    """Places on the lines of all series, in shares of the axes."""
    found = []
    for name in order(points, "series"):
        mine = sorted((p for p in points if p["series"] == name), key=lambda p: p["x"])
        spots = [place(p["x"], p["y"]) for p in mine]
        found += spots[:1]
        for (xa, ya), (xb, yb) in itertools.pairwise(spots):
            found += [(xa + (xb - xa) * i / 8, ya + (yb - ya) * i / 8) for i in range(1, 9)]
    return found


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
    """Names right of the panel at their heights, pushed apart so that none covers another.

    Args:
        ends: y of each, its words, whether they are bold, and their colour.
    """
    if not ends:
        return
    figure = axes.figure
    height = 72 * figure.get_size_inches()[1]
    box = axes.get_position()
    groups: list[tuple[list[float], list[tuple]]] = []
    for end in sorted(ends, key=lambda end: end[0]):
        at = axes.transData.transform((axes.get_xlim()[1], end[0]))[1] / figure.dpi * 72
        groups.append(([at], [end]))
        while len(groups) > 1 and _bottom(groups[-1][0]) < _top(groups[-2][0]) + _LINE_GAP_PT:
            places, members = groups.pop()
            groups[-1] = (groups[-1][0] + places, groups[-1][1] + members)
    spots, floor = [], box.y0 * height
    for places, members in groups:  # names near one another stand around their middle
        first = max(_bottom(places), floor)
        spots += [(first + _LINE_GAP_PT * i, end) for i, end in enumerate(members)]
        floor = spots[-1][0] + _LINE_GAP_PT
    ceiling = box.y1 * height - 1
    for number in reversed(range(len(spots))):
        spots[number] = (min(spots[number][0], ceiling), spots[number][1])
        ceiling = spots[number][0] - _LINE_GAP_PT
    right = box.x1 + 0.06 / figure.get_size_inches()[0]
    for at, (_, words, strong, colour) in spots:
        figure.text(right, at / height, words, va="center", fontsize=style.CELL, color=colour,
                    fontweight="bold" if strong else "normal")  # fmt: skip


def _bottom(places: Sequence[float]) -> float:
    """Height of the lowest of names that stand around the mean of their places."""
    return sum(places) / len(places) - _LINE_GAP_PT * (len(places) - 1) / 2


def _top(places: Sequence[float]) -> float:
    return _bottom(places) + _LINE_GAP_PT * (len(places) - 1)


def _dots(axes, points, series, options) -> None:
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


def _special(points: Sequence[dict], together: bool) -> list[str]:
    items = []
    if together:
        items.append("lines that coincide: drawn thick to thin, each marks points of its own")
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
