"""Average precision of GNNFlow's models against the same models on the plain path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from dgbench.runtime.errors import CheckFailed
from dgbench.systems.base import Cell, Experiment, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.base.compare import select
from dgbench.systems.base.race import TOLERANCE
from dgbench.systems.gnnflow.experiments.accuracy_runs import READING, Size, task_of
from dgbench.systems.gnnflow.experiments.common import (
    failed,
    failures,
    graph_title,
    model_title,
    threads,
)
from dgbench.systems.gnnflow.experiments.settings import MODELS

NAME: Final = "accuracy"
OURS, PLAIN = "GNNFlow", "reference"
BAR: Final = 1.0
"""Points of average precision between the two that no reader should mind."""
SIZES: Final[dict[Preset, Size]] = {
    "smoke": Size(("wikipedia",), 1, {"tgn": 300, "tgat": 200, "dysat": 200}, 1, 1, 8, 3, 1),
    "quick": Size(("wikipedia",), 1, {"tgn": 5000, "tgat": 2000, "dysat": 1000}, 10, 3, 32, 5, 1),
    "full": Size(
        ("wikipedia", "college-msg", "enron"), 1,
        {"tgn": 20_000, "tgat": 10_000, "dysat": 10_000}, 30, 3, 64, 10,
    ),
    "paper": Size(
        ("wikipedia", "college-msg", "enron"), 1,
        {"tgn": None, "tgat": None, "dysat": None}, 100, 3, None, None,
    ),
}  # fmt: skip


class Accuracy(Experiment):
    paper = "gnnflow"
    name = NAME
    title = "Accuracy against the plain path"
    question = "Do blocks, samplers and caches leave average precision as it is?"
    reading = READING + (
        " 70 % of the events are trained on, the next 15 % scored; the reference samples root by "
        "root from sorted arrays and gathers from tables."
    )

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        return [
            Cell(
                paper=self.paper,
                experiment=NAME,
                params={"dataset": name, "model": model},
                group=f"{name}/{model}",
                timeout_s={"smoke": 60, "quick": 120, "full": 3600, "paper": 36000}[preset],
            )
            for name in SIZES[preset].graphs
            for model in MODELS
        ]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        with threads(SIZES[context.preset].threads or context.threads):
            return self._run(cell, context)

    def _run(self, cell: Cell, context: RunContext) -> Measurement:
        from dgbench.systems.base.plain_stream import PlainStream
        from dgbench.systems.base.stream import StreamTrainer, load_stream
        from dgbench.systems.gnnflow.system import GnnflowSystem

        size = SIZES[context.preset]
        task = task_of(
            str(cell.params["dataset"]), str(cell.params["model"]), context.preset, size, 1
        )
        data = load_stream(task)
        trainers = {
            OURS: GnnflowSystem().open(task, device=context.device, data=data),
            PLAIN: StreamTrainer(task, data, PlainStream(task, data), device=context.device),
        }
        end = len(data.events)
        first, last = round(0.7 * end), round(0.85 * end)
        losses: dict[str, list[float]] = {}
        values: dict[str, float] = {}
        for name, trainer in trainers.items():
            trainer.prepare()
            losses[name] = []
            for epoch in range(size.initial):
                trainer.reset_memory()
                losses[name].append(trainer.train(0, first, epoch=epoch))
            values[f"ap {name}"] = trainer.evaluate_range(first, last).ap
            values[f"loss {name}"] = losses[name][-1]
            trainer.close()
        gap = max(abs(a - b) / abs(b) for a, b in zip(losses[OURS], losses[PLAIN], strict=True))
        if not gap <= TOLERANCE:
            raise CheckFailed(
                f"losses part by {gap:.2g} from the reference, allowed are {TOLERANCE:.2g}",
                deviation={"loss": gap},
            )
        return Measurement(
            values=values,
            counters={"events": end, "scored": last - first, "epochs": size.initial,
                      "batch": task.batch},
            deviation={"loss": gap},
            data=data.describe(),
        )  # fmt: skip

    def figures(self) -> list[FigureSpec]:
        return [
            FigureSpec(
                kind="sweep",
                name=NAME,
                title="Average precision on GNNFlow and on the plain path",
                points=figure_points,
                options={"xlabel": "model", "ylabel": "average precision", "ylog": False,
                         "sort": False},
            )
        ]  # fmt: skip

    def answer(self, rows: Sequence[Any]) -> str:
        found = select(rows, experiment=NAME)
        if not found:
            return ""
        worst = max(abs(points(row)) for row in found)
        words = ", ".join(
            f"{model_title(row)} on {graph_title(row.params['dataset'])} "
            f"{row.values[f'ap {OURS}']:.3f}"
            for row in found
        )
        verdict = "reached" if worst <= BAR else "missed"
        return (
            f"Asked for is average precision within {BAR:.0f} point of the reference, found are "
            f"{worst:.2g} points at most: {verdict}. {words}."
        )


def points(row: Any) -> float:
    """Points of average precision over the reference."""
    return 100 * (row.values[f"ap {OURS}"] - row.values[f"ap {PLAIN}"])


def figure_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Points of `sweep`: a panel for each graph, a mark for each path."""
    found = [
        {
            "panel": graph_title(row.params["dataset"]),
            "series": name,
            "x": model_title(row),
            "y": row.values[f"ap {name}"],
            "row_ids": [row.id],
            "deviation": max(row.deviation.values(), default=0.0),
        }
        for row in select(rows, experiment=NAME)
        for name in (OURS, PLAIN)
    ]
    return found + [
        {"panel": graph_title(r.params["dataset"]), "series": OURS, "x": model_title(r),
         "failed": failed(r), "row_ids": [r.id]}
        for r in failures(rows, NAME)
    ]  # fmt: skip
