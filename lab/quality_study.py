"""Whole trainings of models beside predictors that train nothing: points of a figure and answer."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from dgbench.lab.arena_quality import best_dictionary
from dgbench.lab.charts import Point, failures, gap, mark, sweep
from dgbench.lab.experiment import SPEED_PRESETS, Cell, FigureSpec, Measurement, Preset
from dgbench.lab.grid import Grid
from dgbench.lab.quality import TITLES, Quality, observed_quality, score_spread, scores_by_seed
from dgbench.lab.table import Table, rows_of
from dgbench.lab.time_to_quality import PROCESSOR

TRAINED: Final = "trained"
UNTRAINED: Final = "untrained"
CONTINUED: Final = "memories that training left"
"""`of` a test that goes on from the memories of training, where others begin with new ones."""


@dataclass(frozen=True, slots=True)
class QualitySize:
    """Amount of training of a preset.

    Attributes:
        datasets: names. epochs: of a training at most, by model; none trains nothing.
        patience: epochs without a better score on validation after which a training ends.
        patient: the same of a model that has its own.
        seeds: of a model.
        events: kept of each stream, None for all.
        width: floats of hidden states.
        only: datasets of a model that is not trained on all of them.
        late: datasets whose trainings come after all others.
    """

    datasets: tuple[str, ...]
    epochs: Mapping[str, int] = field(default_factory=dict)
    patience: int = 10
    seeds: int = 5
    events: int | None = None
    width: int = 100
    only: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    late: tuple[str, ...] = ()
    patient: Mapping[str, int] = field(default_factory=dict)

    def patience_of(self, model: str) -> int:
        """Epochs without a better score after which a training of a model ends."""
        return self.patient.get(model, self.patience)

    @property
    def trainings(self) -> list[tuple[str, str]]:
        """(model, dataset) of each training in its order: models in turn, `late` datasets last."""
        place = {dataset: number for number, dataset in enumerate(self.late, 1)}
        pairs = [(m, d) for m in self.epochs for d in self.only.get(m, self.datasets)]
        return sorted(pairs, key=lambda pair: place.get(pair[1], 0))


class EpochClock:
    """Clocks of an epoch, from when it is made. What competes for a core changes the wall clock's
    time of a training of an hour, and not the processor's, which rates are formed with."""

    def __init__(self) -> None:
        self._wall, self._processor = time.perf_counter(), time.process_time()

    def observe(self, found: Measurement, share: float = 1.0, **dims: Any) -> None:
        """Observe `epoch_time` by both clocks, times `share`."""
        seconds = share * (time.perf_counter() - self._wall)
        found.observe("epoch_time", seconds, **dims)
        seconds = share * (time.process_time() - self._processor)
        found.observe("epoch_time", seconds, clock=PROCESSOR, **dims)


class BestEpoch:
    """Parameters of the epoch with the best validation score, and when a training has ended."""

    def __init__(self, model: Any, patience: int, *, less: bool = False) -> None:
        """`model`: a torch module, trained outside. `less`: a smaller score is better."""
        self._model, self._patience, self._sign = model, patience, -1 if less else 1
        self._best, self._since = -math.inf, 0
        self._kept: dict[str, Any] = {}

    @property
    def over(self) -> bool:
        """True if so many epochs brought nothing better that training ends."""
        return self._since >= self._patience

    def add(self, score: float) -> bool:
        """Take the validation score of an epoch that has just ended; True if it is the best yet.

        NaN is never better.
        """
        if self._sign * score > self._best:
            self._best, self._since = self._sign * score, 0
            self._kept = {name: v.clone() for name, v in self._model.state_dict().items()}
            return True
        self._since += 1
        return False

    def restore(self) -> None:
        """Give the model the parameters of the best epoch; those it has where none was scored."""
        if self._kept:
            self._model.load_state_dict(self._kept)


class QualityStudy(Grid):
    """Cells of part `trained` (of a model and a seed) and of part `untrained`, by dataset.

    A trained cell observes `metric` of what it predicted; an untrained one observes it by `method`.
    Scores on validation have the dimension `of`, those of the test with the memories that training
    left `of` `CONTINUED`.

    Attributes:
        metric: of the scores.
        measure: its name in sentences, a singular.
        heading: of the figure.
        sizes: by preset.
        references: model -> the one that it is compared with, for techniques that change results.
        validation: metric that is observed after each epoch; "" for `metric`.
        work: what an epoch is counted in, a plural.
    """

    device = "cpu"
    presets = (*SPEED_PRESETS, "quality")
    metric: ClassVar[str]
    measure: ClassVar[str]
    heading: ClassVar[str]
    sizes: ClassVar[Mapping[Preset, QualitySize]]
    references: ClassVar[Mapping[str, str]] = {}
    validation: ClassVar[str] = ""
    work: ClassVar[str] = "events"

    def points(self, preset: Preset, device: str) -> Iterator[dict[str, Any]]:
        size = self.sizes[preset]
        for dataset in size.datasets:
            yield {"dataset": dataset, "part": UNTRAINED}
        for model, dataset in size.trainings:
            for seed in range(1, size.seeds + 1):
                yield {"dataset": dataset, "part": TRAINED, "model": model, "seed": seed}

    def seconds(self, preset: Preset, params: Mapping[str, Any]) -> float:
        """Estimate of a cell in processor seconds."""
        raise NotImplementedError

    def dataset_title(self, name: str) -> str:
        """Title of a dataset by its card's name."""
        raise NotImplementedError

    def model_title(self, name: str) -> str:
        """Title of a model."""
        raise NotImplementedError

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        return [
            self.cell(
                params,
                preset,
                # all seeds of a training before the next one begins
                group=" ".join(params[key] for key in ("dataset", "model") if key in params),
                timeout_s=max(120.0, 6 * self.seconds(preset, params)),
            )
            for params in self.points(preset, device)
        ]

    def expected_seconds(self, cell: Cell, preset: Preset) -> float:
        return self.seconds(preset, cell.params)

    def figures(self) -> list[FigureSpec]:
        return [
            sweep(
                self.name, self.heading, self.figure_points,
                xlabel="predictor", ylabel=self.measure, ylog=False, sort=False,
            ),
            sweep(
                f"{self.name}_rate", f"{self.measure.capitalize()} by rate of training",
                self.rate_points, xlabel=f"{self.work} of an epoch per processor second",
                ylabel=self.measure, xlog=True, ylog=False, names=False,
            ),
        ]  # fmt: skip

    def answer(self, rows: Sequence[Any]) -> str:
        parts: list[str] = []
        for dataset, model in self.trainings(rows):
            title = f"{self.model_title(model)} on {self.dataset_title(dataset)}"
            mean = _mean(self._scores(rows, dataset=dataset, model=model))
            judged = self.quality_of(rows, dataset, model)
            method, best = self.best_dictionary(rows, dataset)
            words = f"{title} reaches {mean:.3f}"
            if left := self._scores(rows, CONTINUED, dataset=dataset, model=model):
                words += f" ({_mean(left):.3f} with the {CONTINUED})"
            if method:
                words += f", the best dictionary {best:.3f} ({TITLES[method]})"
            if judged and judged.reference:
                other = self.model_title(self.references[model])
                words += f", {judged.against_reference} beside {other}"
                words += f", and {judged.time}" if judged.time else ""
            parts.append(words + (": below the dictionary" if judged and judged.below else ""))
        if not parts:  # the preset `quick` trains nothing
            for dataset in dict.fromkeys(row.params["dataset"] for row in self._own(rows)):
                method, best = self.best_dictionary(rows, dataset)
                where = self.dataset_title(dataset)
                parts.append(f"{TITLES[method]} reaches {best:.3f} on {where}")
        return f"{self.measure.capitalize()}s: {'; '.join(parts)}." if parts else ""

    def best_dictionary(self, rows: Sequence[Any], dataset: str) -> tuple[str, float]:
        """The best predictor that trains nothing on a dataset, and its score; "" where none ran."""
        return best_dictionary(self.metric, self._own(rows), dataset) or ("", math.nan)

    def quality_of(self, rows: Sequence[Any], dataset: str, model: str) -> Quality | None:
        """Quality of a model on a dataset beside dictionaries; None for fewer than five seeds."""
        other = self.references.get(model)
        read = observed_quality(
            self.metric,
            contender={"model": model},
            reference={"model": other} if other else None,
            experiment=self.name,
            validation=self.validation,
        )
        return read(rows, {"dataset": dataset})

    def figure_points(self, rows: Sequence[Any]) -> list[Point]:
        """Points of `sweep`: a panel for each dataset, dictionaries beside models."""
        found: list[Point] = []
        own = self._own(rows)
        for row in own:
            if row.params["part"] == UNTRAINED:
                panel = self.dataset_title(row.params["dataset"])
                scores = (
                    Table.of([row]).where(self.metric, statistic=None, of=None).numbers("method")
                )
                found += [
                    mark(row, panel=panel, series="no training", x=TITLES[name], y=value)
                    for name, value in scores.items()
                ]
        for dataset, model in self.trainings(rows):
            mine = Table.of(own).where(self.metric, dataset=dataset, model=model)
            judged = self.quality_of(rows, dataset, model)
            at = {
                "panel": self.dataset_title(dataset),
                "x": self.model_title(model),
                "row_ids": [row.id for row in mine.rows],
            }
            scores = _over_seeds(self._scores(rows, dataset=dataset, model=model))
            below = {"below": judged.detail} if judged and judged.below else {}
            found.append({**at, "series": "trained", **scores, **below})
            if left := self._scores(rows, CONTINUED, dataset=dataset, model=model):
                series = f"tested with the {CONTINUED}"
                found.append({**at, "series": series, **_over_seeds(left)})
        return found + [self._gap(row) for row in failures(rows, self.name)]

    def rate_points(self, rows: Sequence[Any]) -> list[Point]:
        """Points of `sweep`: score against rate of training, the best dictionary as a line."""
        found: list[Point] = []
        for dataset, model in self.trainings(rows):
            mine = Table.of(self._own(rows)).where(None, dataset=dataset, model=model)
            times = mine.where("epoch_time", clock=PROCESSOR).values
            judged = self.quality_of(rows, dataset, model)
            if times and sum(times) > 0:
                found.append(
                    {
                        "panel": self.dataset_title(dataset),
                        "series": self.model_title(model),
                        "x": float(f"{self.epoch_work(dataset) * len(times) / sum(times):.2g}"),
                        **_over_seeds(self._scores(rows, dataset=dataset, model=model)),
                        "row_ids": list(dict.fromkeys(row.id for row in mine.rows)),
                        **({"below": judged.detail} if judged and judged.below else {}),
                    }
                )
        for row in self._own(rows):
            if row.params["part"] != UNTRAINED:
                continue
            dataset = row.params["dataset"]
            panel = self.dataset_title(dataset)
            rates = [point["x"] for point in found if point["panel"] == panel]
            method, best = self.best_dictionary(rows, dataset)
            if method and rates:
                ends = dict.fromkeys((min(rates), max(rates)))
                series = f"no training: {TITLES[method]}"
                found += [mark(row, panel=panel, series=series, x=end, y=best) for end in ends]
        return found

    def epoch_work(self, dataset: str) -> int:
        """Units of `work` that an epoch trains on."""
        raise NotImplementedError

    def _own(self, rows: Sequence[Any]) -> list[Any]:
        """Rows of this experiment; whole trainings alone where there are any."""
        own = rows_of(rows, experiment=self.name)
        return [row for row in own if row.preset == "quality"] or own

    def _gap(self, row: Any) -> Point:
        model = row.params.get("model")
        return gap(
            row,
            panel=self.dataset_title(row.params["dataset"]),
            series="trained" if model else "no training",
            x=self.model_title(model) if model else "dictionaries",
        )

    def _scores(self, rows: Sequence[Any], of: str | None = None, **where: Any) -> dict[Any, float]:
        own = self._own(rows)
        return scores_by_seed(Table.of(own).where(self.metric, statistic=None, of=of, **where))

    def trainings(self, rows: Sequence[Any]) -> list[tuple[str, str]]:
        """(dataset, model) of rows that trained, each once."""
        own = [r for r in self._own(rows) if r.params["part"] == TRAINED]
        return list(dict.fromkeys((row.params["dataset"], row.params["model"]) for row in own))

    def scores(self, rows: Sequence[Any], dataset: str, model: str) -> dict[Any, float]:
        """Scores of a model on a dataset by seed."""
        return self._scores(rows, dataset=dataset, model=model)


def _over_seeds(scores: Mapping[Any, float]) -> Point:
    """The mean of scores as a mark of `sweep`, with its interval where there are enough seeds."""
    spread = score_spread(scores)
    ends = {"low": spread.low, "high": spread.high} if spread else {}
    return {"y": _mean(scores), **ends}


def _mean(scores: Mapping[Any, float]) -> float:
    return sum(scores.values()) / len(scores)
