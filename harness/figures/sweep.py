"""Type 7: is the complexity what they say? Lines over a size, or dots over categories.

Keys of a point: see `docs/figures.md`, kind `sweep`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dgbench.harness.figures import style
from dgbench.harness.figures.palette import SECONDARY, looks, series_looks
from dgbench.harness.figures.panels import PanelGrid, order, row_label
from dgbench.harness.figures.sweep_dots import draw_dots
from dgbench.harness.figures.sweep_lines import draw_lines, is_paper
from dgbench.harness.figures.words import span_text
from dgbench.lab.quality import BELOW

REQUIRED = ("series", "x")
ONCE = ("panel", "series", "x", "paper")
NUMBERS = ("y",)
PROJECTS = True
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
    if any(map(is_paper, points)):
        handles.append(style.paper_handle("_"))
    if any(p.get("projected") for p in points):
        handles.append(style.projected_handle())
    if any(p.get("failed") for p in points):
        handles.append(style.failed_handle())
    if far and hline:
        handles.append(_line_handle(hline))
    grid = PanelGrid(
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
            draw_dots(axes, mine, series, options)
        else:
            shown = {**options, "hline_label": ""} if far else options
            draw_lines(axes, mine, series, shown, many, named)
    return grid.figure


def _reaching(points: Sequence[dict]) -> int:
    """The most series that reach the right edge of one panel."""
    good = [p for p in points if not p.get("failed") and not is_paper(p)]
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


def _drawn_as_lines(points: Sequence[dict]) -> list[str]:
    return order([p for p in points if not is_paper(p)], "series")


def _special(points: Sequence[dict], together: bool) -> list[str]:
    items = []
    if together:
        items.append("lines that coincide: drawn thick to thin, each marks points of its own")
    valued = [p for p in points if not p.get("failed")]
    if valued and all(p.get("counted") for p in valued):
        items.append("counted exactly, no interval")
    elif any(p.get("low") is not None for p in points):
        items.append("bar: 95 % interval")
    if any(p.get("projected") for p in points):
        items.append(style.PROJECTED)
    below = [
        f"{p['x'] if isinstance(p['x'], str) else p['series']} ({p.get('panel')})"
        for p in points
        if p.get("below")
    ]
    if below:
        items.append(f"{BELOW}: {', '.join(below)}")
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
        span = span_text(style.digits(min(values)), style.digits(max(values)))
        parts.append(f"{look.title} {span}{said}")
    failed = sum(bool(p.get("failed")) for p in points)
    what = options.get("ylabel") or "values"
    return f"{what}: " + "; ".join(parts) + (f"; {failed} failed." if failed else ".")
