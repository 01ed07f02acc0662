"""Quality of the models that the arena's tasks train, from whole trainings that were kept."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dgbench.lab.arena import ArenaRace, QualitySource
from dgbench.lab.quality import ERRORS, TITLES, Quality, observed_quality
from dgbench.lab.table import Table
from dgbench.lab.time_to_quality import VALIDATION, Curve, target_of

WHOLE = "quality"
"""Preset of whole trainings."""


@dataclass(frozen=True, slots=True)
class TrainedQuality:
    """Quality of the model of a race, and the run that trained it.

    Attributes:
        quality: of its trainings; None where there are too few.
        reason: why there is none, else "".
        run: id of the run that trained.
        epochs: median over seeds until the score on validation is that of the worst seed at its
            best; None where trainings tell no epochs.
        metric, method, method_score: the best predictor that trains nothing on the dataset, where
            nothing was trained; "" and NaN where none ran.
    """

    quality: Quality | None
    reason: str = ""
    run: str = ""
    epochs: int | None = None
    metric: str = ""
    method: str = ""
    method_score: float = math.nan

    @property
    def below(self) -> bool:
        """True if a predictor that trains nothing is better."""
        return self.quality is not None and self.quality.below


def trained_quality(race: ArenaRace, rows: Iterable[Any]) -> TrainedQuality | None:
    """Quality of the model of a race, from whole trainings on the same dataset and real data.

    Args:
        race: of a task. rows: of all runs at hand; the run with most trainings is read.

    Returns:
        None where the task trains nothing or names no model.
    """
    source = race.task.trained
    workload = {name: race.case.settings.get(name) for name in ("dataset", "model")}
    if source is None and race.task.untrained:
        return TrainedQuality(None, race.task.untrained)
    if source is None or None in workload.values():
        return None
    if race.twin:
        return TrainedQuality(None, "the race was on a twin, which no training is scored on")
    runs: dict[str, list[Any]] = {}
    for row in rows:
        if _trained_for(row, source, workload["dataset"]):
            runs.setdefault(row.run, []).append(row)
    # Dictionaries are the same in every run; one that trained a single group has none of its own.
    untrained: list[Any] = []
    for mine in runs.values():
        untrained = [row for row in mine if "model" not in row.params] or untrained
    for run, mine in runs.items():
        if all("model" in row.params for row in mine):
            runs[run] = [*mine, *untrained]
    told = [(_of_run(source, mine, workload), run) for run, mine in runs.items()]
    known = [(found, run) for found, run in told if found.quality is not None]
    if known:
        found, run = known[-1]
        return TrainedQuality(found.quality, run=run, epochs=found.epochs)
    some = any(
        row.params.get("model") == workload["model"] for mine in runs.values() for row in mine
    )
    why = "fewer than five seeds were trained" if some else "no whole training of it was kept"
    for mine in runs.values():
        if best := best_dictionary(source.metric, mine, workload["dataset"]):
            return TrainedQuality(None, why, "", None, source.metric, *best)
    return TrainedQuality(None, why)


def best_dictionary(metric: str, rows: Sequence[Any], dataset: Any) -> tuple[str, float] | None:
    """The best predictor that trains nothing on a dataset, and its score; None where none ran."""
    scored = Table.of(rows).where(
        metric, method=tuple(TITLES), statistic=None, of=None, dataset=dataset
    )
    means = {name: sum(part.values) / len(part) for name, part in scored.by("method").items()}
    if not means:
        return None
    name = (min if metric in ERRORS else max)(means, key=means.__getitem__)
    return name, means[name]


def _trained_for(row: Any, source: QualitySource, dataset: Any) -> bool:
    return (
        row.paper == source.paper
        and row.experiment == source.experiment
        and row.preset == WHOLE
        and row.status == "ok"
        and row.params.get("dataset") == dataset
    )


def _of_run(
    source: QualitySource, rows: Sequence[Any], workload: Mapping[str, Any]
) -> TrainedQuality:
    read = observed_quality(
        source.metric, contender={}, experiment=source.experiment, validation=source.validation
    )
    found = read(rows, workload)
    scored = Table.of(rows).where(source.validation or source.metric, of=VALIDATION, **workload)
    sign = -1 if found is not None and found.less else 1
    curves: dict[Any, Curve] = {}
    for seed, part in scored.by("seed").items():
        scores = [float(score) for _, score in sorted(part.numbers("epoch").items())]
        # An epoch counts as one: at another system's rate it takes other seconds.
        curves[seed] = Curve((1.0,) * len(scores), tuple(scores), sign)
    target = target_of(curves)
    if found is None or target is None:
        return TrainedQuality(found)
    reached = sorted(curve.seconds_to(target) or math.inf for curve in curves.values())
    middle = reached[len(reached) // 2]
    return TrainedQuality(found, epochs=int(middle) if math.isfinite(middle) else None)
