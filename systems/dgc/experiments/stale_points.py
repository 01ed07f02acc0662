"""Rows of stale aggregation: each run beside the one that sends everything, and means."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dgbench.lab.quality import TITLES, Quality, quality, scores_by_seed
from dgbench.lab.table import Table
from dgbench.runtime.statistics import t_quantile


@dataclass(frozen=True, slots=True)
class StaleRunPoint:
    """A run of a row.

    Attributes:
        row: the row.
        dataset, model, setting: which run.
        accuracy: share. drop: points below that without stale aggregation.
        noise: one standard error of the drop in points, both runs tested on the same.
        saved_rows, saved_bytes: percent.
    """

    row: Any
    dataset: str
    model: str
    setting: str
    accuracy: float
    drop: float
    noise: float
    saved_rows: float
    saved_bytes: float

    @property
    def twin(self) -> bool:
        return bool(self.row.data.get("twin"))


def points(
    rows: Sequence[Any], *, where: Callable[[str, str, str], bool] | None = None
) -> list[StaleRunPoint]:
    """All runs of rows that have one without stale aggregation beside them, the longest only.

    Args:
        rows: of the experiments on stale aggregation, status ok.
        where: (dataset, model, setting) -> whether to take it; None: all but `without`.
    """
    found, shorter = [], _shorter(rows)
    for row in rows:
        runs = Table.of([row]).where(("accuracy", "scored", "rows_sent", "exchanged"), method=None)
        for (dataset, model), mine in runs.by("dataset", "model").items():
            settings = mine.by("setting")
            if "without" not in settings or (row.id, dataset, model) in shorter:
                continue
            (base,) = settings.pop("without").where("accuracy", of=None).values
            found += [
                _point(row, dataset, model, setting, run, base)
                for setting, run in settings.items()
                if where is None or where(dataset, model, setting)
            ]
    return found


def _shorter(rows: Sequence[Any]) -> set[tuple[str, str, str]]:
    """(row's id, dataset, model) of runs of fewer epochs than another: where there are whole
    trainings, what a short preset trained says nothing more."""
    epochs = Table.of(rows).where("epochs").by("dataset", "model")
    return {
        (one.row.id, *names)
        for names, runs in epochs.items()
        for one in runs
        if one.value < max(runs.values)
    }


def _point(
    row: Any, dataset: str, model: str, setting: str, run: Table, base: float
) -> StaleRunPoint:
    (share,) = run.where("accuracy", of=None).values
    (tested,) = run.where("scored").values
    return StaleRunPoint(
        row=row,
        dataset=dataset,
        model=model,
        setting=setting,
        accuracy=share,
        drop=100 * (base - share),
        noise=100 * (max(base * (1 - base), 0.0) / max(1, tested)) ** 0.5,
        saved_rows=_saved(run.where("rows_sent")),
        saved_bytes=_saved(run.where("exchanged")),
    )


def _saved(sent: Table) -> float:
    """Percent less than what is sent plainly."""
    by = sent.numbers("of")
    return 100 * (1 - by[None] / by["plain"]) if by["plain"] else 0.0


@dataclass(frozen=True, slots=True)
class Mean:
    """Means over runs, in points and percent."""

    drop: float = 0.0
    saved_rows: float = 0.0
    saved_bytes: float = 0.0
    runs: int = 0
    parts: tuple[StaleRunPoint, ...] = field(default=())


def mean(found: Sequence[StaleRunPoint]) -> Mean:
    """Means of drops and savings, every run alike."""
    if not found:
        return Mean()
    n = len(found)
    return Mean(
        drop=sum(p.drop for p in found) / n,
        saved_rows=sum(p.saved_rows for p in found) / n,
        saved_bytes=sum(p.saved_bytes for p in found) / n,
        runs=n,
        parts=tuple(found),
    )


@dataclass(frozen=True, slots=True)
class OverSeeds:
    """Runs of one graph, model and setting that differ in their seed.

    Attributes:
        dataset, model, setting: which runs. parts: the runs.
        drop, low, high: points of accuracy lost, their mean and its 95 % interval: over seeds, or
            of the test's own noise where one seed ran.
        accuracy, saved_rows: means, a share and percent.
    """

    dataset: str
    model: str
    setting: str
    parts: tuple[StaleRunPoint, ...]
    drop: float
    low: float
    high: float
    accuracy: float
    saved_rows: float

    @property
    def side(self) -> int:
        """1 where accuracy is lost beyond the noise, -1 where it is gained, else 0."""
        return 1 if self.low > 0 else -1 if self.high < 0 else 0

    @property
    def base(self) -> float:
        """Mean accuracy without stale aggregation."""
        return self.accuracy + self.drop / 100


def over_seeds(found: Sequence[StaleRunPoint]) -> list[OverSeeds]:
    """Runs by graph, model and setting, in their order."""
    cells: dict[tuple[str, str, str], list[StaleRunPoint]] = {}
    for run in found:
        cells.setdefault((run.dataset, run.model, run.setting), []).append(run)
    return [_joined(tuple(runs)) for runs in cells.values()]


def _joined(runs: tuple[StaleRunPoint, ...]) -> OverSeeds:
    n, first = len(runs), runs[0]
    drop = sum(run.drop for run in runs) / n
    if n > 1:
        spread = (sum((run.drop - drop) ** 2 for run in runs) / (n - 1)) ** 0.5
        wide = t_quantile(n - 1, 0.95) * spread / n**0.5
    else:
        wide = 1.96 * first.noise
    return OverSeeds(
        dataset=first.dataset,
        model=first.model,
        setting=first.setting,
        parts=runs,
        drop=drop,
        low=drop - wide,
        high=drop + wide,
        accuracy=sum(run.accuracy for run in runs) / n,
        saved_rows=sum(run.saved_rows for run in runs) / n,
    )


def qualities(
    rows: Sequence[Any], *, where: Callable[[str, str], bool] = lambda dataset, model: True
) -> dict[tuple[str, str, str], Quality]:
    """Quality of each setting beside the run that sends every row, and beside dictionaries.

    Args:
        rows: of one experiment on stale aggregation, status ok.
        where: (dataset, model) -> whether to judge them.

    Returns:
        (dataset, model, setting) -> quality, of those with five seeds.
    """
    shorter = _shorter(rows)
    scores = Table(
        one
        for one in Table.of(rows).where("accuracy", of=None)
        if (one.row.id, one["dataset"], one["model"]) not in shorter
    )
    untrained = scores.where("accuracy", method=tuple(TITLES))
    found: dict[tuple[str, str, str], Quality] = {}
    for (dataset, model), mine in (
        scores.where("accuracy", method=None).by("dataset", "model").items()
    ):
        if not where(dataset, model):
            continue
        by_method = untrained.where("accuracy", dataset=dataset, model=model).by("method")
        dictionaries = {name: scores_by_seed(part) for name, part in by_method.items()}
        settings = {name: scores_by_seed(part) for name, part in mine.by("setting").items()}
        fresh = settings.get("without")
        for setting, own in settings.items():
            against = None if setting == "without" else fresh
            judged = quality("accuracy", own, against, dictionaries)
            if judged is not None and (against or setting == "without"):
                found[dataset, model, setting] = judged
    return found
