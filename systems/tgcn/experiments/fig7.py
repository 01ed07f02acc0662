"""Figure 7: sampling by Segment Its Search against every form of what it is compared with (6.3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from dgbench.kernels_cuda.edge_sampling import (
    sample_layerwise,
    sample_nodewise,
    sample_subgraph,
)
from dgbench.kernels_cuda.edge_table import EdgeTable
from dgbench.runtime.statistics import median
from dgbench.systems.base import Cell, Experiment, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.base.compare import Ratio, select
from dgbench.systems.base.turns import TURN_INTERVAL, gain_of, gains
from dgbench.systems.tgcn.experiments.common import (
    failed,
    failures,
    graph_title,
    one_thread,
    open_graph,
    origin_data,
    panel,
)
from dgbench.systems.tgcn.experiments.methods import (
    BASE,
    ITS,
    LINEAR,
    TITLES,
    arity_of,
    name_of,
    timed,
)
from dgbench.systems.tgcn.experiments.settings import (
    BY_NAME,
    HELD_NAMES,
    PRESETS,
    SHARE,
    TWIN_NAMES,
    Graph,
)

NAME: Final = "fig7"
SHOWN: Final = {
    "smoke": ("lastfm", "college-msg"),
    "quick": (*TWIN_NAMES, "wikipedia", "college-msg"),
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
TURNS: Final = {"smoke": 2, "quick": 6, "full": 7, "paper": 9}
ROOTS: Final = 64
"""Roots of a node-wise call; half of them, and so on, where that is more than `WORK` and `READ`."""
BATCH: Final = 512
"""Roots that share the pool of a layer-wise call, fewer as above."""
WORK: Final = {"smoke": 1e5, "quick": 3e5, "full": 4e6, "paper": 4e7}
"""Edges that the pools of a node-wise call hold together."""
READ: Final = {"smoke": 1e7, "quick": 3e7, "full": 1e9, "paper": 1e10}
"""Elements that a linear method may read in a call; one that needs more for a root is left out."""
FRONTIER: Final = 10_000
TENTH: Final = 0.1
"""Both readings of the garbled size of a frontier."""
STEPS: Final = {"smoke": 200, "quick": 4_000, "full": 10_000, "paper": 100_000}
"""Vertices drawn of one subgraph. The paper draws |E| / 100, of Reddit, its smallest, 6,724."""
TASKS: Final = {
    "node 2": "node-wise, 2 layers",
    "node 3": "node-wise, 3 layers",
    "layer": "layer-wise, 2 layers",
    "subgraph 10^4": "subgraph, frontier 10^4",
    "subgraph 10%": "subgraph, frontier 10 % of V",
}
"""What Figure 7 shows, and the second reading of its frontier."""
FILES: Final = {
    "node 2": "node2",
    "node 3": "node3",
    "layer": "layer",
    "subgraph 10^4": "subgraph",
    "subgraph 10%": "subgraph_tenth",
}
POOLED: Final = ("sis", "sis8", *ITS, "alias", "reservoir", "keys")
"""Methods for pools of equal weights."""
FRONTIERS: Final = ("sis", "sis8", "brs", "brs rest", "brs_literal", "its_bitmap", "keys")
"""Methods for frontiers. `brs rest` sums up prefix sums from the moved slot on, `brs` all."""
NAMES: Final = TITLES | {
    "brs": "BRS",
    "brs rest": "BRS half",
}

Rows = Sequence[Any]
Call = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Task:
    """One kind of sampling on one graph.

    Attributes:
        calls: by method, each the same sample by another way to draw.
        left_out: by method, why it is not raced.
        counters: what was sampled.
    """

    calls: dict[str, Call]
    left_out: dict[str, str]
    counters: dict[str, int]


class Fig7(Experiment):
    paper = "tgcn"
    name = NAME
    title = "Figure 7: sampling by SIS, ITS and BRS"
    question = "From which baseline do the printed gains of sampling come?"
    reading = (
        "Processor time of one thread, the same sampler with another way to draw. Edges stand at "
        "both ends, so that graphs with two kinds of vertices have a second layer. Half of what "
        "there is is drawn at every layer; node-wise sampling draws it from the union of the "
        "neighbourhoods (Algorithm 4), each root on its own; layer-wise sampling from what a "
        "batch of roots reaches together. The size of the frontier is garbled in the text: 10^4 "
        "slots or a tenth of the vertices. How ITS finds duplicates is not said: every form is "
        "raced, and a selection by exponential keys, which draws a whole set at once, stands "
        "beside."
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

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        return [
            Cell(
                paper=self.paper,
                experiment=NAME,
                params={"dataset": name},
                group=name,
                timeout_s={"smoke": 60, "quick": 90, "full": 1800, "paper": 14400}[preset],
            )
            for name in SHOWN[preset]
        ]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        with one_thread():
            return measure(BY_NAME[str(cell.params["dataset"])], context.preset)

    def figures(self) -> list[FigureSpec]:
        return [
            FigureSpec(
                kind="speedup",
                name=f"fig7_{FILES[task]}",
                title=f"SIS over other ways to draw: {words}",
                points=lambda rows, task=task: gain_points(rows, task),
                options={
                    "baseline_label": "the way of the row",
                    "xlabel": "time of the other / time of SIS (binary tree)",
                    "interval": TURN_INTERVAL,
                    "exact": False,
                },
            )
            for task, words in TASKS.items()
        ]

    def answer(self, rows: Rows) -> str:
        found = rows_of(rows)
        if not found:
            return ""
        said = []
        for task, names in (("node 3", (*ITS, "keys")), ("subgraph 10^4", ("brs", "brs rest"))):
            parts = []
            for name in names:
                known = [g.value for row in found if (g := gain(row, task, name)) is not None]
                if known:
                    parts.append(f"{NAMES[name]} {min(known):.1f} to {max(known):.1f}x")
            said.append(f"{TASKS[task]}: {', '.join(parts)}")
        return f"SIS against {'; '.join(said)}."


def measure(graph: Graph, preset: Preset) -> Measurement:
    """All kinds of sampling on one graph, every way to draw in turns."""
    scale = SCALES.get(graph.name, (1.0,) * 4)[PRESETS.index(preset)]
    events = open_graph(graph.name, preset, scale)
    table = EdgeTable.build(
        events.src, events.dst, events.t, events.num_nodes, undirected=True, threads=1
    )
    found = Measurement(
        data=origin_data(events.origin),
        counters={"edges": len(events), "vertices": events.num_nodes, "turns": TURNS[preset]},
        deviation={"sizes": 0.0},
    )
    tasks = tasks_on(table, preset)
    spent: dict[str, dict[str, list[float]]] = {name: {} for name in tasks}
    for turn in range(-1, TURNS[preset]):
        for name, task in tasks.items():
            timed(task.calls, spent[name], turn)
    for name, task in tasks.items():
        found.counters |= {f"{name} {key}": number for key, number in task.counters.items()}
        found.notes += [f"{TASKS[name]}, {NAMES[way]}: {why}" for way, why in task.left_out.items()]
        for way, seconds in spent[name].items():
            found.values[f"{name} {way} s"] = median(seconds)
            if way != BASE:
                found.values |= gains(f"{name} {way}", seconds, spent[name][BASE])
    return found


def tasks_on(table: EdgeTable, preset: Preset) -> dict[str, Task]:
    """All kinds of sampling on one graph."""
    occupied = table.degrees.nonzero().squeeze(1)
    roots = occupied[torch.randperm(len(occupied), generator=torch.Generator().manual_seed(7))]
    draws = STEPS[preset]
    tenth = max(1, round(TENTH * table.num_nodes))
    return {
        "node 2": node_task(table, roots, 2, preset),
        "node 3": node_task(table, roots, 3, preset),
        "layer": layer_task(table, roots[:BATCH], preset),
        "subgraph 10^4": frontier_task(table, FRONTIER, draws),
        "subgraph 10%": frontier_task(table, tenth, draws),
    }


def chosen(way: str) -> dict[str, Any]:
    """Arguments that choose a way to draw."""
    method, _, rest = way.partition(" ")
    more = {"rebuild": "rest"} if rest else {}
    return {"method": name_of(method), "arity": arity_of(method), **more}


def reads_of(pools: Tensor) -> float:
    """Elements that a scan reads: half of a pool for each of the drawn half."""
    return float((pools.double() ** 2).sum()) / 4


def fits(pools: Tensor, preset: Preset) -> bool:
    """Whether linear methods may draw from such pools."""
    return float(pools.sum()) <= WORK[preset] and reads_of(pools) <= READ[preset]


def node_task(table: EdgeTable, roots: Tensor, layers: int, preset: Preset) -> Task:
    """Half of the union of neighbourhoods, layer by layer, for each root on its own."""
    pilot = sample_nodewise(table, roots[:ROOTS], share=SHARE, layers=layers, threads=1, seed=1)
    count = pilot.pools.shape[0]
    while count > 1 and not fits(pilot.pools[:count], preset):
        count //= 2
    return pool_task(sample_nodewise, table, roots[:count], pilot.pools[:count], layers, preset)


def layer_task(table: EdgeTable, roots: Tensor, preset: Preset) -> Task:
    """Half of what a batch of roots reaches, layer by layer."""
    while True:
        pilot = sample_layerwise(table, roots, share=SHARE, layers=2, threads=1, seed=1)
        if len(roots) == 1 or fits(pilot.pools, preset):
            return pool_task(sample_layerwise, table, roots, pilot.pools, 2, preset)
        roots = roots[: len(roots) // 2]


def pool_task(
    sample: Callable[..., Any],
    table: EdgeTable,
    roots: Tensor,
    pools: Tensor,
    layers: int,
    preset: Preset,
) -> Task:
    """Draws from pools of equal weights; methods that would read too much are left out."""

    def call(way: str) -> Call:
        return lambda: sample(
            table, roots, share=SHARE, layers=layers, seed=1, threads=1, **chosen(way)
        )

    reads = reads_of(pools)
    calls: dict[str, Call] = {}
    absent: dict[str, str] = {}
    for way in POOLED:
        if way in LINEAR and reads > READ[preset]:
            absent[way] = f"skipped: would read about {reads:.0e} elements a call"
        else:
            calls[way] = call(way)
    counters = {
        "roots": roots.numel(),
        "pooled": int(pools.sum()),
        "largest pool": int(pools.max()),
        "mean pool": round(float(pools.double().mean())),
    }
    return Task(calls, absent, counters)


def frontier_task(table: EdgeTable, frontier: int, draws: int) -> Task:
    """One subgraph by a frontier, induced edges left to others: they cost every way the same."""

    def call(way: str) -> Call:
        return lambda: sample_subgraph(
            table, frontier, draws, induced=False, seed=1, threads=1, **chosen(way)
        )

    return Task(
        {way: call(way) for way in FRONTIERS}, {}, {"frontier": frontier, "draws": draws}
    )  # fmt: skip


def rows_of(rows: Rows) -> list[Any]:
    """Usable rows of this experiment."""
    return select(rows, experiment=NAME)


def gain(row: Any, task: str, way: str) -> Ratio | None:
    """How many times as long as SIS another way to draw takes, where it was raced."""
    name = f"{task} {way}"
    return gain_of([row], name) if f"gain {name}" in row.values else None


def left_out(row: Any, task: str, way: str) -> str:
    """Why a way was not raced, or ""."""
    start = f"{TASKS[task]}, {NAMES[way]}: "
    return next((note.removeprefix(start) for note in row.notes if note.startswith(start)), "")


def gain_points(rows: Rows, task: str) -> list[dict[str, Any]]:
    """Points of `speedup`: every way to draw over SIS, by graph."""
    ways = FRONTIERS if task.startswith("subgraph") else POOLED
    points: list[dict[str, Any]] = []
    for row in rows_of(rows):
        for way in ways[1:]:
            common = {
                "row": panel(row),
                "system": "tgcn",
                "baseline": way,
                "panel": NAMES[way],
                "twin": False,
                "row_ids": [row.id],
            }
            ratio = gain(row, task, way)
            if ratio is not None:
                points.append(
                    {"value": ratio.value, "low": ratio.low, "high": ratio.high, "n": ratio.n}
                    | common
                )
            elif why := left_out(row, task, way):
                points.append({"failed": why, "failed_system": way, **common})
    for row in failures(rows, NAME):
        points.append(
            {"row": graph_title(row.params["dataset"]), "system": "tgcn", "baseline": BASE,
             "failed": failed(row), "failed_system": "tgcn", "panel": NAMES[ways[1]],
             "row_ids": [row.id]}
        )  # fmt: skip
    return points
