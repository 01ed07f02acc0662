"""Figure 7: sampling by Segment Its Search against every form of what it is compared with (6.3)."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np
from torch import Tensor

from dgbench.kernels_cuda.edge_sampling import EdgeTable
from dgbench.lab import line_rules, outcomes, rules
from dgbench.lab import rule_combinations as combine
from dgbench.lab.compare import AGAIN, ROUND_INTERVAL, observe_ratio, take_control, with_control
from dgbench.lab.estimates import Estimate, EvaluationContext, Filter
from dgbench.lab.figure_forms import FigureForm, SpeedupBars
from dgbench.lab.quantities import MeasuredQuantity, computed, observed
from dgbench.lab.result_checks import ResultCheck, of_contender
from dgbench.lab.study import FormExperiment
from dgbench.lab.table import Table
from dgbench.runtime.statistics import median
from dgbench.runtime.threads import one_thread
from dgbench.systems.base import Cell, Measurement, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.tgcn.experiments.cited import twitter_edges
from dgbench.systems.tgcn.methods import BASE, ITS, TITLES, timed
from dgbench.systems.tgcn.races import PROCESSES
from dgbench.systems.tgcn.recounts import check_draws, check_subgraph, check_walk, half_of
from dgbench.systems.tgcn.sampling_tasks import (
    BATCH,
    FRONTIERS,
    NAMES,
    NOTHING,
    POOLED,
    TASKS,
    WHOLE_BATCHES,
    WHOLE_NODE,
    WHOLE_ONCE,
    WHOLE_SUBGRAPHS,
    SamplingTask,
    chosen,
    tasks_on,
    whole_calls,
)
from dgbench.systems.tgcn.settings import (
    BY_NAME,
    FORMS,
    HELD_NAMES,
    PRESETS,
    SHARE,
    TWIN_NAMES,
    GridGraph,
    open_graph,
)

SHOWN = {
    "smoke": ("lastfm", "college-msg"),
    "quick": (*TWIN_NAMES, "wikipedia"),
    None: (*TWIN_NAMES, *HELD_NAMES),
}
SCALES = {
    "lastfm": (1 / 256, 1 / 256, 1 / 16, 1.0),
    "reddit": (1 / 256, 1 / 256, 1 / 8, 1.0),
    "flickr": (1 / 1024, 1 / 1024, 1 / 64, 1.0),
    "twitter": (1 / 4096, 1 / 4096, 1 / 1024, 1 / 64),
}
"""Smaller than where models are trained: three layers of half the neighbours reach most of a graph,
and a linear method reads a quarter of the square of what they reach."""
TURNS = {"smoke": 2, "quick": 2, "full": 3, "paper": 5}
_LUCK = random.SystemRandom()
FILES = {
    "node 2": "node2",
    "node 3": "node3",
    "layer": "layer",
    "subgraph 10^4": "subgraph",
    "subgraph 10%": "subgraph_tenth",
}
QUADRATIC = 2.25
"""Factor of a third layer by which time grows with the square of layers; exponential is more."""
SIZES = {"subgraph 10^4": "a frontier of 10^4", "subgraph 10%": "a tenth of the vertices"}
"""Task -> interpretation of the garbled size of a frontier."""

GAIN = observed("speedup", per=("dataset", "baseline"))
"""Time of another way to draw over that of SIS, by task (`setting`)."""
TIME = observed("sampling_time", per="dataset", method=BASE, dataset=TWIN_NAMES)
NODE, SUBGRAPHS = (TIME.where(setting=one) for one in (WHOLE_NODE, WHOLE_SUBGRAPHS))
DEGREE = 2 * observed("edges", per="dataset") / observed("vertices", per="dataset")


def gain(task: str, way: str) -> MeasuredQuantity:
    """Gain over a way to draw on each of the paper's graphs that raced it."""
    return GAIN.where(setting=task, baseline=way, dataset=TWIN_NAMES)


def printed_range(task: str, way: str) -> outcomes.Rule:
    """Gains over one form that the paper's baseline may have had; a range is that of all four
    graphs."""
    gains = gain(task, way)
    ends = {"low": gains.joined_over(min, "dataset"), "high": gains.joined_over(max, "dataset")}
    faster = rules.all_above(gains, 1.0, unit="x")
    return combine.first_found(
        combine.complete(rules.entries_near_claim(ends, faster), gains, {"dataset": TWIN_NAMES}),
        rules.entries_near_claim({}, faster),
    )


def over_its(task: str) -> outcomes.Rule:
    """A printed range under each form of ITS."""
    return combine.interpretations(
        "how ITS finds duplicates is not said",
        {NAMES[way]: printed_range(task, way) for way in ITS},
    )


def over_brs(rule: Any) -> outcomes.Rule:
    """A rule of task and way under each size of the frontier and each form of BRS."""
    return combine.interpretations(
        "the frontier's size is garbled, and how BRS renews its sums is not said",
        {
            f"{words}, {NAMES[way]}": rule(task, way)
            for (task, words), way in product(SIZES.items(), ("brs", "brs rest"))
        },
    )


def hours(way: str) -> MeasuredQuantity:
    """Hours of as many steps of a form of BRS on a frontier of 10^4 as Twitter has edges."""
    about = {"setting": "subgraph 10^4", "dataset": "twitter"}
    spent = observed("sampling_time", method=way, **about)
    steps = observed("draw_work", of="draws", **about)
    return (twitter_edges() / 3600 * spent / steps).pooled("workloads")


def by_degree(way: str, above: bool) -> MeasuredQuantity:
    """Gain on the graphs of larger mean degree (`above`), or on those of smaller ones."""

    def halves(context: EvaluationContext) -> Iterator[tuple[Mapping[str, Any], Estimate]]:
        raced = [dict(at)["dataset"] for at in gain("node 2", way).estimates(context)]
        degrees = {dict(at)["dataset"]: one.value for at, one in DEGREE.estimates(context).items()}
        raced.sort(key=degrees.__getitem__, reverse=True)
        some = raced[: len(raced) // 2] if above else raced[-(len(raced) // 2) :]
        mean = observed("speedup", setting="node 2", baseline=way, dataset=some.__contains__)
        if len(raced) > 1:
            yield from (({}, one) for one in mean.pooled("workloads").estimates(context).values())

    return computed(halves, per=())


def sampled_whole(layer: str) -> Filter:
    """Entries of graphs that were sampled whole in this way, too."""
    return lambda entries, context: [
        one for one in entries if Table.of([one.row]).where("sampling_time", setting=layer)
    ]


def cost_order(layer: str) -> outcomes.Rule:
    """Node-wise sampling of whole graphs over subgraphs, and these over layer-wise sampling."""
    pairs = (NODE / SUBGRAPHS, SUBGRAPHS / TIME.where(setting=layer))
    ratios = [pair.keep(sampled_whole(layer)).pooled("workloads") for pair in pairs]
    return combine.both(*(rules.all_above(one, 1.0, unit="x") for one in ratios))


def root_time(task: str) -> MeasuredQuantity:
    """Seconds of a root of a node-wise call."""
    roots = observed("vertices", per="dataset", of="roots", setting=task)
    return TIME.where(setting=task) / roots


def gain_figure(task: str) -> FigureForm:
    """The figure of one task."""
    ways = FRONTIERS if task.startswith("subgraph") else POOLED
    return SpeedupBars(
        f"fig7_{FILES[task]}", f"SIS over other ways to draw: {TASKS[task]}",
        GAIN.where(setting=task, baseline=ways[1:]),
        panel="{baseline}", row="{dataset}", system="tgcn", baseline="{baseline}",
        gaps={"panel": NAMES[ways[1]], "baseline": BASE},
        without="skipped: would read too many elements",
        baseline_label="the way of the row", xlabel="time of the other / time of SIS (binary tree)",
        interval=ROUND_INTERVAL, exact=False,
    )  # fmt: skip


class Fig7(FormExperiment):
    forms, name = FORMS, "fig7"
    device = "cpu"
    control = {"dataset": "wikipedia"}
    axes = {"dataset": SHOWN}
    repeats, interleaved = PROCESSES, True
    timeout_s = {"smoke": 60, "quick": 90, "full": 1800, "paper": 14400}
    headline, unit = GAIN.where(setting="node 3", baseline=(*ITS, "keys")), "x"
    figure_forms = tuple(map(gain_figure, TASKS))
    claims = {
        "tgcn-abs-sampling-max-speedup": over_brs(
            lambda task, way: rules.near_claim(gain(task, way), above=1.0, report=rules.largest)
        ),
        "tgcn-s1-brs-twitter-time": combine.interpretations(
            "how BRS renews its sums is not said",
            {
                NAMES[way]: combine.by_model(
                    rules.near_claim(hours(way)), "rate of one thread, multiplied up"
                )
                for way in ("brs", "brs rest")
            },
        ),
        "tgcn-fig7-nodewise-2layer": over_its("node 2"),
        "tgcn-fig7-nodewise-3layer": over_its("node 3"),
        "tgcn-fig7-layerwise": over_its("layer"),
        "tgcn-fig7-subgraph": over_brs(printed_range),
        "tgcn-fig7-degree-trend": combine.interpretations(
            "how ITS finds duplicates is not said",
            {
                NAMES[way]: line_rules.clearly_above(by_degree(way, True), by_degree(way, False))
                for way in ITS
            },
        ),
        "tgcn-fig7-cost-order": combine.interpretations(
            "how many roots share a pool is not said",
            {
                f"{BATCH} roots share a pool": cost_order(WHOLE_BATCHES),
                "all roots share a pool": cost_order(WHOLE_ONCE),
            },
        ),
        "tgcn-fig7-3layer-exponential": rules.all_above(
            (root_time("node 3") / root_time("node 2")).pooled("workloads"), QUADRATIC, unit="x"
        ),
    }

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        with one_thread():
            graph = BY_NAME[str(cell.params["dataset"])]
            return measure(graph, context, control=self.controls(cell))


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
        if task.roots is None:
            found.observe("draw_work", task.draws, of="draws", setting=name)
        else:
            found.observe("vertices", task.roots.numel(), of="roots", setting=name)
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
