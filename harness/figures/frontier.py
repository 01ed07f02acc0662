"""Type 4: what does memory buy? Peak memory against throughput, both on log axes.

One point a setting, a stair line through those that no other setting of their series beats in both.
Keys of a point: see `docs/figures.md`, kind `frontier`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from dgbench.harness.figures import style
from dgbench.harness.figures.palette import INK, SECONDARY, looks, series_looks
from dgbench.harness.figures.panels import PanelGrid, order
from dgbench.lab.charts import failure_of
from dgbench.runtime.errors import InvalidInputError

REQUIRED = ("series", "setting")
NUMBERS = ("memory", "rate")
MAX_LINES = 5
"""More lines than these in a panel cannot be told apart."""
_SMALL, _LARGE = 2.6, 4.6
_UNITS = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("B", 1))
_PLACES = (
    (-3, 3, "right", "bottom"),
    (3, -3, "left", "top"),
    (3, 3, "left", "bottom"),
    (-3, -3, "right", "top"),
    (0, 6, "center", "bottom"),
    (0, -6, "center", "top"),
)
"""Where the name of a setting may stand beside its point, in points; the best place first."""


def draw(points: Sequence[dict], options: Mapping[str, Any], context: Any, wide: bool) -> Any:
    """The figure at full or half width."""
    panels = order(points, "panel")
    series = series_looks(order(points, "series"))
    for panel in panels:
        names = order([p for p in points if p.get("panel") == panel], "series")
        if len(names) > MAX_LINES:
            raise InvalidInputError(
                f"panel {panel!r} of a frontier has {len(names)} series, "
                f"at most {MAX_LINES} are read",
                hint="make small multiples: give the points a 'panel'",
            )
    unit = _unit([p["memory"] for p in points if not p.get("failed")])
    names = max((style.text_width(k.title, style.CELL) for k in series.values()), default=0.0)
    beside = len(series) > 1 and names <= (1.5 if wide else 0.9)
    grid = PanelGrid(
        panels,
        wide=wide,
        columns=min(2, len(panels)),
        heights=[2.0 if wide else 1.8] * len(panels),
        right=0.06 + (names + 0.12 if beside else 0.04),
        handles=_handles(points, series),
        footer=style.footer_lines(
            _special(points), context, width=style.FULL if wide else style.HALF
        ),
        below=0.38,
        share_left=False,
        left=0.62,
    )
    for panel, axes in grid.axes(context):
        mine = [p for p in points if p.get("panel") == panel]
        _panel(axes, mine, series, options, unit, beside)
    return grid.figure


def best(points: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Points that no other one beats: less memory comes first, and each is faster than the last."""
    found: list[Mapping[str, Any]] = []
    for point in sorted(points, key=lambda p: (p["memory"], -p["rate"])):
        if not found or point["rate"] > found[-1]["rate"]:
            found.append(point)
    return found


def _good(points: Sequence[dict], name: str) -> list[dict]:
    return [p for p in points if p["series"] == name and not p.get("failed")]


def _panel(axes, points, series, options, unit, beside) -> None:
    good = [p for p in points if not p.get("failed")]
    word, scale = unit
    limits = [p["limit"] for p in points if p.get("limit")]
    limit = max(limits, default=0) / scale
    memory = [p["memory"] / scale for p in good] + ([limit] if limit else [])
    rates = [v for p in good for v in (p["rate"], *style.ends(p))]
    axes.set_xscale("log")
    axes.set_yscale("log")
    across, up = style.log_limits(memory, pad=1.25), style.log_limits(rates, pad=1.2)
    failed = [p for p in points if p.get("failed")]
    # Room below for settings without a value and above for the words of the fastest ones.
    span = up[1] / up[0]
    up = (up[0] / span ** (0.1 * len(failed)), up[1] * span**0.12)
    axes.set_xlim(*across)
    axes.set_ylim(*up)
    size = axes.get_position().width * axes.figure.get_size_inches()[0]
    style.log_axis(axes.xaxis, *across, room=size)
    style.log_axis(axes.yaxis, *up, room=4)
    axes.grid(True)
    axes.set_xlabel(f"{options.get('xlabel', 'peak memory')}, {word} (log)")
    axes.set_ylabel(f"{options.get('ylabel', 'events/s')} (log)")
    if limit:
        axes.axvline(limit, color=SECONDARY, lw=0.9, ls=(0, (4, 2)), zorder=1)
    ends, named = [], []
    for name, look in series.items():
        mine = _good(points, name)
        if not mine:
            continue
        front = best(mine)
        _stairs(axes, front, look, scale, limit or across[1])
        for point in mine:
            at = point["memory"] / scale
            shown = point in front
            style.interval(axes, point.get("low"), point.get("high"), at, look.mark.colour,
                           vertical=True)  # fmt: skip
            style.dot(axes, at, point["rate"], look, hollow=not shown,
                      size=_LARGE if shown else _SMALL)  # fmt: skip
            if shown or point.get("base"):
                named.append((point, at))
        ends.append((front[-1]["rate"], look.title, look.strong, INK))
    taken = [axes.transData.transform((p["memory"] / scale, p["rate"])) for p in good]
    boxes = _failures(axes, failed, series, limit)
    _name(axes, named, taken, boxes)
    _better(axes, taken, boxes)
    if beside:
        style.end_labels(axes, ends)


def _stairs(axes, front, look, scale, end) -> None:
    """Draw the frontier as stairs: the best rate within each memory budget."""
    xs = [p["memory"] / scale for p in front]
    ys = [p["rate"] for p in front]
    axes.step([*xs, max(end, xs[-1])], [*ys, ys[-1]], where="post", color=look.mark.colour,
              lw=1.4 if look.strong else 1.0, zorder=3)  # fmt: skip


def _failures(axes, failed, series, limit) -> list[Any]:
    """Crosses at the limit for settings that ran out of memory; words for all that have no value.

    Returns:
        The boxes of the words, in pixels.
    """
    from matplotlib.transforms import Bbox

    height = axes.get_position().height * axes.figure.get_size_inches()[1]
    boxes = []
    x = axes.transAxes.inverted().transform(axes.transData.transform((limit or 1, 1)))[0]
    at = min(x, 0.97) if limit else 0.97
    for number, point in enumerate(failed):
        y = (0.1 + 0.14 * number) / height
        out = failure_of(point).status == "oom"
        colour = series[point["series"]].mark.colour
        if out:
            axes.plot([at], [y], marker="x", ms=5, mew=1.6, color=colour, ls="none", zorder=7,
                      transform=axes.transAxes, clip_on=False)  # fmt: skip
        else:
            style.hatched(axes, at - 0.02, y - 0.04, 0.04, 0.08, transform=axes.transAxes)
        room = at * axes.get_position().width * axes.figure.get_size_inches()[0]
        said = style.failure_words(point, {}, max(0.3, room - 1.2))
        who = f"{series[point['series']].title}, " if len(series) > 1 else ""
        text = axes.text(at - 0.035, y, f"{who}{point['setting']}: {said}", ha="right", va="center",
                         transform=axes.transAxes, fontsize=style.CELL, color=INK, zorder=7,
                         bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6})  # fmt: skip
        box = text.get_window_extent(axes.figure.canvas.get_renderer())
        boxes.append(Bbox.from_extents(box.x0, box.y0, box.x1 + 12, box.y1))
    return boxes


def _name(axes, named, taken, boxes) -> None:
    """Settings beside their points where there is room; a name that fits nowhere is left out.

    The base comes first: what everything is compared with must not go without its name.
    """
    from matplotlib.transforms import Bbox

    pixels = axes.figure.dpi / 72
    panel = axes.get_window_extent()
    marks = [Bbox.from_bounds(x - 2.6 * pixels, y - 2.6 * pixels, 5.2 * pixels, 5.2 * pixels)
             for x, y in taken]  # fmt: skip
    for point, at in sorted(named, key=lambda n: (not n[0].get("base"), -n[0]["rate"])):
        words = f"{point['setting']} (base)" if point.get("base") else str(point["setting"])
        wide = style.text_width(words, style.CELL) * axes.figure.dpi
        tall = style.CELL * pixels
        x, y = axes.transData.transform((at, point["rate"]))
        for dx, dy, ha, va in _PLACES:
            left = x + dx * pixels - {"left": 0, "right": wide, "center": wide / 2}[ha]
            low = y + dy * pixels - (tall if va == "top" else 0)
            box = Bbox.from_bounds(left, low, wide, tall)
            inside = panel.x0 <= box.x0 and box.x1 <= panel.x1 and panel.y0 <= box.y0
            if not inside or box.y1 > panel.y1 + 2:
                continue
            if any(box.overlaps(other) for other in itertools.chain(marks, boxes)):
                continue
            axes.annotate(words, (at, point["rate"]), xytext=(dx, dy), textcoords="offset points",
                          ha=ha, va=va, fontsize=style.CELL, color=INK, zorder=7)  # fmt: skip
            boxes.append(box)
            break


def _better(axes, taken, boxes) -> None:
    """The arrow to less memory and more speed, in the corner where it covers least."""
    from matplotlib.transforms import Bbox

    box = axes.get_window_extent()
    inch = axes.figure.dpi
    wide, tall = 0.62 * inch, 0.24 * inch
    corners = {
        (0.03, 0.97): (box.x0, box.y1 - tall),
        (0.03, 0.2): (box.x0, box.y0),
        (0.74, 0.2): (box.x1 - wide, box.y0),
        (0.74, 0.97): (box.x1 - wide, box.y1 - tall),
    }

    def covered(corner: tuple[float, float]) -> int:
        place = Bbox.from_bounds(*corners[corner], wide, tall)
        inside = sum(bool(place.contains(x, y)) for x, y in taken)
        return inside + sum(bool(place.overlaps(other)) for other in boxes)

    left, low = corners[min(corners, key=covered)]
    tip, tail = (0.08, 0.18), (0.2, 0.05)
    spots = [((left + u * inch), (low + v * inch)) for u, v in (tip, tail)]
    (x0, y0), (x1, y1) = axes.transAxes.inverted().transform(spots)
    axes.annotate("", (x0, y0), (x1, y1), xycoords="axes fraction", zorder=7,
                  arrowprops={"arrowstyle": "-|>", "color": SECONDARY, "lw": 0.9,
                              "mutation_scale": 6, "shrinkA": 0, "shrinkB": 0})  # fmt: skip
    axes.text(x1 + 0.05 * inch / box.width, y1 + 0.02 * inch / box.height, "better", va="center",
              transform=axes.transAxes, fontsize=style.CELL, color=SECONDARY, zorder=7)  # fmt: skip


def _handles(points, series) -> list[Any]:
    from matplotlib.lines import Line2D

    handles = [style.mark_handle(look) for look in series.values()]
    if any(len(best(_good(m, n))) < len(_good(m, n)) for m, n in _groups(points)):
        handles.append(Line2D([], [], ls="none", marker="o", ms=_SMALL, mfc="white", mec=SECONDARY,
                              label="small: another setting is better in both"))  # fmt: skip
    if any(p.get("limit") for p in points):
        label = next((p["limit_name"] for p in points if p.get("limit_name")), "limit of memory")
        handles.append(Line2D([], [], color=SECONDARY, lw=0.9, ls=(0, (4, 2)), label=label))
    why = {failure_of(p).status for p in points if p.get("failed")}
    if "oom" in why:
        handles.append(Line2D([], [], ls="none", marker="x", ms=5, mew=1.6, color=SECONDARY,
                              label="out of memory"))  # fmt: skip
    if why - {"oom"}:
        handles.append(style.failed_handle())
    return handles


def _groups(points: Sequence[dict]) -> list[tuple[list[dict], str]]:
    """Points of each panel with the name of each of its series."""
    found = []
    for panel in order(points, "panel"):
        mine = [p for p in points if p.get("panel") == panel]
        found += [(mine, name) for name in order(mine, "series")]
    return found


def _special(points: Sequence[dict]) -> list[str]:
    items = ["stairs: the most that a budget of memory buys"]
    if any(p.get("low") is not None for p in points):
        items.append("bar: 95 % interval")
    if points and all(p.get("twin") for p in points):
        items.append("data: all twins")
    return items


def _unit(values: Sequence[float]) -> tuple[str, int]:
    """The binary unit in which the middle of the values has few digits."""
    middle = sorted(values)[len(values) // 2] if values else 1.0
    return next((u for u in _UNITS if middle >= u[1]), _UNITS[-1])


def describe(points: Sequence[dict], options: Mapping[str, Any], context: Any) -> str:
    """One sentence: what the most memory buys over the least, and what is beaten in both."""
    what = options.get("ylabel", "events/s")
    widest: dict[str, tuple[float, str]] = {}
    names = looks(order(points, "series"))
    for mine, name in _groups(points):
        front = best(_good(mine, name))
        if not front:
            widest.setdefault(name, (0.0, f"{names[name].title} gave no value"))
            continue
        first, last = front[0], front[-1]
        where = f" ({mine[0]['panel']})" if mine[0].get("panel") else ""
        more = last["memory"] / first["memory"]
        said = f"{names[name].title}{where}: "
        if len(front) == 1:
            said += f"{first['setting']} is best in both"
        else:
            said += (
                f"{style.factor(more)} the memory ({first['setting']} to {last['setting']}) buys "
                f"{style.factor(last['rate'] / first['rate'])} the {what}"
            )
        if more > widest.get(name, (0.0, ""))[0]:
            widest[name] = (more, said)
    text = "; ".join(said for _, said in widest.values())
    good = sum(not p.get("failed") for p in points)
    beaten = good - sum(len(best(_good(mine, name))) for mine, name in _groups(points))
    text += f"; {beaten} of {good} settings are beaten in both" if good else ""
    failed = sum(bool(p.get("failed")) for p in points)
    return text + (f"; {failed} failed." if failed else ".")
