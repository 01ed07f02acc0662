"""Average precision of GNNFlow's models against the same models on the plain path."""

from __future__ import annotations

from typing import Final

from dgbench.lab.figure_forms import Sweep
from dgbench.lab.quantities import observed
from dgbench.lab.result_checks import close
from dgbench.lab.study import FormExperiment
from dgbench.runtime.threads import threads
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.base.race import TOLERANCE
from dgbench.systems.base.stream_recount import recount_training
from dgbench.systems.gnnflow.experiments.accuracy_runs import StreamLimits, task_of
from dgbench.systems.gnnflow.experiments.settings import FORMS, MODEL_TITLES, MODELS
from dgbench.systems.gnnflow.experiments.trainer_checks import PLAIN as PLAIN_PATH
from dgbench.systems.gnnflow.experiments.trainer_checks import SCORED, largest_gap, trainer_checks

OURS, PLAIN = "GNNFlow", "reference"
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


PRECISION: Final = observed("average_precision", per=("dataset", "model"))


class Accuracy(FormExperiment):
    forms, name = FORMS, "accuracy"
    timeout_s = {"smoke": 60, "quick": 120, "full": 3600, "paper": 36000}
    headline = 100 * (PRECISION.where(setting=OURS) - PRECISION.where(setting=PLAIN))
    unit = "points"
    figure_forms = (
        Sweep(
            "accuracy", "Average precision on GNNFlow and on the plain path",
            PRECISION.where(setting=(OURS, PLAIN)), panel="{dataset}", series="setting",
            x="{model}",
            more=lambda _, dims, one: {"deviation": max(
                row.deviation.get(f"loss {dims['model']}", 0.0) for row in one.rows
            )}, gaps={"series": OURS}, xlabel="model",
            ylabel="average precision", ylog=False, sort=False,
        ),
    )  # fmt: skip

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        return [
            self.cell(
                {"dataset": name, "models": " ".join(models)}, preset, group=f"{name}/{models[0]}"
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
        return found


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
    title = MODEL_TITLES[model]
    found.checks += [
        close("losses", losses[OURS], losses[PLAIN], TOLERANCE, against=PLAIN_PATH, part=title),
        close("scores", *aps, SCORED, against=PLAIN_PATH, part=title),
        *recount_training(title, trainers[OURS], task, [(0, first)], size.initial),
        *trainer_checks({title: trainers[OURS]}, task, data),
    ]
    for trainer in trainers.values():
        trainer.close()
    found.deviation[f"loss {model}"] = largest_gap(losses[OURS], losses[PLAIN])
    found.data.update(data.describe())
