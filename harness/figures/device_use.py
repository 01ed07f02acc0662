"""Use of a GPU during a race: one row per workload, one column per counter.

Beside the factors of a race it tells whether the device worked at all. Keys of a point: `row`,
`counter` (the first is the rate of the paper's own system), `value`, `unit`; optional `limit`
(draws a bar), `system`. A counter that was not offered is a point with `failed`, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dgbench.harness.claims.shown import digits
from dgbench.harness.figures import style
from dgbench.harness.figures.palette import INK, SECONDARY, looks
from dgbench.harness.figures.panels import PanelGrid, order, rows_of
from dgbench.harness.figures.words import span_text
from dgbench.harness.utilisation import IDLE, IDLE_PERCENT, RATE

REQUIRED = ("row", "counter")
NUMBERS = ("value", "unit")
HALF_COLUMNS: Final = 5
"""Counters that the half layout shows."""
_TRACK: Final = "#EEF0F3"


def draw(points: Sequence[dict], options: Mapping[str, Any], context: Any, wide: bool) -> Any:
    """The figure at full or half width."""
    counters = order(points, "counter")
    shown = counters if wide else counters[:HALF_COLUMNS]
    (labels,) = rows_of([{**p, "panel": None} for p in points], "row").values()
    heads = {name: style.wrap_label(name, 0.42, style.NOTE) for name in shown}
    width = style.FULL if wide else style.HALF
    footer = style.footer_lines(_special(points, counters, shown), context, width=width)
    lines = 1 + max(head.count("\n") for head in heads.values())
    grid = PanelGrid(
        [None],
        wide=wide,
        columns=1,
        heights=[(style.ROW + 0.03) * len(labels)],
        rows=[list(labels.values())],
        footer=footer,
        below=0.1,
        above=0.12 * lines + 0.05,
    )
    for _, axes in grid.axes(context):
        axes.set_xlim(0, len(shown))
        axes.set_ylim(len(labels) - 0.5, -0.5)
        axes.set_yticks(range(len(labels)), labels=list(labels.values()))
        axes.tick_params(length=0)
        axes.xaxis.tick_top()
        axes.set_xticks([x + 0.5 for x in range(len(shown))], labels=list(heads.values()),
                        fontsize=style.NOTE, linespacing=1.0, va="baseline")  # fmt: skip
        for spine in axes.spines.values():
            spine.set_visible(False)
        for y, name in enumerate(labels):
            mine = {p["counter"]: p for p in points if p["row"] == name}
            for x, counter in enumerate(shown):
                _cell(axes, x, y, mine.get(counter) or {"failed": "skipped: not read"})
    return grid.figure


def _cell(axes: Any, x: int, y: int, point: dict) -> None:
    """A bar to the device's limit, where there is one, with the value under it."""
    from matplotlib.patches import Rectangle

    if point.get("failed"):
        style.hatched(axes, x + 0.04, y - 0.4, 0.92, 0.8)
        axes.text(x + 0.5, y, gap_words(point), ha="center", va="center", fontsize=style.NOTE,
                  color=SECONDARY, zorder=7, linespacing=0.95,
                  bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.4})  # fmt: skip
        return
    limit = point.get("limit")
    if limit:
        share = min(point["value"] / limit, 1.0)
        axes.add_patch(Rectangle((x + 0.06, y + 0.2), 0.88, 0.16, facecolor=_TRACK, lw=0, zorder=1))
        axes.add_patch(Rectangle((x + 0.06, y + 0.2), 0.88 * share, 0.16, facecolor=SECONDARY,
                                 lw=0, zorder=2))  # fmt: skip
    axes.text(x + 0.5, y - (0.1 if limit else 0.0), value_words(point), ha="center", va="center",
              fontsize=style.NOTE, color=INK, zorder=4)  # fmt: skip


def gap_words(point: Mapping[str, Any]) -> str:
    """Why a cell has no value, in the words that fit it; its reason in full is in the CSV."""
    return "not\nread" if point.get("offered", True) else "not\noffered"


def value_words(point: Mapping[str, Any]) -> str:
    """`0.27 %`, `< 0.01 %`, `1.5 GiB`, `183 k/s`."""
    value, unit = float(point["value"]), str(point["unit"])
    if unit == "%" and 0 < value < 0.01:
        return "< 0.01 %"
    if unit.endswith("/s"):
        for scale, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
            if value >= scale:
                return f"{digits(value / scale)} {letter}/s"
        return f"{digits(value)} /s"
    return f"{digits(value)} {unit}"


def _special(points: Sequence[dict], counters: Sequence[str], shown: Sequence[str]) -> list[str]:
    units = {str(p["unit"]) for p in points if p["counter"] == RATE and p.get("unit")}
    titles = ", ".join(look.title for look in looks(
        p["system"] for p in points if p.get("system")).values())  # fmt: skip
    items = [f"{RATE}: {titles}, {', '.join(sorted(units))}"] if units and titles else []
    items.append("means of whole processes, set-up included")
    if len(shown) < len(counters):
        items.append("more counters in the wide figure")
    if points and all(p.get("twin") for p in points):
        items.append("data: all twins")
    return items


def describe(points: Sequence[dict], options: Mapping[str, Any], context: Any) -> str:
    """One sentence: SM active, memory and power from the least to the most, and what is missing."""
    parts = []
    for name in ("SM active", "kernel resident", "memory, peak", "power"):
        mine = [p for p in points if p["counter"] == name and not p.get("failed")]
        if mine:
            low, high = (pick(p["value"] for p in mine) for pick in (min, max))
            span = span_text(digits(low), digits(high))
            parts.append(f"{name} {span} {mine[0]['unit']}")
            idle = name == "SM active" and high < IDLE_PERCENT
            parts[-1] += f" ({IDLE})" if idle else ""
    missing = order([p for p in points if p.get("failed")], "counter")
    text = "; ".join(parts) or "No counter of the GPU was read"
    return text + (f"; not everywhere offered: {', '.join(missing)}." if missing else ".")
