"""Use of a GPU during a race, shown beside its factors and in a paper's heading."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from dgbench.harness.claims.shown import digits
from dgbench.harness.report.reuse import Sketch
from dgbench.harness.report.series import over_time_options, over_time_points
from dgbench.harness.utilisation import throughput, use_points

if TYPE_CHECKING:
    from dgbench.harness.report.run import RunData
    from dgbench.harness.report.sections import PaperSection


def device_sketches(
    spec: Any, points: Sequence[dict[str, Any]], rows: Sequence[Any], paper: Any
) -> list[Sketch]:
    """Figures that stand beside a race on a GPU; [] where it ran elsewhere.

    Args:
        spec, points: the race. rows: of its experiment, instrumented ones among them.
    """
    uses = use_points(points, rows, paper.system)
    if not uses:
        return []
    made = [Sketch("device_use", f"{spec.name}_device", f"What the GPU did: {spec.title}", uses)]
    groups = {row.group for row in race_rows(points, rows)}
    mine = [row for row in rows if row.device == "cuda" and row.group in groups]
    if course := over_time_points(mine, paper):
        title = f"The GPU over time: {spec.title}"
        options = dict(over_time_options(course))
        made.append(Sketch("over_time", f"{spec.name}_over_time", title, course, options))
    return made


def race_rows(points: Iterable[dict[str, Any]], rows: Iterable[Any]) -> list[Any]:
    """Rows that the measured points of a race rest on."""
    measured = (p for p in points if not (p.get("failed") or p.get("projected")))
    ids = {name for p in measured for name in p.get("row_ids") or []}
    return [row for row in rows if row.id in ids]


def main_race_rows(sketches: Iterable[Sketch], rows: Iterable[Any]) -> list[Any]:
    """Rows of the race that stands for a paper, as in `races.main_race`."""
    races = [s for s in sketches if s.kind == "speedup"
             and any(not p.get("projected") for p in s.points)]  # fmt: skip
    main = next((s for s in races if s.options.get("main")), next(iter(races), None))
    return race_rows(main.points, rows) if main is not None else []


def device_notes(sections: Sequence[tuple[RunData, PaperSection]]) -> list[str]:
    """Notes for the heading on runs that left their GPU idle.

    `on NVIDIA H200 0.86x to 1.3x the throughput of 2 cores, AMD EPYC (GPU idle: SM active 0.23 to
    0.4 %)`; of the first section, whose own heading names the GPU's use, the comparison only.
    """
    notes = []
    for number, (run, section) in enumerate(sections):
        if section.idle is None:
            continue
        pace = [
            f"{span} the throughput of {other.machine_name}"
            for other, beside in sections
            if other.device == "cpu" and (span := _pace(section, beside))
        ]
        if number:
            said = f"on {run.machine_name} {' and '.join(pace)}".rstrip()
            notes.append(
                f"{said} ({section.idle.words})" if pace else f"{said} {section.idle.words}"
            )
        elif pace:
            notes.append(f"at {' and '.join(pace)}")
    return notes


def _pace(section: PaperSection, other: PaperSection) -> str:
    """The throughput of a paper's system in a run over that in another, on the same workloads."""
    theirs = {_workload(row): row for row in other.race}
    ratios = []
    for row in section.race:
        beside = theirs.get(_workload(row))
        if beside is None:
            continue
        mine, yours = (throughput(r, section.paper.system) for r in (row, beside))
        if mine and yours and mine[1] == yours[1] and yours[0] > 0:
            ratios.append(mine[0] / yours[0])
    if not ratios:
        return ""
    low, high = f"{digits(min(ratios))}x", f"{digits(max(ratios))}x"
    return low if low == high else f"{low} to {high}"


def _workload(row: Any) -> tuple[Any, ...]:
    """Key of a workload that ran on different machines."""
    params = tuple(sorted((key, str(value)) for key, value in row.params.items()))
    return row.experiment, params, row.preset, row.data.get("scale"), row.round
