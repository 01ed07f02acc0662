"""Scores of the models of a paper, for its pages: from whole trainings, wherever they ran."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dgbench.harness.report.run import RunData
from dgbench.harness.report.site import PaperOnSite, SiteData
from dgbench.harness.trainings import whole_trainings
from dgbench.lab.quality import TITLES, initials
from dgbench.lab.quality_study import QualityStudy


@dataclass(frozen=True, slots=True)
class ModelScore:
    """A model's score on a dataset, from whole trainings, beside what trains nothing.

    Attributes:
        model, dataset: titles; no model where none was trained on the dataset.
        metric: by its initials. score: mean over seeds; NaN where nothing was trained.
        margin: half of its 95 % interval; NaN for fewer than five seeds.
        seeds: trainings. method, method_score: the best predictor that trains nothing; "" and NaN
            where none ran. below: whether it is better by the whole interval.
        run, row: where it was trained.
    """

    model: str
    dataset: str
    metric: str
    score: float
    margin: float
    seeds: int
    method: str
    method_score: float
    below: bool
    run: RunData
    row: str

    @property
    def trained(self) -> bool:
        """True if the model was trained."""
        return self.seeds > 0


@dataclass(frozen=True, slots=True)
class ModelScores:
    """Scores of the models of a paper: those that were trained first.

    Attributes:
        paper: title of the paper. measure: name of the score, a singular.
    """

    paper: str
    measure: str
    scores: list[ModelScore]

    @property
    def sentence(self) -> str:
        """Number of models that predict worse than what trains nothing, in one sentence."""
        judged = [one for one in self.scores if one.trained and not math.isnan(one.margin)]
        below = [one for one in judged if one.below]
        places = list(dict.fromkeys(one.dataset for one in judged))
        where = ", ".join(places) if len(places) <= 3 else f"{len(places)} datasets"
        if not judged:
            return f"No model of {self.paper} was trained whole over five seeds."
        if not below:
            return (
                f"None of {len(judged)} models of {self.paper} that were trained whole ({where}) "
                "predicts worse than a predictor that trains nothing."
            )
        of = f"All {len(below)}" if len(below) == len(judged) else f"{len(below)} of {len(judged)}"
        own, best = (_span([getattr(one, key) for one in below])
                     for key in ("score", "method_score"))  # fmt: skip
        return (
            f"{of} models of {self.paper} that were trained whole ({where}) predict worse than a "
            f"predictor that trains nothing ({below[0].metric} {own} against {best})."
        )


def _span(values: Sequence[float]) -> str:
    low, high = f"{min(values):.3f}", f"{max(values):.3f}"
    return low if low == high else f"{low} to {high}"


def model_scores(site: SiteData, name: str) -> list[ModelScores]:
    """Scores of a paper's models, one entry a study of its; [] where nothing was kept.

    Each training is that of the run with most seeds of it: what a model learns does not depend on
    the machine.
    """
    papers = [paper for paper in site.papers if paper.name == name]
    found = []
    for paper in papers:
        for experiment in paper.paper.experiments:
            if isinstance(experiment, QualityStudy):
                scores = _scores_of(experiment, paper)
                if scores:
                    found.append(ModelScores(paper.title, experiment.measure, scores))
    return found


def _scores_of(study: QualityStudy, paper: PaperOnSite) -> list[ModelScore]:
    trained: dict[tuple[str, str], ModelScore] = {}
    alone: dict[str, ModelScore] = {}
    for run, _ in paper.sections:
        rows = [row for row in whole_trainings(run.everything) if row.paper == paper.name]
        for dataset, model in study.trainings(rows):
            one = _score(study, rows, dataset, model, run)
            before = trained.get((dataset, model))
            if before is None or one.seeds > before.seeds:
                trained[dataset, model] = one
        for dataset in dict.fromkeys(row.params["dataset"] for row in rows):
            method, best = study.best_dictionary(rows, dataset)
            row = next(row.id for row in rows if row.params["dataset"] == dataset)
            if method:
                alone.setdefault(dataset, ModelScore(
                    "", study.dataset_title(dataset), initials(study.metric), math.nan, math.nan,
                    0, TITLES[method], best, False, run, row,
                ))  # fmt: skip
    datasets = {dataset for dataset, _ in trained}
    return [*trained.values(), *(one for name, one in alone.items() if name not in datasets)]


def _score(
    study: QualityStudy, rows: Sequence[Any], dataset: str, model: str, run: RunData
) -> ModelScore:
    scores = study.scores(rows, dataset, model)
    judged = study.quality_of(rows, dataset, model)
    spread = judged.spread if judged is not None else None
    method, best = study.best_dictionary(rows, dataset)
    return ModelScore(
        model=study.model_title(model),
        dataset=study.dataset_title(dataset),
        metric=initials(study.metric),
        score=sum(scores.values()) / len(scores),
        margin=(spread.high - spread.low) / 2 if spread is not None else math.nan,
        seeds=len(scores),
        method=TITLES.get(method, ""),
        method_score=best,
        below=judged is not None and judged.below,
        run=run,
        row=next(
            row.id
            for row in rows
            if row.params["dataset"] == dataset and row.params.get("model") == model
        ),
    )
