"""Table 2: fixed stale thresholds from nothing to 0.9 D (section 5.2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

from dgbench.lab import outcomes
from dgbench.lab.estimates import Estimate, EvaluationContext
from dgbench.lab.experiment import SPEED_PRESETS
from dgbench.lab.figure_forms import Sweep
from dgbench.lab.quality import TITLES, quality, scores_by_seed
from dgbench.lab.quantities import MeasuredQuantity
from dgbench.lab.table import Table
from dgbench.systems.dgc.experiments import stale_base as stale
from dgbench.systems.dgc.experiments.settings import GRAPHS, with_stand_ins
from dgbench.systems.dgc.experiments.stale_base import StaleTable

_ALL = ("without", *stale.THETAS)
BY_THETA = {stale.SAVED: stale.ROWS, stale.LOST: stale.DROP}


def points_lost(printed: Mapping[str, float]) -> dict[str, float]:
    """Points below the run that sends everything, of printed accuracies."""
    first, *others = printed.items()
    return {setting: 100 * (first[1] - value) for setting, value in others}


def at(
    quantity: MeasuredQuantity, setting: Any, dataset: str, any_graph: bool = False
) -> MeasuredQuantity:
    """Numbers at one setting on a graph of the paper, or on what stands in for it."""
    return quantity.where(model="dysat", setting=setting).keep(
        with_stand_ins(dataset, any_graph=any_graph)
    )


def monotone(context: EvaluationContext) -> outcomes.RuleOutcome:
    """Rule: a larger threshold saves more and costs accuracy, on every held graph; where some have
    fewer seeds, those with most of them decide."""
    less, lost = (
        stale.by_graph(
            one.where(dataset=stale.HELD_NAMES, setting=tuple(stale.THETAS))
            .keep(stale.most_seeds).estimates(context)
        )
        for one in (stale.ROWS, stale.DROP)
    )  # fmt: skip
    lost = {name: of for name, of in lost.items() if len(of) > 1}
    if not lost:
        return outcomes.RuleOutcome(lacking="the experiment 'table2' did not run on held graphs")
    sides, ends = [], {}
    for name, of in lost.items():
        savings = [less[name][setting].value for setting in of]
        title = context.forms.label("dataset", name)
        sides.append((title, stale.costs(of) if all(a < b for a, b in pairwise(savings)) else -1))
        ends[("dataset", name),] = of[max(of, key=stale.THETAS.__getitem__)]
    every = [one for name, of in lost.items() for one in (*of.values(), *less[name].values())]
    return replace(
        outcomes.outcome(context, ends, "points"),
        sides=tuple(sides),
        rows=outcomes.rows_of_all(*every),
    )


def first_enough(context: EvaluationContext) -> outcomes.RuleOutcome:
    """Rule: the smallest threshold at which Movie saves about as much as Stack at 0.3 D: at most
    five percent of the traffic less, as in Table 2."""
    stack = at(stale.ROWS, "0.3D", "stack").joined_over(min, "dataset").estimates(context)
    movie = at(stale.ROWS, tuple(stale.THETAS), "movie").where(dataset="movie").estimates(context)
    if not stack or not movie:
        return outcomes.RuleOutcome(lacking="needs the real Movie and a graph of Stack's site")
    (bar,) = stack.values()
    enough = [
        dict(coords)["setting"] for coords, one in movie.items()
        if one.value >= bar.value - stale.WITHIN_SAVED
    ]  # fmt: skip
    first = enough[0] if enough else "none"
    side = 1 if first == str(context.claim.value) else -1
    return outcomes.RuleOutcome(
        (("threshold", side),), outcomes.rows_of_all(bar, *movie.values()), first,
        remarks=(f"{bar.words('%')} are saved on Stack or its site",),
    )  # fmt: skip


def below(context: EvaluationContext, dims: Mapping[str, Any], one: Estimate) -> Mapping[str, str]:
    """Key of a mark that is drawn hollow: its model is worse than a dictionary."""
    scores = Table.of(context.rows, experiment=context.experiment).where(
        "accuracy", of=None, dataset=dims["dataset"]
    )
    scores = Table(stale.longest(list(scores), context))
    own, fresh = (
        scores_by_seed(scores.where("accuracy", method=None, setting=name))
        for name in (dims["setting"], "without")
    )
    untrained = scores.where("accuracy", method=tuple(TITLES)).by("method")
    dictionaries = {name: scores_by_seed(part) for name, part in untrained.items()}
    judged = quality("accuracy", own, fresh, dictionaries) if fresh else None
    return {"below": judged.detail} if judged and judged.below else {}


class Table2(StaleTable):
    name = "table2"
    presets = (*SPEED_PRESETS, "quality")
    settings = {"smoke": ("without", "0.5D"), **dict.fromkeys(("quick", *stale.TABLE_GRAPHS), _ALL)}
    graphs = {**stale.TABLE_GRAPHS, "quick": (stale.SEEDED, ("sx-mathoverflow", "amazon-magazine"))}
    seeded = {"quick": (stale.SEEDED,)}
    headline = stale.ROWS.where(dataset=stale.HELD_NAMES, setting=tuple(stale.THETAS)).mean_over(
        "dataset", "model"
    )
    unit = "%"
    figure_forms = (
        Sweep(
            "table2", "Rows saved and accuracy lost by a fixed threshold, DySAT",
            {name: one.where(setting=tuple(stale.THETAS)).per("theta")
             for name, one in BY_THETA.items()},
            panel="of", series="{dataset}", x="theta", more=below, xlabel="theta / D", ylabel="",
            xlog=False, ylog=False,
        ),
    )  # fmt: skip
    claims = {
        **{
            f"dgc-tab2-{of}-{graph.title.lower()}": stale.table_row(
                quantity.where(model="dysat").keep(with_stand_ins(graph.name, any_graph=True)), *how
            )
            for graph in GRAPHS
            for of, quantity, *how in (
                ("acc", stale.DROP, stale.costs, stale.WITHIN_POINTS, points_lost, "points lost"),
                ("comm", stale.ROWS, stale.rises, stale.WITHIN_SAVED, dict, "% saved"),
            )
        },
        "dgc-s52-stack-03d": stale.trade_off(
            at(stale.ROWS, "0.3D", "stack"), at(stale.DROP, "0.3D", "stack"),
            lambda value: (value["traffic_saved"], 100 * value["accuracy_drop"]),
        ),
        "dgc-s52-movie-05d": first_enough,
        "dgc-s52-theta-monotone": monotone,
    }  # fmt: skip
