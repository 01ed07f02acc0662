"""Figure 9: accuracy over time, T-GCN on half of the edges against DyGNN and JODIE on all."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from dgbench.lab import outcomes, rules
from dgbench.lab import rule_combinations as combine
from dgbench.lab.estimates import Estimate, EvaluationContext, gaps_of_failures, real_data
from dgbench.lab.figure_forms import FigureForm
from dgbench.lab.quantities import MeasuredQuantity, computed, observed
from dgbench.lab.study import FormExperiment
from dgbench.lab.time_to_quality import PROCESSOR
from dgbench.runtime.statistics import t_quantile
from dgbench.runtime.threads import threads
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.tgcn.accuracy_runs import (
    DYGNN,
    JODIE,
    LARGE,
    MAJORITY,
    OURS,
    PLAIN,
    SCORES,
    SIZES,
    SYSTEMS,
    TASKS,
    WHOLE,
    observe_memory,
    run_pieces,
)
from dgbench.systems.tgcn.settings import FORMS, PIECES

TITLES = {"classify": "accuracy of classes", "link": "average precision of links"}
RUN = ("dataset", "seed")
GB = 1e-9 * observed("memory", dataset=LARGE)
STATE, ROOM = GB.where(of="state", setting=DYGNN), GB.where(of="device")


def score(task: str, **where: Any) -> MeasuredQuantity:
    """Score of each piece of a run; a piece is scored before it is trained on."""
    return observed(SCORES[task], per=(*RUN, "piece"), task=task, **where)


def learned(setting: str, task: str = "classify") -> MeasuredQuantity:
    """Percent of each piece but the first, before which nothing was trained."""
    return 100 * score(task, setting=setting, piece=lambda piece: bool(piece))


def over_seeds(gaps: MeasuredQuantity) -> MeasuredQuantity:
    """Mean over graphs of the means of their seeds, with its interval over seeds.

    Graphs are those named, so that only what differs between seeds of one graph is noise; their
    variances add up as Welch and Satterthwaite do. One with a single seed leaves no interval.
    """

    def mean(context: EvaluationContext) -> Iterator[tuple[Mapping[str, Any], Estimate]]:
        by_graph: dict[str, list[float]] = {}
        estimates = gaps.estimates(context)
        for at, one in estimates.items():
            by_graph.setdefault(dict(at)["dataset"], []).append(one.value)
        if by_graph:
            rows = {row.id: row for one in estimates.values() for row in one.rows}
            yield {}, welch_mean(list(by_graph.values()), tuple(rows.values()))

    return computed(mean, per=())


def welch_mean(groups: Sequence[Sequence[float]], rows: tuple[Any, ...]) -> Estimate:
    """Mean of the means of groups, and its t interval where each has several members."""
    middle = fmean(map(fmean, groups))
    if min(map(len, groups)) < 2:
        return Estimate(middle, rows=rows, kind="seeds")
    parts = [
        sum((one - fmean(group)) ** 2 for one in group)
        / ((len(group) - 1) * len(group) * len(groups) ** 2)
        for group in groups
    ]
    free = sum(part**2 / (len(group) - 1) for part, group in zip(parts, groups, strict=True))
    total = sum(parts)
    half = t_quantile(total**2 / free, 0.95) * math.sqrt(total) if total else 0.0
    return Estimate(middle, middle - half, middle + half, rows, "seeds")


def ahead(first: str, second: str, task: str = "classify") -> MeasuredQuantity:
    """Points by which a contender is ahead of another on the same pieces of the same runs."""
    gaps = learned(first, task) - learned(second, task)
    return over_seeds(gaps.keep(real_data).mean_over("piece"))


def not_behind(lead: MeasuredQuantity) -> outcomes.Rule:
    """A lead in points is no loss, by its interval over seeds."""
    return rules.all_above(lead, 0.0, unit="points")


def last_thirds(context: EvaluationContext) -> Iterator[tuple[Mapping[str, Any], Estimate]]:
    """Points by which the last third of a run's pieces is ahead of the first one."""
    runs: dict[tuple[Any, Any], list[Estimate]] = {}
    for at, one in learned(OURS).keep(real_data).estimates(context).items():
        runs.setdefault((dict(at)["dataset"], dict(at)["seed"]), []).append(one)
    for run, scores in runs.items():
        if third := len(scores) // 3:
            early, late = (
                fmean(o.value for o in part) for part in (scores[:third], scores[-third:])
            )
            rows = {row.id: row for one in scores for row in one.rows}
            yield (
                dict(zip(RUN, run, strict=True)),
                Estimate(late - early, rows=tuple(rows.values())),
            )


ABOVE_MAJORITY = learned(OURS).where(dataset=(LARGE,)) - 100 * observed(
    "accuracy", per="seed", dataset=LARGE, setting=MAJORITY, task="classify"
)


def contender_form(title: str) -> str:
    """A contender as figures know it: its system's name, and its form behind a comma."""
    form = {WHOLE: ", states of all edges", PLAIN: ", no propagation"}.get(title, "")
    return SYSTEMS[title][0] + form


def seconds_before(
    context: EvaluationContext, dims: Mapping[str, Any], one: Estimate
) -> dict[str, Any]:
    """The piece, counted from 1, and the seconds of training before it.

    Seconds are the processor's, as accuracies may be measured beside other work; rows of older
    runs kept none.
    """
    row = {name: dims[name] for name in (*RUN, "setting", "task")}
    times = observed("epoch_time", per="piece", clock=PROCESSOR, **row).pooled("last")
    spent = {dict(at)["piece"]: each.value for at, each in times.estimates(context).items()}
    before = sum(each for piece, each in spent.items() if piece < dims["piece"])
    return {"x": dims["piece"] + 1, "seed": dims["seed"]} | ({"seconds": before} if spent else {})


def curves(task: str) -> FigureForm:
    """The figure of one task: score by piece, of every seed."""
    return FigureForm(
        "curves", f"fig9_{task}",
        f"{TITLES[task]} by piece of time, each scored before it is trained on",
        score(task, setting=SYSTEMS.__contains__).per("setting", "task").keep(gaps_of_failures),
        {"panel": "{dataset}", "series": "{setting}"}, more=seconds_before,
        gaps={"series": "tgcn", "x": 1},
        options={
            "xlabel": "piece of time", "ylabel": TITLES[task],
            "start": "same seeds, and parameters that each model draws from them",
        },
    )  # fmt: skip


class Fig9(FormExperiment):
    forms = replace(FORMS, labels={**FORMS.labels, "setting": contender_form})
    name = "fig9"
    group = "{dataset}/{seed}"
    timeout_s = {"smoke": 60, "quick": 120, "full": 3600, "paper": 86400}

    headline, unit = ahead(OURS, DYGNN), "points"
    figure_forms = tuple(map(curves, TASKS))
    claims = {
        "tgcn-fig9-no-accuracy-loss": combine.interpretations(
            "whether states see the edges that are not trained on is not said",
            {
                "states see sampled edges": not_behind(ahead(OURS, DYGNN)),
                "states see all edges": not_behind(ahead(WHOLE, DYGNN)),
            },
        ),
        "tgcn-fig9-twitter": combine.by_model(
            combine.both(
                rules.all_above(
                    over_seeds(ABOVE_MAJORITY.mean_over("piece")), 0.0, unit="points"
                ),
                rules.all_above(STATE - ROOM, 0.0, unit="GB"),
            ), "size of a state by formula",
        ),
        "tgcn-fig9-stable-over-time": not_behind(over_seeds(computed(last_thirds, per=RUN))),
        "tgcn-s64-dygnn-over-jodie": not_behind(ahead(DYGNN, JODIE)),
    }  # fmt: skip

    def points(self, preset: Preset, device: str) -> Iterable[dict[str, Any]]:
        size = SIZES[preset]
        return (
            {"dataset": name, "seed": seed}
            for name in size.graphs
            for seed in range(1, (1 if name == LARGE else size.seeds) + 1)
        )

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        size, found = SIZES[context.preset], Measurement()
        name, seed = str(cell.params["dataset"]), int(cell.params["seed"])
        with threads(size.threads or context.threads):
            for kind in TASKS[: 2 if seed <= size.linked else 1]:
                rivals = () if name == LARGE else size.rivals[kind]
                run_pieces(name, seed, kind, (OURS, *rivals), context, found)
        found.observe("edges", size.width, of="step")
        found.observe("parts", PIECES, of="pieces")
        if name == LARGE:
            observe_memory(found)
        return found
