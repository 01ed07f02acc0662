"""Type 3: what does the machine do while a process runs?

Small multiples that share seconds: one strip a quantity, the phases of the process under them, one
column a process (at half width: one block a process). A strip shows the smallest and the largest
reading of each piece of time, so that a peak survives however long the process ran; nothing is
averaged. `harness.report.series.over_time_points` makes one point per strip and process:

- every point: `panel` (the process), `system`, `length` (seconds from fork to exit), and `row`: a
  quantity (`memory`, `cpu`, `gpu_memory`, `gpu_resident`, `gpm_sm_active`, `gpm_tensor`,
  `gpm_dram`, `gpm_pcie_rx`, `gpm_pcie_tx`, `gpm_nvlink_rx`, `gpm_nvlink_tx`, `gpu_power`,
  `gpu_sm_clock`), `phases` or `marks`;
- quantities: `seconds` (begins of pieces of time), `step` (seconds of a piece), `low`, `high`
  (smallest and largest reading of each, None where there was none), `unit`; optional `limit`,
  `ended` (why readings ended early), `processes` (whose memory is summed);
- `phases`, one point a phase: `series` (its name), `begin`, `end` of its spans, `merged`,
  `resolution` (in pieces this long the order of phases is lost), `of` ("rank 0" where one stands
  for all);
- `marks`: `series` ("epoch"), `seconds`, `every`.

Options: `workload` (for the footer).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from dgbench.harness.figures import style
from dgbench.harness.figures.palette import NOISE, PHASES, SECONDARY, looks
from dgbench.harness.figures.panels import order
from dgbench.harness.figures.phase_strip import draw_phases, phase_looks
from dgbench.harness.figures.strips import (
    HEADROOM,
    NAMES,
    Scale,
    coarser,
    draw_strip,
    ended_words,
    reason_words,
    value_text,
)
from dgbench.lab.charts import failure_of, marked

REQUIRED = ("panel", "system", "row")
NUMBERS = ("length",)
MARKS: Final = "marks"
"""Points of this row are no strip: they are the verticals of their panel."""

_STRIP, _PHASES, _GAP = 0.5, 0.26, 0.11
_BELOW = 0.36
_LEFT = 1.14


def draw(points: Sequence[dict], options: Mapping[str, Any], context: Any, wide: bool) -> Any:
    """The figure at full or half width."""
    panels = order(points, "panel")
    strips = _strips(points)
    names = looks(order(points, "system"))
    phases = phase_looks(p.get("series") for p in points if p["row"] == "phases")
    width = style.FULL if wide else style.HALF
    handles = _handles(points, phases, names)
    columns = len(panels) if wide else 1
    each = (width - _LEFT - 0.1 - 0.12 * (columns - 1)) / columns
    end = max((p["length"] for p in points if not p.get("failed")), default=1.0)
    shown = {p: _marks([q for q in points if q["panel"] == p], each, end) for p in panels}
    thin = any(p.get("every", 1) > 1 for p in points) or sum(map(len, shown.values())) < sum(
        len(p["seconds"]) for p in points if p["row"] == MARKS and not p.get("failed")
    )
    footer = style.footer_lines(_special(points, options, thin), context, width=width)
    entries = (6 if len(handles) < 7 else 5) if wide else 2
    legend_columns = style.legend_columns(handles, width - 0.1, entries)
    legend = style.legend_height(len(handles), legend_columns)
    heights = [_PHASES if strip == "phases" else _STRIP for strip in strips]
    titles = {
        panel: style.wrap_label(
            _title(panel, [q for q in points if q["panel"] == panel]), max(each, 1.2), 8
        )
        for panel in panels
    }
    above = 0.2 + 0.135 * max(title.count("\n") for title in titles.values())
    block = above + sum(heights) + _GAP * (len(strips) - 1) + _BELOW
    lines = math.ceil(len(panels) / columns)
    top = 0.06 + legend
    figure = style.new_figure(width, top + block * lines + style.footer_height(footer) + 0.02)
    if handles:
        style.legend(figure, handles, top=0.06, columns=legend_columns)
    scales = {strip: Scale.of(strip, [p for p in points if p["row"] == strip]) for strip in strips}
    for index, panel in enumerate(panels):
        line, column = divmod(index, columns)
        x, y = _LEFT + column * (each + 0.12), top + line * block + above
        mine = [p for p in points if p["panel"] == panel]
        for place, strip in enumerate(strips):
            axes = style.place(figure, x, y, each, heights[place])
            if place == 0:
                axes.set_title(titles[panel])
            _frame(axes, end, last=place == len(strips) - 1)
            found = next((p for p in mine if p["row"] == strip and p.get("failed")), None)
            alive = max((p["length"] for p in mine if not p.get("failed")), default=end)
            if alive < end:  # the process was over
                axes.axvspan(alive, end, color="#F2F3F5", lw=0, zorder=0.4)
            for at in shown[panel]:
                axes.axvline(at, color=NOISE, lw=0.6, zorder=0.6)
            here = [p for p in mine if p["row"] == strip and not p.get("failed")]
            if strip == "phases":
                axes.set_ylim(0, 1)
                axes.set_yticks([])
                if here:
                    draw_phases(axes, here, phases, end, each)
            else:
                scales[strip].ticks(axes, label=column == 0)
                for point in here:
                    mark = names[point["system"]].mark.colour
                    draw_strip(axes, coarser(point, each, end), strip, scales[strip], mark, end)
            if not here:
                reason_words(axes, found, each, heights[place])
            if column == 0:
                _name(figure, strip, scales[strip], y, heights[place])
            y += heights[place] + _GAP
    style.draw_footer(figure, footer, context)
    return figure


def flat(points: Sequence[dict]) -> list[dict]:
    """One line per piece of time, span or mark, for a CSV."""
    lines = []
    for point in points:
        kept = {k: point.get(k) for k in ("panel", "system", "row", "series", "unit", "limit")}
        rest = {"twin": point.get("twin"), "row_ids": point.get("row_ids") or []}
        if point.get("failed"):
            lines.append({**kept, "failed": point["failed"], **rest})
        elif point["row"] == "phases":
            for begin, end in zip(point["begin"], point["end"], strict=True):
                lines.append({**kept, "seconds": begin, "until": end, **rest})
        elif point["row"] == MARKS:
            lines += [{**kept, "seconds": at, **rest} for at in point["seconds"]]
        else:
            for at, low, high in zip(point["seconds"], point["low"], point["high"], strict=True):
                until = at + point["step"]
                lines.append(
                    {**kept, "seconds": at, "until": until, "low": low, "high": high, **rest}
                )
    # The first line names the columns, so it has them all.
    keys = dict.fromkeys(k for line in lines for k in line if k != "row_ids")
    return [{**dict.fromkeys(keys), **line} for line in lines]


def summary(points: Sequence[dict]) -> list[dict]:
    """One line per strip: smallest and largest reading, limit, or the reason; seconds of phases."""
    names = looks(order(points, "system"))
    lines = []
    for point in points:
        if point["row"] == MARKS:
            continue
        line = {
            "process": _title(point["panel"], [point]),
            "system": names[point["system"]].title,
            "strip": NAMES.get(point["row"], (point["row"],))[0],
            "least": None, "peak": None, "limit": None, "unit": "", "note": "",
            "row_ids": point.get("row_ids") or [],
        }  # fmt: skip
        if point.get("failed"):
            line["note"] = failure_of(point).reason or point["failed"]
        elif point["row"] == "phases":
            spent = sum(b - a for a, b in zip(point["begin"], point["end"], strict=True))
            line |= {"strip": f"phase {point['series']}", "peak": round(spent, 4), "unit": "s"}
            line["note"] = "seconds in all"
        else:
            low = [v for v in point["low"] if v is not None]
            high = [v for v in point["high"] if v is not None]
            line |= {"least": min(low), "peak": max(high), "limit": point.get("limit")}
            line |= {"unit": point["unit"], "note": point.get("ended") or ""}
        lines.append(line)
    return lines


def _strips(points: Sequence[dict]) -> list[str]:
    met = [row for row in order(points, "row") if row != MARKS]
    known = [name for name in NAMES if name in met and name != "phases"]
    others = [name for name in met if name not in NAMES]
    return [*known, *others, *(["phases"] if "phases" in met else [])]


def _title(panel: Any, points: Sequence[dict]) -> str:
    return marked(panel, any(p.get("twin") for p in points))


def _frame(axes: Any, end: float, *, last: bool) -> None:
    axes.set_xlim(0, end)
    axes.locator_params(axis="x", nbins=4)
    if last:
        axes.set_xlabel("seconds since it began", labelpad=2)
    else:
        axes.tick_params(axis="x", labelbottom=False)


def _name(figure: Any, strip: str, scale: Any, y: float, height: float) -> None:
    """A strip's name in the left margin, horizontally; its unit and a far limit below."""
    lines = [*NAMES.get(strip, (strip,))[0].split("\n"), *scale.said]
    top = y + height / 2 - 0.058 * len(lines)
    for number, line in enumerate(lines):
        small = number >= len(lines) - len(scale.said)
        style.write_at(figure, 0.06, top + 0.116 * number, line,
                       fontsize=style.CELL if small else style.SMALL,
                       color=SECONDARY if small else None)  # fmt: skip


def _marks(points: Sequence[dict], room: float, end: float) -> list[float]:
    """Where verticals stand: every second, third ... one where they are less than 8 pt apart."""
    times = sorted(t for p in points if p["row"] == MARKS and not p.get("failed")
                   for t in p["seconds"])  # fmt: skip
    if len(times) < 2:
        return times
    apart = room * 72 * (times[-1] - times[0]) / (end * (len(times) - 1))
    return times[:: max(1, math.ceil(8 / max(apart, 1e-9)))]


def _handles(points: Sequence[dict], phases: Mapping[str, Any], names: Mapping[str, Any]) -> list:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [
        Patch(facecolor=face, edgecolor="white", hatch=hatch, label=name)
        for name, (face, hatch) in phases.items()
    ]
    if phases:
        handles.append(Patch(facecolor="white", edgecolor=SECONDARY, ls="--", lw=0.8,
                             label="not attributed"))  # fmt: skip
    if any(p.get("limit") for p in points):
        handles.append(Line2D([], [], color=SECONDARY, lw=0.9, ls=(0, (4, 2)), label="limit"))
    said = {p["series"] for p in points if p["row"] == MARKS and not p.get("failed")}
    if said:
        label = ", ".join(f"begin of {'an' if s[0] in 'aeiou' else 'a'} {s}" for s in sorted(said))
        handles.append(Line2D([], [], color=NOISE, lw=1.2, label=label))
    return handles


def _special(points: Sequence[dict], options: Mapping[str, Any], thin: bool) -> list[str]:
    items = [str(options["workload"])] if options.get("workload") else []
    if any(p["row"] not in ("phases", MARKS) and not p.get("failed") for p in points):
        items.append("bands from the smallest to the largest reading, nothing averaged")
    merged = [p for p in points if p["row"] == "phases" and p.get("resolution")]
    if merged:
        most = max(p["resolution"] for p in merged)
        items.append(f"phases as shares of {style.seconds_text(most)} pieces")
    many = max((p.get("processes") or 1 for p in points), default=1)
    if many > 1:
        items.append(f"memory of up to {many} processes, shared pages counted in each")
    items += sorted({f"phases of {p['of']}" for p in points if p.get("of")})
    if thin:
        items.append("not every begin has a vertical")
    items += ended_words(points)
    if points and all(p.get("twin") for p in points):
        items.append("data: all twins")
    return items


def describe(points: Sequence[dict], options: Mapping[str, Any], context: Any) -> str:
    """One sentence: peaks of memory, what held the machine, and how many strips have no data."""
    strips = _strips(points)
    parts = []
    for strip in strips:
        mine = [p for p in points if p["row"] == strip and not p.get("failed")]
        if strip == "phases" or not mine:
            continue
        peaks = {p["panel"]: max(v for v in p["high"] if v is not None) for p in mine}
        name = NAMES.get(strip, (strip,))[0].replace("\n", " ")
        unit, limit = mine[0]["unit"], max(p.get("limit") or 0 for p in mine)
        low, high = min(peaks, key=peaks.get), max(peaks, key=peaks.get)
        said = f"{name} peaks at {value_text(peaks[high], unit)}"
        if len(peaks) > 1:
            said = (f"{name} peaks from {value_text(peaks[low], unit)} ({low}) to "
                    f"{value_text(peaks[high], unit)} ({high})")  # fmt: skip
        parts.append(said + (f" of {value_text(limit, unit)}" if limit else ""))
    for panel in order(points, "panel"):
        spent = {
            p["series"]: sum(b - a for a, b in zip(p["begin"], p["end"], strict=True))
            for p in points
            if p["panel"] == panel and p["row"] == "phases" and not p.get("failed")
        }
        if total := sum(spent.values()):
            top = max(spent, key=spent.get)
            parts.append(f"{panel} spends {100 * spent[top] / total:.0f} % of its phases in {top}")
    failed = sum(bool(p.get("failed")) for p in points)
    if failed:
        words = "strip has a reason instead of data" if failed == 1 else (
            "strips have a reason instead of data")  # fmt: skip
        parts.append(f"{failed} {words}")
    text = "; ".join(parts) or "Nothing was read while the processes ran"
    return text[0].upper() + text[1:] + "."


__all__ = ["HEADROOM", "NUMBERS", "PHASES", "REQUIRED", "describe", "draw", "flat", "summary"]
