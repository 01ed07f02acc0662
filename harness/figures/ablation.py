"""Type 5: what does each technique bring, in the order in which they are switched on?

Left: time on a log axis from the plain version to everything on, so that equal factors have equal
length. Right (full width): the gain of a technique alone. Keys: `docs/figures.md`, `ablation`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dgbench.harness.figures import style
from dgbench.harness.figures.palette import INK, SECONDARY, looks
from dgbench.harness.figures.panels import PanelGrid, order

REQUIRED = ("step", "technique")
NUMBERS = ("seconds",)


def draw(points: Sequence[dict], options: Mapping[str, Any], context: Any, wide: bool) -> Any:
    """The figure at full or half width."""
    system = str(options.get("system", "pipad"))
    look = looks([system])[system]
    panels = order(points, "panel")
    alone = wide and any(p.get("alone") is not None for p in points)
    mine = {panel: _steps(points, panel) for panel in panels}
    labels = [_label(p) for steps in mine.values() for p in steps]
    handles = _handles(points, look, context, alone)
    said = [_gain_text(p, _same(p, context), wide) for p in points if not p.get("failed")]
    # Bold words are about a tenth wider than plain ones; the words begin 3 % right of the panel.
    room = 0.2 + 1.1 * max((style.text_width(words, style.CELL) for words in said), default=0.0)
    grid = PanelGrid(
        panels,
        wide=wide,
        columns=1,
        heights=[style.ROW * len(steps) for steps in mine.values()],
        labels=labels,
        right=3.1 if alone else max(0.78, room) if wide else 0.5,
        handles=handles,
        footer=style.footer_lines(
            _special(points, look), context, width=style.FULL if wide else style.HALF
        ),
    )
    for panel, axes in grid.axes(context):
        _left(axes, mine[panel], look, context, wide)
        axes.set_xlabel(options.get("xlabel", "time, ms (log)"))
        if alone:
            _right(axes, mine[panel], look, context)
    return grid.figure


def _steps(points: Sequence[dict], panel: Any) -> list[dict]:
    return sorted((p for p in points if p.get("panel") == panel), key=lambda p: p["step"])


def _label(point: dict) -> str:
    if point["step"]:
        return f"+ {point['technique']}"
    return str(point["technique"] or "all off")


def _left(axes, steps, look, context, wide) -> None:
    from matplotlib.patches import Rectangle

    times = [1e3 * p["seconds"] for p in steps if not p.get("failed")]
    spread = [1e3 * v for p in steps for v in style.ends(p)]
    limits = style.log_limits([*times, *spread], pad=1.12)
    axes.set_xscale("log")
    axes.set_xlim(*limits)
    axes.set_ylim(len(steps) - 0.5, -0.5)
    axes.set_yticks(range(len(steps)), labels=[_label(p) for p in steps])
    axes.tick_params(axis="y", length=0)
    width = axes.get_position().width * axes.figure.get_size_inches()[0]
    style.log_axis(axes.xaxis, *limits, room=width)
    axes.grid(axis="x")
    before = None
    transform = axes.get_yaxis_transform()
    last = max((i for i, p in enumerate(steps) if not p.get("failed")), default=0)
    for y, point in enumerate(steps):
        if point.get("failed"):
            style.hatched(axes, limits[0], y - 0.3, limits[1] - limits[0], 0.6)
            axes.text(0.5, y, style.failure_words(point, {}, width - 0.15), transform=transform,
                      ha="center", va="center", fontsize=style.CELL, zorder=7,
                      bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.2})  # fmt: skip
            continue
        now = 1e3 * point["seconds"]
        alike = _same(point, context)
        if before is not None and not alike:
            exact = point.get("exact", True)
            axes.add_patch(
                Rectangle((min(now, before), y - 0.22), abs(before - now), 0.44,
                          facecolor=look.mark.colour if exact else "white",
                          edgecolor=look.mark.colour, hatch="" if exact else "////",
                          lw=0.9, alpha=0.9 if exact else 1, zorder=3)
            )  # fmt: skip
        if before is not None:
            axes.plot([before, before], [y - 0.78, y + 0.22], color=SECONDARY, lw=0.6, zorder=2)
        scaled = [1e3 * v if v else None for v in (point.get("low"), point.get("high"))]
        if y in (0, last) or alike:
            style.interval(axes, *scaled, y, look.mark.colour)
            style.dot(axes, now, y, look, hollow=alike)
        text = _gain_text(point, alike, wide)
        if not point["step"]:
            text = style.seconds_text(point["seconds"])
        axes.text(1.03, y, text, transform=transform, va="center", fontsize=style.CELL,
                  color=SECONDARY if alike else INK, style="italic" if alike else "normal",
                  fontweight="normal" if alike else "bold")  # fmt: skip
        before = now


def _gain_text(point: dict, alike: bool, wide: bool) -> str:
    if alike:
        return "same"
    gain = style.factor(point["gain"]) if point.get("gain") else ""
    if not point.get("exact", True) and wide:
        quality = point.get("quality") or "quality not measured"
        return f"{gain} ≈ {quality}"
    return gain if point.get("exact", True) else f"{gain} ≈"


def _right(axes, steps, look, context) -> None:
    figure = axes.figure
    width = figure.get_size_inches()[0]
    box = axes.get_position()
    side = figure.add_axes(((box.x1 * width + 1.35) / width, box.y0, 1.35 / width, box.height))
    values = [v for p in steps for v in (p.get("alone"), p.get("alone_low"), p.get("alone_high"),
                                         p.get("removed"), p.get("gain")) if v]  # fmt: skip
    limits = style.log_limits(values, include=1.0, pad=1.15)
    side.set_xscale("log")
    side.set_xlim(*limits)
    side.set_ylim(*axes.get_ylim())
    side.set_yticks([])
    side.set_title("alone", fontsize=style.SMALL, fontweight="normal")
    style.log_axis(side.xaxis, *limits, unit="x", room=1.35)
    side.set_xlabel("gain (log)")
    side.grid(axis="x")
    style.noise_band(side, context.noise)
    for y, point in enumerate(steps):
        if point.get("alone") is None:
            continue
        style.interval(side, point.get("alone_low"), point.get("alone_high"), y, look.mark.colour)
        if point.get("removed"):
            style.paper_tick(side, point["removed"], y, 0.34)
        alike = style.same(point["alone"], context.noise)
        style.dot(side, point["alone"], y, look, hollow=alike)
        side.text(1.05, y, "same" if alike else style.factor(point["alone"]), va="center",
                  transform=side.get_yaxis_transform(), fontsize=style.CELL)  # fmt: skip


def _same(point: dict, context: Any) -> bool:
    if not point["step"]:
        return False
    if point.get("same"):
        return True
    return bool(point.get("gain")) and style.same(point["gain"], context.noise)


def _handles(points, look, context, alone) -> list[Any]:
    from matplotlib.patches import Patch

    handles = [style.mark_handle(look)]
    handles.append(Patch(facecolor=look.mark.colour, label="exact technique"))
    if any(not p.get("exact", True) for p in points):
        handles.append(Patch(facecolor="white", edgecolor=look.mark.colour, hatch="////",
                             label="approximate"))  # fmt: skip
    if alone and any(p.get("removed") for p in points):
        tick = style.paper_handle()
        tick.set_label("removed from all on")
        handles.append(tick)
    if context.noise is not None:
        handles.append(style.noise_handle(context.noise))
    return handles


def _special(points, look) -> list[str]:
    items = [f"{look.title}, techniques switched on one after the other"]
    if points and all(p.get("twin") for p in points):
        items.append("data: all twins")
    return items


def describe(points: Sequence[dict], options: Mapping[str, Any], context: Any) -> str:
    """One sentence: the total gain, the largest step, and what changes nothing."""
    name = str(options.get("system", "pipad"))
    title = looks([name])[name].title
    parts = []
    for panel in order(points, "panel"):
        steps = [p for p in _steps(points, panel) if not p.get("failed")]
        where = f" ({panel})" if panel else ""
        if len(steps) < 2:
            parts.append(f"{title}{where}: not enough steps ran")
            continue
        total = steps[0]["seconds"] / steps[-1]["seconds"]
        gains = [p for p in steps if p.get("gain")]
        best = max(gains, key=lambda p: p["gain"], default=None)
        most = f", most of it {best['technique']} ({style.factor(best['gain'])})" if best else ""
        parts.append(f"{title}{where}: all techniques together {style.factor(total)}{most}")
    failed = sum(bool(p.get("failed")) for p in points)
    return "; ".join(parts) + (f"; {failed} failed." if failed else ".")
