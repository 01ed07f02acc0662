"""Type 1: where is it faster, by how much, and is that what the paper said?

Rows are datasets, panels are models, x is the factor on a log axis. Keys of a point: see
`docs/figures.md`, kind `speedup`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dgbench.harness.figures import style
from dgbench.harness.figures.palette import INK, SECONDARY, looks
from dgbench.harness.figures.panels import PanelGrid, order, rows_of
from dgbench.harness.figures.words import span_text
from dgbench.harness.utilisation import IDLE, IDLE_PERCENT
from dgbench.lab.charts import marked
from dgbench.lab.quality import BELOW, NOT_MEASURED

REQUIRED = ("row", "system", "baseline")
ONCE = ("panel", "row", "system", "baseline")
NUMBERS = ("value",)
PROJECTS = True


def draw(points: Sequence[dict], options: Mapping[str, Any], context: Any, wide: bool) -> Any:
    """The figure at full or half width."""
    panels = order(points, "panel")
    rows = order(points, "row")
    systems = looks(order(points, "system"))
    titles = {
        name: look.title for name, look in looks([*systems, *order(points, "baseline")]).items()
    }
    most = max(
        sum(p["row"] == row and p.get("panel") == panel for p in points)
        for row in rows
        for panel in panels
    )
    detail = wide and len(panels) <= 2
    shown = [p for p in points if not p.get("failed")]
    numbers = [v for p in shown for v in (p["value"], p.get("paper"), *style.ends(p))]
    limits = style.log_limits(numbers, include=1.0)
    row_height = max(style.ROW, 0.15 * most + 0.09)
    labels = rows_of(points, "row", shared=True)
    handles = [style.mark_handle(look) for look in systems.values()]
    if any(p.get("paper") is not None for p in shown):
        handles.append(style.paper_handle())
    if any(p.get("projected") for p in shown):
        handles.append(style.projected_handle())
    if context.noise is not None:
        handles.append(style.noise_handle(context.noise))
    if len(shown) < len(points):
        handles.append(style.failed_handle())
    stamp = style.stamp_width(IDLE) if any(p.get("idle") for p in shown) else 0.0
    most_columns = 2 if stamp or len({*map(str, labels.values())}) > 1 else 3
    grid = PanelGrid(
        panels,
        wide=wide,
        columns=min(most_columns, len(panels)),
        heights=[row_height * len(rows)] * len(panels),
        rows=[list(mine.values()) for mine in labels.values()],
        right=(0.98 if detail else 0.46) + stamp,
        handles=handles,
        footer=style.footer_lines(
            _special(points, options), context, width=style.FULL if wide else style.HALF
        ),
        below=0.36,
    )
    for panel, axes in grid.axes(context):
        mine = [p for p in points if p.get("panel") == panel]
        _panel(axes, mine, systems, titles, labels[panel], limits, row_height, context, detail)
        room = axes.get_position().width * grid.width + 0.3
        axes.set_xlabel(_x_label(options, room))
    return grid.figure


def _x_label(options: Mapping[str, Any], room: float) -> str:
    """The axis label on one line: the given one, or the short one where panels are narrow."""
    label = str(options.get("xlabel", "speed-up, baseline time / system time"))
    label = label if "(log" in label else f"{label} (log)"
    return label if style.text_width(label) <= room else "speed-up (log)"


def _panel(axes, points, systems, titles, labels, limits, height, context, detail) -> None:
    axes.set_xscale("log")
    axes.set_xlim(*limits)
    rows = list(labels)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_yticks(range(len(rows)), labels=list(labels.values()))
    axes.tick_params(axis="y", length=0)
    width = axes.get_position().width * axes.figure.get_size_inches()[0]
    style.log_axis(axes.xaxis, *limits, unit="x", room=width)
    axes.grid(axis="x")
    style.noise_band(axes, context.noise)
    transform = axes.get_yaxis_transform()
    for y, row in enumerate(rows):
        here = [p for p in points if p["row"] == row]
        if not here:  # a blank could not be told from a forgotten cell
            here = [{"failed": "skipped: not in this run", "system": next(iter(systems))}]
        for index, point in enumerate(here):
            place = y + (index - (len(here) - 1) / 2) * 0.15 / height
            look = systems[point["system"]]
            if point.get("failed"):
                half = 0.36 / max(1, len(here))
                style.hatched(axes, limits[0], place - half, limits[1] - limits[0], 2 * half)
                words = style.failure_words(point, titles, width - 0.15)
                axes.text(
                    0.5, place, words, transform=transform, ha="center", va="center",
                    fontsize=style.CELL, color=INK, zorder=7,
                    bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.2},
                )  # fmt: skip
                continue
            value, modelled = point["value"], bool(point.get("projected"))
            which = "projected" if modelled else style.side(point, context.noise)
            is_same, plain = which == "same", which in ("same", "undecided", "projected")
            style.interval(axes, point.get("low"), point.get("high"), place, look.mark.colour)
            if point.get("paper") is not None:
                style.paper_tick(axes, point["paper"], place, 0.09 / height)
            if modelled:
                style.stem(axes, 1.0, value, place, look.mark.colour)
            below = bool(point.get("below"))
            plain = plain or below
            style.dot(axes, value, place, look, hollow=is_same or modelled or below)
            text = style.factor(value)
            if detail:
                text = style.with_interval(value, point.get("low"), point.get("high"))
            axes.text(
                1.03, place, "same" if is_same else text, transform=transform, va="center",
                fontsize=style.CELL, fontweight="normal" if plain else "bold",
                color=SECONDARY if plain else INK,
                style="italic" if is_same or modelled else "normal",
            )  # fmt: skip
            if point.get("idle"):
                end = 1.03 + (0.98 if detail else 0.46) / width
                axes.text(end, place, IDLE, transform=transform, va="center", fontsize=style.NOTE,
                          color=style.RED, fontweight="bold")  # fmt: skip
    if any(p.get("rest") for p in points):
        first = min(rows.index(p["row"]) for p in points if p.get("rest"))
        axes.axhline(first - 0.5, color=SECONDARY, lw=0.6)


def _special(points: Sequence[dict], options: Mapping[str, Any]) -> list[str]:
    names = order(points, "baseline")
    said = options.get("baseline_label") or ", ".join(look.title for look in looks(names).values())
    items = [f"baseline: {said}"]
    pairs = [p["n"] for p in points if p.get("n")]
    if pairs:
        low, high = min(pairs), max(pairs)
        items.append(f"n = {low} pairs" if low == high else f"n = {low} to {high} pairs")
        items.append(f"bar: {options.get('interval', '95 % paired t interval')}")
    if any(p.get("idle") for p in points):
        items.append(f"{IDLE}: SM active below {IDLE_PERCENT:g} %")
    deviations = [p["deviation"] for p in points if p.get("deviation") is not None]
    if any(p.get("projected") for p in points):
        items.append(style.PROJECTED)
    if below := [p for p in points if p.get("below")]:
        places = dict.fromkeys(", ".join(filter(None, (p["row"], p.get("panel")))) for p in below)
        items.append(f"hollow: same, or the model predicts {BELOW} ({'; '.join(places)})")
    scored = [p["quality"] for p in points if p.get("quality")]
    if unscored := scored.count(NOT_MEASURED):
        share = "" if unscored == len(scored) else f" on {unscored} of {len(scored)}"
        items.append(f"quality {NOT_MEASURED}{share}")
    if deviations:
        items.append(f"largest deviation from the reference {max(deviations):.0e}")
    if points and all(p.get("twin") for p in points):
        items.append("data: all twins")
    return items


def describe(points: Sequence[dict], options: Mapping[str, Any], context: Any) -> str:
    """One sentence: range, how often faster, failures."""
    base = ", ".join(look.title for look in looks(order(points, "baseline")).values())
    systems = looks(order(points, "system"))
    strong = [name for name, look in systems.items() if look.strong] or list(systems)
    parts = []
    for name in strong:
        mine = [p for p in points if p["system"] == name and not p.get("rest")]
        modelled = sum(bool(p.get("projected")) for p in mine)
        good = [p for p in mine if not p.get("failed")]
        if good and modelled == len(good):
            low, high = (pick(good, key=lambda p: p["value"]) for pick in (min, max))
            text = f"a model projects {systems[name].title} over {base}"
            span = span_text(_where(low, context), _where(high, context))
            parts.append(f"{text}: {span}")
            continue
        mine = [p for p in mine if not p.get("projected")]
        good = [p for p in mine if not p.get("failed")]
        if not good:
            parts.append(f"{systems[name].title} over {base}: no value on {len(mine)} workloads")
            continue
        low = min(good, key=lambda p: p["value"])
        high = max(good, key=lambda p: p["value"])
        sides = [style.side(p, context.noise) for p in good]
        faster, alike = sides.count("faster"), sides.count("same")
        text = f"{systems[name].title} is faster than {base} on {faster} of {len(mine)} workloads"
        text += f": {span_text(_where(low, context), _where(high, context))}"
        text += f"; {alike} the same" if alike else ""
        open_ = sides.count("undecided")
        text += f"; {open_} undecided, as no interval leaves 1x out" if open_ else ""
        failed = len(mine) - len(good)
        idle = sorted({p["idle"] for p in good if p.get("idle")})
        text += f"; {idle[0]}" if len(idle) == 1 else f"; {IDLE} on {_count(good)}" if idle else ""
        text += f"; {modelled} more are projected, not measured" if modelled else ""
        parts.append(text + (f"; {failed} failed" if failed else ""))
    return ". ".join(parts) + "."


def _count(points: Sequence[dict]) -> str:
    """On how many of the races that ran the GPU was idle."""
    return f"{sum(bool(p.get('idle')) for p in points)} of {len(points)}"


def _where(point: dict, context: Any) -> str:
    panel = f", {point['panel']}" if point.get("panel") else ""
    alike = not point.get("projected") and style.same(point["value"], context.noise)
    value = "the same" if alike else style.factor(point["value"])
    return f"{value} ({marked(point['row'], point.get('twin'))}{panel})"
