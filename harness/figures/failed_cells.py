"""Type 13: what did not run, and why? A matrix of datasets and systems with times and reasons.

Keys of a point: see `docs/figures.md`, kind `failed_cells`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dgbench.harness.figures import style
from dgbench.harness.figures.palette import INK, SECONDARY, STATUS_WORDS, looks
from dgbench.harness.figures.panels import PanelGrid, order, rows_of
from dgbench.lab.charts import failure_of

REQUIRED = ("system", "dataset")
NUMBERS = ("seconds",)


def draw(points: Sequence[dict], options: Mapping[str, Any], context: Any, wide: bool) -> Any:
    """The figure at full or half width; rows are datasets, columns systems, panels models. Where
    upright names of systems would be taller than all rows, rows are systems, columns datasets."""
    panels = order(points, "model")
    systems = looks(order(points, "system"))
    labels = rows_of(points, "dataset", "model")
    handles = [style.failed_handle()] if any(p.get("failed") for p in points) else []
    heads = max(style.text_width(look.title) for look in systems.values())
    seconds = [p["seconds"] for p in points if not p.get("failed")]
    widest = max(
        (style.text_width(style.seconds_text(s), style.NOTE, bold=True) for s in seconds),
        default=0.0,
    )
    beside = wide and len(panels) > 1 and 2.8 / len(systems) >= widest + 0.04
    room = 2.8 if beside else 5.6 if wide else 2.1
    per_panel = room / len(systems)
    row = style.ROW + 0.06
    titles = {name: look.title for name, look in systems.items()}
    down, across = labels, dict.fromkeys(panels, titles)
    turned = heads + 0.1 > per_panel
    swapped = turned and heads + 0.1 > row * max(len(mine) for mine in labels.values())
    if swapped:
        down, across = across, labels
        names = [label for mine in labels.values() for label in mine.values()]
        heads = max(style.text_width(name) for name in names)
        per_panel = room / max(len(mine) for mine in labels.values())
        turned = heads + 0.1 > per_panel
    # Cells too narrow for units have numbers alone, all in the unit that the footer names.
    unit = ("s" if max(seconds) >= 1 else "ms") if per_panel < widest + 0.04 and seconds else ""
    grid = PanelGrid(
        panels,
        wide=wide,
        columns=2 if beside else 1,
        heights=[row * len(down[panel]) for panel in panels],
        rows=[list(down[panel].values()) for panel in panels],
        right=0.02,
        handles=handles,
        footer=style.footer_lines(
            [
                f"median time{f' in {unit}' if unit else ''}; bold: fastest; "
                "below: factor of its time"
            ],
            context,
            width=style.FULL if wide else style.HALF,
        ),
        below=0.12,
        above=(heads + 0.1 if turned else 0.2),
    )
    for panel, axes in grid.axes(context):
        mine = [p for p in points if p.get("model") == panel]
        _matrix(axes, mine, down[panel], across[panel], swapped, turned, heads, unit)
    return grid.figure


def _matrix(axes, points, down, across, swapped, turned, heads, unit) -> None:
    from matplotlib.patches import Rectangle

    axes.set_xlim(-0.5, len(across) - 0.5)
    axes.set_ylim(len(down) - 0.5, -0.5)
    axes.set_yticks(range(len(down)), labels=list(down.values()))
    axes.xaxis.tick_top()
    axes.set_xticks(range(len(across)), labels=list(across.values()),
                    rotation=90 if turned else 0)  # fmt: skip
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    if axes.get_title(loc="left"):
        axes.set_title(axes.get_title(loc="left"), pad=72 * (heads + 0.12 if turned else 0.2))
    width = axes.get_position().width * axes.figure.get_size_inches()[0] / len(across)
    cells = {(p["dataset"], p["system"]): p for p in points}
    datasets, systems = (across, down) if swapped else (down, across)
    for place, dataset in enumerate(datasets):
        row = {name: cells.get((dataset, name)) for name in systems}
        times = [p["seconds"] for p in row.values() if p and not p.get("failed")]
        best = min(times, default=None)
        for number, name in enumerate(systems):
            x, y = (place, number) if swapped else (number, place)
            point = row[name] or {"failed": "skipped: not planned", "system": name}
            axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, fill=False, ec="#DDE1E6", lw=0.7,
                                     zorder=3))  # fmt: skip
            if point.get("failed"):
                _failed(axes, point, x, y, width)
                continue
            fastest = point["seconds"] == best
            text = style.seconds_text(point["seconds"])
            if unit:
                text = f"{point['seconds'] * (1e3 if unit == 'ms' else 1.0):#.3g}".rstrip(".")
            size = style.CELL
            while style.text_width(text, size, bold=fastest) > width - 0.04 and size > style.NOTE:
                size -= 0.3
            if not fastest:
                ratio = style.factor(point["seconds"] / best)
                axes.text(x, y + 0.25, ratio, ha="center", va="center", fontsize=style.NOTE,
                          color=SECONDARY, zorder=4)  # fmt: skip
            axes.text(x, y if fastest else y - 0.15, text, ha="center", va="center", fontsize=size,
                      fontweight="bold" if fastest else "normal", color=INK, zorder=4)  # fmt: skip


def _failed(axes, point, x, y, width) -> None:
    style.hatched(axes, x - 0.5, y - 0.5, 1, 1)
    status = failure_of(point).status
    word = STATUS_WORDS.get(status, status)
    lines = word
    if style.text_width(word, style.CELL) > width - 0.06:
        lines = word.replace(" ", "\n")
    size = style.CELL
    longest = max(lines.split("\n"), key=len)
    while style.text_width(longest, size) > width - 0.05 and size > style.NOTE:
        size -= 0.3
    axes.text(x, y, lines, ha="center", va="center", fontsize=size, linespacing=0.95, zorder=4,
              color=SECONDARY if status == "skipped" else INK,
              bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8})  # fmt: skip


def describe(points: Sequence[dict], options: Mapping[str, Any], context: Any) -> str:
    """One sentence: how many ran, how many not and why."""
    failed: dict[str, int] = {}
    for point in points:
        if point.get("failed"):
            status = failure_of(point).status
            word = STATUS_WORDS.get(status, status)
            failed[word] = failed.get(word, 0) + 1
    ran = len(points) - sum(failed.values())
    text = f"{ran} of {len(points)} cells ran"
    return text + ("; " + ", ".join(f"{n} {word}" for word, n in failed.items()) + "." if failed
                   else ".")  # fmt: skip
