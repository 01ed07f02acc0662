"""Whole trainings on snapshots beside predictors that train nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from dgbench.lab.quality_study import UNTRAINED, BestEpoch, EpochClock, QualitySize, QualityStudy
from dgbench.lab.result_checks import ResultCheck, close
from dgbench.runtime.threads import threads
from dgbench.systems.base import Cell, Measurement, Preset, RunContext, Workload
from dgbench.systems.pipad.experiments.settings import BY_NAME, MODEL_TITLES, MODELS, workload

if TYPE_CHECKING:
    from dgbench.datasets import SnapshotSequence
    from dgbench.systems.base.snapshot_baselines import RegressionErrors
    from dgbench.systems.base.training import FrameTrainer

SHARES: Final = (0.7, 0.85)
"""Ends of training and of validation, as shares of the frames."""
STEP_SECONDS: Final[Mapping[str, tuple[float, float, float]]] = {
    "covid19-england": (0.007, 0.007, 0.004),
    "pems08": (0.004, 0.008, 0.002),
    "chickenpox": (0.003, 0.003, 0.002),
    "twitter-tennis-rg17": (0.008, 0.040, 0.007),
    "bitcoin-otc": (0.030, 0.173, 0.033),
}
"""Processor seconds of a step by model, in the order of `MODELS`. For estimates only."""
FRAMES: Final = {
    "covid19-england": 45, "pems08": 74, "chickenpox": 505, "twitter-tennis-rg17": 104,
    "bitcoin-otc": 121,
}  # fmt: skip
LARGE: Final = ("twitter-tennis-rg17", "bitcoin-otc")
FEW: Final = 20
"""Epochs on the largest graph at most."""
WHOLE: Final = QualitySize(tuple(FRAMES), dict.fromkeys(MODELS, 60), late=LARGE)
SIZES: Final[Mapping[Preset, QualitySize]] = {
    "smoke": QualitySize(("covid19-england",), dict.fromkeys(MODELS, 1), seeds=1),
    "quick": QualitySize(("covid19-england", "pems08")),
    "full": QualitySize(("covid19-england", "pems08"), dict.fromkeys(MODELS, 50)),
    "paper": WHOLE,
    "quality": WHOLE,
}
"""Processor time on one core at most: a quarter of an hour in `full`, two hours in `quality`."""


class SnapshotQuality(QualityStudy):
    paper = "pipad"
    name = "quality"
    title = "Quality beside predictors that train nothing"
    metric = "mean_squared_error"
    validation = "loss"
    work = "frames"
    measure = "mean squared error"
    heading = "Mean squared error of trained models and of predictors that train nothing"
    own_data = "its trainings are sized for the graphs that it names"
    question = "Do the models that PiPAD trains predict better than the last value?"
    reading = (
        "The task of Figure 10 on all snapshots: a frame of 16 predicts the value of every vertex "
        "in the snapshot after it. The first 70 % of the frames are trained on in order, the "
        "parameters of the epoch with the least error on the next 15 % are kept, and the last 15 % "
        "are scored. Values are standardised over all snapshots by who published or prepared the "
        "data, for all predictors alike; on bitcoin-otc they are logarithms of in-degrees, as the "
        "paper names no task. "
        f"A training ends after {WHOLE.patience} epochs without a smaller error on validation."
    )

    sizes = SIZES

    def seconds(self, preset: Preset, params: Mapping[str, Any]) -> float:
        if params["part"] == UNTRAINED:
            return 2.0
        dataset = params["dataset"]
        step = STEP_SECONDS[dataset][MODELS.index(params["model"])]
        return 5.0 + step * SHARES[1] * FRAMES[dataset] * _epochs(preset, params)

    def dataset_title(self, name: str) -> str:
        return BY_NAME.title(name)

    def epoch_work(self, dataset: str) -> int:
        return _ends(FRAMES[dataset])[0]

    def model_title(self, name: str) -> str:
        return MODEL_TITLES[name]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        found = Measurement()
        with threads(1):  # at these widths a second thread costs more than it does
            if cell.params["part"] == UNTRAINED:
                _score_baselines(cell.params, found)
            else:
                _train(cell.params, context, found)
        return found


def _epochs(preset: Preset, params: Mapping[str, Any]) -> int:
    epochs = SIZES[preset].epochs[params["model"]]
    return min(FEW, epochs) if params["dataset"] == LARGE[-1] else epochs


def _task(params: Mapping[str, Any]) -> Workload:
    from msgspec.structs import replace

    model = str(params.get("model", MODELS[0]))
    task = workload(BY_NAME[str(params["dataset"])], model, "paper")
    return replace(task, source="real", seed=int(params.get("seed", 1)))


def _ends(frames: int) -> tuple[int, int]:
    """First frame of validation and of the test."""
    first, last = (round(share * frames) for share in SHARES)
    return first, last


def _observe(found: Measurement, errors: RegressionErrors, **dims: Any) -> None:
    found.observe("mean_squared_error", errors.squared, **dims)
    found.observe("mean_absolute_error", errors.absolute, **dims)


def _score_baselines(params: Mapping[str, Any], found: Measurement) -> None:
    from dgbench.systems.base.data import describe, load
    from dgbench.systems.base.snapshot_baselines import SNAPSHOT_BASELINES, regression_errors

    task = _task(params)
    data = load(task)
    targets, last = data.targets, len(data)
    first = task.frame + _ends(last - task.frame)[1]
    for name, predict in SNAPSHOT_BASELINES.items():
        predicted = predict(targets, first, last)
        _observe(found, regression_errors(predicted, targets[first:last]), method=name)
        found.checks.append(_loop_check(name, predicted, targets, first))
    found.deviation["predictions"] = max(check.gap for check in found.checks)
    found.data.update(describe(data))


def _loop_check(name: str, predicted: Tensor, targets: Tensor, first: int) -> ResultCheck:
    """Check of the first and the last snapshot's predictions by a loop over vertices."""
    found, wanted = [], []
    for place in (0, len(predicted) - 1):
        past = targets[: first + place].double().t().tolist()
        of_vertex = {"last_value": lambda v: v[-1], "historical_mean": lambda v: sum(v) / len(v)}
        wanted.append(torch.tensor([of_vertex[name](v) for v in past], dtype=torch.float64))
        found.append(predicted[place])
    return close("predictions", found, wanted, 1e-9, against="loop over the past", part=name)


def _train(params: Mapping[str, Any], context: RunContext, found: Measurement) -> None:
    from dgbench.systems.base.data import describe
    from dgbench.systems.base.race import checked_after, deviation_of, open_trainer
    from dgbench.systems.base.registry import get_system

    task = _task(params)
    system = get_system("pipad")
    trainer: Any = open_trainer(system, task, context, None)
    trainer.prepare()
    first, last = _ends(trainer.num_frames)
    best = BestEpoch(trainer.model, SIZES[context.preset].patience, less=True)
    for epoch in range(_epochs(context.preset, params)):
        clock = EpochClock()
        losses = [trainer.step(frame) for frame in range(first)]
        clock.observe(found, epoch=epoch)
        found.observe("loss", sum(losses) / first, epoch=epoch)
        error = _errors(trainer, trainer.data, first, last).squared
        found.observe("loss", error, epoch=epoch, of="validation")
        best.add(error)
        if best.over:
            break
    best.restore()
    _observe(found, _errors(trainer, trainer.data, last, trainer.num_frames))
    found.data.update(describe(trainer.data))
    found.checks += checked_after(system, trainer, task, context)
    found.deviation.update(deviation_of(found.checks))
    trainer.close()


@torch.no_grad()
def _errors(
    trainer: FrameTrainer, data: SnapshotSequence, first: int, last: int
) -> RegressionErrors:
    """Errors of frames first .. last - 1, each of which predicts the snapshot after it."""
    from dgbench.systems.base.snapshot_baselines import regression_errors

    frame, head = trainer.workload.frame, trainer.model.head
    predicted = [
        head(trainer.evaluate(number).to(trainer.device)).cpu() for number in range(first, last)
    ]
    return regression_errors(torch.stack(predicted), data.targets[first + frame : last + frame])
