"""Type 10: is there room left? Bars from 0 to 100 % of a limit that was measured in the same run.

Keys of a point: see `docs/figures.md`, kind `limit_share`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dgbench.harness.figures import style
from dgbench.harness.figures.palette import INK, SECONDARY, looks
from dgbench.harness.figures.panels import PanelGrid, order, row_label
from dgbench.harness.figures.words import span_text

REQUIRED = ("row",)
NUMBERS = ("value", "limit", "limit_name", "unit")
_TRACK = "#EEF0F3"


def draw(points: Sequence[dict], options: Mapping[str, Any], context: Any, wide: bool) -> Any:
    """The figure at full or half width."""
    panels = order(points, "panel")
    names = looks([p["system"] for p in points if p.get("system")])
    labels = {id(p): _label(p, names, wide) for p in points}
    texts = [_absolute(p, wide) for p in points if not p.get("failed")]
    grid = PanelGrid(
        panels,
        wide=wide,
        columns=1,
        heights=[
            (style.ROW + 0.03) * sum(p.get("panel") == panel for p in points) for panel in panels
        ],
        labels=list(labels.values()),
        right=0.1 + style.label_room(texts, most=2.6 if wide else 1.0, size=style.CELL),
        footer=style.footer_lines(
            ["each bar against its own limit, measured in this run"],
            context,
            width=style.FULL if wide else style.HALF,
        ),
    )
    end = max([110.0, *(100 * p["value"] / p["limit"] + 8 for p in points if not p.get("failed"))])
    for panel, axes in grid.axes(context):
        mine = [p for p in points if p.get("panel") == panel]
        axes.set_xlim(0, end)
        axes.set_ylim(len(mine) - 0.5, -0.5)
        axes.set_yticks(range(len(mine)), labels=[labels[id(p)] for p in mine])
        axes.tick_params(axis="y", length=0)
        axes.set_xticks([t for t in (0, 25, 50, 75, 100, 150, 200) if t <= end])
        axes.set_xlabel("share of the limit, %")
        axes.axvline(100, color=INK, lw=1.0, zorder=4)
        for y, point in enumerate(mine):
            _bar(axes, point, y, names, end, wide)
    return grid.figure


def _bar(axes, point, y, names, end, wide) -> None:
    from matplotlib.patches import Rectangle

    width = axes.get_position().width * axes.figure.get_size_inches()[0]
    if point.get("failed"):
        style.hatched(axes, 0, y - 0.32, end, 0.64)
        words = style.failure_words(point, {n: k.title for n, k in names.items()}, width - 0.1)
        axes.text(end / 2, y, words, ha="center", va="center", fontsize=style.CELL, zorder=7,
                  bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.2})  # fmt: skip
        return
    share = 100 * point["value"] / point["limit"]
    look = names.get(point.get("system"))
    colour = look.mark.colour if look else SECONDARY
    axes.add_patch(Rectangle((0, y - 0.3), 100, 0.6, facecolor=_TRACK, lw=0, zorder=1))
    strong = look is None or look.strong
    axes.add_patch(Rectangle((0, y - 0.3), share, 0.6, facecolor=colour if strong else "white",
                             edgecolor=colour, lw=1.0, zorder=2))  # fmt: skip
    axes.text(1.02, y, _absolute(point, wide), transform=axes.get_yaxis_transform(),
              va="center", fontsize=style.CELL, color=INK)  # fmt: skip


def _label(point, names, wide) -> str:
    text = row_label(point["row"], [point])
    if point.get("system"):
        text = f"{text} · {names[point['system']].title}"
    return text if wide else style.wrap_label(text, 1.25)


def _absolute(point, wide) -> str:
    value, limit = style.digits(point["value"]), style.digits(point["limit"])
    share = 100 * point["value"] / point["limit"]
    over = " (above it: cache)" if share > 100 and wide else ""
    if not wide:
        return f"{share:.0f} %"
    return f"{value} of {limit} {point['unit']}, {point['limit_name']}{over}"


def describe(points: Sequence[dict], options: Mapping[str, Any], context: Any) -> str:
    """One sentence: lowest and highest share, failures."""
    good = [p for p in points if not p.get("failed")]
    failed = len(points) - len(good)
    if not good:
        return f"Share of the limit: none of {len(points)} cells gave a value."
    low = min(good, key=lambda p: p["value"] / p["limit"])
    high = max(good, key=lambda p: p["value"] / p["limit"])
    shares = [f"{100 * p['value'] / p['limit']:.0f} % ({p['row']})" for p in (low, high)]
    text = f"Share of the limit: {span_text(*shares)}"
    return text + (f"; {failed} failed." if failed else ".")
