"""Type 2a: where does the time of a sequential system go?

Stacked bars in milliseconds from an instrumented run; a black tick marks the total of the run
without instruments. Keys of a point: see `docs/figures.md`, kind `time_split`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dgbench.harness.figures import style
from dgbench.harness.figures.palette import INK, PHASES, SECONDARY, looks
from dgbench.harness.figures.panels import PanelGrid, order, row_label
from dgbench.harness.figures.words import span_text

REQUIRED = ("row", "system")
NUMBERS = ("phase", "seconds", "total")
ONCE = ("panel", "row", "system", "phase")
PROJECTS = True
_BAR = 0.66
_MIN_SHARE = 0.004
"""Share of a total from which on what its phases leave is drawn."""


def draw(points: Sequence[dict], options: Mapping[str, Any], context: Any, wide: bool) -> Any:
    """The figure at full or half width."""
    from matplotlib.patches import Patch

    panels = order(points, "panel")
    names = looks(order(points, "system"))
    bars = {
        panel: list(
            dict.fromkeys((p["row"], p["system"]) for p in points if p.get("panel") == panel)
        )
        for panel in panels
    }
    labels = {
        panel: [
            _label(key, [p for p in points if p.get("panel") == panel
                         and (p["row"], p["system"]) == key], names)
            for key in bars[panel]
        ]
        for panel in panels
    }  # fmt: skip
    met = {p.get("phase") for p in points}
    known = [phase for phase in PHASES if phase in met]
    handles = [
        Patch(facecolor=PHASES[p][0], edgecolor="white", hatch=PHASES[p][1], label=p) for p in known
    ]
    if any(_left_over(points, panel, key) for panel in panels for key in bars[panel]):
        handles.append(Patch(facecolor="white", edgecolor=SECONDARY, ls="--", lw=0.8,
                             label="not attributed"))  # fmt: skip
    if any(p.get("projected") for p in points):
        handles.append(Patch(facecolor=style.tint(SECONDARY), edgecolor=SECONDARY, lw=0.8,
                             ls=style.PROJECTED_DASHES, label="projected, pale"))  # fmt: skip
    tick = style.paper_handle()
    tick.set_label("total" if options.get("phases_from") else "total without instruments")
    if not all(p.get("projected") for p in points if not p.get("failed")):
        handles.append(tick)
    grid = PanelGrid(
        panels,
        wide=wide,
        columns=min(2, len(panels)),
        heights=[style.ROW * len(bars[panel]) for panel in panels],
        rows=list(labels.values()),
        right=0.56,
        handles=handles,
        footer=style.footer_lines(
            _special(points, options), context, width=style.FULL if wide else style.HALF
        ),
    )
    for panel, axes in grid.axes(context):
        mine = [p for p in points if p.get("panel") == panel]
        _panel(axes, mine, bars[panel], labels[panel], names)
        axes.set_xlabel("time of one step, ms" if not options.get("xlabel") else options["xlabel"])
    return grid.figure


def _panel(axes, points, bars, labels, names) -> None:
    from matplotlib.patches import Rectangle

    ends = [1e3 * p.get("total", 0) for p in points if not p.get("failed")]
    sums = [1e3 * sum(p["seconds"] for p in _bar(points, key)) for key in bars]
    end = 1.06 * max([*ends, *sums, 1e-9])
    axes.set_xlim(0, end)
    axes.set_ylim(len(bars) - 0.5, -0.5)
    axes.set_yticks(range(len(bars)), labels=labels)
    axes.tick_params(axis="y", length=0)
    axes.locator_params(axis="x", nbins=5)
    axes.grid(axis="x")
    transform = axes.get_yaxis_transform()
    for y, key in enumerate(bars):
        mine = [p for p in points if (p["row"], p["system"]) == key]
        failed = next((p for p in mine if p.get("failed")), None)
        if failed is not None:
            _failed(axes, failed, y, end, {n: look.title for n, look in names.items()})
            continue
        total = 1e3 * mine[0]["total"]
        if any(p.get("pipelined") for p in mine):
            axes.add_patch(
                Rectangle((0, y - _BAR / 2), total, _BAR, fill=False, ls="--", lw=0.8, ec=SECONDARY)
            )
            axes.text(total * 0.02, y, " overlapped", va="center", fontsize=style.CELL)
        else:
            _stack(axes, mine, y, total)
        modelled = any(p.get("projected") for p in mine)
        if not modelled:  # the total of a bar that is partly a model was never measured
            style.paper_tick(axes, total, y, 0.4)
        axes.text(1.02, y, style.seconds_text(total / 1e3), transform=transform, va="center",
                  fontsize=style.CELL, fontweight="normal" if modelled else "bold",
                  style="italic" if modelled else "normal")  # fmt: skip


def _stack(axes, points, y, total) -> None:
    from matplotlib.patches import Rectangle

    x = 0.0
    rank = {phase: i for i, phase in enumerate(PHASES)}
    for point in sorted(points, key=lambda p: rank.get(p["phase"], 99)):
        width = 1e3 * point["seconds"]
        colour, hatch = PHASES.get(point["phase"], ("#FFFFFF", "xxx"))
        box = (x, y - _BAR / 2)
        modelled = bool(point.get("projected"))
        axes.add_patch(Rectangle(box, width, _BAR, hatch=hatch, lw=0, zorder=2,
                                 facecolor=style.tint(colour) if modelled else colour,
                                 edgecolor=colour if modelled else "white"))  # fmt: skip
        axes.add_patch(Rectangle(box, width, _BAR, fill=False, ec=SECONDARY, zorder=2.1,
                                 lw=0.9 if modelled else 0.5,
                                 ls=style.PROJECTED_DASHES if modelled else "-"))  # fmt: skip
        x += width
    if total - x > _MIN_SHARE * total:
        axes.add_patch(Rectangle((x, y - _BAR / 2), total - x, _BAR, facecolor="white",
                                 ec=SECONDARY, ls="--", lw=0.7, zorder=2))  # fmt: skip


def _failed(axes, point, y, end, titles) -> None:
    style.hatched(axes, 0, y - _BAR / 2, end, _BAR)
    width = axes.get_position().width * axes.figure.get_size_inches()[0]
    axes.text(end / 2, y, style.failure_words(point, titles, width - 0.15), ha="center",
              va="center", fontsize=style.CELL, color=INK, zorder=7,
              bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.2})  # fmt: skip


def _bar(points, key) -> list[dict]:
    return [p for p in points if (p["row"], p["system"]) == key and not p.get("failed")]


def _label(key, points, names) -> str:
    row, system = key
    label = row_label(row, points)
    title = names[system].title
    # A row that is the system itself, in one of its forms, need not say it again.
    said = len(names) == 1 or row.startswith(title)
    return label if said else f"{label} · {title}"


def _left_over(points: Sequence[dict], panel: Any, key: tuple) -> bool:
    """Return True if the phases of a bar leave a part of its total unexplained."""
    mine = _bar([p for p in points if p.get("panel") == panel], key)
    if not mine or any(p.get("pipelined") for p in mine):
        return False
    total = mine[0]["total"]
    return total - sum(p["seconds"] for p in mine) > _MIN_SHARE * total


def _beyond(points: Sequence[dict]) -> float:
    """Largest excess of a stack over its total, as a share of that total.

    0.0 where none does; of stacks that were drawn and measured whole.
    """
    sums: dict[tuple, float] = {}
    totals: dict[tuple, float] = {}
    left: set[tuple] = set()
    for point in points:
        key = point.get("panel"), point["row"], point["system"]
        if any(point.get(word) for word in ("failed", "pipelined", "projected")):
            left.add(key)
            continue
        sums[key] = sums.get(key, 0.0) + point["seconds"]
        totals[key] = point["total"]
    found = [sums[key] / totals[key] - 1 for key in sums if key not in left and totals[key] > 0]
    return max([0.0, *found])


def _special(points: Sequence[dict], options: Mapping[str, Any]) -> list[str]:
    systems = looks(order(points, "system"))
    items = [look.title for look in systems.values()] if len(systems) == 1 else []
    if not all(p.get("projected") for p in points):
        items.append(options.get("phases_from") or "phases from a second, instrumented run")
    slow = [p["slowdown"] for p in points if p.get("slowdown") is not None]
    beyond = _beyond(points)
    if slow:  # a bar may say more of it than the point does
        items.append(f"which was at most {100 * max(*slow, beyond):.1f} % slower")
    elif beyond > _MIN_SHARE:
        items.append(f"bars reach at most {100 * beyond:.1f} % past their totals")
    if options.get("average"):
        items.append(options["average"])
    if any(p.get("projected") for p in points):
        items.append("pale and dashed: projected by a model, not measured")
    if points and all(p.get("twin") for p in points):
        items.append("data: all twins")
    return items


def describe(points: Sequence[dict], options: Mapping[str, Any], context: Any) -> str:
    """One sentence: the largest phase of each system."""
    names = looks(order(points, "system"))
    parts = []
    for name, look in names.items():
        every = [p for p in points if p["system"] == name and not p.get("failed")]
        # Shares of what was measured; of a model's only where nothing was.
        modelled = {(p["row"], p.get("panel")) for p in every if p.get("projected")}
        mine = [p for p in every if (p["row"], p.get("panel")) not in modelled] or every
        total = sum(p["total"] for p in {(p["row"], p.get("panel")): p for p in mine}.values())
        if not total:
            parts.append(f"{look.title} gave no value")
            continue
        spent: dict[str, float] = {}
        for point in mine:
            spent[point["phase"]] = spent.get(point["phase"], 0.0) + point["seconds"]
        top = max(spent, key=spent.get)
        said = " (projected)" if mine is every and modelled else ""
        if len({p.get("phase") for p in points} - {None}) == 1:  # a share of itself says nothing
            ends = [style.seconds_text(pick(p["total"] for p in mine)) for pick in (min, max)]
            parts.append(f"{look.title} takes {span_text(*ends)}{said}")
            continue
        parts.append(f"{look.title} spends {100 * spent[top] / total:.0f} % in {top}{said}")
    failed = sum(bool(p.get("failed")) for p in points)
    return "; ".join(parts) + (f"; {failed} failed." if failed else ".")
