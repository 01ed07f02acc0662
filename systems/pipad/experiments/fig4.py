"""Figure 4: what PyGT computes: graph layers, recurrent layers and the rest (section 3.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from dgbench.lab.compare import select
from dgbench.systems.base import Cell, Experiment, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.base.race import timed
from dgbench.systems.pipad.experiments.fig3 import graphs
from dgbench.systems.pipad.experiments.settings import (
    BY_NAME,
    MODEL_TITLES,
    MODELS,
    workload,
)

LAYERS = ("gnn", "rnn")


class Fig4(Experiment):
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
        "CPU the same layers run on other hardware, so shares are analogues."
    )

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        return [
            Cell(
                paper=self.paper,
                experiment=self.name,
                params={"dataset": dataset, "model": model, "system": "pygt"},
                group=dataset,
                timeout_s=600 if preset in ("full", "paper") else 60,
                phases=True,
            )
            for dataset in graphs(preset)
            for model in MODELS
        ]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph = BY_NAME[str(cell.params["dataset"])]
        task = workload(graph, str(cell.params["model"]), context.preset)
        return timed("pygt", task, context)

    def figures(self) -> list[FigureSpec]:
        return [
            FigureSpec(
                kind="time_split",
                name="fig4",
                title="Compute time of a PyGT step",
                points=split_points,
                options={
                    "xlabel": "time of one step, ms (forward and backward)",
                    "average": "bars and totals: means of steps",
                },
            )
        ]

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
        device = "" if next(iter(found.values())).device == "cuda" else " (CPU analogue)"
        return f"Shares of PyGT's compute time{device}: {'; '.join(parts)}."


@dataclass(slots=True)
class Split:
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


def splits(rows: Sequence[Any]) -> dict[tuple[str, str], Split]:
    """The split of every workload whose instrumented process told its phases."""
    found = {}
    for row in rows:
        if row.experiment != "fig4" or row.status != "ok" or not row.instrumented:
            continue
        if not any(part in row.phases for part in LAYERS):
            continue
        where = {key: row.params[key] for key in ("dataset", "model")}
        plain = [r for r in select(rows, experiment="fig4", **where) if r.time]
        total = fmean(fmean(r.samples) for r in plain) if plain else None
        steps = row.warmup + len(row.samples) - 1  # the first one is not in the phases
        phases = {name: seconds / steps for name, seconds in row.phases.items()}
        # Phases may hold steps that were dropped from the samples as warm-up: they are in the bar.
        step = max(fmean(row.samples), sum(phases.values()))
        layers = {part: phases.pop(part, 0.0) for part in LAYERS}
        copies = phases.pop("transfer", 0.0)
        rest = sum(phases.values())
        if row.device == "cpu":  # on CUDA a step's wall time also holds the device's idle time
            rest = max(rest, step - sum(layers.values()) - copies)
        found[where["dataset"], where["model"]] = Split(
            **where,
            device=row.device,
            seconds={**layers, "rest": rest},
            total=total,
            slowdown=step / total - 1 if total else None,
            twin=bool(row.data.get("twin")),
            rows=[row.id, *(r.id for r in plain)],
        )
    return found


def _small(dataset: str) -> bool:
    return BY_NAME[dataset].small


def split_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Stacked bars, one per model and graph; a workload without phases says why."""
    found = splits(rows)
    mine = [r for r in rows if r.experiment == "fig4"]
    points = []
    keys = dict.fromkeys((r.params["dataset"], r.params["model"]) for r in mine)
    for dataset, model in sorted(keys, key=lambda key: (MODELS.index(key[1]), _small(key[0]))):
        size = "small" if _small(dataset) else "large"
        point = {
            "row": BY_NAME[dataset].title,
            "system": "pygt",
            "panel": f"{MODEL_TITLES[model]}, {size} graphs",
        }
        split = found.get((dataset, model))
        if split is None or split.total is None:  # a bar needs both of its processes
            bad = [
                r for r in mine
                if (r.params["dataset"], r.params["model"]) == (dataset, model)
                and r.status != "ok"
            ]  # fmt: skip
            lacking = "no phases were told" if split is None else "no run without instruments"
            reason = f"{bad[0].status}: {bad[0].reason}" if bad else f"skipped: {lacking}"
            points.append({**point, "failed": reason})
            continue
        for part, seconds in split.seconds.items():
            points.append(
                {
                    **point,
                    "phase": part,
                    "seconds": seconds,
                    "total": split.total,
                    "slowdown": split.slowdown,
                    "twin": split.twin,
                    "row_ids": split.rows,
                }
            )
    return points
