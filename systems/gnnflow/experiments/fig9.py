"""Figure 9: sampling and fetching of a round's training, GNNFlow against TGL (section 6.1)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, Final

import torch
from torch import Tensor

from dgbench.lab.charts import chart, failures, gap, ratio_mark
from dgbench.lab.compare import TURN_INTERVAL, Ratio, observe_speedup, ratio_of
from dgbench.lab.grid import Grid
from dgbench.lab.result_checks import ResultCheck, equal, of_contender
from dgbench.lab.table import Table, number, rows_of
from dgbench.systems.base import Cell, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.gnnflow.experiments.round_race import (
    GNNFLOW,
    GRAPH_AT,
    PUBLISHED,
    SHOWN,
    TGL,
    former,
    observe_hits,
    open_contender,
    setting_of,
    with_locked_tables,
)
from dgbench.systems.gnnflow.experiments.sample_checks import by_subject, drawn, samples_check
from dgbench.systems.gnnflow.experiments.settings import (
    BY_NAME,
    EPOCHS,
    MODELS,
    graph_title,
    model_title,
    workload,
)

NAME: Final = "fig9"
GRAPHS: Final = {
    "smoke": ("gdelt",),
    "quick": ("gdelt",),
    "full": ("gdelt", "sx-mathoverflow", "wikipedia", "enron"),
    "paper": ("gdelt", "sx-mathoverflow", "wikipedia", "enron"),
}
SCALES: Final = {"smoke": 1 / 4096, "quick": 1 / 1024, "full": 1 / 64, "paper": 1.0}
"""Of GDELT."""
TURNS: Final = {"smoke": 1, "quick": 6, "full": 30, "paper": 100}
"""Batches that are timed; two more warm up."""
MAX_BATCH_EDGES: Final = {"smoke": 60, "quick": 150}
"""Edges of a batch at most where there is little time, but for TGN, whose batches are cheap."""
PARTS: Final = ("sampling", "fetching")

Rows = Sequence[Any]


class Fig9(Grid):
    paper = "gnnflow"
    name = NAME
    title = "Figure 9: sampling and feature fetching"
    question = "How much faster are GNNFlow's sampling and fetching than TGL's?"
    reading = (
        "Batches of the paper's size (of 150 edges in quick for TGAT and DySAT), three roots an "
        "edge, in order of time and three epochs each, as in a round's training; both systems take "
        "turns batch by batch, and their samples and features are compared bit by bit. The paper "
        "samples on GPUs and TGL on the host; here both run on the same cores, so that what is "
        "left is that of the layout and of the sampler's loop. Features lie in host memory on both "
        "sides; a cache can only pay by what it keeps near, and its bookkeeping costs. A twin's "
        "caches are as small as its graph, but batches are not, so they hit more seldom than at "
        "full size. GNNFlow is the published form, which walks the list of a vertex's blocks."
    )
    claims = ("gnnflow-fig9-sampling", "gnnflow-fig9-feature-fetch")

    axes: ClassVar[Any] = {"dataset": GRAPHS, "model": MODELS}
    group = "{dataset}/{model}"
    timeout_s: ClassVar[Any] = {"smoke": 60, "quick": 120, "full": 900, "paper": 36000}

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        name, preset = str(cell.params["dataset"]), context.preset
        scale = SCALES[preset] if name == "gdelt" else 1.0
        return measure(name, str(cell.params["model"]), scale, preset, context.device)

    def figures(self) -> list[FigureSpec]:
        return [
            chart("speedup", "fig9", "Sampling and fetching of a batch, GNNFlow over TGL", points,
                baseline_label="TGL, re-implemented", xlabel="speed-up", interval=TURN_INTERVAL),
        ]  # fmt: skip

    def answer(self, rows: Rows) -> str:
        found = rows_of(rows, experiment=NAME)
        if not found:
            return ""
        words = []
        for part in PARTS:
            ratios = [speedup([row], part).value for row in found]
            words.append(f"{part} {min(ratios):.2f}x to {max(ratios):.2f}x as fast as TGL's")
        return f"On the same cores {' and '.join(words)}."


def measure(name: str, model: str, scale: float, preset: Preset, device: str) -> Measurement:
    """Sample and fetch the same batches by both systems, in turns."""
    from dgbench.systems.base.stream import batch_draw, batches, load_stream, negatives_of

    graph = BY_NAME[name]
    small = (
        {"batch": MAX_BATCH_EDGES[preset]} if preset in MAX_BATCH_EDGES and model != "tgn" else {}
    )
    task = workload(graph, model, preset, **{"scale": scale, "chunks": 1, **small})
    data = with_locked_tables(load_stream(task), device)
    stream, first = data.events, round(GRAPH_AT * len(data.events))
    trainers = {
        key: open_contender(key, task, data, graph, device) for key in (TGL, PUBLISHED, GNNFLOW)
    }
    for trainer in trainers.values():
        trainer.prepare()
    parts = batches(task, torch.arange(first, len(stream)), stream.t[first:])
    seconds: dict[str, dict[str, list[float]]] = {
        key: {part: [] for part in PARTS} for key in trainers
    }
    roots = edges = 0
    checks: list[ResultCheck] = []
    chosen = set((drawn(TURNS[preset], 2) + 2).tolist())  # turns that are compared with the data
    for turn in range(TURNS[preset] + 2):
        at, epoch = divmod(turn, EPOCHS)
        part = parts[at % len(parts)]
        nodes = torch.cat([stream.src[part], stream.dst[part], negatives_of(task, data, part)])
        times = stream.t[part].repeat(3)
        draw = batch_draw(task, int(part[0]), epoch)
        answers = {}
        for key in trainers if turn % 2 == 0 else reversed(trainers):
            access = trainers[key].access
            sampling, found = timed(partial(access.sample, nodes, times, draw=draw))
            fetching, rows = timed(partial(fetch, access, found, task))
            answers[key] = (found, rows)
            if turn >= 2:
                seconds[key]["sampling"].append(sampling)
                seconds[key]["fetching"].append(fetching)
        for key in (PUBLISHED, GNNFLOW):
            checks += of_contender(key, alike(answers[key], answers[TGL]))
        if turn in chosen:
            for key, (found, rows) in answers.items():
                where = f"{key}, batch {at % len(parts)}"
                exact = plain_rows(data, found, task)
                own = [
                    samples_check(task, stream, nodes, times, draw, found, part=where),
                    equal("features", rows, exact, against="rows of the tables"),
                ]
                checks += of_contender(key, own)
        if turn >= 2:
            roots += nodes.numel()
            edges += sum(hop.eids.numel() for hops in answers[TGL][0] for hop in hops)
    told = Measurement(
        deviation={"samples": 0.0, "features": 0.0},
        data=data.describe(),
        checks=by_subject(checks),
    )
    for key, of in seconds.items():
        for part, took in of.items():
            told.observe("phase_time", sum(took) / len(took), setting=key, phase=part)
    for key in (PUBLISHED, GNNFLOW):
        for part in PARTS:
            slow, fast = seconds[TGL][part], seconds[key][part]
            observe_speedup(told, slow, fast, setting=key, baseline=TGL, phase=part)
        observe_hits(told, key, trainers[key].report())
    told.observe("turns", TURNS[preset])
    told.observe("events", len(stream), of="graph")
    told.observe("batch_size", task.batch)
    told.observe("targets", roots)
    told.observe("edges", edges)
    return told


def speedup(rows: Rows, part: str, setting: str = PUBLISHED) -> Ratio:
    """Speedup of a part over TGL's."""
    which = {"phase": part, "setting": setting_of(setting, rows)}
    return ratio_of(Table.of(rows).where("speedup", **which))


def fetch(access: Any, samples: Any, task: Any) -> list[Tensor]:
    """The features that a network asks for: of the farthest hop's vertices and of all edges."""
    rows = []
    for hops in samples:
        if task.node_dim:
            ids = torch.cat([hops[-1].nodes, hops[-1].neighbours])
            # TGN reads each vertex once, with its memory.
            rows.append(access.node_features(ids.unique() if task.model == "tgn" else ids))
        if task.edge_dim:
            rows += [access.edge_features(hop.eids) for hop in hops]
    return rows


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of a call, and its answer."""
    start = time.perf_counter()
    found = call()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start, found


def plain_rows(data: Any, samples: Any, task: Any) -> list[Tensor]:
    """Expected result of `fetch`, row by row of the tables of all features."""
    rows = []
    for hops in samples:
        if task.node_dim:
            ids = torch.cat([hops[-1].nodes, hops[-1].neighbours])
            rows.append(data.node_feat[ids.unique() if task.model == "tgn" else ids])
        if task.edge_dim:
            rows += [data.edge_feat[hop.eids] for hop in hops]
    return rows


def alike(
    own: tuple[Any, list[Tensor]], other: tuple[Any, list[Tensor]]
) -> tuple[ResultCheck, ResultCheck]:
    """Checks that GNNFlow found the neighbours and features that TGL did."""
    fields = [
        {
            f"{name} of hop {number}": getattr(hop, name)
            for number, hop in enumerate(hop for snapshot in samples for hop in snapshot)
            for name in ("offsets", "neighbours", "eids", "edge_times")
        }
        for samples, _ in (own, other)
    ]
    return equal("samples", *fields, against=TGL), equal("features", own[1], other[1], against=TGL)


def points(rows: Rows) -> list[dict[str, Any]]:
    """Both parts over TGL's, a panel each."""
    found = []
    for part in PARTS:
        for row in rows_of(rows, experiment=NAME):
            for setting in (GNNFLOW,) if former([row]) else (PUBLISHED, GNNFLOW):
                gain, turns = speedup([row], part, setting), number(row, "turns")
                more = {"n": turns, "deviation": gain.deviation, "system": SHOWN[setting]}
                found.append(ratio_mark(gain, panel=part, row=_title(row), baseline=TGL, **more))
    return found + [
        gap(row, panel=part, row=_title(row), system=SHOWN[PUBLISHED], baseline=TGL)
        for part in PARTS
        for row in failures(rows, NAME)
    ]


def _title(row: Any) -> str:
    return f"{graph_title(row.params['dataset'])}, {model_title(row)}"
