"""Figure 7: chunks with equally many vertices take unequal times (section 4.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch

from dgbench.lab.charts import failed, sweep
from dgbench.lab.compare import Ratio, observe_ratio, ratio_of
from dgbench.lab.grid import Grid
from dgbench.lab.result_checks import summarised
from dgbench.lab.table import Table
from dgbench.runtime.statistics import median
from dgbench.runtime.threads import one_thread
from dgbench.systems.base import Cell, FigureSpec, Measurement, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.base.sequences import load_sequences, vertex_steps
from dgbench.systems.dgc.chunk_oracle import check_chunk
from dgbench.systems.dgc.chunk_samples import GraphChunks
from dgbench.systems.dgc.chunk_times import ChunkTimer, model_named
from dgbench.systems.dgc.experiments.settings import (
    BY_NAME,
    GRAPHS,
    HELD,
    MODEL_TITLES,
    MODELS,
    panel,
    workload,
)
from dgbench.systems.dgc.recount import EdgeRecount, check_cut, drawn
from dgbench.systems.dgc.supergraph import ChunkStatistics, chunk_cap, make_chunks

WORKERS = 4
CHOSEN = ("fewest edges", "most edges", "fewest padded rows", "most padded rows")
"""Selection of the four chunks of full size that are timed."""
PARTS = ("structure", "time", "padded")
FULL_SIZE = 0.95
"""Vertex-steps, as a share of the cap, from which on a chunk counts as of full size."""
PER_WORKER = {"quick": 64}
TURNS = {"smoke": 3, "quick": 7, "full": 15, "paper": 15}
QUICK = ("sx-mathoverflow",)
SMOKE = ("email-eu-core",)


class Fig7(Grid):
    paper = "dgc"
    name = "fig7"
    title = "Figure 7: times of chunks with equally many vertices"
    claims = ("dgc-fig7-chunk-time-gap",)
    question = "How far apart are the times of chunks that have the same number of vertices?"
    reading = (
        "The paper names neither the graph, the model nor the size of its four chunks. Ours come "
        "from label propagation at 16 chunks a worker and 4 workers: of all chunks within 5 % of "
        "the cap, those with the fewest and the most edges, and with the fewest and the most rows "
        "of sequences padded to the longest. A time is structure encoder plus time encoder, "
        "forward and backward, one thread on a CPU. Sequences are packed; beside it they are "
        "padded to the longest of their chunk, as before the paper's fusion. `quick` has chunks of "
        "a quarter of the size and two models."
    )

    axes: ClassVar = {
        "dataset": {
            "smoke": SMOKE,
            "quick": QUICK,
            None: tuple(graph.name for graph in (*HELD, *GRAPHS)),
        }
    }
    timeout_s: ClassVar = {"full": 900, "paper": 900, None: 60}

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        with one_thread():
            return self._run(cell, context)

    def _run(self, cell: Cell, context: RunContext) -> Measurement:
        graph = BY_NAME[str(cell.params["dataset"])]
        snapshots = {"snapshots": None} if context.preset != "smoke" else {}
        task = workload(graph, MODELS[0], context.preset, **snapshots)
        data = load_sequences(task)
        steps = vertex_steps(data, task)
        made = make_chunks(steps, chunk_cap(steps, WORKERS, PER_WORKER.get(context.preset, 16)))
        cut = GraphChunks(steps, made.chunk, made.count, graph.name)
        places = four(cut.statistics, made.cap)
        chunks = [cut[place] for place in places]
        found = Measurement(data=describe(data))
        found.observe("vertex_steps", made.cap, of="cap")
        found.observe("chunks", made.count)
        sizes = cut.statistics
        for name, place in zip(CHOSEN, places, strict=True):
            found.observe("vertex_steps", int(sizes.vertices[place]), of=name)
            found.observe("edges", int(sizes.edges[place]), of=name)
            found.observe("vertices", int(sizes.sequences[place]), of=name)
            found.observe("snapshots", int(sizes.longest[place]), of=name)
        checks = [*check_cut(EdgeRecount(data), cut, set(places), made.cap)]
        for model in MODELS[:2] if context.preset == "quick" else MODELS:
            net = model_named(model, task.feature_dim, task.hidden_dim)
            timers = [
                ChunkTimer(net, device=context.device, least=1, most=1, packed=packed)
                for packed in (True, False)
            ]
            turns = []
            for _ in range(TURNS[context.preset]):
                packed = timers[0].measure(chunks, passes=1)
                padded = [timers[1].once(chunk, "time") for chunk in chunks]
                turns.append(torch.cat([packed, torch.tensor(padded).double()[:, None]], 1))
            _observe(found, model, torch.stack(turns))
            (place,) = drawn(places, 1)
            checks += check_chunk(timers[0], cut[place], "structure")
            for timer in timers:
                checks += check_chunk(timer, cut[place], "time")
        found.checks = summarised(checks)
        return found

    def figures(self) -> list[FigureSpec]:
        return [
            sweep("fig7", "Chunks of equally many vertices", points, xlabel="",
                ylabel="milliseconds"),
        ]  # fmt: skip

    def answer(self, rows: Sequence[Any]) -> str:
        found = spreads(rows)
        if not found:
            return ""
        (dataset, model), most = max(found.items(), key=lambda item: item[1].value)
        padded = max(ratio.value for ratio in spreads(rows, "padded").values())
        return (
            f"Up to {most.value:.3g}x ({MODEL_TITLES[model]} on {BY_NAME[dataset].title}), up to "
            f"{padded:.3g}x where sequences are padded; the paper saw up to 8x on a GPU."
        )


def four(sizes: ChunkStatistics, cap: int) -> list[int]:
    """The numbers of four chunks of about equally many vertices, in the order of CHOSEN.

    Where fewer than four chunks are of full size, the four largest stand in. The same chunk may be
    chosen twice.
    """
    full = (sizes.vertices >= FULL_SIZE * cap).nonzero().squeeze(1)
    if full.numel() < 4:
        full = sizes.vertices.argsort(descending=True, stable=True)[:4]
    edges, padded = sizes.edges[full], sizes.padded[full]
    picked = (edges.argmin(), edges.argmax(), padded.argmin(), padded.argmax())
    return [int(full[place]) for place in picked]


def _observe(found: Measurement, model: str, turns: torch.Tensor) -> None:
    """Median times of the four chunks, and slowest over fastest with its interval.

    `turns` is float64[turns, 4, 3], seconds: structure, time, time with padded sequences.
    """
    for i, name in enumerate(CHOSEN):
        for j, part in enumerate(PARTS):
            seconds = median(turns[:, i, j].tolist())
            found.observe("operation_time", seconds, model=model, of=name, phase=part)
    for kind, last in (("packed", 1), ("padded", 2)):
        total = turns[:, :, 0] + turns[:, :, last]
        middle = [median(total[:, i].tolist()) for i in range(len(CHOSEN))]
        slow, fast = middle.index(max(middle)), middle.index(min(middle))
        ends = (total[:, chunk].tolist() for chunk in (slow, fast))
        observe_ratio(found, "divergence", *ends, model=model, format=kind)


def spreads(rows: Sequence[Any], kind: str = "packed") -> dict[tuple[str, str], Ratio]:
    """(dataset, model) -> slowest over fastest of the four chunks, over the rounds of a dataset.

    `kind` is "padded" for sequences padded to the longest instead of packed.
    """
    every = Table.of(rows, experiment="fig7").where("divergence", format=kind)
    found = {key: ratio_of(of) for key, of in every.by("dataset", "model").items()}
    return {key: ratio for key, ratio in found.items() if ratio is not None}


def points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """A dot per model and chunk, one panel per graph."""
    found: list[dict[str, Any]] = []
    for row in rows:
        if row.experiment != "fig7" or row.instrumented:
            continue
        base = {"panel": panel(row), "row_ids": [row.id]}
        if row.status != "ok":
            found.append({**base, "series": "all", "x": CHOSEN[0], "failed": failed(row)})
            continue
        for model, times in Table.of([row]).where("operation_time").by("model").items():
            for kind, part in (("", "time"), (", padded", "padded")):
                for name in CHOSEN:
                    seconds = times.where(of=name, phase=("structure", part)).values
                    series = MODEL_TITLES[model] + kind
                    found.append({**base, "series": series, "x": name, "y": 1e3 * sum(seconds)})
    return found
