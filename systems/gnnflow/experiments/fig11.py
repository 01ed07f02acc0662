"""Figure 11: accuracy round by round, by schedule of retraining and by replay (section 6.1)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from dgbench.lab.charts import chart, failed, failures, sweep
from dgbench.lab.compare import Ratio, ratio_of
from dgbench.lab.printed import ledger
from dgbench.lab.table import Table, number, rows_of
from dgbench.systems.base import FigureSpec, Measurement, RunContext
from dgbench.systems.base.registry import get_system
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
from dgbench.systems.gnnflow.experiments.settings import (
    INITIAL,
    LEDGER,
    MODEL_OF,
    MODEL_TITLES,
    model_title,
    panel,
)

if TYPE_CHECKING:
    from dgbench.systems.base.stream import StreamWorkload

NAME: Final = "fig11"
OFTEN, SELDOM, NEVER = "GNNFlow", "TGL", "no retraining"
RATIOS: Final = (0.5, 1.0)
"""Old events per new one; the legend with the paper's ratios is lost."""
_SMOOTHED: Final = 5
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


class Fig11(AccuracyRun):
    name = NAME
    title = "Figure 11: accuracy while the stream goes on"
    question = "What does retraining on every round bring over retraining seldom, and replay?"
    reading = READING + (
        " TGL retrains after a quarter (TGN) or half (TGAT) of the rounds, as "
        f"{' and '.join(map(str, PRINTED_EVERY.values()))} of 100, "
        "one epoch on all events since its last time. All go on from one trained model; a round "
        "is scored before it is trained on. Replay ratios are ours, old events per new one, as "
        "those of the paper are lost."
    )
    claims = (
        "gnnflow-fig11-accuracy-gap",
        "gnnflow-fig11-always-ahead",
        "gnnflow-fig11-replay",
        "gnnflow-fig11-tgl-jump",
        "gnnflow-fig11-no-retrain",
        "gnnflow-s61-equal-budget",
    )

    sizes = SIZES

    def train(self, task: StreamWorkload, size: StreamLimits, context: RunContext) -> Measurement:
        from dgbench.systems.base.stream import load_stream
        from dgbench.systems.gnnflow.replay import Replay
        from dgbench.systems.gnnflow.rounds import Continuous, rounds_by_count

        data = load_stream(task)
        rounds = rounds_by_count(len(data.events), size.rounds, initial=INITIAL)
        spacing = every(task.model, len(rounds))
        how: dict[str, tuple[str, dict[str, Any]]] = {
            OFTEN: ("gnnflow", {}),
            SELDOM: ("tgl", {"every": spacing}),
            NEVER: ("gnnflow", {"every": None}),
        }
        if task.model == "tgat":  # Figure 11(b)
            how |= {
                replayed(ratio): ("gnnflow", {"replay": Replay(ratio, task.seed)})
                for ratio in RATIOS
            }
        streams: dict[str, Continuous] = {}
        for name, (system, options) in how.items():
            trainer: Any = get_system(system).open(task, device=context.device, data=data)  # type: ignore[arg-type,call-arg]
            streams[name] = Continuous(trainer, rounds, epochs=1, **options)
            streams[name].begin(size.initial if name == OFTEN else 0)
            trainer.copy_from(streams[OFTEN].trainer)
        found = {name: [] for name in how}
        for turn in range(len(rounds)):
            if turn == len(rounds) - 1:
                replays = {n: RoundReplay(task, data, one) for n, one in streams.items()}
            for name in list(how) if turn % 2 == 0 else reversed(how):
                found[name].append(streams[name].play())
        told = Measurement(data=data.describe())
        whole = {}
        for name, outcomes in found.items():
            observe_series(told, [one.ap for one in outcomes], setting=name)
            # Rounds without training cost TGL a rebuild to be scored; that is not counted.
            spent = [one.retrain_s if one.trained else 0.0 for one in outcomes]
            for k, seconds in enumerate(spent):
                told.observe("operation_time", seconds, setting=name, round=k)
            if name in (OFTEN, SELDOM):
                whole[name] = sum(spent[: len(spent) // spacing * spacing])
        which = {"setting": OFTEN, "baseline": SELDOM}
        told.observe("speedup", whole[SELDOM] / whole[OFTEN], **which)
        last = {name: outcomes[-1] for name, outcomes in found.items()}
        told.checks = stream_checks(task, data, streams, replays, last)
        for stream in streams.values():
            stream.trainer.close()
        observe_stream(told, task, data, rounds)
        told.observe("rounds", spacing, of="between retrainings")
        retrainings = sum(one.trained > 0 for one in found[SELDOM])
        told.observe("rounds", retrainings, of="retrainings")
        return told

    def figures(self) -> list[FigureSpec]:
        lines = {
            "xlabel": "round", "xlog": False, "ylog": False, "from_zero": False, "marks": "few",
            "names": False,
        }  # fmt: skip
        return [
            chart("curves", NAME, "Average precision of each round before it is trained on",
                curve_points, xlabel="round", ylabel="average precision",
                start="same seeds; all go on from one model, trained on the first events"),
            sweep("fig11_lead", "Lead over the model that is never retrained, mean of five rounds",
                lead_points, **lines, ylabel="points", hline=0.0, hline_label=NEVER),
        ]  # fmt: skip

    def answer(self, rows: Sequence[Any]) -> str:
        words = []
        for model in MODELS:
            found = runs(rows, model)
            if found:
                words.append(
                    f"{MODEL_TITLES[model]}: retraining every round comes out "
                    f"{lead(found, OFTEN, SELDOM)} points from TGL's schedule and "
                    f"{lead(found, OFTEN, NEVER)} from no retraining"
                )
        found = runs(rows, "tgat")
        if found:
            words.append(
                f"Replay of {RATIOS[-1]:.0%} brings {lead(found, replayed(RATIOS[-1]), OFTEN)}"
            )
        return ". ".join(words) + "." if words else ""


def runs(rows: Sequence[Any], model: str) -> list[Any]:
    """Rows of a model."""
    return rows_of(rows, experiment=NAME, model=model)


def lead(rows: Sequence[Any], first: str, second: str) -> PairedDifference:
    """Points that one contender has over another, mean over rounds, by seed."""
    return over_seeds(
        rows, [difference(series(r, setting=first), series(r, setting=second)) for r in rows]
    )


def budgets(rows: Sequence[Any]) -> Ratio | None:
    """Seconds of TGL's retrainings over GNNFlow's on the rounds that these cover, by process."""
    return ratio_of(Table.of(rows).where("speedup", setting=OFTEN, baseline=SELDOM))


def gaps(row: Any) -> list[float]:
    """Points that GNNFlow's schedule has over TGL's, round by round."""
    pairs = zip(series(row, setting=OFTEN), series(row, setting=SELDOM), strict=True)
    return [100 * (a - b) for a, b in pairs]


def jumps(rows: Sequence[Any]) -> PairedDifference:
    """Points of its lag behind GNNFlow that TGL makes up at a retraining, mean of all, by seed.

    Against GNNFlow's own curve, as rounds are not equally hard; means over up to three rounds
    before and after.
    """
    return over_seeds(rows, [_mean_jump(row) for row in rows])


def _mean_jump(row: Any) -> float:
    behind, spacing = gaps(row), number(row, "rounds", of="between retrainings")
    found = []
    for at in range(spacing, len(behind), spacing):  # the first round scored by a new model
        before, after = behind[max(0, at - 3) : at], behind[at : at + 3]
        found.append(sum(before) / len(before) - sum(after) / len(after))
    return sum(found) / len(found) if found else math.nan


def by_round(rows: Sequence[Any]) -> list[PairedDifference]:
    """Points that GNNFlow's schedule has over TGL's in each round, by seed.

    Intervals are those of all rounds together: each of n rounds at 1 - 0.05/n.
    """
    every = [gaps(row) for row in rows]
    count = min(map(len, every))
    level = 1 - 0.05 / count
    return [over_seeds(rows, [gap[k] for gap in every], level) for k in range(count)]


def curve_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Points of `curves`: average precision by round, of every seed, a panel for each graph and
    model. Seconds are those of updates and training before; rows of older runs kept none."""
    found: list[dict[str, Any]] = []
    for row in rows_of(rows, experiment=NAME):
        for name in [OFTEN, SELDOM, *map(replayed, RATIOS), NEVER]:
            spent = 0.0
            trained = Table.of([row]).where("operation_time", setting=name).numbers("round")
            for i, value in enumerate(series(row, setting=name)):
                point = {"panel": f"{model_title(row)}, {panel(row)}", "series": _shown(name),
                         "x": i + 1, "y": value, "seed": row.params["seed"],
                         "row_ids": [row.id]}  # fmt: skip
                if (more := trained.get(i)) is not None:
                    point["seconds"] = spent
                    spent += more
                found.append(point)
    return found + _failed(rows)


def _shown(name: str) -> str:
    """A contender as a series: by its system's name, and its form behind a comma."""
    if name in (OFTEN, SELDOM):
        return "gnnflow" if name == OFTEN else "tgl"
    return f"gnnflow, {name}"


def lead_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Points of `sweep`: lead over the model that is never retrained, in points, as a mean of
    `_SMOOTHED` rounds; a panel for each graph and model, of its first seed."""
    found: list[dict[str, Any]] = []
    for row in rows_of(rows, experiment=NAME, seed=1):
        base = series(row, setting=NEVER)
        for name in [OFTEN, SELDOM, *map(replayed, RATIOS)]:
            values = series(row, setting=name)
            leads = [100 * (a - b) for a, b in zip(values, base[: len(values)], strict=True)]
            parts = [leads[max(0, i + 1 - _SMOOTHED) : i + 1] for i in range(len(leads))]
            found += [
                {
                    "panel": f"{model_title(row)}, {panel(row)}",
                    "series": name,
                    "x": i + 1,
                    "y": sum(part) / len(part),
                    "row_ids": [row.id],
                }
                for i, part in enumerate(parts)
            ]
    return found + [{**point, "series": OFTEN} for point in _failed(rows)]


def _failed(rows: Sequence[Any]) -> list[dict[str, Any]]:
    return [
        {"panel": f"{model_title(r)}, {panel(r)}", "series": _shown(OFTEN), "x": 1,
         "failed": failed(r), "row_ids": [r.id]}
        for r in failures(rows, NAME)
    ]  # fmt: skip
