"""What each part of the partition is worth: every switch of section 3, and our additions."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from torch import Tensor

from dgbench.kernels_cuda.supergraph import Supergraph
from dgbench.lab.compare import select
from dgbench.lab.result_checks import ResultCheck, equal
from dgbench.runtime.errors import UnsupportedError
from dgbench.systems.base import Cell, Experiment, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.dgc.experiments.common import failed, failures, one_thread, panel
from dgbench.systems.dgc.experiments.partition_rows import (
    CONTROLS,
    vertex_work,
    weighted,
    work_balance,
)
from dgbench.systems.dgc.experiments.recount import EdgeRecount, computed, counted, drawn
from dgbench.systems.dgc.experiments.settings import BY_NAME, MODEL_TITLES, workload
from dgbench.systems.dgc.partition import (
    PAPER,
    ChunkSettings,
    critical_path,
    partition_chunks,
    vertices_and_edges,
)
from dgbench.systems.dgc.supergraph import cut_weight
from dgbench.systems.dgc.volumes import traffic_of

if TYPE_CHECKING:
    from dgbench.systems.dgc.partition import ChunkPartition
    from dgbench.systems.dgc.volumes import Shape

NAME: Final = "partition_ablation"
WORKERS: Final = 8
FULL = ChunkSettings()
LEVELS = replace(PAPER, levels=8)
VARIANTS: Final[dict[str, ChunkSettings]] = {
    "paper": PAPER,
    "paper, as printed": replace(PAPER, empty="literal"),
    "paper, mean of chunks": replace(PAPER, mean="chunk"),
    "paper, no edges in time": replace(PAPER, temporal_edges=False),
    "paper, unit weights": replace(PAPER, weights="unit"),
    "levels": LEVELS,
    "levels, 4 chunks a worker": replace(LEVELS, per_worker=4),
    "levels, 64 chunks a worker": replace(LEVELS, per_worker=64),
    "refined, paper's labels only": replace(FULL, levels=1, starts=("labels",)),
    "refined, labels only": replace(FULL, starts=("labels",)),
    "refined, single moves": replace(FULL, rounds=0),
    "refined, encoders together": replace(FULL, apart=False),
    "refined, any span": replace(FULL, span_limit=None),
    "refined": FULL,
    "refined, 4 seeds": replace(FULL, seeds=4),
    "METIS": replace(PAPER, by="metis"),
    "METIS, refined": replace(FULL, by="metis"),
    "KaHyPar": replace(PAPER, by="kahypar"),
    "KaHyPar, refined": replace(FULL, by="kahypar"),
}
"""Words for a variant and its settings: the paper's, one change each, then ours."""

CASES: Final[dict[Preset, tuple[tuple[str, str], ...]]] = {
    "smoke": (("email-eu-core", "tgcn_2layer"),),
    "quick": (("wikipedia", "tgcn_2layer"),),
    "full": tuple(
        (name, model)
        for name in ("email-eu-core", "wikipedia", "amazon-magazine", "sx-mathoverflow")
        for model in ("tgcn_2layer", "dysat", "mpnn_lstm_bare")
    ),
}
CASES["paper"] = CASES["full"]

Rows = Sequence[Any]


class PartitionAblation(Experiment):
    paper = "dgc"
    name = NAME
    title = "Parts of the partition by chunks"
    claims = ("dgc-s41-equivalence",)
    device = "cpu"
    question = "What is each part of the partition worth, ours beside the paper's?"
    reading = (
        "Bytes of an epoch between 8 workers. The paper's version propagates labels once and "
        "assigns chunks with the mean per worker and empty workers corrected, as the printed "
        "score leaves both open; a row each takes one of these back, or leaves out edges in time "
        "or profiled weights. Levels contract chunks and propagate again. Refinement moves "
        "vertex-steps between workers on what is really sent, and keeps the recurrence's span "
        "(vertex-steps done in a row, an even share being 1) at 1.5 where that sends less than "
        "every baseline; `any span` is least traffic alone. General partitioners cut the same "
        "supergraph into workers at once."
    )

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        return [
            Cell(
                paper=self.paper,
                experiment=self.name,
                params={"dataset": name, "model": model},
                group=f"{name}/{model}",
                timeout_s=1800 if preset in ("full", "paper") else 60,
            )
            for name, model in CASES[preset]
        ]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        from dgbench.systems.base.sequences import load_sequences

        task = workload(
            BY_NAME[str(cell.params["dataset"])],
            str(cell.params["model"]),
            context.preset,
            snapshots=None,
        )
        data = load_sequences(task)
        long = context.preset in ("full", "paper")
        counters: dict[str, int] = {}
        values: dict[str, float] = {}
        notes: list[str] = []
        with one_thread():
            graph, shape = weighted(data, task)
            hears = graph.hears()
            work = vertex_work(graph)
            edges = EdgeRecount(data)
            checks = [edges.vertex_steps(graph)]
            known = [name for name, one in VARIANTS.items() if one.by != "kahypar" or long]
            recounted = drawn(known, 3)
            counters["weight"] = int(graph.edge_weight.sum(dtype=torch.int64)) // 2
            for name in known:
                settings = VARIANTS[name]
                if context.preset == "smoke":
                    settings = replace(settings, rounds=0)
                begin = time.process_time()
                try:
                    made = partition_chunks(
                        graph, shape.counts(), WORKERS, settings, vertices_and_edges, threads=1
                    )
                except UnsupportedError as error:
                    notes.append(f"{name}: {error}")
                    continue
                seconds = time.process_time() - begin
                stages, span = critical_path(graph, made.placement)
                counters |= {
                    f"bytes {name}": traffic_of(graph, hears, made.placement, shape).bytes(),
                    f"chunks {name}": made.count,
                    f"inside {name}": weight_inside(graph, made.chunk),
                    f"between {name}": cut_weight(graph, made.chunk),
                    f"stages {name}": 1 if shape.attention else stages,
                }
                values |= {
                    f"balance {name}": work_balance(graph, made.placement, work),
                    f"span {name}": 1.0 if shape.attention else span,
                }
                checks.append(edges.partition(made.placement, name))
                if name in (*recounted, "refined"):
                    checks += _recounted(edges, made, shape, name, counters, values)
                if settings.by not in CONTROLS:  # those run in a process of their own
                    values[f"seconds {name}"] = seconds
        return Measurement(
            values=values,
            units={name: "s" for name in values if name.startswith("seconds")},
            counters=counters,
            data=describe(data),
            notes=list(dict.fromkeys(notes)),
            checks=checks,
        )

    def figures(self) -> list[FigureSpec]:
        return [
            FigureSpec(
                kind="sweep",
                name=NAME,
                title="Bytes of an epoch by variant of the partition, 8 workers",
                points=points,
                options={"xlabel": "variant", "ylabel": "MB an epoch"},
            ),
            FigureSpec(
                kind="sweep",
                name=f"{NAME}_span",
                title="Span by variant of the partition (1: all workers at once, 8: one by one)",
                points=span_points,
                options={"xlabel": "variant", "ylabel": "vertex-steps in a row, even share = 1"},
            ),
        ]

    def answer(self, rows: Rows) -> str:
        found = select(rows, experiment=NAME)
        if not found:
            return ""
        words = []
        for row in found:
            sent = {name: row.counters.get(f"bytes {name}") for name in VARIANTS}
            if not sent["paper"] or not sent["levels"]:
                continue
            words.append(
                f"{MODEL_TITLES[row.params['model']]} on {panel(row)}: the paper's labels "
                f"{sent['paper'] / 1e6:.3g} MB, levels {sent['levels'] / 1e6:.3g}, refined "
                f"{sent['refined'] / 1e6:.3g} at a span of {row.values['span refined']:.2f}"
                f" (any span: {sent['refined, any span'] / 1e6:.3g} at "
                f"{row.values['span refined, any span']:.2f})"
                + (f", METIS {sent['METIS'] / 1e6:.3g}" if sent["METIS"] else "")
            )
        return "; ".join(words) + "." if words else ""


def _recounted(
    edges: EdgeRecount,
    made: ChunkPartition,
    shape: Shape,
    name: str,
    counters: Mapping[str, int],
    values: Mapping[str, float],
) -> list[ResultCheck]:
    """Checks of what a row says of one variant, against a count over all edges."""
    chunk = made.chunk.numpy()
    inside, between = edges.weight(chunk, shape)
    stages, span = edges.span(made.placement)
    wanted = {
        "weight": inside + between,
        f"inside {name}": inside,
        f"between {name}": between,
        f"bytes {name}": sum(edges.bytes(made.placement, shape).values()),
        f"stages {name}": 1 if shape.attention else stages,
    }
    derived = {
        f"balance {name}": edges.balance(made.placement),
        f"span {name}": 1.0 if shape.attention else span,
    }
    return [
        equal("chunks", np.clip(chunk, 0, made.count - 1), chunk, against="range of chunks"),
        counted(counters, wanted),
        computed(values, derived),
    ]


def weight_inside(graph: Supergraph, chunk: Tensor) -> int:
    """Weight of the edges with both ends in a chunk, each once, summed chunk by chunk."""
    lengths = graph.csr.indptr.diff()
    home = torch.repeat_interleave(chunk, lengths, output_size=graph.csr.nnz)
    inside = home == chunk[graph.csr.indices.long()]
    sums = torch.zeros(int(chunk.max()) + 1 if chunk.numel() else 0, dtype=torch.int64)
    sums.index_add_(0, home[inside].long(), graph.edge_weight[inside].long())
    return int(sums.sum()) // 2


def points(rows: Rows) -> list[dict[str, Any]]:
    """A dot per variant, a series per model and a panel per graph."""
    return _points(rows, lambda row, name: row.counters.get(f"bytes {name}", 0) / 1e6)


def span_points(rows: Rows) -> list[dict[str, Any]]:
    """The same of spans; attention has none."""
    recurrent = [row for row in rows if row.params.get("model") != "dysat"]
    return _points(recurrent, lambda row, name: row.values.get(f"span {name}", 0))


def _points(rows: Rows, value: Callable[[Any, str], float]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for row in select(rows, experiment=NAME):
        common = {
            "panel": panel(row),
            "series": MODEL_TITLES[row.params["model"]],
            "twin": bool(row.data.get("twin")),
            "row_ids": [row.id],
            "counted": True,
        }
        found += [
            {**common, "x": name, "y": height}
            for name in VARIANTS
            if (height := value(row, name)) > 0
        ]
    for row in failures(rows, NAME):
        found.append(
            {
                "panel": BY_NAME[row.params["dataset"]].title,
                "series": MODEL_TITLES[row.params["model"]],
                "x": "refined",
                "failed": failed(row),
            }
        )
    return found
