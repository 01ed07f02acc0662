"""Two states: what became slower or faster, by how much, and what stayed the same?

One row per quantity that changed, the largest change first; time in B over time in A on a log
axis. What stayed the same is one row with its count. Keys of a point: `row`, `value` (above 1: B is
slower), `word` (of `WORDS`); optional `low`, `high`, `n`, `gain` = True (a ratio to a peer of the
same process), `fold` = True (no row of its own). Options: `a`, `b` (names of the sides), `assumed`
(True: nobody measured the noise floor), `counts` (of the words), `most` (rows), `xlabel`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from dgbench.harness.figures import style
from dgbench.harness.figures.palette import COMPARISON, INK, SECONDARY
from dgbench.harness.figures.panels import PanelGrid
from dgbench.harness.quantities import percent, spread
from dgbench.lab.charts import marked

REQUIRED = ("row",)
NUMBERS = ("value", "word")
WORDS: Final = ("SLOW", "FAST", "AMBG", "SAME")
MARKERS: Final = {"SLOW": "v", "FAST": "^", "AMBG": "$?$", "SAME": "_"}
MAX_ROWS: Final = 30
"""Rows of their own; what is left of each word shares one row with its count."""
TICKS: Final = 160
"""Places of ticks in such a row."""


def draw(points: Sequence[dict], options: Mapping[str, Any], context: Any, wide: bool) -> Any:
    """The figure at full or half width."""
    rows = laid_out(points, int(options.get("most", MAX_ROWS)))
    a, b = str(options.get("a", "A")), str(options.get("b", "B"))
    shown = [p for row in rows for p in row["points"] if not p.get("failed")]
    own = [p for row in rows if not row["folded"] for p in row["points"] if not p.get("failed")]
    numbers = [v for p in own or shown for v in (p["value"], *style.ends(p))]
    limits = style.log_limits(numbers, include=1.0)
    labels = [row["label"] for row in rows]
    handles = [_handle(word) for word in WORDS if any(p["word"] == word for p in shown)]
    if context.noise is not None:
        handles.append(style.noise_handle(context.noise))
    if any(row["failed"] for row in rows):
        handles.append(style.failed_handle())
    grid = PanelGrid(
        [None],
        wide=wide,
        columns=1,
        heights=[style.ROW * max(1, len(rows))],
        labels=labels,
        right=1.16 if wide else 0.5,
        handles=handles,
        footer=style.footer_lines(
            _special(points, a, b, options), context, width=style.FULL if wide else style.HALF
        ),
        below=0.36,
    )
    for _, axes in grid.axes(context):
        axes.set_xscale("log")
        axes.set_xlim(*limits)
        axes.set_ylim(max(1, len(rows)) - 0.5, -0.5)
        axes.set_yticks(range(len(rows)), labels=labels)
        axes.tick_params(axis="y", length=0)
        width = axes.get_position().width * grid.width
        style.log_axis(axes.xaxis, *limits, unit="x", room=width)
        axes.grid(axis="x")
        style.noise_band(axes, context.noise)
        for y, row in enumerate(rows):
            _row(axes, y, row, limits, width, wide)
        if any(row["folded"] for row in rows) and not rows[0]["folded"]:
            first = next(y for y, row in enumerate(rows) if row["folded"])
            axes.axhline(first - 0.5, color=SECONDARY, lw=0.6)
        label = str(options.get("xlabel", "time in B / time in A"))
        axes.set_xlabel(f"{label} (log)" if style.text_width(label) < width else "B / A (log)")
    return grid.figure


def laid_out(points: Sequence[dict], most: int) -> list[dict[str, Any]]:
    """Rows from top to bottom: failures, changes by size, then one row for what shares a word.

    Every row has `label`, `points`, `folded` and `failed`.
    """
    rows, rest = [], []
    for point in points:
        if point.get("failed"):
            rows.append(_laid(_label(point), [point], failed=True))
    own = [p for p in points if not p.get("failed") and p["word"] != "SAME" and not p.get("fold")]
    own.sort(key=lambda p: (p["word"] == "AMBG", -abs(math.log(p["value"])), str(p["row"])))
    rows += [_laid(_label(p), [p]) for p in own[:most]]
    left = {id(p) for p in own[most:]}
    for word in WORDS:
        mine = [p for p in points if not p.get("failed") and p["word"] == word]
        mine = [p for p in mine if word == "SAME" or id(p) in left or p.get("fold")]
        if mine:
            what = "the same" if word == "SAME" else word
            single = word == "AMBG" and all(p.get("low") is None for p in mine)
            what = "one process a side" if single else what
            more = "" if word == "SAME" or single else "more "
            rest.append(_laid(f"{len(mine)} {more}{what}", mine, folded=True))
    return rows + rest


def _laid(label: str, points: list[dict], *, folded: bool = False, failed: bool = False) -> dict:
    return {"label": label, "points": points, "folded": folded, "failed": failed}


def _label(point: dict) -> str:
    return marked(point["row"], point.get("twin"))


def _row(axes: Any, y: float, row: dict, limits: Any, width: float, wide: bool) -> None:
    transform = axes.get_yaxis_transform()
    if row["failed"]:
        point = row["points"][0]
        style.hatched(axes, limits[0], y - 0.36, limits[1] - limits[0], 0.72)
        axes.text(
            0.5, y, style.failure_words(point, {}, width - 0.15), transform=transform, ha="center",
            va="center", fontsize=style.CELL, color=INK, zorder=7,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.2},
        )  # fmt: skip
        return
    if row["folded"]:
        values = [p["value"] for p in row["points"]]
        places = _thinned(values, limits)
        axes.plot(places, [y] * len(places), marker="|", ms=6, mew=0.8, ls="none", zorder=5,
                  color=COMPARISON[row["points"][0]["word"]], alpha=0.7)  # fmt: skip
        low, high = percent(min(values)), percent(max(values))
        text = (low if low == high else f"{low.removesuffix(' %')} to {high}") if wide else ""
        axes.text(1.02, y, text, transform=transform, va="center", fontsize=style.CELL,
                  color=SECONDARY)  # fmt: skip
        return
    point = row["points"][0]
    _mark(axes, y, point)
    text = percent(point["value"])
    if wide:
        text = f"{text} {spread(point.get('low'), point.get('high'))}".rstrip()
    bold = point["word"] in ("SLOW", "FAST")
    axes.text(1.02, y, text, transform=transform, va="center", fontsize=style.CELL,
              color=COMPARISON[point["word"]] if bold else SECONDARY,
              fontweight="bold" if bold else "normal")  # fmt: skip


def _thinned(values: Sequence[float], limits: tuple[float, float]) -> list[float]:
    """Places of many ticks: those that would fall on one another are drawn once, and those
    outside of the axis stand at its ends."""
    low, high = (math.log(v) for v in limits)
    steps = {round((math.log(v) - low) / (high - low) * TICKS) for v in values}
    kept = sorted({min(max(step, 0), TICKS) for step in steps})
    return [math.exp(low + step / TICKS * (high - low)) for step in kept]


def _mark(axes: Any, y: float, point: dict) -> None:
    word, colour = point["word"], COMPARISON[point["word"]]
    low, high = point.get("low"), point.get("high")
    if low is not None and high is not None:
        left, right = axes.get_xlim()
        style.interval(axes, max(low, left), min(high, right), y, colour)
    axes.plot([point["value"]], [y], marker=MARKERS[word], ms=5 if word != "AMBG" else 5.5,
              mfc=colour, mec=colour, mew=0.4, ls="none", zorder=6, clip_on=False)  # fmt: skip


def _handle(word: str) -> Any:
    from matplotlib.lines import Line2D

    said = {"SLOW": "SLOW: B takes longer", "FAST": "FAST", "AMBG": "AMBG: cannot be told",
            "SAME": "SAME"}[word]  # fmt: skip
    marker = "|" if word == "SAME" else MARKERS[word]
    return Line2D([], [], ls="none", marker=marker, ms=5.5, mfc=COMPARISON[word],
                  mec=COMPARISON[word], mew=0.9 if word == "SAME" else 0.4, label=said)  # fmt: skip


def _special(points: Sequence[dict], a: str, b: str, options: Mapping[str, Any]) -> list[str]:
    items = [f"A: {a}", f"B: {b}"]
    if options.get("assumed"):
        items.append("noise floor assumed, not measured")
    counts = [p["n"] for p in points if p.get("n")]
    if counts:
        low, high = min(counts), max(counts)
        items.append(f"n = {low} a side" if low == high else f"n = {low} to {high} a side")
        items.append("bar: 95 % interval")
    if any(p.get("gain") for p in points):
        items.append("gain: time relative to a peer of the same process")
    if points and all(p.get("twin") for p in points):
        items.append("data: all twins")
    return items


def describe(points: Sequence[dict], options: Mapping[str, Any], context: Any) -> str:
    """One sentence: counts, the largest changes, failures."""
    good = [p for p in points if not p.get("failed")]
    counts = {word: sum(p["word"] == word for p in good) for word in WORDS}
    counts |= options.get("counts") or {}  # with cells that have no clock
    a, b = options.get("a", "A"), options.get("b", "B")
    order = ("SLOW", "FAST", "SAME", "AMBG")
    parts = [f"{b} against {a}: {', '.join(f'{counts[w]} {w}' for w in order)}"]
    for word, verb in (("SLOW", "slowest"), ("FAST", "fastest")):
        mine = [p for p in good if p["word"] == word]
        if mine:
            top = max(mine, key=lambda p: abs(math.log(p["value"])))
            parts.append(f"{verb}: {_label(top)}, {percent(top['value'])}")
    if not counts["SLOW"] + counts["FAST"]:
        parts.append("nothing lies outside the noise floor")
    if failed := len(points) - len(good):
        parts.append(f"{failed} without a counterpart or failed")
    return "; ".join(parts) + "."
