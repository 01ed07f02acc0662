"""Table 3: fixed and adaptive stale thresholds on every model and graph (section 7.3.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dgbench.lab import outcomes, rules
from dgbench.lab import rule_combinations as combine
from dgbench.lab.entry_rules import near_entries
from dgbench.lab.estimates import Coords, Estimate, EvaluationContext
from dgbench.lab.experiment import SPEED_PRESETS
from dgbench.lab.figure_forms import Sweep
from dgbench.systems.dgc.experiments import stale_base as stale
from dgbench.systems.dgc.experiments.settings import (
    GRAPHS,
    MODEL_OF,
    MODEL_TITLES,
    MODELS,
    with_stand_ins,
)
from dgbench.systems.dgc.experiments.stale_base import StaleTable
from dgbench.systems.dgc.experiments.table2 import points_lost

STALE = ("0.3D", "0.5D", "0.7D", "adaptive", "past")
_ALL = ("without", *STALE)
HELD_MEANS = {
    name: one.where(dataset=stale.HELD_NAMES, setting=STALE).mean_over("dataset", "model")
    for name, one in (("rows", stale.ROWS), ("bytes", stale.BYTES), ("accuracy", stale.DROP))
}
"""Means over models and held graphs, as a twin may decide nothing here."""
HELD_ROWS = stale.ROWS.where(dataset=stale.HELD_NAMES, setting=STALE[:-1])
LEAST, MOST = (HELD_ROWS.joined_over(pick, "dataset", "model", "setting") for pick in (min, max))
HALF = stale.ROWS.where(setting="0.5D")
TOP = HALF.where(model="dysat").keep(with_stand_ins("stack"))
OTHERS = HALF.where(model="mpnn_lstm_bare").keep(with_stand_ins("movie", any_graph=True))
"""Savings of the paper's example of how far apart one threshold's are."""
EPINION = with_stand_ins("epinions", any_graph=True)


def mean_with_interval(
    context: EvaluationContext, numbers: Mapping[Coords, Estimate]
) -> dict[Coords, Estimate]:
    """Mean of numbers whose intervals are independent."""
    every = list(numbers.values())
    if not every:
        return {}
    mean = sum(one.value for one in every) / len(every)
    squares = ((one.high - one.low) ** 2 / 4 for one in every if None not in (one.low, one.high))  # type: ignore[operator]
    wide = sum(squares) ** 0.5 / len(every)
    return {(): Estimate(mean, mean - wide, mean + wide, outcomes.rows_of_all(*every), "seeds")}


def panel_of(context: EvaluationContext, dims: Mapping[str, Any], one: Estimate) -> dict[str, str]:
    """Panel of a mean."""
    return {"panel": stale.LOST if dims["of"] == "accuracy" else stale.SAVED}


class Table3(StaleTable):
    name = "table3"
    presets = (*SPEED_PRESETS, "quality")
    # Three models cost three times Table 2: in quick the noise of the test stands for seeds.
    seeds = {"smoke": (1,), "quick": (1,), None: stale.SEEDS}
    models = MODELS
    settings = {
        "smoke": ("without", "adaptive"), "quick": _ALL[:-1],
        **dict.fromkeys(("full", "paper", "quality"), _ALL),
    }  # fmt: skip
    # One graph has time for three models in quick; Table 2 trains the others.
    graphs = {**stale.TABLE_GRAPHS, "quick": (("amazon-magazine",),)}
    headline, unit = HELD_MEANS["rows"], "%"
    figure_forms = (
        Sweep(
            "table3", "Rows saved and accuracy lost on every model and graph, by threshold",
            {
                f"{MODEL_TITLES[model]}: {panel}": one.where(model=model, setting=STALE)
                for model in MODELS
                for panel, one in (("rows saved (%)", stale.ROWS), (stale.LOST, stale.DROP))
            },
            panel="of", series="{setting}", x="{dataset}", xlabel="graph", ylabel="", ylog=False,
            sort=False,
        ),
        Sweep(
            "table3_mean", "Stale aggregation by threshold, mean over models and held graphs",
            HELD_MEANS, series="of", x="{setting}", more=panel_of, xlabel="threshold", ylabel="",
            ylog=False, sort=False,
        ),
    )  # fmt: skip
    claims = {
        **{
            f"dgc-tab3-{of}-{graph.title.lower()}-{title.lower()}": stale.table_row(
                quantity.where(model=model).keep(with_stand_ins(graph.name, any_graph=True)), *how
            )
            for graph in GRAPHS
            for title, model in MODEL_OF.items()
            for of, quantity, *how in (
                ("acc", stale.DROP, stale.costs, stale.WITHIN_POINTS, points_lost, "points lost"),
                ("comm", stale.ROWS, stale.rises, stale.WITHIN_SAVED, dict, "% saved"),
            )
        },
        "dgc-s733-comm-range": combine.or_direction(
            near_entries({"low": LEAST, "high": MOST}, points=stale.WITHIN_SAVED),
            rules.all_above(LEAST, 0.0),
        ),
        "dgc-s733-adaptive-mean": combine.shown_beside(
            stale.trade_off(
                HELD_MEANS["rows"].where(setting="adaptive"),
                replace(
                    stale.DROP.where(dataset=stale.HELD_NAMES, setting="adaptive"),
                    after=(mean_with_interval,),
                ),
                lambda value: (value["traffic_saved"], value["accuracy_drop"]),
            ),
            {"bytes": HELD_MEANS["bytes"].where(setting="adaptive")}, "%",
        ),
        "dgc-s733-static-spread": combine.with_printed_value(
            rules.all_above(
                TOP.joined_over(max, "dataset").less(OTHERS.joined_over(max, "dataset")), 0.0
            ),
            near_entries({"DySAT_Stack": TOP, "MPNN-LSTM": OTHERS}, points=stale.WITHIN_SAVED),
        ),
        "dgc-s733-static-epinion": stale.trade_off(
            stale.ROWS.where(model="dysat", setting="0.5D").keep(EPINION),
            stale.DROP.where(model="dysat", setting="0.5D").keep(EPINION),
            lambda value: (
                value["traffic_saved"], 100 * (value["accuracy_from"] - value["accuracy_to"])
            ),
        ),
    }  # fmt: skip
