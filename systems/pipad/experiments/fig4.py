"""Figure 4: what PyGT computes: graph layers, recurrent layers and the rest (section 3.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from dgbench.lab.charts import chart, why_not
from dgbench.lab.evidence import ids, uses_twin
from dgbench.lab.grid import Grid
from dgbench.lab.table import Table
from dgbench.lab.verbs import instrumented
from dgbench.systems.base import Cell, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.base.race import timed
from dgbench.systems.pipad.experiments.fig3 import GRAPHS
from dgbench.systems.pipad.experiments.settings import (
    BY_NAME,
    MODEL_TITLES,
    MODELS,
    workload,
)

LAYERS = ("gnn", "rnn")


class Fig4(Grid):
    paper = "pipad"
    name = "fig4"
    title = "Figure 4: what PyGT computes"
    question = "Which part of PyGT's compute time do graph layers take, and which recurrent ones?"
    claims = (
        "pipad-fig4-gnn-dominates-compute",
        "pipad-s52-mpnn-rnn-heavy",
        "pipad-s52-evolvegcn-other-small",
    )
    reading = (
        "Forward and backward passes, from an instrumented run. Copies are left out. Rest: head "
        "and loss, the optimiser, and on a CPU whatever of a step lies between the phases. On a "
        "CPU the same layers run on other hardware, so shares are proxies."
    )
    axes = {"dataset": GRAPHS, "model": MODELS}
    fixed = {"system": "pygt"}
    timeout_s = {"full": 600, "paper": 600, None: 60}

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        return [self.cell(one, preset, phases=True) for one in self.points(preset, device)]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph = BY_NAME[str(cell.params["dataset"])]
        task = workload(graph, str(cell.params["model"]), context.preset)
        return timed("pygt", task, context)

    def figures(self) -> list[FigureSpec]:
        return [
            chart("time_split", "fig4", "Compute time of a PyGT step", split_points,
                xlabel="time of one step, ms (forward and backward)",
                average="bars and totals: means of steps"),
        ]  # fmt: skip

    def answer(self, rows: Sequence[Any]) -> str:
        found = splits(rows)
        if not found:
            return ""
        parts = []
        for model in MODELS:
            mine = [s for s in found.values() if s.model == model]
            if mine:
                shares = {k: 100 * fmean(s.share(k) for s in mine) for k in (*LAYERS, "rest")}
                said = ", ".join(f"{k.upper() if k != 'rest' else k} {v:.0f} %"
                                 for k, v in shares.items())  # fmt: skip
                parts.append(f"{MODEL_TITLES[model]}: {said}")
        device = "" if next(iter(found.values())).device == "cuda" else " (CPU proxy)"
        return f"Shares of PyGT's compute time{device}: {'; '.join(parts)}."


@dataclass(slots=True)
class ComputeTimeSplit:
    """Compute time of a step of one workload, seconds.

    Attributes:
        dataset, model, device: what ran where.
        seconds: by part: `gnn`, `rnn`, `rest`.
        total: seconds of a step without instruments, None if that process failed.
        slowdown: instrumented over plain time of a step - 1, None likewise. All are means of
            steps, as phases cannot but be: what disturbs a step is in its bar and is told.
        twin: whether the data were synthetic.
        rows: ids.
    """

    dataset: str
    model: str
    device: str
    seconds: dict[str, float]
    total: float | None
    slowdown: float | None
    twin: bool
    rows: list[str] = field(default_factory=list)

    def share(self, part: str) -> float:
        """A part of the compute time, 0 to 1."""
        return self.seconds[part] / (sum(self.seconds.values()) or 1.0)


def splits(rows: Sequence[Any]) -> dict[tuple[str, str], ComputeTimeSplit]:
    """The split of every workload whose instrumented process told its phases."""
    plain = Table.of(rows, experiment="fig4").where("step_time").by("dataset", "model")
    found = {}
    for key, table in instrumented(rows, experiment="fig4").by("dataset", "model").items():
        row, seconds = table[-1].row, table.where("phase_time").numbers("phase")
        if not any(part in seconds for part in LAYERS):
            continue
        untold = plain.get(key, Table())
        total = fmean(fmean(one.samples) for one in untold) if untold else None
        samples = table.where("step_time")[-1].samples
        steps = row.warmup + len(samples) - 1  # the first one is not in the phases
        phases = {name: spent / steps for name, spent in seconds.items()}
        # Phases may hold steps that were dropped from the samples as warm-up: they are in the bar.
        step = max(fmean(samples), sum(phases.values()))
        layers = {part: phases.pop(part, 0.0) for part in LAYERS}
        copies = phases.pop("transfer", 0.0)
        rest = sum(phases.values())
        if row.device == "cpu":  # on CUDA a step's wall time also holds the device's idle time
            rest = max(rest, step - sum(layers.values()) - copies)
        found[key] = ComputeTimeSplit(
            *key,
            device=row.device,
            seconds={**layers, "rest": rest},
            total=total,
            slowdown=step / total - 1 if total else None,
            twin=uses_twin([row]),
            rows=[row.id, *ids(untold.rows)],
        )
    return found


def split_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Stacked bars, one per model and graph; a workload without phases says why."""
    found = splits(rows)
    mine = [r for r in rows if r.experiment == "fig4"]
    points = []
    keys = dict.fromkeys((r.params["dataset"], r.params["model"]) for r in mine)
    for dataset, model in sorted(keys, key=lambda k: (MODELS.index(k[1]), BY_NAME[k[0]].small)):
        graph = BY_NAME[dataset]
        size = "small" if graph.small else "large"
        point = {
            "row": graph.title,
            "system": "pygt",
            "panel": f"{MODEL_TITLES[model]}, {size} graphs",
        }
        split = found.get((dataset, model))
        if split is None or split.total is None:  # a bar needs both of its processes
            lacking = "no phases were told" if split is None else "no run without instruments"
            reason = why_not(mine, default=f"skipped: {lacking}", dataset=dataset, model=model)
            points.append({**point, "failed": reason})
            continue
        points += [
            {
                **point,
                "phase": part,
                "seconds": seconds,
                "total": split.total,
                "slowdown": split.slowdown,
                "twin": split.twin,
                "row_ids": split.rows,
            }
            for part, seconds in split.seconds.items()
        ]
    return points
