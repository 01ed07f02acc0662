"""Figure 6: end-to-end training, T-GCN against DyGNN and JODIE (section 6.2)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Final

from dgbench.lab.charts import chart, failures, gap
from dgbench.lab.compare import ROUND_INTERVAL, Ratio, observe_ratio
from dgbench.lab.grid import Grid
from dgbench.lab.main_race import MainRace, RaceComparison, RatioReader
from dgbench.lab.quality import observed_quality
from dgbench.lab.table import Table, rows_of
from dgbench.runtime.statistics import median
from dgbench.systems.base import Cell, Contender, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.tgcn.common import cells_of, mean_ratio
from dgbench.systems.tgcn.experiments.quality import OURS, STRICT
from dgbench.systems.tgcn.races import (
    DYGNN,
    JODIE,
    JODIE_RELAXED,
    PARTS,
    PROCESSES,
    RELAXED,
    SAME_ORDER,
    TGCN,
    TITLES,
    TRAINING,
    UNION,
    WHOLE,
    audits_of,
    compare_first,
    observe_report,
    opened,
    take_turns,
    task_of,
)
from dgbench.systems.tgcn.settings import BY_NAME, SMALL_NAMES, panel

NAME: Final = "fig6"
NOT_PADDED: Final = {DYGNN: "dygnn, not padded", JODIE: "jodie, not padded"}
SHOWN: Final = {
    "smoke": ("lastfm", "wikipedia"),
    "quick": (*SMALL_NAMES, "wikipedia"),
    "full": (*SMALL_NAMES, "wikipedia", "enron", "sx-mathoverflow"),
    "paper": (*SMALL_NAMES, "wikipedia", "enron", "sx-mathoverflow"),
}
TURNS: Final = {"smoke": 1, "quick": 2, "full": 4, "paper": 6}
AGAINST: Final = (DYGNN, JODIE, RELAXED, JODIE_RELAXED, WHOLE, PARTS)
LARGE: Final = "twitter"
PADDED: Final = {"smoke": ("wikipedia",), **dict.fromkeys(("quick", "full", "paper"), SMALL_NAMES)}
"""Graphs on which padding is counted: those that the paper says may fail already."""


def gains(rows: Sequence[Any], over: str, of: str = TGCN) -> Table:
    """Speedups of a form of T-GCN over another contender, one a process."""
    setting = None if of == TGCN else of
    return Table.of(rows, what="race").where("speedup", baseline=over, setting=setting)


def gain(rows: Sequence[Any], over: str, of: str = TGCN) -> Ratio | None:
    """Geometric mean over graphs of the speedups of a form of T-GCN over another contender."""
    return mean_ratio(gains(rows, over, of), "dataset")


def gain_over(other: str) -> RatioReader:
    """Reader of `gain`."""
    return lambda rows, workload: gain(rows, other)


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
            quality=observed_quality(contender={"model": OURS}, reference={"model": STRICT}),
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
        RaceComparison(
            subject="T-GCN",
            rival="JODIE with the same relaxed order",
            ratio=gain_over(JODIE_RELAXED),
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
        "inside an interval. A relaxed order is no technique of the paper and takes nothing from a "
        "baseline's idea, so that DyGNN and JODIE also run with it on the same engine; over these "
        "the claims are judged, and the factor over the strict ones stands beside. T-GCN on all "
        "edges says what sampling brings, and on the pools of Algorithm 4 (half of the union of "
        "neighbourhoods, layer by layer around roots, until half of all edges are in) what they "
        "cost in a whole run. The paper computes new embeddings of the vertices that an "
        "interval's edges affect (4.1); T-GCN that computes those of all vertices runs beside it. "
        "What devices move does not show on one. The memory of padding is counted with and "
        "without it."
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
    repeats: ClassVar = PROCESSES
    timeout_s: ClassVar = {"smoke": 90, "quick": 180, "full": 1800, "paper": 36000}

    def points(self, preset: Preset, device: str) -> Iterable[dict[str, Any]]:
        yield from ({"dataset": name, "what": "race"} for name in SHOWN[preset])
        yield from ({"dataset": name, "what": "padding"} for name in PADDED[preset])
        yield {"dataset": LARGE, "what": "rate"}

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        lacks = "" if device == "cuda" else "its time stands for a GPU's: needs a CUDA device"
        return [
            self.cell(
                one,
                preset,
                interleaved=True,
                unavailable=lacks if one["what"] == "rate" else "",
                **({} if one["what"] == "race" else {"repeats": 1}),
            )
            for one in self.points(preset, device)
        ]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        name = str(cell.params["dataset"])
        what = str(cell.params["what"])
        if what == "padding":
            return pad(name, context)
        names: dict[str, dict[str, Any]] = {TGCN: {}}
        if what == "race":
            names |= {other: {} for other in (*AGAINST, UNION)}
        return race(name, context, names)

    def figures(self) -> list[FigureSpec]:
        return [
            chart("speedup", "fig6", "End-to-end time per edge, T-GCN over the others", points,
                baseline_label="each system", xlabel="speed-up of T-GCN", interval=ROUND_INTERVAL,
                contenders={
                    RELAXED: Contender(DYGNN, TITLES[RELAXED]),
                    JODIE_RELAXED: Contender(JODIE, TITLES[JODIE_RELAXED]),
                    PARTS: Contender(TGCN, TITLES[PARTS]),
                    WHOLE: Contender(TGCN, TITLES[WHOLE]),
                    UNION: Contender(TGCN, TITLES[UNION]),
                }),
        ]  # fmt: skip

    def answer(self, rows: Rows) -> str:
        found = Table.of(rows, experiment=NAME, what="race").where("speedup")
        if not found:
            return ""
        words = []
        for other in AGAINST:
            ratios = found.where(baseline=other, setting=None).values
            if ratios:
                words.append(f"{min(ratios):.1f}x to {max(ratios):.1f}x over {TITLES[other]}")
        return f"T-GCN is {', '.join(words)}, sampling included."


def race(name: str, context: RunContext, names: dict[str, dict[str, Any]]) -> Measurement:
    """Contenders in turns; gains are of T-GCN over each of the others, and of its form that
    computes all vertices anew over those of the same order."""
    from dgbench.systems.base.interactions import load_interactions

    task = task_of(name, context.preset)
    data = load_interactions(task)
    with opened(names, task, data, context.device) as runners:
        audits = audits_of(runners)
        seconds = take_turns(runners, TURNS[context.preset], context.device, audits)
        reports = {key: runner.trainer.report() for key, runner in runners.items()}
        found = Measurement(data=data.describe())
        compare_first(found, context, task, data, runners, audits)
    for key, one in seconds.items():
        found.observe("edge_time", median(one), samples=one, setting=key)
        found.observe("throughput", 1 / median(one), setting=key)
        observe_report(found, reports[key], TRAINING, setting=key)
        if key != TGCN:
            observe_ratio(found, "speedup", one, seconds[TGCN], baseline=key)
        if PARTS in seconds and key in SAME_ORDER.values():
            observe_ratio(found, "speedup", one, seconds[PARTS], baseline=key, setting=PARTS)
    found.observe("turns", TURNS[context.preset])
    found.observe("edges", data.train_end)
    found.observe("vertices", data.events.num_nodes)
    return found


def pad(name: str, context: RunContext) -> Measurement:
    """Bytes and edges of a step of the baselines, padded and not; nothing is timed."""
    from dgbench.systems.base.interactions import load_interactions

    task = task_of(name, context.preset)
    data = load_interactions(task)
    names: dict[str, dict[str, Any]] = {}
    for kind, plain in NOT_PADDED.items():
        names |= {kind: {}, plain: {"contender": kind, "switches": {"padding": False}}}
    found = Measurement(data=data.describe())
    with opened(names, task, data, context.device) as runners:
        for key, runner in runners.items():
            runner.turn()
            observe_report(found, runner.trainer.report(), TRAINING, setting=key)
        compare_first(found, context, task, data, runners)
    found.observe("edges", data.train_end)
    found.observe("vertices", data.events.num_nodes)
    return found


def points(rows: Rows) -> list[dict[str, Any]]:
    """T-GCN over every contender, a panel for each."""
    found = []
    for other in (*AGAINST, UNION):
        for cell in cells_of(rows_of(rows, experiment=NAME, what="race")):
            ratio, row = gain(cell, other), cell[-1]
            if ratio is None:
                continue
            found.append(
                {
                    "panel": f"over {TITLES[other]}",
                    "row": panel(row),
                    "system": TGCN,
                    "baseline": other,
                    "value": ratio.value,
                    "low": ratio.low,
                    "high": ratio.high,
                    "n": ratio.n,
                    "twin": ratio.twin,
                    "deviation": ratio.deviation,
                    "row_ids": ratio.rows,
                }
            )
        found += [
            gap(row, panel=f"over {TITLES[other]}", row=panel(row), system=TGCN, baseline=other)
            for row in failures(rows, NAME, what="race")
            if other in AGAINST
        ]
    return found
