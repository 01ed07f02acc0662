"""Who is fastest: the main race of a paper, workload by workload."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dgbench.harness.figures.draw import DrawnFigure
from dgbench.harness.figures.palette import looks
from dgbench.harness.figures.style import Context, side, with_interval
from dgbench.harness.report.run import STATUS_MEANING
from dgbench.harness.utilisation import IDLE
from dgbench.lab.charts import failure_of, marked
from dgbench.lab.quality import BELOW

if TYPE_CHECKING:
    from dgbench.harness.report.sections import Section


def fastest(paper: Any, sections: Sequence[Section], context: Context) -> list[dict[str, Any]]:
    """Per workload of the main race: the fastest correct system and by how much."""
    drawn = main_race(sections)
    if drawn is None:
        return []
    tasks: dict[tuple, list[dict]] = {}
    for point in drawn.points:
        if not point.get("rest") and not point.get("projected"):
            tasks.setdefault((point.get("panel"), point["row"]), []).append(point)
    return [
        _race(paper, panel, row, points, context, drawn.titles)
        for (panel, row), points in tasks.items()
    ]


def main_race(sections: Sequence[Section]) -> DrawnFigure | None:
    """The speed-ups that stand for a paper: those its spec calls `main`, else the first ones."""
    races = [f for e in sections for f in e.figures if f.kind == "speedup" and _raced(f)]
    return next((f for f in races if f.main), next(iter(races), None))


def workloads(drawn: DrawnFigure) -> int:
    """Number of workloads of a race with a measured value.

    A panel is another workload (a model, say) unless every panel has a baseline of its own: then
    the panels tell against whom the same workloads were raced.
    """
    ran = [p for p in drawn.points
           if not (p.get("projected") or p.get("failed") or p.get("rest"))]  # fmt: skip
    pairs = {(p.get("panel"), p.get("baseline")) for p in ran}
    against = len(pairs) == len({x for x, _ in pairs}) == len({x for _, x in pairs})
    return len({(None if against else p.get("panel"), p.get("row")) for p in ran})


def _raced(drawn: DrawnFigure) -> bool:
    """Return True if anything in a figure of ratios was measured: a projection wins no race."""
    return any(not p.get("projected") for p in drawn.points)


def _race(paper, panel, row, points, context, named=MappingProxyType({})) -> dict[str, Any]:
    ran = [p for p in points if not p.get("failed")]
    good = [p for p in ran if not p.get("below")]
    every = looks([*(p["system"] for p in points), points[0]["baseline"]])
    titles = {name: look.title for name, look in every.items()} | dict(named)
    best = max(good, key=lambda p: p["value"], default=None)
    own = next((p for p in points if p["system"] == paper.system), None)
    task = marked(row, any(p.get("twin") for p in points), panel)
    entry: dict[str, Any] = {
        "task": task + (f", {panel}" if panel else ""),
        "baseline": titles[points[0]["baseline"]],
        "own": own if own is not None and not own.get("failed") else {},
        "faster": False,
        "slower": False,
        "row": None,
        "deviation": None,
        "quality": next((p["quality"] for p in points if p.get("quality")), ""),
    }
    if entry["own"]:
        found = side(own, context.noise)
        entry["faster"] = found == "faster" and not entry["own"].get("below")
        entry["slower"] = found == "slower"
    elif own is not None:
        entry["own"] = {"value": 0.0}
    if best is None and ran:
        return {**entry, "faster": False, "winner": f"none: {BELOW}", "factor": ran[0]["below"]}
    if best is None:
        why = failure_of(points[0]).words(STATUS_MEANING)
        return {**entry, "winner": "no value", "factor": why}
    which = side(best, context.noise)
    alike = which == "same"
    stamp = f", {IDLE}" if best.get("idle") else ""
    winner = {
        "faster": titles[best["system"]],
        "slower": entry["baseline"],
        "same": "none: same",
        "undecided": "undecided",
    }[which]
    return {
        **entry,
        "winner": winner,
        "factor": ("same" if alike else with_interval(best["value"], best.get("low"),
                                                      best.get("high"))) + stamp,
        "row": (best.get("row_ids") or [None])[0],
        "deviation": best.get("deviation"),
    }  # fmt: skip
