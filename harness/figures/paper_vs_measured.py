"""Type 9: how far off? The paper's ratios against ours, log-log, with the line of equality.

Keys of a point: see `docs/figures.md`, kind `paper_vs_measured`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dgbench.harness.figures import style
from dgbench.harness.figures.palette import INK, NOISE, SECONDARY
from dgbench.harness.figures.panels import order

REQUIRED = ("claim",)
NUMBERS = ("paper", "measured")
PROJECTS = True
_BLUE = "#0B5C7A"


def draw(points: Sequence[dict], options: Mapping[str, Any], context: Any, wide: bool) -> Any:
    """One square panel per unit; numbered marks, named in a list beside (full) or below (half)."""
    units = order([{**p, "unit": p.get("unit") or "x"} for p in points], "unit")
    width = style.FULL if wide else style.HALF
    side = 2.6 if wide else 2.45
    listed = {u: _named([p for p in points if (p.get("unit") or "x") == u]) for u in units}
    line = 0.125
    body = [
        max(side + 0.45, 0.1 + line * (len(listed[u]) + 2)) if wide
        else side + 0.5 + line * (len(listed[u]) + (1 if listed[u] else 0)) for u in units
    ]  # fmt: skip
    footer = style.footer_lines(
        [
            "filled: strong evidence",
            "hollow circle: weak",
            "hollow diamond: projection",
        ],
        context,
        width=width,
    )
    height = 0.3 + sum(b + 0.25 for b in body) + style.footer_height(footer)
    figure = style.new_figure(width, height)
    top = 0.28
    for unit, tall in zip(units, body, strict=True):
        axes = style.place(figure, 0.62, top, side, side)
        mine = [p for p in points if (p.get("unit") or "x") == unit]
        _panel(axes, mine, unit, listed[unit], side)
        _list(figure, listed[unit], 3.6 if wide else 0.08, top if wide else top + side + 0.42, line)
        top += tall + 0.25
    style.draw_footer(figure, footer, context)
    return figure


def _good(points) -> list[dict]:
    return [p for p in points if not p.get("failed") and p["paper"] > 0 and p["measured"] > 0]


def _named(points) -> list[tuple[int, dict]]:
    """Marks that leave the factor-2 band or fall on the other side of 1x, numbered."""
    off = []
    for point in _good(points):
        ratio = point["measured"] / point["paper"]
        factor = (point.get("unit") or "x") == "x"
        flipped = factor and (point["measured"] - 1) * (point["paper"] - 1) < 0
        if not 0.5 <= ratio <= 2 or flipped:
            off.append(point)
    return list(enumerate(off, 1))


def _panel(axes, points, unit, named, side) -> None:
    good = _good(points)
    values = [v for p in good for v in (p["paper"], p["measured"], *style.ends(p))]
    one = 1.0 if unit == "x" else None
    low, high = style.log_limits(values, pad=1.3, include=one)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(low, high)
    axes.set_ylim(low, high)
    suffix = "x" if unit == "x" else ""
    for axis in (axes.xaxis, axes.yaxis):
        style.log_axis(axis, low, high, unit=suffix, room=side)
    said = "" if unit == "x" else f", {unit}"
    axes.set_xlabel(f"paper{said} (log)")
    axes.set_ylabel(f"here{said} (log)")
    axes.fill_between([low, high], [low / 2, high / 2], [low * 2, high * 2], color=NOISE,
                      alpha=0.45, lw=0, zorder=0.5)  # fmt: skip
    axes.plot([low, high], [low, high], color=SECONDARY, lw=0.9, zorder=1)
    if unit == "x":
        axes.axhline(1, color=SECONDARY, lw=0.6, ls=(0, (2, 2)))
        axes.axvline(1, color=SECONDARY, lw=0.6, ls=(0, (2, 2)))
    axes.set_title("factors" if unit == "x" else str(unit))
    numbers = {id(p): n for n, p in named}
    for point in good:
        projected = bool(point.get("projected"))
        strong = point.get("strength") == "strong" and not projected
        style.interval(axes, point.get("low"), point.get("high"), point["paper"], _BLUE,
                       vertical=True)  # fmt: skip
        axes.plot([point["paper"]], [point["measured"]], mew=1.0, mec=_BLUE,
                  marker="D" if projected else "o", ms=4.0 if projected else 4.6,
                  mfc=_BLUE if strong else "white", ls="none", zorder=5)  # fmt: skip
        if id(point) in numbers:
            axes.annotate(str(numbers[id(point)]), (point["paper"], point["measured"]),
                          xytext=(4, 3), textcoords="offset points", fontsize=style.CELL,
                          color=INK, zorder=6)  # fmt: skip
    axes.text(0.98, 0.02, "; ".join(_absent(points)), transform=axes.transAxes, ha="right",
              fontsize=style.CELL, color=SECONDARY)  # fmt: skip


def _absent(points) -> list[str]:
    """Numbers of points without a mark, by reason."""
    failed = sum(bool(p.get("failed")) for p in points)
    below = len(points) - failed - len(_good(points))
    found = [f"{failed} without a value"] if failed else []
    return found + ([f"{below} at or below 0, not on these axes"] if below else [])


def _list(figure, named, x, top, line) -> None:
    if not named:
        return
    style.write_at(figure, x, top, "Outside a factor of 2, or on the other side of 1x",
                   fontsize=style.CELL, fontweight="bold")  # fmt: skip
    for row, (number, point) in enumerate(named, 1):
        values = f"{style.digits(point['paper'])} -> {style.digits(point['measured'])}"
        style.write_at(figure, x, top + line * row, f"{number}  {point['claim']}  {values}",
                       fontsize=style.NOTE)  # fmt: skip


def describe(points: Sequence[dict], options: Mapping[str, Any], context: Any) -> str:
    """One sentence: how many lie within a factor of two."""
    good = _good(points)
    near = sum(0.5 <= p["measured"] / p["paper"] <= 2 for p in good)
    flipped = sum(
        (p["measured"] - 1) * (p["paper"] - 1) < 0 for p in good if (p.get("unit") or "x") == "x"
    )
    text = f"{near} of {len(points)} values lie within a factor of 2 of the paper"
    text += f"; {flipped} on the other side of 1x" if flipped else ""
    return "; ".join([text, *_absent(points)]) + "."
