"""Type 6: does it scale, and how much of this is measured? log2 by log2.

Measured and projected points stand on grounds of their own, left and right of a rule, and no line
crosses it. Where a model starts at as few ranks as were measured (another machine's ranks), its
ground has ticks of its own. Keys of a point: see `docs/figures.md`, kind `scaling`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dgbench.harness.claims.shown import digits
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
from dgbench.runtime.errors import InvalidInputError

REQUIRED = ("series", "x")
NUMBERS = ("y",)
PROJECTS = True
_GROUND: Final = "#F3F1EA"
_MIN_SHARE: Final = 0.31
"""Share of a panel that either ground has at least, so that its word fits."""


@dataclass(frozen=True, slots=True)
class _Map:
    """Where ranks stand on the axis: octaves, the projected ones shifted by `shift`.

    Attributes:
        limits: of the axis. rule: where measured ends and projected begins; None without both.
        ticks: place -> number of ranks.
    """

    shift: float
    limits: tuple[float, float]
    rule: float | None
    ticks: dict[float, float]

    def place(self, point: Mapping[str, Any], projected: bool | None = None) -> float:
        modelled = bool(point.get("projected")) if projected is None else projected
        return math.log2(point["x"]) + (self.shift if modelled else 0.0)


def draw(points: Sequence[dict], options: Mapping[str, Any], context: Any, wide: bool) -> Any:
    """The figure at full or half width.

    Raises:
        InvalidInputError: projected points without `topology` or `most`, or beyond `most`; a number
            of ranks below 1.
    """
    _check(points, options)
    titles = twin_titles(points)
    own = [p for p in points if not p.get("paper")]
    names = series_looks(order(own or points, "series"))
    spread = _spread(points)
    modelled = any(p.get("projected") for p in points)
    handles = [line_handle(look, filled=_measures(points, name)) for name, look in names.items()]
    if any(p.get("paper") and not p.get("failed") for p in points):
        handles.append(style.paper_handle("_"))
    notes = []
    if modelled:
        handles.append(style.projected_handle())
        notes.append(f"projected to: {options['topology']}")
        if any(p.get("projected") and p.get("low") is not None for p in points):
            handles.append(_band_handle())
            notes.append(f"hatched: {options.get('band', 'what the model may be off by')}")
    if any(p.get("failed") for p in points):
        handles.append(style.failed_handle())
    grid = Framed(
        list(titles.values()),
        wide=wide,
        columns=min(3 if len(titles) > 2 else 2, len(titles)),
        heights=[2.2 if wide and len(titles) == 1 else 1.9] * len(titles),
        labels=["000.0x"],
        left=0.58,
        right=0.1,
        share_left=False,
        handles=handles,
        notes=notes,
        below=0.38,
        footer=style.footer_lines(
            _special(points, options), context, width=style.FULL if wide else style.HALF
        ),
    )
    width = grid.width / grid.columns - 0.9
    words = {panel: _error_words([p for p in points if p.get("panel") == panel], spread, width)
             for panel in titles}  # fmt: skip
    limits = _heights(points, max(text.count("\n") + bool(text) for text in words.values()))
    for panel, (_, axes) in zip(titles, grid.axes(context), strict=True):
        mine = [p for p in points if p.get("panel") == panel]
        _ground(axes, mine, spread, limits, options)
        _ideals(axes, mine, spread, limits)
        _panel(axes, mine, names, spread)
        axes.text(0.985, 0.015, words[panel], transform=axes.transAxes, ha="right", va="bottom",
                  fontsize=style.CELL, color=INK, linespacing=1.05, zorder=7)  # fmt: skip
    return grid.figure


def _check(points: Sequence[dict], options: Mapping[str, Any]) -> None:
    for point in points:
        if not point["x"] >= 1:
            raise InvalidInputError(f"'x' is {point['x']} ranks, needed: at least 1")
    there = [p for p in points if p.get("projected")]
    for key in ("topology", "most"):
        if there and not options.get(key):
            raise InvalidInputError(
                f"scaling has projected points and no option '{key}'",
                hint="name what is projected to, and the paper's largest number of ranks",
            )
    beyond = [p["x"] for p in there if p["x"] > options["most"]]
    if beyond:
        raise InvalidInputError(
            f"'x' is projected to {max(beyond):g} ranks, the paper has {options['most']} at most"
        )


def _measures(points: Sequence[dict], name: str) -> bool:
    """Return True if any point of a series is a measurement: only these are filled."""
    return any(p["series"] == name and not p.get("projected") for p in points)


def _band_handle() -> Any:
    from matplotlib.patches import Patch

    return Patch(facecolor="white", edgecolor=SECONDARY, hatch="\\\\\\\\", lw=0, label="error")


def _spread(points: Sequence[dict]) -> _Map:
    """The shared axis of all panels."""
    modelled = any(p.get("projected") for p in points)
    here = sorted({p["x"] for p in points if not p.get("projected") and not p.get("paper")})
    there = sorted({p["x"] for p in points if p.get("projected") or (modelled and p.get("paper"))})
    if not modelled:
        here, there = sorted({p["x"] for p in points}), []
    ticks = {math.log2(x): x for x in here}
    if not there:
        return _Map(0.0, (min(ticks) - 0.3, max(ticks) + 0.3), None, ticks)
    octaves = [math.log2(x) for x in there]
    if not here:
        ticks = dict(zip(octaves, there, strict=True))
        return _Map(0.0, (octaves[0] - 0.4, octaves[-1] + 0.4), None, ticks)
    first, last = min(ticks) - 0.35, max(ticks) + 0.35
    # Each ground is wide enough for its word, and its points stand in its middle.
    wide = octaves[-1] - octaves[0] + 0.75
    short = max(0.0, _MIN_SHARE * wide / (1 - _MIN_SHARE) - (last - first))
    overlap = octaves[0] <= max(ticks)
    first, last = first - short / (2 if overlap else 1), last + short / 2
    shift = last + 0.35 - octaves[0] if overlap else 0.0
    rule = last if overlap else (max(ticks) + octaves[0]) / 2
    end = octaves[-1] + shift + 0.4
    end += max(0.0, _MIN_SHARE * (rule - first) / (1 - _MIN_SHARE) - (end - rule))
    ticks |= {o + shift: x for o, x in zip(octaves, there, strict=True)}
    return _Map(shift, (first, end), rule, ticks)


def _heights(points: Sequence[dict], lines: int) -> tuple[float, float]:
    """Limits of the shared y axis, with headroom for the words on top and lines at the bottom."""
    good = [p for p in points if not p.get("failed") and p["y"] > 0]
    values = [v for p in good for v in (p["y"], *style.ends(p))]
    low, high = min(values, default=1.0), max(values, default=2.0)
    low, high = low * 2**-0.1, high * 2**0.1
    octaves = max(1.0, math.log2(high / low))
    below, above = (0.12 * lines + 0.05) / 1.9, 0.1
    each = octaves / (1 - below - above)
    return low * 2 ** (-below * each), high * 2 ** (above * each)


def _ground(axes, points, spread, limits, options) -> None:
    """Scales, ticks, the rule and the words beside it."""
    axes.set_xlim(*spread.limits)
    axes.set_yscale("log", base=2)
    axes.set_ylim(*limits)
    width = axes.get_position().width * axes.figure.get_size_inches()[0]
    span = spread.limits[1] - spread.limits[0]
    kept = []
    for modelled in (False, True):
        start, end = _span(spread, modelled)
        mine = [(p, style.tick_text(x)) for p, x in sorted(spread.ticks.items()) if start < p < end]
        wide = [style.text_width(text) + 0.06 for _, text in mine]
        each = width / span
        step = next((n for n in (1, 2, 3, 4) if _apart(mine[::-1][::n], wide[::-1][::n], each)), 8)
        kept += [place for place, _ in mine[::-1][::step]]
        if spread.rule is None:
            break
    axes.set_xticks(kept, labels=[style.tick_text(spread.ticks[p]) for p in kept])
    unit = options.get("unit", "x")
    powers = range(math.ceil(math.log2(limits[0])), math.floor(math.log2(limits[1])) + 1)
    every = max(1, -(-len(powers) // 7))
    ticks = [2.0**n for n in powers if n % every == 0] or [math.sqrt(limits[0] * limits[1])]
    axes.yaxis.set_ticks(ticks, labels=[f"{style.tick_text(t)}{unit}" for t in ticks])
    axes.yaxis.set_ticks([], minor=True)
    axes.grid(True)
    label = f"{options.get('xlabel', 'ranks')} (log)"
    axes.set_xlabel(label if style.text_width(label) <= width + 0.3 else "ranks (log)")
    label = f"{options.get('ylabel', 'speed-up over one rank')} (log)"
    tall = axes.get_position().height * axes.figure.get_size_inches()[1]
    axes.set_ylabel(style.wrap_label(label, tall + 0.1))
    modelled = any(p.get("projected") for p in points)
    real = any(not p.get("projected") and not p.get("paper") for p in points)
    words = {"va": "top", "fontsize": style.CELL, "color": SECONDARY, "style": "italic"}
    # Paper's values alone do not make a ground of projections.
    if spread.rule is None:
        if modelled:
            axes.axvspan(*spread.limits, color=_GROUND, lw=0, zorder=0)
            axes.text(0.02, 0.98, "projected, nothing measured", transform=axes.transAxes, **words)
        return
    axes.axvspan(spread.rule, spread.limits[1], color=_GROUND, lw=0, zorder=0)
    axes.axvline(spread.rule, color=INK, lw=0.8, zorder=1.2)
    at, gap = (spread.rule - spread.limits[0]) / span, 0.04 / width
    left, right = (
        "measured" if real else "not\nmeasured",
        "projected" if modelled else "not\nprojected",
    )
    axes.text(at - gap, 0.98, left, transform=axes.transAxes, ha="right", linespacing=1.0, **words)
    axes.text(at + gap, 0.98, right, transform=axes.transAxes, ha="left", linespacing=1.0, **words)


def _apart(ticks: Sequence[tuple[float, str]], widths: Sequence[float], each: float) -> bool:
    """Return True if labels at these positions, from right to left, do not overlap."""
    return all(
        (a[0] - b[0]) * each >= (u + v) / 2
        for (a, u), (b, v) in itertools.pairwise(zip(ticks, widths, strict=True))
    )


def _ideals(axes, points, spread, limits) -> None:
    """Dotted lines of slope one from where each series starts, on its own ground."""
    drawn: dict[bool, list[float]] = {False: [], True: []}
    top: tuple[float, float, float] | None = None
    for name in order(points, "series"):
        for modelled in (False, True):
            mine = [p for p in points if p["series"] == name and not p.get("paper")
                    and not p.get("failed") and bool(p.get("projected")) == modelled]  # fmt: skip
            if not mine:
                continue
            first = min(mine, key=lambda p: p["x"])
            each = first["y"] / first["x"]
            if any(0.97 < each / other < 1.03 for other in drawn[modelled]):
                continue
            drawn[modelled].append(each)
            grounds = _span(spread, modelled)
            shift = spread.shift if modelled else 0.0
            xs = [max(grounds[0], math.log2(first["x"]) + shift), grounds[1]]
            ys = [each * 2 ** (x - shift) for x in xs]
            axes.plot(xs, ys, color=SECONDARY, lw=1.0, ls=(0, (1, 1.6)), zorder=1.5)
            if top is None or (modelled, each) >= (top[0], top[1]):
                top = (modelled, each, shift)
    if top is None:
        return
    modelled, each, shift = top
    start, end = _span(spread, bool(modelled))
    end = min(end, math.log2(limits[1] / each) + shift)
    taken = [
        axes.transData.transform((spread.place(p, projected), p["y"]))
        for p in points
        if not p.get("failed")
        for projected in [bool(modelled) if p.get("paper") else None]
    ]
    (x0, y0), (x1, y1) = (axes.transData.transform((x, each * 2 ** (x - shift)))
                          for x in (start, start + 1))  # fmt: skip
    angle = math.atan2(y1 - y0, x1 - x0)
    away = axes.figure.dpi * 0.09
    best = None
    for share, side in itertools.product((0.62, 0.5, 0.75, 0.35, 0.88), (1, -1)):
        x = x0 + (x1 - x0) * share * (end - start)
        y = y0 + (y1 - y0) * share * (end - start)
        spot = x - side * away * math.sin(angle), y + side * away * math.cos(angle)
        near = min((math.dist(spot, other) for other in taken), default=99.0)
        if best is None or min(near, 4 * away) > best[0] + 0.1:
            best = (min(near, 4 * away), share, side)
    _, share, side = best
    at = start + share * (end - start)
    axes.text(at, each * 2 ** (at - shift), "ideal", rotation=math.degrees(angle), ha="center",
              va="bottom" if side > 0 else "top", rotation_mode="anchor", fontsize=style.CELL,
              color=SECONDARY, zorder=2,
              bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.4})  # fmt: skip


def _span(spread: _Map, modelled: bool) -> tuple[float, float]:
    """From where to where a ground reaches."""
    low, high = spread.limits
    if spread.rule is None:
        return low, high
    return (spread.rule, high) if modelled else (low, spread.rule)


def _panel(axes, points, names, spread) -> None:
    modelled_here = any(p.get("projected") for p in points)
    good = [p for p in points if not p.get("failed")]
    for name, look in names.items():
        mine = sorted((p for p in good if p["series"] == name and not p.get("paper")),
                      key=lambda p: p["x"])  # fmt: skip
        real = [p for p in mine if not p.get("projected")]
        model = [p for p in mine if p.get("projected")]
        colour = look.mark.colour
        band = [p for p in model if p.get("low") is not None and p.get("high") is not None]
        if len(band) > 1:
            axes.fill_between([spread.place(p) for p in band], [p["low"] for p in band],
                              [p["high"] for p in band], facecolor="none", edgecolor=colour,
                              hatch="\\\\\\\\", lw=0.0, alpha=0.6, zorder=1.8)  # fmt: skip
        elif band:
            style.interval(axes, band[0]["low"], band[0]["high"], spread.place(band[0]), colour,
                           vertical=True)  # fmt: skip
        for part, dashes in ((real, "-"), (model, style.PROJECTED_DASHES)):
            axes.plot([spread.place(p) for p in part], [p["y"] for p in part], color=colour,
                      ls=dashes, lw=1.4 if look.strong else 1.1, zorder=3)  # fmt: skip
        for point in real:
            style.interval(axes, point.get("low"), point.get("high"), spread.place(point), colour,
                           vertical=True)  # fmt: skip
        for point in mine:
            hollow = bool(point.get("projected"))
            axes.plot([spread.place(point)], [point["y"]], marker=look.mark.marker, ms=4.4,
                      mfc="white" if hollow else colour, mec=colour, mew=1.0, ls="none",
                      zorder=6.5 if look.strong else 6)  # fmt: skip
    for point in good:
        if point.get("paper"):
            style.paper_mark(axes, spread.place(point, modelled_here), point["y"])
    bad = [p for p in points if p.get("failed")]
    titles = {name: look.title for name, look in names.items()}
    gaps(axes, bad, [spread.place(p) for p in bad], titles)


def _error_words(points: Sequence[dict], spread: _Map, width: float) -> str:
    """Largest error of the model against a measurement, in words broken into lines."""
    if not any(p.get("projected") for p in points):
        return ""
    found = [p for p in points if p.get("model_error") is not None]
    text = "model's error: not measured"
    if found:
        worst = max(found, key=lambda p: p["model_error"])
        on = worst.get("model_error_on") or "what was measured"
        text = f"model off by {100 * worst['model_error']:.0f} % on {on}"
    start, end = _span(spread, True)
    room = width * (end - start) / (spread.limits[1] - spread.limits[0])
    return style.wrap_label(text, max(0.8, room - 0.1), style.CELL)


def _special(points: Sequence[dict], options: Mapping[str, Any]) -> list[str]:
    real = [p for p in points if not p.get("projected") and not p.get("paper")]
    items = [str(options["baseline"])] if options.get("baseline") else []
    if any(p.get("low") is not None for p in real):
        items.append(f"bar: {options.get('interval', '95 % interval')}")
    if options.get("here") and any(not p.get("failed") for p in real):
        items.append(f"measured: {options['here']}")
    if any(p.get("projected") for p in points):
        items.append(style.PROJECTED)
    if points and all(p.get("twin") for p in points):
        items.append("data: all twins")
    return items


def describe(points: Sequence[dict], options: Mapping[str, Any], context: Any) -> str:
    """One sentence: what was measured at the most ranks, what is projected, the model's error."""
    own = [p for p in points if not p.get("paper") and not p.get("failed")]
    names = series_looks(order(own, "series"))
    unit, parts = options.get("unit", "x"), []
    for modelled, word in ((False, "measured"), (True, "projected")):
        mine = [p for p in own if bool(p.get("projected")) == modelled]
        if not mine:
            parts.append(f"nothing is {word}" if not modelled else "")
            continue
        most = max(p["x"] for p in mine)
        said = []
        for name, look in names.items():
            values = [p["y"] for p in mine if p["series"] == name and p["x"] == most]
            if values:
                ends = [f"{digits(v)}{unit}" for v in dict.fromkeys((min(values), max(values)))]
                said.append(f"{look.title} {' to '.join(ends)}")
        best = max((p for p in mine if p["x"] == most), key=lambda p: p["y"])
        lead = f", {names[best['series']].title} highest" if len(said) > 1 else ""
        parts.append(f"{word} at {most:g} ranks: {', '.join(said)}{lead}")
    errors = [p["model_error"] for p in points if p.get("model_error") is not None]
    if errors and any(p.get("projected") for p in own):
        parts.append(
            f"the model was off by at most {100 * max(errors):.0f} % where it was measured"
        )
    text = "; ".join(part for part in parts if part)
    return f"{text[:1].upper()}{text[1:]}{failed_words(points)}."
