"""From the rows of a paper to its figure over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from dgbench.harness.probes.series import Series, Track, unpack
from dgbench.lab.arena import DIVISION
from dgbench.lab.compare import CONTROL
from dgbench.lab.probes import probe

MAX_PROCESSES: Final = 4
"""Processes side by side, at most."""

GPU: Final = (
    "gpu_memory", "gpu_resident", "gpm_sm_active", "gpm_tensor", "gpm_dram", "gpm_pcie_rx",
    "gpm_pcie_tx", "gpm_nvlink_rx", "gpm_nvlink_tx", "gpu_power", "gpu_sm_clock",
)  # fmt: skip
"""Strips where a GPU was used; elsewhere `CPU`."""
CPU: Final = ("memory", "cpu")

PROCESSES: Final = probe("processes")

UNTIMED: Final = "skipped: phases were not timed: this process ran without instruments"
UNTOLD: Final = "skipped: this process told of no phases"


def over_time_points(rows: Sequence[Any], paper: Any = None) -> list[dict[str, Any]]:
    """Points of kind `over_time`: what the machine did in the race that ran longest.

    Of all workloads whose rows keep a series, those of the paper's main race whose phases were
    timed come first, then others with phases, then the main race without; of equals those in
    which the paper's own system ran beside others, and of these the one with the longest process.

    Args:
        rows: of one paper and one run; controls and searched settings may be among them.
        paper: its `Paper`; without it no race counts as the main one.

    Returns:
        Points for up to `MAX_PROCESSES` processes, [] where no row has a series.
    """
    chosen = _chosen(rows, paper)
    labels = _labels(chosen)
    points: list[dict[str, Any]] = []
    for row, series in chosen:
        points += row_points(row, series, labels[row.id], _workload([r for r, _ in chosen]))
    return points


def over_time_options(points: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Options of the figure of these points."""
    workload = next((p["workload"] for p in points if p.get("workload")), "")
    return {"workload": workload}


def row_points(row: Any, series: Series, panel: str, workload: str) -> list[dict[str, Any]]:
    """Points of one process: its strips, its phases and its marks."""
    point = {
        "panel": panel,
        "system": str(row.params.get("system") or row.paper),
        "workload": workload,
        "twin": bool(row.data.get("twin")),
        "row_ids": [row.id],
    }
    wanted = GPU if row.device == "cuda" else CPU
    points = [{**point, "row": name, **_strip(series, name)} for name in wanted]
    if (processes := int(PROCESSES.read(row) or 1)) > 1:
        points = [{**p, "processes": processes} if p["row"] == "memory" else p for p in points]
    if series.spans:
        for name in dict.fromkeys(name for name, _, _ in series.spans):
            mine = [(begin, end) for phase, begin, end in series.spans if phase == name]
            points.append(
                {
                    **point, "row": "phases", "series": name, "length": series.seconds,
                    "begin": [begin for begin, _ in mine], "end": [end for _, end in mine],
                    "merged": series.merged, "resolution": series.resolution_s, "of": series.of,
                }
            )  # fmt: skip
    else:
        why = UNTOLD if row.instrumented else UNTIMED
        points.append({**point, "row": "phases", "failed": why})
    for name, times in series.marks.items():
        points.append(
            {**point, "row": "marks", "series": name, "length": series.seconds, "seconds": times,
             "every": series.strides.get(name, 1)}
        )  # fmt: skip
    return points


def _strip(series: Series, name: str) -> dict[str, Any]:
    track = series.tracks.get(name)
    if not isinstance(track, Track):
        return {"failed": f"not-supported: {track or 'too short to be read'}"}
    return {
        "length": series.seconds, "step": series.step_s, "unit": track.unit,
        "seconds": [round(i * series.step_s, 6) for i in range(len(track.low))],
        "low": track.low, "high": track.high, "limit": track.limit, "ended": track.ended,
    }  # fmt: skip


def _chosen(rows: Sequence[Any], paper: Any) -> list[tuple[Any, Series]]:
    """Processes of the race to show, the paper's own system first."""
    groups: dict[tuple[str, str], dict[str, tuple[Any, Series]]] = {}
    for row in rows:
        apart = CONTROL in row.params or DIVISION in row.params
        series = unpack(row.series) if row.ok and not apart else None
        if series is not None:
            cells = groups.setdefault((row.experiment, row.group), {})
            kept = cells.get(row.cell_hash)
            if kept is None or row.instrumented or not kept[0].instrumented:
                cells[row.cell_hash] = row, series
    if not groups:
        return []
    own = getattr(paper, "system", "") or (rows[0].paper if rows else "")
    races = _main_races(paper)

    def rank(item: tuple[tuple[str, str], dict[str, tuple[Any, Series]]]) -> tuple:
        (experiment, group), cells = item
        found = list(cells.values())
        systems = {row.params.get("system") for row, _ in found} - {None}
        timed = any(series.spans for _, series in found)
        return (
            timed and experiment in races,
            timed,
            experiment in races,
            own in systems and len(systems) > 1,
            max(series.seconds for _, series in found),
            experiment,
            group,
        )

    cells = max(groups.items(), key=rank)[1]
    found = list(cells.values())
    longest = sorted(found, key=lambda pair: -pair[1].seconds)
    first = [pair for pair in found if pair[0].params.get("system") == own][:1]
    rest = [pair for pair in _one_a_system(longest) if pair not in first]
    return [*first, *rest][:MAX_PROCESSES]


def _one_a_system(found: list[tuple[Any, Series]]) -> list[tuple[Any, Series]]:
    """The first process of each system, then the others."""
    met: set[Any] = set()
    first, rest = [], []
    for pair in found:
        name = pair[0].params.get("system")
        (rest if name in met else first).append(pair)
        met.add(name)
    return first + rest


def _main_races(paper: Any) -> set[str]:
    """Names of experiments whose figure is called the main one, else all with speed-ups."""
    named, raced = set(), set()
    for experiment in getattr(paper, "experiments", ()):
        try:
            specs = experiment.figures()
        except Exception:  # plugin code
            continue
        for spec in specs:
            if spec.kind == "speedup":
                raced.add(experiment.name)
                if dict(spec.options or {}).get("main"):
                    named.add(experiment.name)
    return named or raced


def _labels(chosen: Sequence[tuple[Any, Series]]) -> dict[str, str]:
    """Label of each process: its system, and what distinguishes it from the others."""
    from dgbench.harness.figures.palette import looks
    from dgbench.harness.plugins import contender_title

    rows = [row for row, _ in chosen]
    names = looks([str(row.params["system"]) for row in rows if row.params.get("system")])
    differ = {
        key
        for row in rows
        for key in row.params
        if key != "system" and len({str(r.params.get(key)) for r in rows}) > 1
    }
    labels: dict[str, str] = {}
    for row in rows:
        system = row.params.get("system")
        title = "contenders in turns"
        if system:
            title = contender_title(row.paper, names[str(system)].title)
        also = [str(row.params[key]) for key in row.params if key in differ]
        label = ", ".join([title, *also])
        taken = sum(other == label or other.startswith(f"{label} #") for other in labels.values())
        labels[row.id] = f"{label} #{taken + 1}" if taken else label
    return labels


def _workload(rows: Sequence[Any]) -> str:
    """Description of the workload: the experiment and the parameters that all processes share."""
    row = rows[0]
    if row.data.get("workload"):  # an instrumented process may run a part of its cell
        return f"{row.experiment}: {row.data['workload']}"
    said = [str(v) for k, v in row.params.items() if k != "system" and isinstance(v, str)
            and all(other.params.get(k) == v for other in rows)]  # fmt: skip
    twin = " (twin)" if row.data.get("twin") else ""
    if said and row.params.get("dataset") in said:
        said[said.index(row.params["dataset"])] += twin
    return f"{row.experiment}: {', '.join(said)}" if said else row.experiment
