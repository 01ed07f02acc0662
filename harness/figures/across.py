"""The same races on several machines or commits: one row a workload, one mark a machine.

Panels are races, x is the factor on a log axis. Keys of a point: `row`, `series` (machine or
commit), `value` (factor); optional `panel`, `low`, `high`, `n`, `paper`. Options as of `speedup`,
and `rows` (what rows are, in words).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dgbench.harness.figures import style
from dgbench.harness.figures.palette import INK, Look, series_looks
from dgbench.harness.figures.panels import PanelGrid, order, rows_of
from dgbench.harness.figures.words import span_text
from dgbench.harness.utilisation import IDLE, IDLE_PERCENT

REQUIRED = ("row", "series")
NUMBERS = ("value",)
PROJECTS = True


def draw(points: Sequence[dict], options: Mapping[str, Any], context: Any, wide: bool) -> Any:
    """The figure at full or half width."""
    panels = order(points, "panel")
    names = order(points, "series")
    looks = _machine_looks(names)
    rows = rows_of(points, "row")
    shown = [p for p in points if not p.get("failed")]
    numbers = [v for p in shown for v in (p["value"], p.get("paper"), *style.ends(p))]
    limits = style.log_limits(numbers, include=1.0)
    step = 0.13
    height = max(style.ROW, step * len(names) + 0.1)
    handles = [style.mark_handle(look) for look in looks.values()]
    if any(p.get("paper") is not None for p in shown):
        handles.append(style.paper_handle())
    if any(p.get("projected") for p in shown):
        handles.append(style.projected_handle())
    if context.noise is not None:
        handles.append(style.noise_handle(context.noise))
    columns = min(2, len(panels))
    detail = wide and columns == 1
    stamp = style.stamp_width(IDLE) if any(p.get("idle") for p in shown) else 0.0
    grid = PanelGrid(
        panels,
        wide=wide,
        columns=columns,
        heights=[height * len(rows[panel]) for panel in panels],
        rows=[list(mine.values()) for mine in rows.values()],
        right=(0.98 if detail else 0.42) + stamp,
        handles=handles,
        footer=style.footer_lines(
            _special(points, options), context, width=style.FULL if wide else style.HALF
        ),
    )
    for panel, axes in grid.axes(context):
        mine = [p for p in points if p.get("panel") == panel]
        axes.set_xscale("log")
        axes.set_xlim(*limits)
        axes.set_ylim(len(rows[panel]) - 0.5, -0.5)
        axes.set_yticks(range(len(rows[panel])), labels=list(rows[panel].values()))
        axes.tick_params(axis="y", length=0)
        width = axes.get_position().width * grid.width
        style.log_axis(axes.xaxis, *limits, unit="x", room=width)
        axes.grid(axis="x")
        style.noise_band(axes, context.noise)
        for y, row in enumerate(rows[panel]):
            _row(axes, y, [p for p in mine if p["row"] == row], looks, step / height,
                 detail, width, context)  # fmt: skip
        label = str(options.get("xlabel", "speed-up, baseline time / system time"))
        label = label if "(log" in label else f"{label} (log)"
        axes.set_xlabel(label if style.text_width(label) <= width + 0.3 else "speed-up (log)")
    return grid.figure


def _machine_looks(names: Sequence[str]) -> dict[str, Look]:
    """A colour and a marker for each, all filled: hollow ones are the same as 1x or projected."""
    plain = {name: name.replace(",", "") for name in names}  # "2 cores, AMD": no form of "2 cores"
    found = series_looks(plain.values(), distinct=True)
    return {name: replace(found[short], name=name, title=name) for name, short in plain.items()}


def _row(axes, y, points, looks: dict[str, Look], step, detail, width, context) -> None:
    transform = axes.get_yaxis_transform()
    here = {p["series"]: p for p in points}
    printed = next((p["paper"] for p in points
                    if p.get("paper") is not None and not p.get("failed")), None)  # fmt: skip
    if printed is not None:  # the same of all series
        style.paper_tick(axes, printed, y, 0.4)
    for index, (name, look) in enumerate(looks.items()):
        place = y + (index - (len(looks) - 1) / 2) * step
        point = here.get(name, {"failed": "skipped"})
        if point.get("failed"):
            word = style.failure_words(point, {}, 0.0) if name in here else "not run"
            axes.text(1.02, place, word, transform=transform, va="center", style="italic",
                      fontsize=style.NOTE, color=style.SECONDARY)  # fmt: skip
            left, right = axes.get_xlim()
            style.hatched(axes, left, place - step * 0.4, right - left, step * 0.8)
            continue
        modelled = bool(point.get("projected"))
        said = "projected" if modelled else style.side(point, context.noise)
        style.interval(axes, point.get("low"), point.get("high"), place, look.mark.colour)
        style.dot(axes, point["value"], place, look, hollow=said in ("same", "projected"))
        text = style.factor(point["value"])
        if detail:
            text = style.with_interval(point["value"], point.get("low"), point.get("high"))
        strong = said in ("faster", "slower")
        axes.text(1.02, place, "same" if said == "same" else text, transform=transform,
                  va="center", fontsize=style.NOTE,
                  color=INK if strong else style.SECONDARY,
                  fontweight="bold" if strong else "normal")  # fmt: skip
        if point.get("idle"):
            axes.text(1.02 + (0.98 if detail else 0.42) / width, place, IDLE, transform=transform,
                      va="center", fontsize=style.NOTE, color=style.RED,
                      fontweight="bold")  # fmt: skip
    if y:
        axes.axhline(y - 0.5, color=style.GRID, lw=0.6, zorder=0.4)


def _special(points: Sequence[dict], options: Mapping[str, Any]) -> list[str]:
    items = [f"baseline: {options['baseline_label']}"] if options.get("baseline_label") else []
    counts = [p["n"] for p in points if p.get("n")]
    if counts:
        low, high = min(counts), max(counts)
        items.append(f"n = {low}" if low == high else f"n = {low} to {high}")
        items.append(f"bar: {options.get('interval', '95 % paired t interval')}")
    if any(p.get("idle") for p in points):
        items.append(f"{IDLE}: SM active below {IDLE_PERCENT:g} %")
    if any(p.get("projected") for p in points):
        items.append(style.PROJECTED)
    if points and all(p.get("twin") for p in points):
        items.append("data: all twins")
    return items


def describe(points: Sequence[dict], options: Mapping[str, Any], context: Any) -> str:
    """One sentence: on how many workloads the sides agree, and each side's range."""
    by_row: dict[Any, dict[str, str]] = {}
    for p in points:
        if not p.get("failed"):
            side = "projected" if p.get("projected") else style.side(p, context.noise)
            by_row.setdefault((p.get("panel"), p["row"]), {})[p["series"]] = side
    rows = options.get("rows", "workloads")
    shared = [sides for sides in by_row.values() if len(sides) > 1]
    against = sum({"faster", "slower"} <= set(sides.values()) for sides in shared)
    parts = [
        f"{against} of {len(shared)} {rows} that several have lie above 1x on one and below on "
        "another"
        if against
        else f"no contradiction on {len(shared)} {rows} that several have"
    ]
    for name in order(points, "series"):
        mine = [p for p in points if p["series"] == name]
        good = [p["value"] for p in mine if not p.get("failed")]
        if good:
            parts.append(f"{name}: {span_text(style.factor(min(good)), style.factor(max(good)))}")
        if len(good) < len(mine):
            parts.append(f"{name}: {len(mine) - len(good)} without a value")
    return "; ".join(parts) + "."
