"""Average precision of GNNFlow's models against the same models on the plain path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from dgbench.lab.charts import failures, gap
from dgbench.lab.result_checks import close
from dgbench.lab.table import number, rows_of
from dgbench.runtime.threads import threads
from dgbench.systems.base import Cell, Experiment, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.base.race import TOLERANCE
from dgbench.systems.base.stream_recount import recount_training
from dgbench.systems.gnnflow.experiments.accuracy_runs import READING, StreamLimits, task_of
from dgbench.systems.gnnflow.experiments.settings import MODEL_TITLES, MODELS, graph_title
from dgbench.systems.gnnflow.experiments.trainer_checks import PLAIN as PLAIN_PATH
from dgbench.systems.gnnflow.experiments.trainer_checks import SCORED, trainer_checks

NAME: Final = "accuracy"
OURS, PLAIN = "GNNFlow", "reference"
BAR: Final = 1.0
"""Points of average precision between the two that no reader should mind."""
SIZES: Final[dict[Preset, StreamLimits]] = {
    "smoke": StreamLimits(
        ("wikipedia",), 1, {"tgn": 300, "tgat": 200, "dysat": 200}, 1, 1, 8, 3, 1
    ),
    "quick": StreamLimits(
        ("wikipedia",), 1, {"tgn": 2400, "tgat": 900, "dysat": 500}, 10, 2, 32, 5, 1
    ),
    "full": StreamLimits(
        ("wikipedia", "college-msg", "enron"), 1,
        {"tgn": 20_000, "tgat": 10_000, "dysat": 10_000}, 30, 3, 64, 10,
    ),
    "paper": StreamLimits(
        ("wikipedia", "college-msg", "enron"), 1,
        {"tgn": None, "tgat": None, "dysat": None}, 100, 3, None, None, lr=1e-4,
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
            self.cell_of(
                {"dataset": name, "models": " ".join(models)},
                f"{name}/{models[0]}",
                timeout_s={"smoke": 60, "quick": 120, "full": 3600, "paper": 36000}[preset],
            )
            for name in SIZES[preset].graphs
            # Where runs are short, starting a process for each of them would take as long.
            for models in ([MODELS] if preset in ("smoke", "quick") else [(m,) for m in MODELS])
        ]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        found = Measurement()
        with threads(SIZES[context.preset].threads or context.threads):
            for model in str(cell.params["models"]).split():
                _compare(str(cell.params["dataset"]), model, context, found)
        found.observe("epochs", SIZES[context.preset].initial)
        return found

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
        found = scored(rows)
        if not found:
            return ""
        worst = max(abs(points(*one)) for one in found)
        words = ", ".join(
            f"{MODEL_TITLES[model]} on {graph_title(row.params['dataset'])} "
            f"{precision(row, OURS, model):.3f}"
            for row, model in found
        )
        verdict = "reached" if worst <= BAR else "missed"
        return (
            f"Asked for is average precision within {BAR:.0f} point of the reference, found are "
            f"{worst:.2g} points at most: {verdict}. {words}."
        )


def _compare(name: str, model: str, context: RunContext, found: Measurement) -> None:
    """Train a model on GNNFlow and on the plain path, and add what came out to a measurement."""
    from dgbench.systems.base.plain_stream import PlainStream
    from dgbench.systems.base.stream import StreamTrainer, load_stream
    from dgbench.systems.gnnflow.system import GnnflowSystem

    size = SIZES[context.preset]
    task = task_of(name, model, 1, size, context.preset)
    data = load_stream(task)
    trainers = {
        OURS: GnnflowSystem().open(task, device=context.device, data=data),
        PLAIN: StreamTrainer(task, data, PlainStream(task, data), device=context.device),
    }
    end = len(data.events)
    first, last = round(0.7 * end), round(0.85 * end)
    losses: dict[str, list[float]] = {}
    aps: list[float] = []
    for path, trainer in trainers.items():
        trainer.prepare()
        losses[path] = []
        for epoch in range(size.initial):
            trainer.reset_memory()
            losses[path].append(trainer.train(0, first, epoch=epoch))
        aps.append(trainer.evaluate_range(first, last).ap)
        found.observe("average_precision", aps[-1], setting=path, model=model)
        found.observe("loss", losses[path][-1], setting=path, model=model)
    title = MODEL_TITLES[model]
    found.checks += [
        close("losses", losses[OURS], losses[PLAIN], TOLERANCE, against=PLAIN_PATH, part=title),
        close("scores", *aps, SCORED, against=PLAIN_PATH, part=title),
        *recount_training(title, trainers[OURS], task, [(0, first)], size.initial),
        *trainer_checks({title: trainers[OURS]}, task, data),
    ]
    for trainer in trainers.values():
        trainer.close()
    gap = max(abs(a - b) / abs(b) for a, b in zip(losses[OURS], losses[PLAIN], strict=True))
    found.deviation[f"loss {model}"] = gap
    found.observe("events", end, model=model)
    found.observe("events", last - first, model=model, of="scored")
    found.observe("batch_size", task.batch, model=model)
    found.data.update(data.describe())


def scored(rows: Sequence[Any]) -> list[tuple[Any, str]]:
    """Rows that ran, with each of their models."""
    ok = rows_of(rows, experiment=NAME)
    return [(row, model) for row in ok for model in row.params["models"].split()]


def points(row: Any, model: str) -> float:
    """Points of average precision over the reference."""
    return 100 * (precision(row, OURS, model) - precision(row, PLAIN, model))


def precision(row: Any, path: str, model: str) -> float:
    """Average precision of a model on one of the paths."""
    return number(row, "average_precision", setting=path, model=model)


def figure_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Points of `sweep`: a panel for each graph, a mark for each path."""
    found = [
        {
            "panel": graph_title(row.params["dataset"]),
            "series": path,
            "x": MODEL_TITLES[model],
            "y": precision(row, path, model),
            "row_ids": [row.id],
            "deviation": row.deviation.get(f"loss {model}", 0.0),
        }
        for row, model in scored(rows)
        for path in (OURS, PLAIN)
    ]
    return found + [
        gap(row, panel=graph_title(row.params["dataset"]), series=OURS, x=MODEL_TITLES[model])
        for row in failures(rows, NAME)
        for model in row.params["models"].split()
    ]
