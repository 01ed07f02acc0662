"""Figure 8: a round of continuous training, GNNFlow against TGL (section 6.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import fmean
from typing import Any, Final

from dgbench.lab import outcomes, rules
from dgbench.lab import rule_combinations as combine
from dgbench.lab.charts import chart
from dgbench.lab.compare import TURN_INTERVAL
from dgbench.lab.entry_rules import near_entries
from dgbench.lab.estimates import Estimate, EvaluationContext, gaps_of_failures
from dgbench.lab.evidence import on_gpu
from dgbench.lab.figure_forms import FigureForm, SpeedupBars, StackedTime
from dgbench.lab.main_race import MainRace, RaceComparison, observed_ratio
from dgbench.lab.quality import observed_quality
from dgbench.lab.quantities import MeasuredQuantity, observed
from dgbench.lab.study import FormExperiment
from dgbench.lab.table import Entry, Table, number, rows_of
from dgbench.systems.base import Cell, Contender, Measurement, Preset, RunContext
from dgbench.systems.gnnflow.experiments.quality import whole_task
from dgbench.systems.gnnflow.experiments.round_race import (
    BARE,
    CACHED,
    GNNFLOW,
    PUBLISHED,
    REBUILT,
    RECORDED,
    SHOWN,
    TGL,
    Length,
    largest_of_a_model,
    model_range,
    over,
    race,
)
from dgbench.systems.gnnflow.experiments.settings import (
    BY_NAME,
    FORMS,
    GROWTH,
    HELD_NAMES,
    MODEL_TITLES,
    MODELS,
    NEEDS_CUDA,
    at_full_size,
    by_graph,
    turn_count,
    workload,
)

PAPERS: Final = ("gdelt", "netflix")
SMALL: Final = 1 / 4096
"""Twins of quick where a network takes seconds a round; both sides of a ratio shrink alike."""
ALL: Final = (TGL, CACHED, REBUILT, BARE, PUBLISHED, GNNFLOW)
SOME: Final = (TGL, BARE, PUBLISHED, GNNFLOW)
FEW: Final = (TGL, PUBLISHED, GNNFLOW)
WHOLE_TRAINING: Final = "whole training"
"""Value of the param `workload` for that of the whole trainings; the arena's task has it."""
FEATURELESS: Final = (TGL, REBUILT, PUBLISHED, GNNFLOW)
"""Contenders on streams without features, where a cache has nothing to hold."""
QUICK: Final = {
    ("gdelt", "tgn"): (1 / 1024, ALL),
    ("gdelt", "tgat"): (SMALL, FEW),
    ("gdelt", "dysat"): (SMALL, FEW),
    ("netflix", "tgn"): (1 / 1024, FEW),
    ("sx-mathoverflow", "tgn"): (1.0, SOME),
}
"""Scale and contenders by graph and model."""
LENGTHS: Final = {
    "smoke": Length(1, 1, 0.0),
    "quick": Length(6, 6, 0.0),
    "full": Length(8, 30, 30.0),
    "paper": Length(10, 100, 600.0),
}
SYSTEMS: Final = {
    "gnnflow": (TGL, PUBLISHED),
    "GNNFlow, no cache": (TGL, BARE),
    "GNNFlow over TGL with cache": (CACHED, PUBLISHED),
    SHOWN[GNNFLOW]: (TGL, GNNFLOW),
}
"""Baseline and setting of the speedups that figures show."""
STEPS: Final = {
    REBUILT: "its sampler",
    BARE: "in-place updates",
    PUBLISHED: "caches, reused and restored",
    GNNFLOW: "ours: grown blocks and fences",
}
"""Feature that each contender adds to the one before it, from TGL on; the last one is ours."""
AHEAD: Final = {"setting": PUBLISHED, "baseline": TGL, "phase": None}
RIVALS: Final = (
    ("a re-implemented TGL-style baseline", {}, {"quality": observed_quality(contender={})}),
    ("the TGL-style baseline", {"phase": "update"}, {"verb": "takes in the new edges alone"}),
    ("its own sampler on a graph that is rebuilt every round", {"baseline": REBUILT},
     {"fairer": True}),
    ("the TGL-style baseline with the same cache", {"baseline": CACHED}, {"fairer": True}),
)  # fmt: skip
RACE: Final = MainRace(
    verb="trains a round of new edges",
    titles={name: graph.title for name, graph in BY_NAME.items()} | MODEL_TITLES,
    comparisons=tuple(
        RaceComparison(
            subject="GNNFlow", rival=rival, ratio=observed_ratio(**AHEAD | which), **fields
        )
        for rival, which, fields in RIVALS
    ),
)

FASTER: Final = over(TGL, PUBLISHED)
SHARE: Final = 100 * observed(
    "time_share", per=("dataset", "model"), setting=TGL, phase="update", dataset=PAPERS
)
"""Percent of a round in which TGL rebuilds its graph."""
ON_GDELT: Final = FASTER.where(dataset="gdelt")


def raced_on_both(entries: list[Entry], context: EvaluationContext) -> list[Entry]:
    """Entries of models that were raced on both of the paper's graphs."""
    rows = rows_of(context.rows, experiment=context.experiment)
    on = [{row.params["model"] for row in rows if row.params["dataset"] == name} for name in PAPERS]
    return [one for one in entries if one["model"] in on[0] & on[1]]


def round_gain(dataset: str) -> outcomes.Rule:
    """Whole rounds over the models of a graph; without the network, which both share, beside it."""
    rest = over(TGL, PUBLISHED, dataset=dataset, phase="without network")
    return combine.shown_beside(
        model_range(FASTER.where(dataset=dataset)),
        {f"without the network, {MODEL_TITLES[m]}": rest.where(model=m) for m in MODELS},
    )


def half_minute(context: EvaluationContext) -> outcomes.RuleOutcome:
    """Rule: GNNFlow's slowest round at full size takes half a minute, TGL's quickest minutes.

    Seconds of eight GPUs cannot be had on a CPU.
    """
    places = ("dataset", "model")
    ours, theirs = (at_full_size(observed("round_time", per=places, dataset=PAPERS, setting=name))
                    for name in (PUBLISHED, TGL))  # fmt: skip
    outcome = combine.by_model(
        combine.both(
            rules.all_below(ours.joined_over(max, *places), 30.0, unit="s"),
            rules.all_above(theirs.joined_over(min, *places), 120.0, unit="s"),
        ), GROWTH, of_parts_only=True,
    )(context)  # fmt: skip
    names = zip(("GNNFlow", "TGL"), outcome.estimates, strict=False)
    outcome = replace(outcome, measured={name: one.words("s") for name, one in names})
    if outcome.lacking or on_gpu(outcome.rows):
        return outcome
    return replace(outcome, sides=(), remarks=(f"seconds of eight GPUs: {NEEDS_CUDA}",))


def speedup_bars(
    name: str, title: str, xlabel: str, where: Mapping[str, Any], **more: Any
) -> FigureForm:
    """GNNFlow, with caches and without, over TGL, and over TGL with cache; a panel per model."""
    every: dict[str, MeasuredQuantity] = {
        system: over(baseline, setting, **where).where(baseline=(baseline,)).keep(gaps_of_failures)
        for system, (baseline, setting) in SYSTEMS.items()
    }
    return SpeedupBars(
        name, title, every, panel="{model}", row="{dataset}", system="of", baseline="{baseline}",
        more=turn_count, gaps={"system": "gnnflow", "baseline": "TGL"}, xlabel=xlabel,
        interval=TURN_INTERVAL, baseline_label="TGL, re-implemented",
        contenders={
            **{name: Contender("tgl") for name in ("TGL", "TGL with cache")},
            **{name: Contender("gnnflow") for name in list(SYSTEMS)[1:]},
        }, **more,
    )  # fmt: skip


def whole_round(context: Any, dims: Mapping[str, Any], one: Estimate) -> dict[str, float]:
    """Seconds of a whole round, and the largest deviation, beside a part."""
    seconds = (number(row, "round_time", setting=dims["setting"]) for row in one.rows)
    deviation = max(gap for row in one.rows for gap in row.deviation.values())
    return {"total": fmean(seconds), "deviation": deviation}


def step_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """From TGL to everything on, a panel for each race with all contenders."""
    points: list[dict[str, Any]] = []
    for row in rows_of(rows, experiment="fig8"):
        spent = Table.of([row]).where("round_time").numbers("setting")
        if set(spent) != set(ALL):
            continue
        panel = f"{BY_NAME.panel(row)}, {MODEL_TITLES[row.params['model']]}"
        common = {"panel": panel, "row_ids": [row.id], "exact": True}
        points.append({**common, "step": 0, "technique": "TGL", "seconds": spent[TGL]})
        gap = max(row.deviation.values())
        for step, (before, name) in enumerate(pairwise((TGL, *STEPS)), 1):
            points.append({
                **common, "step": step, "technique": STEPS[name], "seconds": spent[name],
                "gain": spent[before] / spent[name], "deviation": gap,
            })  # fmt: skip
    return points


class Fig8(FormExperiment):
    forms, name = FORMS, "fig8"
    main_race = RACE
    group = "{dataset}/{model}"
    timeout_s = {"smoke": 60, "quick": 120, "full": 1800, "paper": 36000}
    headline, unit = FASTER, "x"
    figure_forms = (
        speedup_bars(
            "fig8", "GNNFlow over TGL, time of a round", "speed-up of a round", {}, main=True
        ),
        speedup_bars(
            "fig8_without_network", "The same without the network: update, sampling, fetching",
            "speed-up of all but the network", {"phase": "without network"},
        ),
        StackedTime(
            "fig8_split", "What a round is spent on",
            observed("phase_time", per=("dataset", "model", "phase"), setting=tuple(SHOWN))
            .keep(gaps_of_failures),
            panel="{model}", row="{dataset}", system="{setting}", more=whole_round,
            xlabel="time of one round, ms",
            phases_from="every round timed; update: of the graph; transfer: features",
        ),
    )  # fmt: skip
    charts = (
        chart(
            "ablation", "fig8_steps", "From TGL to GNNFlow, technique by technique", step_points,
            system="gnnflow",
            contenders={"in-place updates": Contender("gnnflow", switch="in_place")},
        ),
    )  # fmt: skip
    claims = {
        "gnnflow-abs-max-retrain-speedup": largest_of_a_model(ON_GDELT),
        "gnnflow-fig8-gdelt": round_gain("gdelt"),
        "gnnflow-fig8-netflix": round_gain("netflix"),
        "gnnflow-s61-tgl-rebuild-share": combine.with_printed_value(
            rules.largest_at(SHARE.keep(raced_on_both), "dataset", "netflix"),
            near_entries(by_graph(SHARE.keep(raced_on_both).joined_over(max, "model"), PAPERS),
                         share=0.25),
        ),
        "gnnflow-s61-rebuild-dominates": rules.all_above(
            SHARE, 50.0, unit="%", required={"dataset": PAPERS}
        ),
        "gnnflow-s61-half-minute": half_minute,
    }  # fmt: skip

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        return [
            self.cell({"dataset": name, "model": model}, preset, phases=number == 0)
            for number, (name, model) in enumerate(runs(preset))  # phases: the figure over time
        ]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        from dgbench.systems.base.stream import load_stream

        params, preset = cell.params, context.preset
        graph, model = BY_NAME[str(params["dataset"])], str(params["model"])
        scale, names = runs(preset).get((graph.name, model), (graph.scale(preset), ALL))
        task = workload(graph, model, preset, scale=scale)
        if params.get("workload") == WHOLE_TRAINING:
            task, names = whole_task(graph.name, model), FEATURELESS
            if context.device.startswith("cuda"):
                names = (*names, RECORDED)
        return race(
            names, task, load_stream(task), graph, LENGTHS[preset], device=context.device,
            control=self.controls(cell, context), first=context.round == 1,
        )  # fmt: skip


def runs(preset: Preset) -> Mapping[tuple[str, str], tuple[float, Sequence[str]]]:
    """Scale and contenders by graph and model."""
    if preset == "smoke":
        return {("gdelt", "tgn"): (SMALL, ALL)}
    if preset == "quick":
        return QUICK
    return {
        (name, model): (BY_NAME[name].scale(preset), ALL)
        for name in (*PAPERS, *HELD_NAMES)
        for model in MODELS
    }
