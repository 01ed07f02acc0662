"""Epochs that Figures 5 and 7 project to the paper's cluster, for claims and figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import median
from typing import Any

from dgbench.lab import rule_combinations as combine
from dgbench.lab.estimates import Estimate, EvaluationContext
from dgbench.lab.figure_forms import FigureForm
from dgbench.lab.outcomes import Rule
from dgbench.lab.quantities import MeasuredQuantity, computed, observed
from dgbench.lab.table import Entry, number, rows_of
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.esdg.experiments import projection
from dgbench.systems.esdg.experiments.parts import costs_of
from dgbench.systems.esdg.experiments.settings import RANKS

Epochs = Mapping[int, projection.ProjectedSnapshotEpoch]
SPEEDS = {"bandwidth": "by memory bandwidth", "printed": "by Table 2's seconds"}
"""Source of the speed of the paper's GPU, in words."""
BAND = "median errors of computing and exchanges, by their share of the epoch"
LINK_ERROR = observed(
    "relative_error", per="statistic", experiment="fig5", part="links", of="links"
)
"""Largest and median error of the model of links, on this machine's."""


def job_of(row: Any, **fields: Any) -> projection.ProjectedModel:
    """Projected model of a row of Figure 5's shares: its graph at the size of Table 1."""
    plain = number(row, "estimate", of="snapshot")
    job = projection.ProjectedModel(
        model=str(row.params["model"]),
        steps=number(row, "snapshots"),
        nodes=number(row, "vertices"),
        costs=costs_of(row),
        plain_bytes=plain,
        difference_bytes=plain * number(row, "portion", of="differences"),
        window=number(row, "smoothing_length"),
    )
    return replace(job, **fields)


def share_rows(rows: Sequence[Any], experiment: str = "fig5") -> dict[tuple[str, str], Any]:
    """The row of shares by (dataset, model); cells of shares have one process."""
    return {
        (row.params["dataset"], row.params["model"]): row
        for row in rows_of(rows, experiment=experiment, part="shares")
    }


def speeds(rows: Sequence[Any], experiment: str = "fig5") -> dict[str, dict[str, float]]:
    """Speed of a V100 relative to a thread of this machine, by `SPEEDS` and model.

    `bandwidth` is from the rate at which the experiment's rows copied; `printed` from Figure 5.
    """
    shares = share_rows(rows, experiment)
    if not shares:
        return {}
    rate = median(number(row, "bandwidth", of="copy") for row in shares.values())
    by_model = {"bandwidth": {model: projection.V100_BYTES_PER_S / rate for _, model in shares}}
    for (dataset, model), row in share_rows(rows).items():
        if dataset == "amlsim":
            speed = projection.printed_speed(job_of(row, steps=projection.TABLE2_STEPS))
            if speed is not None:
                by_model.setdefault("printed", {})[model] = speed
    return by_model


@lru_cache(maxsize=256)
def project(jobs: tuple[tuple[int, projection.ProjectedModel], ...], speed: float) -> Epochs:
    """Epochs by P on the paper's cluster, where memory suffices."""
    epochs = {}
    for p, job in jobs:
        with suppress(InvalidInputError):
            epochs[p] = projection.snapshot_epoch(job, p, projection.v100_cluster(p, speed))
    return epochs


@dataclass(frozen=True)
class ProjectedNumber(Estimate):
    """A number of a projected epoch, with the epoch."""

    epoch: projection.ProjectedSnapshotEpoch | None = None


def of_shares(
    numbers: Callable[[EvaluationContext], Iterator[tuple[dict[str, Any], Estimate]]], *per: str
) -> MeasuredQuantity:
    """Numbers that follow from rows of shares; those that failed are gaps in a figure."""

    def failed(entries: list[Entry], context: EvaluationContext) -> list[Entry]:
        return [one for one in entries if one.row.status != "ok"]

    return computed(numbers, per=per).where(part="shares").keep(failed)


@dataclass(frozen=True)
class ProjectedLines:
    """Projected epochs by P, a line for each row of shares and each of `SPEEDS`.

    Attributes:
        experiment: of the shares. job: (row, P) -> what is projected. dims: of a line.
    """

    experiment: str
    job: Callable[[Any, int], projection.ProjectedModel]
    dims: tuple[str, ...]

    def lines(self, rows: Sequence[Any]) -> Iterator[tuple[dict[str, Any], Any, Epochs]]:
        """Dimensions, row and epochs of each line."""
        for scaled_by, by_model in speeds(rows, self.experiment).items():
            for (dataset, model), row in share_rows(rows, self.experiment).items():
                if model in by_model:
                    jobs = tuple((p, self.job(row, p)) for p in RANKS)
                    dims = {"scaled_by": scaled_by, "dataset": dataset, "model": model}
                    yield dims, row, project(jobs, by_model[model])

    def number(self, value: Callable[[Epochs], float], **where: Any) -> MeasuredQuantity:
        """A number of each line."""
        return computed(
            lambda context: (
                (dims, Estimate(value(epochs), rows=(row,)))
                for dims, row, epochs in self.lines(context.rows)
            ),
            per=self.dims,
        ).where(**where)

    def by_ranks(self, values: Callable[[Epochs], Mapping[int, float]]) -> MeasuredQuantity:
        """Numbers of each line at every P; zeros are left out."""

        def numbers(context: EvaluationContext) -> Iterator[tuple[dict[str, Any], Estimate]]:
            for dims, row, epochs in self.lines(context.rows):
                for p, value in values(epochs).items():
                    if value:
                        projected = ProjectedNumber(value, rows=(row,), epoch=epochs[p])
                        yield {**dims, "part": "shares", "ranks": p}, projected

        return of_shares(numbers, *self.dims, "ranks")


def by_speed(rule: Callable[[Mapping[str, str]], Rule]) -> Rule:
    """The claim by each of `SPEEDS`, of which the rule is told as a dimension."""
    each = {
        title: combine.by_model(rule({"scaled_by": name}), "alpha-beta model")
        for name, title in SPEEDS.items()
    }
    return combine.shown_beside(
        combine.interpretations("how fast the paper's GPU is can be taken from two numbers", each),
        {"median error of such a model on links here": LINK_ERROR.where(statistic="median")}, "",
    )  # fmt: skip


def own_cores(entries: list[Entry], context: EvaluationContext) -> list[Entry]:
    """Entries of ranks that have a core each."""
    return [one for one in entries if one["ranks"] <= number(one.row, "cores")]


def model_error(context: EvaluationContext, dims: Any, one: Estimate) -> dict[str, Any]:
    """Largest error of the model of a projected number."""
    if not isinstance(one, ProjectedNumber) or one.epoch is None:
        return {}
    costs, share = costs_of(one.rows[0]), one.epoch.share
    links = {dict(at)["statistic"]: e.value for at, e in LINK_ERROR.estimates(context).items()}
    off = 1 + (1 - share) * costs.typical + share * links.get("median", 0.0)
    worst, on = max(
        (costs.error, "computing of other shares here"),
        (links.get("largest", 0.0), "exchanges of ranks here"),
    )
    return {
        "low": one.value / off, "high": one.value * off, "projected": True, "model_error": worst,
        "model_error_on": on, "seconds": one.epoch.seconds,
    }  # fmt: skip


def scaling(
    name: str, title: str, y: Mapping[str, MeasuredQuantity], panel: str, **options: Any
) -> FigureForm:
    """Numbers by P, measured here and projected."""
    options = {"topology": projection.CLUSTER, "most": RANKS[-1], "band": BAND, **options}
    return FigureForm(
        "scaling", name, title, y, {"panel": panel, "series": "{of}", "x": "ranks"},
        more=model_error, gaps={"x": 1}, without="skipped: no pair on cores of their own",
        options=options,
    )  # fmt: skip


def on_v100(projected: MeasuredQuantity) -> dict[str, MeasuredQuantity]:
    """Series of a projection by the source of the speed."""
    return {
        "esdg, V100 by its bandwidth": projected.where(scaled_by="bandwidth"),
        "esdg, V100 as Table 2 prints": projected.where(scaled_by="printed"),
    }
