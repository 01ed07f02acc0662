"""Figure 4: what PyGT computes: graph layers, recurrent layers and the rest (section 3.1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from dgbench.lab import rule_combinations as combine
from dgbench.lab import rules
from dgbench.lab.estimates import Estimate, EvaluationContext
from dgbench.lab.experiment import Cell, Measurement, Preset, RunContext
from dgbench.lab.figure_forms import StackedTime
from dgbench.lab.quantities import computed, observed
from dgbench.lab.study import FormExperiment
from dgbench.systems.base.race import timed
from dgbench.systems.pipad.experiments.fig3 import GRAPHS
from dgbench.systems.pipad.experiments.settings import BY_NAME, FORMS, MODELS, MUCH, task_of

LAYERS = ("gnn", "rnn")
CLOSE = 0.02
"""Shares nearer to each other than this decide nothing: phases are read once."""
NO_SPLIT = "skipped: no process with instruments and one without them told a step"


@dataclass(frozen=True, slots=True)
class ComputeTimeSplit:
    """Compute time of a step of one workload, seconds.

    Attributes:
        dims: dataset, model and size. parts: `gnn`, `rnn` and `rest`. rows: that it rests on.
        step, total: of a step with instruments, and without, None if that process failed. All are
            means of steps, as phases cannot but be: what disturbs a step is in its bar and is told.
    """

    dims: Mapping[str, Any]
    parts: Mapping[str, float]
    step: float
    total: float | None
    rows: tuple[Any, ...]


def splits(context: EvaluationContext) -> Iterator[ComputeTimeSplit]:
    """The split of every workload whose instrumented process told its phases."""
    steps = observed("step_time", per=("dataset", "model"))
    phases = observed("phase_time", per=("dataset", "model", "phase")).instrumented().pooled("last")
    plain: dict[Any, list[Any]] = {}
    for one in steps.samples(context):
        plain.setdefault(one.coords, []).append(one)
    spent: dict[Any, dict[str, float]] = {}
    for coords, phase in phases.estimates(context).items():
        spent.setdefault(coords[:2], {})[coords[2][1]] = phase.value
    for told in {one.coords: one for one in steps.instrumented().samples(context)}.values():
        row, seconds = told.row, spent.get(told.coords, {})
        if not any(part in seconds for part in LAYERS):
            continue
        untold = plain.get(told.coords, [])
        total = fmean(fmean(one.entry.samples) for one in untold) if untold else None
        samples = told.entry.samples
        count = row.warmup + len(samples) - 1  # the first one is not in the phases
        each = {name: spent / count for name, spent in seconds.items()}
        # Phases may hold steps that were dropped from the samples as warm-up: they are in the bar.
        step = max(fmean(samples), sum(each.values()))
        layers = {part: each.pop(part, 0.0) for part in LAYERS}
        copies = each.pop("transfer", 0.0)
        rest = sum(each.values())
        if row.device == "cpu":  # on CUDA a step's wall time also holds the device's idle time
            rest = max(rest, step - sum(layers.values()) - copies)
        dims = dict(told.coords)
        dims["size"] = "small" if BY_NAME[dims["dataset"]].small else "large"
        rows = (row, *(one.row for one in untold))
        yield ComputeTimeSplit(dims, {**layers, "rest": rest}, step, total, rows)


def shares(context: EvaluationContext) -> Iterator[tuple[Mapping[str, Any], Estimate]]:
    """Share of each part in the compute time of a workload."""
    for one in splits(context):
        whole = sum(one.parts.values()) or 1.0
        for part, seconds in one.parts.items():
            yield {**one.dims, "phase": part}, Estimate(seconds / whole, rows=one.rows)


def bars(context: EvaluationContext) -> Iterator[tuple[Mapping[str, Any], Estimate]]:
    """Seconds of each part of workloads whose both processes ran: a bar needs both."""
    for one in splits(context):
        for part, seconds in one.parts.items() if one.total is not None else ():
            yield {**one.dims, "phase": part}, Estimate(seconds, rows=one.rows)


def totals(
    context: EvaluationContext, dims: Mapping[str, Any], _: Estimate
) -> Mapping[str, float | None]:
    """Seconds of a step without instruments, and how much slower one is with them."""
    (mine,) = (one for one in splits(context) if one.dims.items() <= dims.items())
    return {"total": mine.total, "slowdown": mine.step / mine.total - 1 if mine.total else None}


DIMS = ("model", "size", "dataset", "phase")
SHARE = computed(shares, per=DIMS)
BY_MODEL = SHARE.mean_over("dataset", "size")
RECURRENT = SHARE.where(model="mpnn_lstm", phase="rnn")
LARGE, SMALL = (RECURRENT.where(size=size).mean_over("dataset") for size in ("large", "small"))
OTHERS = (
    SHARE.where(model="evolvegcn", phase=("rnn", "rest"))
    .joined_over(sum, "phase")
    .joined_over(max, "dataset", "size")
)
"""Largest share of everything but graph layers in EvolveGCN."""


class Fig4(FormExperiment):
    forms, name = FORMS, "fig4"
    axes = {"dataset": GRAPHS, "model": MODELS}
    fixed = {"system": "pygt"}
    timeout_s = {"full": 600, "paper": 600, None: 60}
    headline = 100 * BY_MODEL
    unit = "%"
    figure_forms = (
        StackedTime(
            "fig4", "Compute time of a PyGT step", computed(bars, per=DIMS),
            panel="{model}, {size} graphs", row="{dataset}", system="pygt", more=totals,
            without=NO_SPLIT, xlabel="time of one step, ms (forward and backward)",
            average="bars and totals: means of steps",
        ),
    )  # fmt: skip
    claims = {
        "pipad-fig4-gnn-dominates-compute": rules.largest_at(
            BY_MODEL, "phase", "gnn", near=CLOSE, required={"model": MODELS}
        ),
        "pipad-s52-mpnn-rnn-heavy": combine.with_printed_value(
            rules.all_above(LARGE.less(SMALL), 0.0, near=CLOSE),
            rules.all_above(LARGE.over(SMALL), MUCH),
        ),
        "pipad-s52-evolvegcn-other-small": combine.interpretations(
            "'small' is not told",
            {
                words: rules.all_below(OTHERS, most, near=CLOSE)
                for words, most in (("below one half", 0.5), ("below a quarter", 0.25))
            },
        ),
    }

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        return [self.cell(one, preset, phases=True) for one in self.points(preset, device)]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        task = task_of(cell.params, context.preset)
        return timed("pygt", task, context)
