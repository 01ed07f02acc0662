"""Figure 10: accuracy and time by the number of finetuning epochs (section 6.1)."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean
from typing import Any, Final

from dgbench.lab import rule_combinations as combine
from dgbench.lab import rules
from dgbench.lab.estimates import Estimate
from dgbench.lab.figure_forms import Sweep
from dgbench.lab.quantities import MeasuredQuantity, observed
from dgbench.lab.table import Table
from dgbench.systems.base import Measurement
from dgbench.systems.base.stream import StreamWorkload
from dgbench.systems.gnnflow.experiments.accuracy_runs import (
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

EPOCHS: Final = (1, 2, 3, 4)
SIZES: Final = limits(
    StreamLimits(("wikipedia",), 1, {"tgn": 300, "tgat": 200}, 3, 1, 8, 3, 1),
    StreamLimits(("wikipedia",), 5, {"tgn": 1600}, 8, 3, 32, 5, 1),
    rounds=30,
)


PLACES: Final = ("dataset", "model", "epochs_per_round")
PRECISION: Final = observed("average_precision", per=PLACES, round=lambda n: n is not None)
SECONDS: Final = observed("round_time", per=PLACES)


def gain_of(row: Any, few: int, many: int) -> float:
    """Points of average precision that `many` epochs have over `few`."""
    return fmean(differences(row, "epochs_per_round", many, few))


def gain(few: int, many: int) -> MeasuredQuantity:
    """Points that `many` epochs have over `few`, by model."""
    return mean_points(lambda row: gain_of(row, few, many))


def time_growth(rows: list[Any]) -> Iterator[tuple[dict[str, Any], Estimate]]:
    """Time of update and finetuning of a round with four epochs over that with one."""
    spent = Table.of(rows).where("round_time").by("epochs_per_round")
    many, one = (fmean(spent[epochs].values) for epochs in (4, 1))
    seeds = len({row.params["seed"] for row in rows})
    yield {}, Estimate(many / one, rows=tuple(rows), kind="timed", processes=seeds)


def leads_of_two_or_three(rows: list[Any]) -> Iterator[tuple[dict[str, Any], Estimate]]:
    """Points that the better of two and three epochs has over one and over four."""
    best = 3 if fmean(gain_of(row, 2, 3) for row in rows) > 0 else 2
    for other in (1, 4):
        lead = over_seeds(rows, [gain_of(row, other, best) for row in rows])
        yield {"setting": f"over {other}"}, lead


SHRINKING: Final = mean_points(lambda row: gain_of(row, 1, 2) - gain_of(row, 3, 4))


class Fig10(AccuracyRun):
    name = "fig10"
    headline, unit = by_model(
        lambda rows: [
            ({"setting": f"from {n} to {n + 1}"},
             over_seeds(rows, [gain_of(row, n, n + 1) for row in rows])) for n in EPOCHS[:-1]
        ],
        "setting",
    ), "points"  # fmt: skip
    figure_forms = (
        Sweep(
            "fig10", "Average precision and time of a round by finetuning epochs",
            {"average precision": PRECISION, "seconds of a round": SECONDS},
            panel="{dataset}: {of}", series="{model}", x="epochs_per_round", gaps={"x": 1},
            xlabel="epochs of a round", ylabel="", xlog=False, ylog=False, from_zero=False,
        ),
    )  # fmt: skip
    claims = {
        "gnnflow-fig10-diminishing": combine.both(
            rules.all_above(SHRINKING, 0.0, unit="points"),
            rules.all_above(by_model(time_growth), 2.0, unit="x"),
        ),
        "gnnflow-fig10-drop-3-to-4": rules.all_below(gain(3, 4), 0.0, unit="points"),
        "gnnflow-fig10-sweet-spot": combine.both(
            rules.all_above(gain(1, 3), 0.0, unit="points"),
            rules.compare_all(gain(3, 4), lambda one: -1 if one.side() > 0 else 1, unit="points"),
        ),
        "gnnflow-s1-epochs-per-round": rules.all_above(
            by_model(leads_of_two_or_three, "setting"), 0.0, unit="points"
        ),
    }

    sizes = SIZES
    dim = "epochs_per_round"
    replays = 2

    def contenders(self, task: StreamWorkload, rounds: int) -> Contenders:
        return {epochs: ("gnnflow", {"epochs": epochs}) for epochs in EPOCHS}

    def observe(self, measured: Measurement, task: StreamWorkload, outcomes: Outcomes) -> None:
        for epochs, played in outcomes.items():
            mean = fmean(one.retrain_s for one in played)
            measured.observe("round_time", mean, epochs_per_round=epochs)
