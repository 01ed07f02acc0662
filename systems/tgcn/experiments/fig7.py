"""Figure 7: sampling by Segment Its Search against every form of what it is compared with (6.3)."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Any, ClassVar, Final

import numpy as np
from torch import Tensor

from dgbench.kernels_cuda.edge_sampling import EdgeTable
from dgbench.lab.charts import chart, failed, failures
from dgbench.lab.compare import (
    AGAIN,
    ROUND_INTERVAL,
    Ratio,
    observe_ratio,
    take_control,
    with_control,
)
from dgbench.lab.grid import Grid
from dgbench.lab.result_checks import ResultCheck, of_contender
from dgbench.lab.table import Table, rows_of
from dgbench.runtime.statistics import median
from dgbench.runtime.threads import one_thread
from dgbench.systems.base import Cell, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.tgcn.common import cells_of, mean_ratio, open_graph
from dgbench.systems.tgcn.methods import BASE, ITS, TITLES, timed
from dgbench.systems.tgcn.races import PROCESSES
from dgbench.systems.tgcn.recounts import check_draws, check_subgraph, check_walk, half_of
from dgbench.systems.tgcn.sampling_tasks import (
    FRONTIERS,
    NAMES,
    NOTHING,
    POOLED,
    TASKS,
    SamplingTask,
    chosen,
    tasks_on,
    whole_calls,
)
from dgbench.systems.tgcn.settings import (
    BY_NAME,
    HELD_NAMES,
    PRESETS,
    SHARE,
    TWIN_NAMES,
    GridGraph,
    graph_title,
    panel,
)

NAME: Final = "fig7"
SHOWN: Final = {
    "smoke": ("lastfm", "college-msg"),
    "quick": (*TWIN_NAMES, "wikipedia"),
    "full": (*TWIN_NAMES, *HELD_NAMES),
    "paper": (*TWIN_NAMES, *HELD_NAMES),
}
SCALES: Final = {
    "lastfm": (1 / 256, 1 / 256, 1 / 16, 1.0),
    "reddit": (1 / 256, 1 / 256, 1 / 8, 1.0),
    "flickr": (1 / 1024, 1 / 1024, 1 / 64, 1.0),
    "twitter": (1 / 4096, 1 / 4096, 1 / 1024, 1 / 64),
}
"""Smaller than where models are trained: three layers of half the neighbours reach most of a graph,
and a linear method reads a quarter of the square of what they reach."""
TURNS: Final = {"smoke": 2, "quick": 2, "full": 3, "paper": 5}
_LUCK: Final = random.SystemRandom()
FILES: Final = {
    "node 2": "node2",
    "node 3": "node3",
    "layer": "layer",
    "subgraph 10^4": "subgraph",
    "subgraph 10%": "subgraph_tenth",
}
TOO_SLOW: Final = "skipped: would read too many elements"
Rows = Sequence[Any]


class Fig7(Grid):
    paper = "tgcn"
    name = NAME
    title = "Figure 7: sampling by SIS, ITS and BRS"
    device = "cpu"
    question = "From which baseline do the printed gains of sampling come?"
    reading = (
        "Processor time of one thread, the same sampler with another way to draw. Edges stand at "
        "both ends, so that graphs with two kinds of vertices have a second layer. Half of what "
        "there is is drawn at every layer; node-wise sampling draws it from the union of the "
        "neighbourhoods (Algorithm 4), each root on its own; layer-wise sampling from what a "
        "batch of roots reaches together. The size of the frontier is garbled in the text: 10^4 "
        "slots or a tenth of the vertices. How ITS finds duplicates is not said: every form is "
        "raced, and a selection by exponential keys, which draws a whole set at once, stands "
        "beside. What it costs to sample a whole graph is timed whole: every vertex as a root, in "
        "layer-wise calls of 512 roots or in one, and 100 subgraphs of |E| / 100 draws."
    )
    claims = (
        "tgcn-abs-sampling-max-speedup",
        "tgcn-s1-brs-twitter-time",
        "tgcn-fig7-nodewise-2layer",
        "tgcn-fig7-nodewise-3layer",
        "tgcn-fig7-layerwise",
        "tgcn-fig7-subgraph",
        "tgcn-fig7-degree-trend",
        "tgcn-fig7-cost-order",
        "tgcn-fig7-3layer-exponential",
    )
    control: ClassVar = {"dataset": "wikipedia"}
    axes: ClassVar = {"dataset": SHOWN}
    repeats: ClassVar = PROCESSES
    timeout_s: ClassVar = {"smoke": 60, "quick": 90, "full": 1800, "paper": 14400}

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        return [self.cell(one, preset, interleaved=True) for one in self.points(preset, device)]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        with one_thread():
            graph = BY_NAME[str(cell.params["dataset"])]
            return measure(graph, context, control=self.controls(cell))

    def figures(self) -> list[FigureSpec]:
        return [
            chart(
                "speedup",
                f"fig7_{FILES[task]}",
                f"SIS over other ways to draw: {words}",
                lambda rows, task=task: gain_points(rows, task),
                baseline_label="the way of the row",
                xlabel="time of the other / time of SIS (binary tree)",
                interval=ROUND_INTERVAL,
                exact=False,
            )
            for task, words in TASKS.items()
        ]

    def answer(self, rows: Rows) -> str:
        found = Table.of(rows, experiment=NAME)
        if not found:
            return ""
        said = []
        for task, names in (("node 3", (*ITS, "keys")), ("subgraph 10^4", ("brs", "brs rest"))):
            parts = []
            for name in names:
                known = found.where("speedup", setting=task, baseline=name).values
                if known:
                    parts.append(f"{NAMES[name]} {min(known):.1f} to {max(known):.1f}x")
            said.append(f"{TASKS[task]}: {', '.join(parts)}")
        return f"SIS against {'; '.join(said)}."


def measure(graph: GridGraph, context: RunContext, *, control: bool) -> Measurement:
    """All kinds of sampling on one graph, every way to draw in turns."""
    preset, first = context.preset, context.round == 1
    scale = SCALES.get(graph.name, (1.0,) * 4)[PRESETS.index(preset)]
    events = open_graph(graph.name, preset, scale)
    table = EdgeTable.build(
        events.src, events.dst, events.t, events.num_nodes, undirected=True, threads=1
    )
    found = Measurement(data=describe(events))
    found.observe("edges", len(events))
    found.observe("vertices", events.num_nodes)
    found.observe("vertices", int((table.degrees > 0).sum()), of="met")
    found.observe("turns", TURNS[preset])
    tasks = tasks_on(table, preset)
    spent: dict[str, dict[str, list[float]]] = {name: {} for name in tasks}
    ends = events.src, events.dst
    found.checks = checked_draws() if first else []
    for turn in range(-1, TURNS[preset]):
        for name, task in tasks.items():
            last = turn == TURNS[preset] - 1
            results: dict[str, Any] | None = {} if last else None
            sides = with_control(task.calls, on=control, pair=BASE)
            timed(sides, spent[name], turn, results)
            if results is not None:
                results.pop(AGAIN, None)
                if not first:  # of each task one way that is drawn
                    way = _LUCK.choice([way for way in results if way != NOTHING])
                    results = {way: results[way]}
                found.checks += checked(ends, task, results, name)
    wrong = [one.gap for one in found.checks if one.of == "samples"]
    found.deviation = {"sizes": max(wrong)} if wrong else {}
    for name, task in tasks.items():
        for count in task.counts:
            found.observe(count.metric, count.value, setting=name, **count.dims)
        found.notes += [f"{TASKS[name]}, {NAMES[way]}: {why}" for way, why in task.left_out.items()]
        nothing = spent[name].pop(NOTHING, [0.0] * TURNS[preset])
        net = {
            way: [max(1e-9, s - n) for s, n in zip(seconds, nothing, strict=True)]
            for way, seconds in spent[name].items()
        }
        take_control(found, net, pair=BASE, task=name)
        for way, seconds in net.items():
            middle = median(seconds)
            found.observe("sampling_time", middle, samples=seconds, setting=name, method=way)
            if way != BASE:
                observe_ratio(found, "speedup", seconds, net[BASE], setting=name, baseline=way)
    for name, call in whole_calls(table).items():
        start = time.thread_time()
        call()
        found.observe("sampling_time", time.thread_time() - start, setting=name, method=BASE)
    return found


def checked(
    ends: tuple[Tensor, Tensor], task: SamplingTask, results: dict[str, Any], name: str
) -> list[ResultCheck]:
    """Checks of the samples of the last turn, of each way to draw: around a drawn root of each."""
    found: list[ResultCheck] = []
    for way, sample in results.items():
        part = f"{name} {way}"
        if task.roots is None:
            check = check_subgraph(ends, sample, task.frontier, task.draws, part)
            found += of_contender(way, [check])
        elif way != NOTHING:
            layerwise = name.startswith("layer")
            roots = task.roots if not layerwise else task.roots.unique()
            check = check_walk(ends, sample, roots, amount=half, part=part)
            found += of_contender(way, [check])
    return found


def half(degrees: np.ndarray) -> int:
    """Edges that are drawn from the union of neighbourhoods of these sizes."""
    return int(half_of(degrees.sum(), SHARE))


def checked_draws() -> list[ResultCheck]:
    """Checks of every way to draw but the one that is biased as printed."""
    ways = [way for way in TITLES if way not in ("brs_literal", "reservoir")]
    return check_draws({way: chosen(way) for way in ways}, (1, 2, 3, 5, 8, 1))


def gain(rows: Rows, task: str, way: str) -> Ratio | None:
    """Time of another sampler relative to SIS, where it was raced; geometric mean over graphs."""
    return mean_ratio(Table.of(rows).where("speedup", setting=task, baseline=way), "dataset")


def left_out(row: Any, task: str, way: str) -> bool:
    """Return True if a way was not raced beside others; the row's notes say why."""
    raced = Table.of([row]).where("sampling_time", setting=task)
    return bool(raced) and not raced.where(method=way)


def gain_points(rows: Rows, task: str) -> list[dict[str, Any]]:
    """Points of `speedup`: every way to draw over SIS, by graph."""
    ways = FRONTIERS if task.startswith("subgraph") else POOLED
    points: list[dict[str, Any]] = []
    for cell in cells_of(rows_of(rows, experiment=NAME)):
        row = cell[-1]
        for way in ways[1:]:
            common = {
                "row": panel(row),
                "system": "tgcn",
                "baseline": NAMES[way],
                "panel": NAMES[way],
                "twin": False,
                "row_ids": [one.id for one in cell],
            }
            ratio = gain(cell, task, way)
            if ratio is not None:
                points.append(
                    {"value": ratio.value, "low": ratio.low, "high": ratio.high, "n": ratio.n}
                    | common
                )
            elif left_out(row, task, way):
                points.append({"failed": TOO_SLOW, "failed_system": NAMES[way], **common})
    for row in failures(rows, NAME):
        points.append(
            {"row": graph_title(row.params["dataset"]), "system": "tgcn", "baseline": BASE,
             "failed": failed(row), "failed_system": "tgcn", "panel": NAMES[ways[1]],
             "row_ids": [row.id]}
        )  # fmt: skip
    return points
