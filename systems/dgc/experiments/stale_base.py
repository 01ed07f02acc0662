"""Cells, quantities and rules shared by the experiments on stale aggregation (5.2, 7.3.3).

Printed numbers belong to the paper's four graphs; `settings.with_stand_ins` says what they are
judged on. Twins, whose features carry no signal, decide none of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

from dgbench.lab.charts import failed, failures
from dgbench.lab.estimates import Coords, Estimate, EvaluationContext
from dgbench.lab.experiment import FigureSpec
from dgbench.lab.figure_forms import FigureForm
from dgbench.lab.grid import by_preset
from dgbench.lab.outcomes import ANYTHING, Rule, RuleOutcome, lacking_words, outcome, words
from dgbench.lab.quantities import MeasuredQuantity, mean_of_seeds, observed
from dgbench.lab.study import FormExperiment
from dgbench.lab.table import Entry, Table, number
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.dgc.experiments.settings import FORMS, GRAPHS, HELD
from dgbench.systems.dgc.experiments.stale_runs import (
    TITLES,
    StaleJob,
    StaleJobResult,
    measured,
    run_jobs,
)

HELD_NAMES: Final = tuple(graph.name for graph in HELD)
TWIN_NAMES: Final = tuple(graph.name for graph in GRAPHS)
SEEDS: Final = (1, 2, 3, 4, 5)
"""Of parameters and of what is held out; what a model learned is told by several."""
SEEDED: Final = ("wikipedia",)
"""Graphs that quick trains with five seeds."""
WHOLE: Final = tuple(
    (name,) for name in ("email-eu-core", "sx-mathoverflow", "wikipedia", "amazon-magazine")
)
"""Graphs of each cell of whole trainings: without Epinions 2011, of which even two windows take
minutes."""
TABLE_GRAPHS: Final = {
    "smoke": (("wikipedia",),),
    "full": (*((name,) for name in HELD_NAMES), TWIN_NAMES),
    "paper": tuple((name,) for name in (*HELD_NAMES, *TWIN_NAMES)),
    "quality": WHOLE,
}
"""Graphs of each cell of Tables 2 and 3."""
SAVED, LOST = "traffic saved (%)", "accuracy lost (points)"
THETAS: Final = {"0.1D": 0.1, "0.3D": 0.3, "0.5D": 0.5, "0.7D": 0.7, "0.9D": 0.9}
"""Fixed thresholds over D."""
WITHIN_POINTS: Final = 0.5
"""Gap of a loss of accuracy to a printed one that no plot shows, in points."""
WITHIN_SAVED: Final = 5.0
"""Tolerance of a saving against a printed one, in percent of the traffic."""
STALE_FORMS: Final = replace(
    FORMS, labels={**FORMS.labels, "setting": TITLES}, facts={"theta": ("setting", THETAS.get)}
)


class StaleTable(FormExperiment):
    """A table whose cells train several graphs in one go, each row holding all their runs.

    Attributes:
        seeds, models, settings: by preset, or for all. graphs: those of each cell.
        seeded: graphs of seeds beyond the first, where they are fewer.
    """

    forms = STALE_FORMS
    device = "cpu"
    # How many rows are held back follows from what the model learned.
    sources = dict.fromkeys(("rows_sent", "exchanged", "cumulative_share", "scored"), "learned")
    timeout_s = {"smoke": 60, "quick": 240, "full": 3600, None: 36000}
    seeds: Any = {"smoke": (1,), None: SEEDS}
    models: Any = ("dysat",)
    settings: Mapping[str, tuple[str, ...]]
    graphs: Mapping[str, tuple[tuple[str, ...], ...]]
    seeded: Mapping[str, tuple[tuple[str, ...], ...]] = {}

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        return [
            self.cell({"graphs": " ".join(names), "seed": seed}, preset,
                      group="-".join((*names, str(seed))))
            for place, seed in enumerate(by_preset(self.seeds, preset))
            for names in (self.seeded.get(preset) if place else None) or self.graphs[preset]
        ]  # fmt: skip

    def jobs(self, cell: Cell, preset: Preset, **fields: Any) -> list[StaleJob]:
        """Training jobs of a cell, the costliest first; `fields` are those of a job."""
        seed = int(cell.params.get("seed", 1))  # type: ignore[arg-type]
        return [
            StaleJob(dataset, model, self.settings[preset], preset, seed=seed, **fields)
            for dataset in str(cell.params["graphs"]).split()
            for model in by_preset(self.models, preset)
        ]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        return self.train(cell, context)[0]

    def train(
        self, cell: Cell, context: RunContext
    ) -> tuple[Measurement, list[tuple[StaleJob, StaleJobResult]]]:
        """All runs of a cell, as a measurement and one by one."""
        jobs = self.jobs(cell, context.preset)
        outcomes = run_jobs(jobs, timeout_s=cell.timeout_s)
        return measured(jobs, outcomes), list(zip(jobs, outcomes, strict=True))

    def figures(self) -> list[FigureSpec]:
        """Its figures, each with a gap for every cell that did not run."""

        def with_gaps(form: FigureForm) -> FigureSpec:
            figure = replace(form, gaps=None).figure(self.name, self.forms)
            panel = next(iter(form.y)) if form.fields.get("panel") == "of" else "all graphs"
            return replace(figure, points=lambda rows: figure.points(rows) + [
                {"panel": panel, "series": row.params["graphs"], "x": 0.0, "failed": failed(row)}
                for row in failures(rows, self.name)
            ])  # fmt: skip

        return list(map(with_gaps, self.figure_forms))


# Quantities


def longest(entries: list[Entry], context: Any) -> list[Entry]:
    """Filter: entries of the longest trainings of a graph and model: where there are whole ones,
    what a short preset trained says nothing more."""
    rows = {one.row.id: one.row for one in entries}
    epochs = Table.of(rows.values()).where("epochs").by("dataset", "model")
    shorter = {
        (one.row.id, *names)
        for names, runs in epochs.items() for one in runs if one.value < max(runs.values)
    }  # fmt: skip
    return [one for one in entries if (one.row.id, one["dataset"], one["model"]) not in shorter]


def most_seeds(entries: list[Entry], context: Any) -> list[Entry]:
    """Filter: entries of graphs that have as many seeds as any has."""
    runs = Counter(one.key(("dataset", "model", "setting")) for one in entries)
    graphs = {dataset for (dataset, *_), count in runs.items() if count == max(runs.values())}
    return [one for one in entries if one["dataset"] in graphs]


RUN: Final = ("dataset", "model", "setting")


def saved(metric: str) -> MeasuredQuantity:
    """Percent less than is sent plainly."""
    sent = observed(metric, per=RUN).keep(longest)
    return 100 * (1 - sent / observed(metric, per=RUN, of="plain").keep(longest))


def _lost(context: EvaluationContext, mine: MeasuredQuantity) -> dict[Coords, Estimate]:
    """Points of accuracy below the run of the same row that sends everything, with an interval
    over seeds, or of the test's own noise where one seed ran."""
    every: dict[Coords, list[tuple[Any, float, float]]] = {}
    for one in mine.operands[0].samples(context):
        row, at = one.row, {name: one.entry[name] for name in RUN}  # type: ignore[index]
        fresh = number(row, "accuracy", None, **{**at, "setting": "without"})
        if fresh is not None:
            tested = max(1, number(row, "scored", **at))
            noise = 196 * (max(fresh * (1 - fresh), 0.0) / tested) ** 0.5
            every.setdefault(one.coords, []).append((row, 100 * (fresh - one.value), noise))
    numbers = {}
    for coords, runs in every.items():
        rows, points, (noise, *_) = zip(*runs, strict=True)
        numbers[coords] = one = mean_of_seeds(points, rows)
        if one.low is None:
            numbers[coords] = replace(one, low=one.value - noise, high=one.value + noise)
    return numbers


ROWS, BYTES = saved("rows_sent"), saved("exchanged")
"""Percent of the traffic that is saved, by rows as the paper counts, and by bytes."""
ACCURACY = observed("accuracy", per=RUN).keep(longest)
DROP = MeasuredQuantity(estimated=_lost, dims=RUN, operands=(ACCURACY,))
"""Points of accuracy that are lost."""


# Rules


def costs(losses: Mapping[str, Estimate]) -> int:
    """Side of the accuracy lost at the largest fixed threshold, else at the first setting."""
    fixed = [name for name in losses if name in THETAS]
    return losses[max(fixed, key=THETAS.__getitem__) if fixed else next(iter(losses))].side()


def rises(savings: Mapping[str, Estimate]) -> int:
    """1 where no larger fixed threshold saves less, and something is saved, else -1."""
    fixed = [savings[name].value for name in THETAS if name in savings]
    grows = all(a <= b for a, b in pairwise(fixed))
    return 1 if grows and max(one.value for one in savings.values()) > 0 else -1


def by_graph(numbers: Mapping[Coords, Estimate]) -> dict[str, dict[str, Estimate]]:
    """Numbers by graph and setting."""
    graphs: dict[str, dict[str, Estimate]] = {}
    for coords, one in numbers.items():
        at = dict(coords)
        graphs.setdefault(at["dataset"], {})[at["setting"]] = one
    return graphs


def table_row(
    quantity: MeasuredQuantity, sign: Callable[[Mapping[str, Estimate]], int], within: float,
    printed: Callable[[Mapping[str, float]], Mapping[str, float]], unit: str,
) -> Rule:  # fmt: skip
    """The printed numbers of a row of Table 2 or 3 (`printed`: of the claim's value, by setting),
    all of them on every graph; where they are missed the sign of a graph's numbers decides."""

    def rule(context: EvaluationContext) -> RuleOutcome:
        wanted = printed(context.claim.value)
        numbers = quantity.where(setting=tuple(wanted)).estimates(context)
        if not numbers:
            return RuleOutcome(lacking=lacking_words(quantity, numbers, context, ANYTHING))
        places = {
            words(context, [("dataset", name)]): (
                of.keys() == wanted.keys()
                and all(abs(one.value - wanted[key]) <= within for key, one in of.items()),
                sign(of),
            )
            for name, of in by_graph(numbers).items()
        }
        return _met_or_sign(outcome(context, numbers, unit), places)

    return rule


def trade_off(
    savings: MeasuredQuantity, losses: MeasuredQuantity,
    printed: Callable[[Any], tuple[float, float]],
) -> Rule:  # fmt: skip
    """Printed percent saved and points lost, at every coordinate; where they are missed, both are
    above nothing."""

    def rule(context: EvaluationContext) -> RuleOutcome:
        less, lost = savings.estimates(context), losses.estimates(context)
        if not lost:
            return RuleOutcome(lacking=lacking_words(losses, lost, context, ANYTHING))
        percent, points = printed(context.claim.value)
        places = {
            words(context, at) or "mean": (
                abs(less[at].value - percent) <= WITHIN_SAVED
                and abs(one.value - points) <= WITHIN_POINTS,
                min(one.side(), 1 if less[at].value > 0 else -1),
            )
            for at, one in lost.items()
        }
        losses_shown = outcome(context, lost, "points")
        savings_shown = outcome(context, less, "% saved").measured
        measured = {name: f"{said}, {savings_shown.get(name, '')}"
                    for name, said in losses_shown.measured.items()}  # fmt: skip
        return _met_or_sign(replace(losses_shown, measured=measured), places)

    return rule


def _met_or_sign(shown: RuleOutcome, places: Mapping[str, tuple[bool, int]]) -> RuleOutcome:
    """An outcome that holds where printed values are met at all places; elsewhere signs are its
    direction, which no place that meets them leaves open."""
    sides = tuple((name, 1 if met else side) for name, (met, side) in places.items())
    return replace(shown, sides=sides, met=all(met for met, _ in places.values()))
