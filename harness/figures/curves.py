"""Type 12: is it the same mathematics, and is it worth it? Per epoch and per second, one y axis.

Keys of a point: see `docs/figures.md`, kind `curves`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from dgbench.harness.claims.shown import digits
from dgbench.harness.claims.verdict import MAX_DEVIATION
from dgbench.harness.figures import style
from dgbench.harness.figures.framed import (
    Framed,
    failed_words,
    gaps,
    line_handle,
    series_looks,
    twin_titles,
)
from dgbench.harness.figures.palette import INK, SECONDARY
from dgbench.harness.figures.panels import order
from dgbench.lab.charts import subject_and_form
from dgbench.runtime.errors import InvalidInputError

REQUIRED = ("series",)
NUMBERS = ("x", "y")
EVERY: Final = 10
FEWEST: Final = 4
"""A marker at every tenth point, and on shorter lines so often that there are about four."""
_NESTED: Final = (3.8, 2.2, 1.0)
"""Widths of lines that coincide, so that each shows beside the next."""
_DASHES: Final = (0, (4, 2))
_FORMS: Final[tuple[Any, ...]] = ("-", (0, (5, 1)), (0, (1, 0.8)), (0, (3, 1, 1, 1)))
"""Lines of the forms of one subject, which share its colour."""


@dataclass(frozen=True, slots=True)
class PanelCurve:
    """One series of one panel: the median over seeds at each x, and their range.

    Attributes:
        xs, ys, low, high: by point, in order. seconds: since the start, or None where not all
            points have a time. seeds: how many runs.
    """

    xs: list[float]
    ys: list[float]
    low: list[float]
    high: list[float]
    seconds: list[float] | None
    seeds: int

    def reached(self, target: float, up: bool) -> int | None:
        """Index of the first point that is as good as the target, up to rounding."""
        least = target - (1 if up else -1) * MAX_DEVIATION * abs(target)
        found = (i for i, y in enumerate(self.ys) if (y >= least if up else y <= least))
        return next(found, None)


def curve_of(points: Sequence[dict]) -> PanelCurve:
    """The curve of the points of one series and panel; failures are left out."""
    good = [p for p in points if not p.get("failed")]
    by_x: dict[float, list[dict]] = {}
    for point in good:
        by_x.setdefault(float(point["x"]), []).append(point)
    xs = sorted(by_x)
    values = [[p["y"] for p in by_x[x]] for x in xs]
    timed = bool(xs) and all(p.get("seconds") is not None for p in good)
    return PanelCurve(
        xs=xs,
        ys=[float(median(v)) for v in values],
        low=[min(v) for v in values],
        high=[max(v) for v in values],
        seconds=[float(median(p["seconds"] for p in by_x[x])) for x in xs] if timed else None,
        seeds=max((len(v) for v in values), default=0),
    )


def draw(points: Sequence[dict], options: Mapping[str, Any], context: Any, wide: bool) -> Any:
    """The figure at full or half width.

    Raises:
        InvalidInputError: no option `start`, which says whether the curves start alike.
    """
    if not options.get("start"):
        raise InvalidInputError(
            "curves have no option 'start'",
            hint="say whether seed and first parameters are the same: 'same seed and parameters'",
        )
    titles = twin_titles(points)
    names = series_looks(order(points, "series"))
    grouped = {
        panel: {
            name: curve_of([p for p in points if p.get("panel") == panel and p["series"] == name])
            for name in names
        }
        for panel in titles
    }
    timed = any(c.seconds for found in grouped.values() for c in found.values())
    references = {p["series"] for p in points if p.get("reference")}
    shown: list[tuple[Any, bool]] = [
        (panel, by_time) for panel in titles for by_time in ((False, True) if timed else (False,))
    ]
    alone = len(titles) == 1 and titles[next(iter(titles))] is None
    heads = {False: "per epoch" if alone else "", True: "per second"}
    grid = Framed(
        [_title(titles[panel], by_time, heads, timed, wide) for panel, by_time in shown],
        wide=wide,
        columns=2 if timed else min(3 if len(titles) > 2 else 2, len(titles)),
        heights=[1.75 if wide else 1.6] * len(shown),
        labels=["000.00"],
        left=0.6,
        right=0.1,
        share_left=False,
        handles=_handles(points, names, references, options),
        notes=[f"start: {options['start']}{_untimed(grouped, names) if timed else ''}"],
        below=0.38,
        footer=style.footer_lines(
            _special(points, options, grouped, timed),
            context,
            width=style.FULL if wide else style.HALF,
        ),
    )
    for (panel, by_time), (_, axes) in zip(shown, grid.axes(context), strict=True):
        mine = [p for p in points if p.get("panel") == panel]
        _panel(axes, mine, grouped[panel], names, references, options, by_time)
    return grid.figure


def _untimed(grouped, names) -> str:
    """Names of the series that have epochs and no seconds."""
    found = {n for curves in grouped.values() for n, c in curves.items() if c.xs and not c.seconds}
    said = ", ".join(look.title for name, look in names.items() if name in found)
    return f"; not timed: {said}" if said else ""


def _title(title: Any, by_time: bool, heads: Mapping[bool, str], timed: bool, wide: bool) -> Any:
    if not timed:
        return title
    if wide and by_time:
        return heads[True]
    return ", ".join(str(t) for t in (title, heads[by_time]) if t) or None


def _handles(points, names, references, options) -> list[Any]:
    from matplotlib.lines import Line2D

    found = []
    for name, look in names.items():
        if name in references:
            known = "reference" in look.title.lower()
            label = look.title if known else f"{look.title} (reference)"
            found.append(Line2D([], [], color="black", lw=1.2, ls=_DASHES, label=label))
        else:
            handle = line_handle(look)
            handle.set_linestyle(_form(name, names))
            found.append(handle)
    if any(p.get("target") is not None for p in points):
        label = options.get("target_label", "target")
        found.append(Line2D([], [], color=SECONDARY, lw=0.9, ls=(0, (1, 1.6)), label=label))
    if any(p.get("failed") for p in points):
        found.append(style.failed_handle())
    return found


def _form(name: str, names: Mapping[str, Any]) -> Any:
    """Dashes of a series' line: solid, except for further forms of a subject."""
    subject = subject_and_form(name)[0]
    mine = [n for n in names if subject_and_form(n)[0] == subject]
    mine.sort(key=lambda n: n != subject)
    return _FORMS[min(mine.index(name), len(_FORMS) - 1)]


def _panel(axes, points, found, names, references, options, by_time) -> None:
    drawn = {n: c for n, c in found.items() if c.xs and (c.seconds or not by_time)}
    ends = _scales(axes, drawn, found, points, options, by_time)
    targets = [p["target"] for p in points if p.get("target") is not None]
    if targets:
        axes.axhline(targets[0], color=SECONDARY, lw=0.9, ls=(0, (1, 1.6)), zorder=1.4)
    nested = _NESTED if options.get("together") and not by_time else ()
    plain = [name for name in drawn if name not in references]
    for name, curve in drawn.items():
        look = names[name]
        xs = curve.seconds if by_time else curve.xs
        if name in references:
            axes.plot(xs, curve.ys, color="black", lw=1.2, ls=_DASHES, zorder=3.5)
            continue
        number = plain.index(name)
        width = nested[min(number, len(nested) - 1)] if nested else 1.3
        if curve.seeds > 1:
            axes.fill_between(xs, curve.low, curve.high, color=look.mark.colour, alpha=0.18, lw=0,
                              zorder=1.6)  # fmt: skip
        every = max(1, min(EVERY, len(xs) // FEWEST))
        first = (3 * number) % min(every, len(xs))
        axes.plot(xs, curve.ys, color=look.mark.colour, lw=width, marker=look.mark.marker, ms=4.2,
                  mfc=look.mark.colour if look.mark.filled else "white", mec=look.mark.colour,
                  markevery=(first, every), zorder=3 + 0.01 * number,
                  ls="-" if nested else _form(name, names))  # fmt: skip
    if targets:
        _drops(axes, drawn, names, references, targets[0], options, by_time, ends)
    bad = [p for p in points if p.get("failed")]
    low = axes.get_xlim()[0]
    gaps(axes, bad, [p.get("x", low) if not by_time else low for p in bad],
         {n: k.title for n, k in names.items()})  # fmt: skip


def _scales(axes, drawn, found, points, options, by_time) -> tuple[float, float]:
    """Both axes; y is that of the whole panel, so that epochs and seconds share it."""
    from matplotlib.ticker import MaxNLocator

    values = [v for c in found.values() for v in (*c.low, *c.high)]
    values += [p["target"] for p in points if p.get("target") is not None]
    log = bool(options.get("ylog")) and min(values, default=0.0) > 0
    count = sum(bool(p.get("failed")) for p in points)
    said = options.get("ylabel", "")
    if log:
        low, high = style.log_limits(values, pad=1.12)
        axes.set_yscale("log")
        style.log_axis(axes.yaxis, low, high * (high / low) ** (0.1 * count), room=5.0)
        said += " (log)"
    else:
        low, high = min(values, default=0.0), max(values, default=1.0)
        spare = 0.07 * (high - low or abs(high) or 1.0)
        if options.get("from_zero") and low >= 0:
            low = 0.0
        else:
            low -= spare
        high += spare
        axes.locator_params(axis="y", nbins=5)
        low = _room(low, high, found, points, options, axes)
        if low > 0:
            said += f" (from {low:.2g})"
    headroom = (0.12 * (count + 1)) if count else 0.0
    top = high * (high / low) ** headroom if log else high + headroom * (high - low)
    axes.set_ylim(low, top)
    tall = axes.get_position().height * axes.figure.get_size_inches()[1]
    axes.set_ylabel(style.wrap_label(said.strip(), tall + 0.1))
    xs = [x for c in drawn.values() for x in ((c.seconds or []) if by_time else c.xs)]
    xs += [p["x"] for p in points if p.get("failed") and p.get("x") is not None and not by_time]
    end = max(xs, default=1.0)
    first = 0.0 if by_time or not xs else min(xs)
    pad = 0.03 * (end - first or 1.0)
    limits = first - pad, end + pad
    whole = not by_time and all(float(x).is_integer() for x in xs)
    ticks = MaxNLocator(6, integer=whole).tick_values(*limits)
    axes.set_xticks([t for t in ticks if limits[0] <= t <= limits[1]])
    axes.set_xlim(*limits)
    axes.set_xlabel("seconds of training" if by_time else options.get("xlabel", "epoch"))
    axes.grid(True)
    return low, top


def _room(low, high, found, points, options, axes) -> float:
    """The lower end of a linear axis, so that numbers below the target have room there."""
    targets = [p["target"] for p in points if p.get("target") is not None]
    if not targets:
        return low
    up = options.get("goal", "up") == "up"
    count = sum(c.reached(targets[0], up) is not None for c in found.values())
    tall = axes.get_position().height * axes.figure.get_size_inches()[1]
    share = min(0.45, (0.125 * count + 0.05) / tall)
    return min(low, (targets[0] - share * high) / (1 - share))


def _drops(axes, drawn, names, references, target, options, by_time, ends) -> None:
    """From where each curve reaches the target down to the axis, with the number there."""
    up = options.get("goal", "up") == "up"
    tall = axes.get_position().height * axes.figure.get_size_inches()[1]
    step = 0.125 / tall
    reached = []
    for name, curve in drawn.items():
        at = curve.reached(target, up)
        if name not in references and at is not None:
            xs = curve.seconds if by_time else curve.xs
            reached.append((xs[at], name))
    log = axes.get_yscale() == "log"
    low, high = ends
    share = (
        (math.log(target / low) / math.log(high / low)) if log else (target - low) / (high - low)
    )
    said: list[str] = []
    for x, name in sorted(reached):
        colour = names[name].mark.colour
        axes.plot([x, x], [0, share], color=colour, lw=0.9, ls=(0, (2, 1.5)), zorder=2.5,
                  transform=axes.get_xaxis_transform())  # fmt: skip
        axes.plot([x], [0], marker=names[name].mark.marker, ms=3.4, mec=colour, zorder=6,
                  mfc=colour if names[name].mark.filled else "white", clip_on=False,
                  transform=axes.get_xaxis_transform())  # fmt: skip
        text = style.seconds_text(x) if by_time else f"{x:g}"
        if text in said:
            continue
        said.append(text)
        left = (x - axes.get_xlim()[0]) > 0.75 * (axes.get_xlim()[1] - axes.get_xlim()[0])
        axes.annotate(text, (x, 0.03 + step * (len(said) - 1)), xycoords=axes.get_xaxis_transform(),
                      xytext=(-3 if left else 3, 0), textcoords="offset points",
                      ha="right" if left else "left", va="bottom", fontsize=style.CELL, color=INK,
                      bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.4},
                      zorder=7)  # fmt: skip


def _special(points, options, grouped, timed) -> list[str]:
    seeds = max((c.seeds for found in grouped.values() for c in found.values()), default=0)
    items = [f"line: median of {seeds} seeds, band: their range" if seeds > 1 else "one seed"]
    items.append("not smoothed")
    if options.get("together"):
        items.append("lines that coincide: drawn thick to thin")
    if not timed:
        items.append("per second: these rows kept no times")
    if any(p.get("target") is not None for p in points):
        items.append("numbers at the axis: when the target is reached")
    if points and all(p.get("twin") for p in points):
        items.append("data: all twins")
    return items


def describe(points: Sequence[dict], options: Mapping[str, Any], context: Any) -> str:
    """One sentence: where each series ends, who is best there, and when the target is reached."""
    names = series_looks(order(points, "series"))
    up = options.get("goal", "up") == "up"
    parts = []
    for panel in order(points, "panel"):
        mine = [p for p in points if p.get("panel") == panel]
        found = {n: c for n in names if (c := curve_of([p for p in mine if p["series"] == n])).xs}
        if not found:
            parts.append(f"{panel}: no value" if panel else "no value")
            continue
        said = [f"{names[n].title} {digits(c.ys[-1])}" for n, c in found.items()]
        best = (max if up else min)(found, key=lambda n: found[n].ys[-1])
        text = f"{f'{panel}: ' if panel else ''}{', '.join(said)}"
        if len({digits(c.ys[-1]) for c in found.values()}) > 1:
            text += f" ({names[best].title} best)"
        target = next((p["target"] for p in mine if p.get("target") is not None), None)
        if target is not None:
            text += f"; {options.get('target_label', 'target')} {digits(target)} reached by "
            others = [n for n in found if not any(p.get("reference") for p in mine
                                                  if p["series"] == n)]  # fmt: skip
            text += ", ".join(_reached(names[n].title, found[n], target, up) for n in others)
        parts.append(text)
    what = options.get("ylabel") or "values"
    return f"{what} at the end: " + "; ".join(parts) + failed_words(points) + "."


def _reached(title: str, curve: PanelCurve, target: float, up: bool) -> str:
    at = curve.reached(target, up)
    if at is None:
        return f"{title} never"
    when = f" ({style.seconds_text(curve.seconds[at])})" if curve.seconds else ""
    return f"{title} at {curve.xs[at]:g}{when}"
