"""Figure 6: end-to-end training, T-GCN against DyGNN and JODIE (section 6.2)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Final

from dgbench.lab.charts import chart, failures, gap
from dgbench.lab.compare import TURN_INTERVAL, Ratio, observe_ratio, ratio_of
from dgbench.lab.grid import Grid
from dgbench.lab.main_race import MainRace, RaceComparison, RatioReader
from dgbench.lab.table import Table, number, rows_of
from dgbench.runtime.statistics import median
from dgbench.systems.base import Cell, Contender, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.tgcn.races import (
    DYGNN,
    JODIE,
    RELAXED,
    TGCN,
    TITLES,
    TRAINING,
    WHOLE,
    checks_of,
    loss_gap,
    observe_report,
    opened,
    start_checks,
    take_turns,
    task_of,
)
from dgbench.systems.tgcn.settings import BY_NAME, SMALL_NAMES, panel

NAME: Final = "fig6"
PLAIN: Final = "dygnn, not padded"
SHOWN: Final = {
    "smoke": ("lastfm", "wikipedia"),
    "quick": (*SMALL_NAMES, "wikipedia"),
    "full": (*SMALL_NAMES, "wikipedia", "enron", "sx-mathoverflow"),
    "paper": (*SMALL_NAMES, "wikipedia", "enron", "sx-mathoverflow"),
}
TURNS: Final = {"smoke": 1, "quick": 6, "full": 9, "paper": 11}
AGAINST: Final = (DYGNN, JODIE, RELAXED, WHOLE)
LARGE: Final = "twitter"


def gain(rows: Sequence[Any], over: str) -> Ratio:
    """Speedup of the first contender of a process over another, pooled over all rows."""
    found = ratio_of(Table.of(rows).where("speedup", baseline=over))
    assert found is not None, over
    return found


def gain_over(other: str) -> RatioReader:
    """Reader of `gain`."""
    return lambda rows, workload: ratio_of(Table.of(rows).where("speedup", baseline=other))


RACE: Final = MainRace(
    verb="trains",
    dims=("dataset",),
    where={"what": "race"},
    titles={name: graph.title for name, graph in BY_NAME.items()},
    comparisons=(
        RaceComparison(
            subject="T-GCN",
            rival="DyGNN (re-implemented, strict order)",
            ratio=gain_over(DYGNN),
        ),
        RaceComparison(
            subject="T-GCN",
            rival="JODIE (re-implemented, strict order)",
            ratio=gain_over(JODIE),
        ),
        RaceComparison(
            subject="T-GCN",
            rival="DyGNN with the same relaxed order",
            ratio=gain_over(RELAXED),
            fairer=True,
        ),
    ),
)

Rows = Sequence[Any]


class Fig6(Grid):
    paper = "tgcn"
    name = NAME
    title = "Figure 6: end-to-end training"
    question = "How much faster than DyGNN and JODIE does T-GCN train, sampling included?"
    main_race = RACE
    reading = (
        "A turn of T-GCN samples, cuts into grids and trains an epoch; a turn of a baseline is one "
        "optimiser step on all edges in padded t-batches, as section 2.4 describes them. Times are "
        "per labelled edge of the graph. T-GCN trains on half of the edges and relaxes their order "
        "inside an interval, the baselines do neither, so two controls say what that alone brings: "
        "T-GCN on all edges, and DyGNN with its order relaxed in the same way and nothing else of "
        "T-GCN. Whether the paper's baselines kept the order inside their batches is not said."
    )
    claims = (
        "tgcn-fig6-vs-dygnn",
        "tgcn-fig6-vs-jodie",
        "tgcn-fig6-beats-both-everywhere",
        "tgcn-fig6-gpu-underused-small",
        "tgcn-fig6-twitter-time",
        "tgcn-abs-e2e-max-speedup",
        "tgcn-s24-prior-throughput-floor",
        "tgcn-s62-throughput-dygnn",
        "tgcn-s62-throughput-jodie",
        "tgcn-s62-throughput-tgcn",
        "tgcn-s62-padding-blocks-baselines",
    )
    group = "{what}/{dataset}"
    timeout_s: ClassVar = {"smoke": 90, "quick": 180, "full": 1800, "paper": 36000}

    def points(self, preset: Preset, device: str) -> Iterable[dict[str, Any]]:
        yield from ({"dataset": name, "what": "race"} for name in SHOWN[preset])
        yield {"dataset": "wikipedia", "what": "padding"}
        yield {"dataset": LARGE, "what": "rate"}

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        lacks = "" if device == "cuda" else "its time stands for a GPU's: needs a CUDA device"
        return [
            self.cell(one, preset, unavailable=lacks if one["what"] == "rate" else "")
            for one in self.points(preset, device)
        ]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        name = str(cell.params["dataset"])
        what = str(cell.params["what"])
        if what == "padding":
            return race(name, context, {PLAIN: {"contender": DYGNN, "switches": {"padding": False}},
                                        DYGNN: {}}, PLAIN)  # fmt: skip
        names: dict[str, dict[str, Any]] = {TGCN: {}}
        if what == "race":
            names |= {other: {} for other in AGAINST}
        return race(name, context, names, TGCN)

    def figures(self) -> list[FigureSpec]:
        return [
            chart("speedup", "fig6", "End-to-end time per edge, T-GCN over the others", points,
                baseline_label="each system", xlabel="speed-up of T-GCN", interval=TURN_INTERVAL,
                contenders={
                    RELAXED: Contender(DYGNN, TITLES[RELAXED]),
                    WHOLE: Contender(TGCN, TITLES[WHOLE]),
                }),
        ]  # fmt: skip

    def answer(self, rows: Rows) -> str:
        found = Table.of(rows, experiment=NAME, what="race").where("speedup")
        if not found:
            return ""
        words = []
        for other in AGAINST:
            ratios = found.where(baseline=other).values
            words.append(f"{min(ratios):.1f}x to {max(ratios):.1f}x over {TITLES[other]}")
        return f"T-GCN is {', '.join(words)}, sampling included."


def race(
    name: str, context: RunContext, names: dict[str, dict[str, Any]], first: str
) -> Measurement:
    """Contenders in turns; gains are of `first` over each of the others."""
    from dgbench.systems.base.interactions import load_interactions

    task = task_of(name, context.preset)
    data = load_interactions(task)
    with opened(names, task, data, context.device) as runners:
        seconds = take_turns(runners, TURNS[context.preset], context.device)
        reports = {key: runner.trainer.report() for key, runner in runners.items()}
        checks = checks_of(runners) if context.round == 1 else []
    systems = [one for one in (TGCN, DYGNN, JODIE) if one in names]
    started = start_checks(task, data, context.device, systems)
    found = Measurement(
        checks=[*started, *checks], deviation=loss_gap(started), data=data.describe()
    )
    for key, one in seconds.items():
        found.observe("edge_time", median(one), samples=one, setting=key)
        found.observe("throughput", 1 / median(one), setting=key)
        observe_report(found, reports[key], TRAINING, setting=key)
        if key != first:
            observe_ratio(found, "speedup", one, seconds[first], baseline=key)
    found.observe("turns", TURNS[context.preset])
    found.observe("edges", data.train_end)
    found.observe("vertices", data.events.num_nodes)
    return found


def points(rows: Rows) -> list[dict[str, Any]]:
    """T-GCN over every contender, a panel for each."""
    found = []
    for other in AGAINST:
        for row in rows_of(rows, experiment=NAME, what="race"):
            ratio = gain([row], other)
            found.append(
                {
                    "panel": f"over {TITLES[other]}",
                    "row": panel(row),
                    "system": TGCN,
                    "baseline": other,
                    "value": ratio.value,
                    "low": ratio.low,
                    "high": ratio.high,
                    "n": number(row, "turns"),
                    "twin": ratio.twin,
                    "deviation": ratio.deviation,
                    "row_ids": [row.id],
                }
            )
        found += [
            gap(row, panel=f"over {TITLES[other]}", row=panel(row), system=TGCN, baseline=other)
            for row in failures(rows, NAME, what="race")
        ]
    return found
