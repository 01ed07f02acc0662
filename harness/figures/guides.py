"""The dashed guide of a promised slope, where it is furthest from the data."""

from __future__ import annotations

import itertools
import math
from typing import Any

from dgbench.harness.figures import style
from dgbench.harness.figures.palette import SECONDARY
from dgbench.harness.figures.panels import order


def draw_guide(axes, options, points) -> None:
    """A dashed guide with the promised slope, where it is furthest from the data."""
    slope = options.get("guide_slope")
    if slope is None or axes.get_xscale() != "log" or axes.get_yscale() != "log":
        return
    (x0, x1), (y0, y1) = axes.get_xlim(), axes.get_ylim()
    wide, tall = math.log(x1 / x0), math.log(y1 / y0)
    label = "log n" if slope == "log" else f"slope {float(slope):g}"
    inches = axes.get_position().width * axes.figure.get_size_inches()[0]
    taken = _along(points, lambda x, y: (math.log(x / x0) / wide, math.log(y / y0) / tall))
    best = None
    for start, low, length in itertools.product(
        (0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.03), (0.06, 0.15, 0.3, 0.45, 0.6), (0.35, 0.25, 0.15)
    ):
        xs = [start + length * i / 20 for i in range(21)]
        ys = [low + _rise(slope, x0, wide, start, x) / tall for x in xs]
        words = xs[-1] + 0.02 + (style.text_width(label, style.CELL) + 0.04) / inches
        if max(ys) > 0.96 or min(ys) < 0.02 or words > 1:
            continue
        mine = [*zip(xs, ys, strict=True), *((xs[-1] + (words - xs[-1]) * i / 4, ys[-1])
                                             for i in range(1, 5))]  # fmt: skip
        near = min((math.dist(a, b) for a in mine for b in taken), default=1.0)
        # Long guides are easier to read; beyond a tenth of the panel, distance adds nothing.
        score = (round(min(near, 0.1), 3), length)
        if best is None or score > best[0]:
            best = (score, xs, ys)
    if best is None:
        return
    _, xs, ys = best
    axes.plot([x0 * math.exp(wide * x) for x in xs], [y0 * math.exp(tall * y) for y in ys],
              color=SECONDARY, lw=0.9, ls=(0, (3, 2)), zorder=1)  # fmt: skip
    axes.text(xs[-1] + 0.02, ys[-1], label, transform=axes.transAxes, fontsize=style.CELL,
              color=SECONDARY, va="center")  # fmt: skip


def _rise(slope: Any, x0: float, wide: float, start: float, x: float) -> float:
    """Log of how much a guide has grown from one place of the axis to another."""
    if slope != "log":
        return float(slope) * wide * (x - start)
    first, here = x0 * math.exp(wide * start), x0 * math.exp(wide * x)
    return math.log(math.log(2 + here) / math.log(2 + first))


def _along(points, place) -> list[tuple[float, float]]:
    """Places on the lines of all series, in shares of the axes."""
    found = []
    for name in order(points, "series"):
        mine = sorted((p for p in points if p["series"] == name), key=lambda p: p["x"])
        spots = [place(p["x"], p["y"]) for p in mine]
        found += spots[:1]
        for (xa, ya), (xb, yb) in itertools.pairwise(spots):
            found += [(xa + (xb - xa) * i / 8, ya + (yb - ya) * i / 8) for i in range(1, 9)]
    return found
