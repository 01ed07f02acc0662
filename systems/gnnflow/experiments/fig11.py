"""Figure 11: accuracy round by round, by schedule of retraining and by replay (section 6.1)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from statistics import fmean
from typing import Any, Final

from dgbench.lab import rule_combinations as combine
from dgbench.lab import rules
from dgbench.lab.entry_rules import near_entries
from dgbench.lab.estimates import Estimate, EvaluationContext, gaps_of_failures
from dgbench.lab.figure_forms import FigureForm, Sweep
from dgbench.lab.printed import ledger
from dgbench.lab.quantities import MeasuredQuantity, computed, observed
from dgbench.lab.table import Table, number, rows_of
from dgbench.systems.base import Measurement
from dgbench.systems.base.stream import StreamWorkload
from dgbench.systems.gnnflow.experiments.accuracy_runs import (
    MODELS,
    AccuracyRun,
    Contenders,
    Outcomes,
    StreamLimits,
    by_model,
    differences,
    limits,
    mean_points,
    over_seeds,
)
from dgbench.systems.gnnflow.experiments.settings import LEDGER, MODEL_OF, MODEL_TITLES
from dgbench.systems.gnnflow.replay import Replay

OFTEN, SELDOM, NEVER = "GNNFlow", "TGL", "no retraining"
RATIOS: Final = (0.5, 1.0)
"""Old events per new one; the legend with the paper's ratios is lost."""
SMOOTHED: Final = 5
"""Rounds whose mean lead is drawn."""
PRINTED_EVERY: Final = {
    MODEL_OF[title]: said for title, said in ledger(LEDGER)["s61-equal-budget"].items()
}
"""Rounds between two retrainings of TGL, of 100."""
SIZES: Final = limits(
    StreamLimits(("wikipedia",), 1, {"tgn": 300, "tgat": 200}, 4, 1, 8, 3, 1),
    StreamLimits(("wikipedia",), 5, {"tgn": 4800, "tgat": 960}, 16, 3, 32, 5, 1),
    rounds=100,
)


def replayed(ratio: float) -> str:
    """GNNFlow's schedule with replay."""
    return f"replay {ratio:.0%}"


def every(model: str, rounds: int) -> int:
    """Rounds between two retrainings of TGL: the paper's share of all rounds."""
    return max(1, rounds * PRINTED_EVERY[model] // 100)


def lead(first: str, second: str) -> MeasuredQuantity:
    """Points that one contender has over another, mean over rounds, by model."""
    return mean_points(lambda row: fmean(differences(row, "setting", first, second) or [math.nan]))


def by_round(rows: list[Any]) -> Iterator[tuple[dict[str, Any], Estimate]]:
    """Points that GNNFlow's schedule has over TGL's in each round.

    Intervals are those of all rounds together: each of n rounds at 1 - 0.05/n.
    """
    every = [differences(row, "setting", OFTEN, SELDOM) for row in rows]
    count = min(map(len, every))
    for k in range(count):
        yield {"round": k}, over_seeds(rows, [one[k] for one in every], 1 - 0.05 / count)


def jump(row: Any) -> float:
    """Points of its lag behind GNNFlow that TGL makes up at a retraining, mean of all.

    Against GNNFlow's own curve, as rounds are not equally hard; means over up to three rounds
    before and after.
    """
    behind = differences(row, "setting", OFTEN, SELDOM)
    spacing = number(row, "rounds", of="between retrainings")
    first = range(spacing, len(behind), spacing)  # rounds scored by a new model
    made_up = [fmean(behind[max(0, n - 3) : n]) - fmean(behind[n : n + 3]) for n in first]
    return fmean(made_up or [math.nan])


def smoothed_leads(context: EvaluationContext) -> Iterator[tuple[dict[str, Any], Estimate]]:
    """Mean points of the last rounds over the model that is never retrained, of first seeds."""
    for row in rows_of(context.rows, experiment=context.experiment, seed=1):
        names = Table.of([row]).where("average_precision").by("setting")
        for name in (one for one in names if one != NEVER):
            leads = differences(row, "setting", name, NEVER)
            for end in range(1, len(leads) + 1):
                dims = {**row.params, "setting": name, "round": end}
                yield dims, Estimate(fmean(leads[max(0, end - SMOOTHED) : end]), rows=(row,))


def time_before(context: Any, dims: Mapping[str, Any], one: Estimate) -> dict[str, float]:
    """Number of a round from 1, and seconds of updates and training before it."""
    spent = Table.of(one.rows).where("operation_time", setting=dims["setting"]).numbers("round")
    before = {"seconds": sum(spent[k] for k in range(dims["round"]))} if spent else {}
    return {"x": dims["round"] + 1, "seed": dims["seed"], **before}


PLACES: Final = ("dataset", "model", "seed", "setting", "round")
CURVE: Final = observed("average_precision", per=PLACES).keep(gaps_of_failures)
LEADS: Final = computed(smoothed_leads, per=PLACES[:2] + PLACES[3:]).keep(gaps_of_failures)
AHEAD: Final = lead(OFTEN, SELDOM)
EACH: Final = by_model(by_round, "round")
LARGEST: Final = EACH.joined_over(max, "round")
REPLAYED: Final = (OFTEN, *map(replayed, RATIOS))
BUDGET: Final = observed("speedup", per="model", setting=OFTEN, baseline=SELDOM)
"""Seconds of TGL's retrainings over GNNFlow's on the rounds that these cover."""


class Fig11(AccuracyRun):
    name = "fig11"
    headline, unit = AHEAD, "points"
    figure_forms = (
        FigureForm(
            "curves", "fig11", "Average precision of each round before it is trained on", CURVE,
            {"panel": "{model}, {dataset}", "series": "{setting}"}, more=time_before,
            gaps={"series": "gnnflow", "x": 1},
            options={
                "xlabel": "round", "ylabel": "average precision",
                "start": "same seeds; all go on from one model, trained on the first events",
            },
        ),
        Sweep(
            "fig11_lead", "Lead over the model that is never retrained, mean of five rounds", LEADS,
            panel="{model}, {dataset}", series="setting", x="round",
            gaps={"series": OFTEN, "x": 1}, xlabel="round", ylabel="points", hline=0.0,
            hline_label=NEVER, xlog=False, ylog=False, from_zero=False, marks="few", names=False,
        ),
    )  # fmt: skip
    claims = {
        "gnnflow-fig11-accuracy-gap": combine.with_printed_value(
            rules.all_above(AHEAD, 0.0, unit="points"),
            near_entries({MODEL_TITLES[model]: LARGEST.where(model=model) for model in MODELS},
                         share=0.25),
        ),
        "gnnflow-fig11-always-ahead": combine.both(
            rules.all_above(AHEAD, 0.0, unit="points"),
            rules.compare_all(EACH.joined_over(min, "round"),
                              lambda one: -1 if one.side() < 0 else int(one.value >= 0)),
        ),
        "gnnflow-fig11-replay": combine.both(
            rules.all_above(lead(REPLAYED[-1], OFTEN).where(model="tgat"), 0.0, unit="points"),
            *(rules.compare_all(lead(more, less).where(model="tgat"),
                                lambda one: -1 if one.side() < 0 else 1, unit="points")
              for less, more in pairwise(REPLAYED)),
        ),
        "gnnflow-fig11-tgl-jump": rules.all_above(mean_points(jump), 0.0, unit="points"),
        "gnnflow-fig11-no-retrain": lambda context: replace(
            rules.all_above(lead(OFTEN, NEVER), 0.0, unit="points")(context), sides=()
        ),
        "gnnflow-s61-equal-budget": rules.all_within(BUDGET, 1 / 1.25, 1.25, unit="x"),
    }  # fmt: skip

    sizes = SIZES
    dim = "setting"
    replays = 3 + len(RATIOS)

    def contenders(self, task: StreamWorkload, rounds: int) -> Contenders:
        how: Contenders = {
            OFTEN: ("gnnflow", {"epochs": 1}),
            SELDOM: ("tgl", {"epochs": 1, "every": every(task.model, rounds)}),
            NEVER: ("gnnflow", {"epochs": 1, "every": None}),
        }
        for ratio in RATIOS if task.model == "tgat" else ():  # Figure 11(b)
            options = {"epochs": 1, "replay": Replay(ratio, task.seed)}
            how[replayed(ratio)] = "gnnflow", options
        return how

    def observe(self, measured: Measurement, task: StreamWorkload, outcomes: Outcomes) -> None:
        spacing = every(task.model, len(outcomes[OFTEN]))
        whole = {}
        for name, played in outcomes.items():
            # Rounds without training cost TGL a rebuild to be scored; that is not counted.
            spent = [one.retrain_s if one.trained else 0.0 for one in played]
            for k, seconds in enumerate(spent):
                measured.observe("operation_time", seconds, setting=name, round=k)
            whole[name] = sum(spent[: len(spent) // spacing * spacing])
        factor = whole[SELDOM] / whole[OFTEN]
        measured.observe("speedup", factor, setting=OFTEN, baseline=SELDOM)
        measured.observe("rounds", spacing, of="between retrainings")
