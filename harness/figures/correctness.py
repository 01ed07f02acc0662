"""Type 11: is the fast one right? Speed on a log axis, and beside it what was checked, in words.

Keys of a point: see `docs/figures.md`, kind `correctness`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from dgbench.harness.claims.shown import digits
from dgbench.harness.figures import style
from dgbench.harness.figures.framed import Framed, failed_words, series_looks, twin_titles
from dgbench.harness.figures.palette import BASELINES, INK, RED, SECONDARY
from dgbench.harness.figures.panels import order
from dgbench.runtime.errors import InvalidInputError, unknown_key

REQUIRED = ("system",)
NUMBERS = ("seconds",)
MAX_DEVIATION: Final = 1e-5
"""Deviation that rounding explains, where a figure names no other."""
CROSS: Final = "\N{BALLOT X} "
HALF_COLUMNS: Final = 3
_UNITS: Final = ((1.0, 1.0, "s"), (1e-3, 1e3, "ms"), (1e-6, 1e6, "µs"), (0.0, 1e9, "ns"))


@dataclass(frozen=True, slots=True)
class CheckColumn:
    """A column of checks.

    Attributes:
        head: over the column. say: a value as its cell shows it. right: whether it passes, given
            what deviation is allowed.
    """

    head: str
    say: Callable[[float], str]
    right: Callable[[float, float], bool]


def _percent(value: float) -> str:
    """A share in percent; only what is exactly 0 or 1 is shown as 0 % or 100 %."""
    if value in (0.0, 1.0):
        return f"{100 * value:.0f} %"
    shown = 100 * value
    if shown < 0.1:
        return "< 0.1 %"
    return f"{min(shown, 99.9):.1f} %" if shown < 10 or shown > 99 else f"{shown:.0f} %"


CHECKS: Final[dict[str, CheckColumn]] = {
    "recall": CheckColumn("recall", _percent, lambda v, _: v >= 1.0),
    "leaks": CheckColumn("leaks", _percent, lambda v, _: v <= 0.0),
    "duplicates": CheckColumn("repeats", _percent, lambda v, _: v <= 0.0),
    "repeats": CheckColumn("same again", lambda v: "yes" if v else "no", lambda v, _: True),
    "redraws": CheckColumn("redraws", digits, lambda v, _: True),
    "deviation": CheckColumn(
        "deviation", lambda v: f"{v:.0e}" if v else "0", lambda v, most: v <= most
    ),
}
"""Columns by key. Whether a second call repeats the first, and how many draws were made again, are
facts beside the speed: they make nothing wrong."""


def draw(points: Sequence[dict], options: Mapping[str, Any], context: Any, wide: bool) -> Any:
    """The figure at full or half width.

    Raises:
        InvalidInputError: a point of another column than `columns` names, or more than three at
            half width. UnknownKeyError: a column that is none.
    """
    columns = _columns(points, options)
    shown = columns if wide else columns[:HALF_COLUMNS]
    titles = twin_titles(points)
    names = series_looks(order(points, "system"))
    groups = {panel: [p for p in points if p.get("panel") == panel] for panel in titles}
    scale, unit = _unit(points)
    widths = _widths(points, shown, wide, options)
    size = style.SMALL if wide else style.CELL
    words = [look.title for look in names.values()]
    labels, room = style.fit_labels(words, most=1.9 if wide else 0.8, size=size)
    names = {
        # Rows tell words apart, so that all of them wear one grey.
        name: replace(look, title=labels[look.title],
                      mark=BASELINES[0] if look.title == name else look.mark)
        for name, look in names.items()
    }  # fmt: skip
    good = [p for p in points if not p.get("failed")]
    handles = []
    if any(wrong(p, options) for p in good):
        handles.append(_wrong_handle())
    if len(good) < len(points):
        handles.append(style.failed_handle())
    grid = Framed(
        list(titles.values()),
        wide=wide,
        columns=1,
        heights=[style.ROW * len(mine) for mine in groups.values()],
        left=0.06 + room if wide else room,
        right=0.08 + sum(widths.values()),
        handles=handles,
        footer=style.footer_lines(
            _special(points, options, columns, shown, wide, context.noise),
            context,
            width=style.FULL if wide else style.HALF,
        ),
        above=0.15,
    )
    limits = style.log_limits([scale * v for p in good for v in (p["seconds"], *style.ends(p))])
    if any(wrong(p, options) for p in good):  # room for the word beside a cross
        limits = limits[0], limits[1] * (limits[1] / limits[0]) ** (0.12 if wide else 0.3)
    for mine, (_, axes) in zip(groups.values(), grid.axes(context), strict=True):
        axes.set_title(axes.get_title(loc="left"), pad=15)
        _panel(axes, mine, names, options, context, limits, scale, widths)
        said = options.get("xlabel", "time of a call")
        axes.set_xlabel(_fitting(axes, f"{said}, {unit} (log)", f"{unit} (log)"))
    return grid.figure


def _columns(points: Sequence[dict], options: Mapping[str, Any]) -> list[str]:
    columns = list(options.get("columns") or [k for k in CHECKS if any(k in p for p in points)])
    for key in columns:
        if key not in CHECKS:
            raise unknown_key("column of checks", key, CHECKS)
    if not columns:
        raise InvalidInputError(
            "a correctness figure has no column of checks", hint=f"one of {', '.join(CHECKS)}"
        )
    return columns


def wrong(point: Mapping[str, Any], options: Mapping[str, Any]) -> list[str]:
    """Keys of the checks that a contender fails."""
    most = options.get("tolerance", MAX_DEVIATION)
    return [
        key for key in _columns([dict(point)], options) if point.get(key) is not None
        and not CHECKS[key].right(float(point[key]), most)
    ] if any(key in point for key in CHECKS) else []  # fmt: skip


def _unit(points: Sequence[dict]) -> tuple[float, str]:
    """Factor for seconds, and the unit of the axis."""
    middle = sorted(p["seconds"] for p in points if not p.get("failed"))
    value = middle[len(middle) // 2] if middle else 1.0
    return next((scale, unit) for least, scale, unit in _UNITS if value >= least)


def _cell(point: Mapping[str, Any], key: str) -> str:
    return CHECKS[key].say(float(point[key])) if point.get(key) is not None else "not judged"


def _widths(points, columns, wide, options) -> dict[str, float]:
    """Inches of each text column; the time itself stands before the checks at full width."""
    found = {}
    if wide:
        texts = [_time_text(p) for p in points if not p.get("failed")]
        found["seconds"] = 0.16 + max((style.text_width(t, style.CELL, bold=True) for t in texts),
                                      default=0.4)  # fmt: skip
    for key in columns:
        known = [p for p in points if p.get(key) is not None]
        texts = [CROSS * (key in wrong(p, options)) + _cell(p, key) for p in known]
        texts.append(CHECKS[key].head)
        if wide and any(p.get(key) is None and not p.get("failed") for p in points):
            texts.append("not judged")
        width = max(style.text_width(text, style.CELL, bold=True) for text in texts)
        found[key] = width + (0.16 if wide else 0.06)
    return found


def _time_text(point: Mapping[str, Any]) -> str:
    if point["seconds"] < 1e-6:
        return f"{digits(1e9 * point['seconds'])} ns"
    return style.seconds_text(point["seconds"])


def judged(point: Mapping[str, Any], options: Mapping[str, Any]) -> bool:
    """Return True if any check of a contender was made; an unchecked one is not called right."""
    return any(point.get(key) is not None for key in options.get("columns") or CHECKS)


def fastest(points: Sequence[dict], options: Mapping[str, Any], noise: float | None) -> list[dict]:
    """Those that are judged, right and take the least time, or as little: inside the noise floor,
    or by an interval that reaches down to it."""
    ran = [p for p in points if not p.get("failed") and judged(p, options)]
    right = [p for p in ran if not wrong(p, options)]
    least = min((p["seconds"] for p in right), default=math.inf)
    return [
        p for p in right
        if p["seconds"] == least or style.same(p["seconds"] / least, noise)
        or (p.get("low") is not None and p["low"] <= least)
    ]  # fmt: skip


def _panel(axes, points, names, options, context, limits, scale, widths) -> None:
    axes.set_xscale("log")
    axes.set_xlim(*limits)
    axes.set_ylim(len(points) - 0.5, -0.5)
    axes.set_yticks(range(len(points)), labels=[names[p["system"]].title for p in points],
                    fontsize=style.SMALL if "seconds" in widths else style.CELL)  # fmt: skip
    axes.tick_params(axis="y", length=0)
    width = axes.get_position().width * axes.figure.get_size_inches()[0]
    style.log_axis(axes.xaxis, *limits, room=width)
    axes.grid(axis="x")
    first = fastest(points, options, context.noise)
    for y, point in enumerate(points):
        look = names[point["system"]]
        axes.axhline(y, color=style.GRID, lw=0.5, zorder=0.4)
        bad = wrong(point, options)
        if look.strong:
            axes.get_yticklabels()[y].set_fontweight("bold")
        if point.get("failed"):
            style.hatched(axes, limits[0], y - 0.36, limits[1] - limits[0], 0.72)
            axes.text(0.5, y, style.failure_words(point, {}, width - 0.1), ha="center", va="center",
                      transform=axes.get_yaxis_transform(), fontsize=style.CELL, zorder=7,
                      bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0})  # fmt: skip
        else:
            _mark(axes, point, y, look, bad, scale, limits)
            if point in first:
                _beside(axes, scale * point["seconds"], y, limits,
                        "fastest" if len(first) == 1 else "tied", INK, "bold")  # fmt: skip
        _cells(axes, point, y, bad, point in first, widths, width)
    _heads(axes, widths, width)


def _mark(axes, point, y, look, bad, scale, limits) -> None:
    x = scale * point["seconds"]
    low, high = (scale * point[k] if point.get(k) else None for k in ("low", "high"))
    style.interval(axes, low, high, y, RED if bad else look.mark.colour)
    if not bad:
        style.dot(axes, x, y, look)
        return
    axes.plot([x], [y], marker="x", ms=5.4, mew=1.9, mec=RED, ls="none", zorder=6, clip_on=False)
    _beside(axes, x, y, limits, "(wrong)", RED, "normal")


def _beside(axes, x, y, limits, words, colour, weight) -> None:
    """Words right of a mark, or left of it where the panel ends."""
    width = axes.get_position().width * axes.figure.get_size_inches()[0]
    at = width * math.log(x / limits[0]) / math.log(limits[1] / limits[0])
    room = style.text_width(words, style.CELL, bold=weight == "bold") + 0.1
    left = at + room > max(width + 0.04, width - at + room)
    axes.annotate(words, (x, y), xytext=(-6 if left else 6, 0), textcoords="offset points",
                  ha="right" if left else "left", va="center", fontsize=style.CELL, color=colour,
                  fontweight=weight, zorder=7,
                  bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6})  # fmt: skip


def _places(widths, width) -> dict[str, float]:
    """Right end of each text column, in shares of the axes' width."""
    found, at = {}, width + 0.06
    for key, room in widths.items():
        at += room
        found[key] = at / width
    return found


def _cells(axes, point, y, bad, first, widths, width) -> None:
    for key, at in _places(widths, width).items():
        there = point.get(key) is not None
        if point.get("failed") and not there:
            room = widths[key] / width
            style.hatched(axes, at - room + 0.03 / width, y - 0.36, room - 0.03 / width, 0.72,
                          transform=axes.get_yaxis_transform(), clip_on=False)  # fmt: skip
            continue
        fails = key in bad
        text = _time_text(point) if key == "seconds" else _cell(point, key)
        if not there and widths[key] < style.text_width(text, style.CELL) + 0.1:
            text = "?"
        strong = fails or (key == "seconds" and first)
        axes.text(at, y, f"{CROSS}{text}" if fails else text, ha="right", va="center",
                  transform=axes.get_yaxis_transform(), fontsize=style.CELL, zorder=4,
                  color=RED if fails else INK if there else SECONDARY,
                  fontweight="bold" if strong else "normal")  # fmt: skip


def _heads(axes, widths, width) -> None:
    for key, at in _places(widths, width).items():
        head = "time" if key == "seconds" else CHECKS[key].head
        axes.text(at, 1.0, head, transform=axes.transAxes, ha="right", va="bottom",
                  fontsize=style.CELL, color=SECONDARY)  # fmt: skip


def _fitting(axes, long: str, short: str) -> str:
    """The label of an axis that does not reach beyond its panel by much."""
    width = axes.get_position().width * axes.figure.get_size_inches()[0]
    return long if style.text_width(long) <= width + 0.4 else short


def _wrong_handle() -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], ls="none", marker="x", ms=5.4, mew=1.9, mec=RED,
                  label="fails a check, is not compared")  # fmt: skip


def _special(points, options, columns, shown, wide, noise) -> list[str]:
    items = [str(options["checked"])] if options.get("checked") else []
    if any(p.get("low") is not None for p in points):
        items.append(f"bar: {options.get('interval', '95 % interval')}")
    if any(len(fastest([p for p in points if p.get("panel") == q], options, noise)) > 1
           for q in order(points, "panel")):  # fmt: skip
        items.append("tied: within the noise floor or an interval of the fastest")
    if "leaks" in shown:
        items.append("leaks: from the future")
    if any(p.get(k) is None and not p.get("failed") for p in points for k in shown):
        items += [] if wide else ["?: not judged"]
    if "deviation" in columns:
        items.append(f"deviation up to {options.get('tolerance', MAX_DEVIATION):.0e} is right")
    if len(shown) < len(columns):
        items.append("more checks in the wide figure")
    if points and all(p.get("twin") for p in points):
        items.append("data: all twins")
    return items


def describe(points: Sequence[dict], options: Mapping[str, Any], context: Any) -> str:
    """One sentence: who is right, the fastest of them, and what the others fail."""
    names = series_looks(order(points, "system"))
    good = [p for p in points if not p.get("failed")]
    bad = {id(p): found for p in good if (found := wrong(p, options))}
    passed = sum(judged(p, options) and id(p) not in bad for p in good)
    parts = [f"{passed} of {len(points)} pass every check"]
    for panel in order(points, "panel"):
        first = fastest([p for p in points if p.get("panel") == panel], options, context.noise)
        if not first:
            continue
        who = " and ".join(names[p["system"]].title for p in first)
        where = f" ({panel})" if panel else ""
        parts.append(f"fastest of these{where}: {who}, {_time_text(first[0])}")
    fails: dict[str, set[str]] = {}
    for point in good:
        for key in bad.get(id(point), ()):
            fails.setdefault(names[point["system"]].title, set()).add(CHECKS[key].head)
    said = [f"{who} ({', '.join(sorted(keys))})" for who, keys in fails.items()]
    parts += [f"wrong: {', '.join(said)}"] if said else []
    return "; ".join(parts) + failed_words(points) + "."
