"""Figure 10: accuracy and time by the number of finetuning epochs (section 6.1)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from dgbench.lab.charts import failed, failures, sweep
from dgbench.lab.table import Table, rows_of
from dgbench.systems.base import FigureSpec, Measurement, RunContext
from dgbench.systems.gnnflow.experiments.accuracy_runs import (
    MODELS,
    READING,
    AccuracyRun,
    PairedDifference,
    StreamLimits,
    difference,
    limits,
    observe_series,
    observe_stream,
    over_seeds,
    series,
)
from dgbench.systems.gnnflow.experiments.round_checks import RoundReplay, stream_checks
from dgbench.systems.gnnflow.experiments.sample_checks import drawn
from dgbench.systems.gnnflow.experiments.settings import INITIAL, MODEL_TITLES, model_title, panel

if TYPE_CHECKING:
    from dgbench.systems.base.stream import StreamWorkload

NAME: Final = "fig10"
EPOCHS: Final = (1, 2, 3, 4)
SIZES: Final = limits(
    StreamLimits(("wikipedia",), 1, {"tgn": 300, "tgat": 200}, 3, 1, 8, 3, 1),
    StreamLimits(("wikipedia",), 5, {"tgn": 1600}, 8, 3, 32, 5, 1),
    rounds=30,
)


class Fig10(AccuracyRun):
    name = NAME
    title = "Figure 10: finetuning epochs of a round"
    question = "What do more epochs on a round's new edges bring, and what do they cost?"
    reading = READING + (
        " All numbers of epochs go on from one trained model and take turns on every round; each "
        "epoch of TGN starts from the memories of its round's begin."
    )
    claims = (
        "gnnflow-fig10-diminishing",
        "gnnflow-fig10-drop-3-to-4",
        "gnnflow-fig10-sweet-spot",
        "gnnflow-s1-epochs-per-round",
    )

    sizes = SIZES

    def train(self, task: StreamWorkload, size: StreamLimits, context: RunContext) -> Measurement:
        from dgbench.systems.base.stream import load_stream
        from dgbench.systems.gnnflow.rounds import rounds_by_count
        from dgbench.systems.gnnflow.system import GnnflowSystem

        data = load_stream(task)
        rounds = rounds_by_count(len(data.events), size.rounds, initial=INITIAL)
        streams = {}
        for epochs in EPOCHS:
            trainer = GnnflowSystem().open(task, device=context.device, data=data)
            streams[epochs] = trainer.follow(rounds, epochs=epochs)
            streams[epochs].begin(size.initial if epochs == EPOCHS[0] else 0)
            trainer.copy_from(streams[EPOCHS[0]].trainer)
        found = {epochs: [] for epochs in EPOCHS}
        for turn in range(len(rounds)):
            if turn == len(rounds) - 1:
                some = [EPOCHS[i] for i in drawn(len(EPOCHS), 2).tolist()]
                replays = {n: RoundReplay(task, data, streams[n]) for n in some}
            for epochs in EPOCHS if turn % 2 == 0 else reversed(EPOCHS):
                found[epochs].append(streams[epochs].play())
        told = Measurement(data=data.describe())
        for epochs, outcomes in found.items():
            observe_series(told, [one.ap for one in outcomes], epochs_per_round=epochs)
            mean = sum(one.retrain_s for one in outcomes) / len(outcomes)
            told.observe("round_time", mean, epochs_per_round=epochs)
        last = {epochs: outcomes[-1] for epochs, outcomes in found.items()}
        told.checks = stream_checks(task, data, streams, replays, last)
        for stream in streams.values():
            stream.trainer.close()
        observe_stream(told, task, data, rounds)
        return told

    def figures(self) -> list[FigureSpec]:
        options = {"xlabel": "epochs of a round", "ylabel": "", "xlog": False, "ylog": False}
        return [
            sweep(NAME, "Average precision and time of a round by finetuning epochs", figure_points,
                **options, from_zero=False),
        ]  # fmt: skip

    def answer(self, rows: Sequence[Any]) -> str:
        words = []
        for model in MODELS:
            found = runs(rows, model)
            if found:
                steps = ", ".join(f"{a} to {b} {gain(found, a, b)}" for a, b in pairwise(EPOCHS))
                words.append(
                    f"{MODEL_TITLES[model]}: points of average precision from {steps}; "
                    f"4 epochs take {times(found, 4) / times(found, 1):.1f}x the time of one"
                )
        return ". ".join(words) + "." if words else ""


def runs(rows: Sequence[Any], model: str) -> list[Any]:
    """Rows of a model."""
    return rows_of(rows, experiment=NAME, model=model)


def gain(rows: Sequence[Any], few: int, many: int) -> PairedDifference:
    """Points that `many` epochs have over `few`, by seed."""
    return over_seeds(rows, [difference(_series(r, many), _series(r, few)) for r in rows])


def shrinking(rows: Sequence[Any]) -> PairedDifference:
    """Points by which the gain from one epoch to two is above that from three to four, by seed."""
    return over_seeds(
        rows,
        [
            difference(_series(row, 2), _series(row, 1))
            - difference(_series(row, 4), _series(row, 3))
            for row in rows
        ],
    )


def _series(row: Any, epochs: int) -> list[float]:
    return series(row, epochs_per_round=epochs)


def accuracy(rows: Sequence[Any], epochs: int) -> float:
    """Mean average precision over rounds and rows."""
    means = [sum(s) / len(s) for s in (_series(row, epochs) for row in rows)]
    return sum(means) / len(means)


def times(rows: Sequence[Any], epochs: int) -> float:
    """Seconds of update and finetuning of a round, mean over rows."""
    return sum(Table.of(rows).where("round_time", epochs_per_round=epochs).values) / len(rows)


def figure_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Points of `sweep`: a panel for accuracy and one for time, a series for each model."""
    found: list[dict[str, Any]] = []
    ok = rows_of(rows, experiment=NAME)
    for name in dict.fromkeys(row.params["dataset"] for row in ok):
        for what, number in (("average precision", accuracy), ("seconds of a round", times)):
            for model in MODELS:
                mine = rows_of(ok, dataset=name, model=model)
                found += [
                    {
                        "panel": f"{panel(mine[0])}: {what}",
                        "series": MODEL_TITLES[model],
                        "x": epochs,
                        "y": number(mine, epochs),
                        "row_ids": [row.id for row in mine],
                    }
                    for epochs in EPOCHS
                    if mine
                ]
    return found + [
        {"panel": panel(r), "series": model_title(r), "x": 1, "failed": failed(r),
         "row_ids": [r.id]}
        for r in failures(rows, NAME)
    ]  # fmt: skip
