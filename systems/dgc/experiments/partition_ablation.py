"""Ablation of the partition: every switch of section 3, and our additions."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import torch
from torch import Tensor

from dgbench.kernels_cuda.supergraph import Supergraph
from dgbench.lab.charts import failed, failures, mark, sweep
from dgbench.lab.compare import select
from dgbench.lab.grid import Grid
from dgbench.lab.result_checks import ResultCheck, equal
from dgbench.lab.table import Table, number
from dgbench.runtime.errors import UnsupportedError
from dgbench.runtime.threads import one_thread
from dgbench.systems.base import Cell, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.dgc.experiments.partition_rows import (
    CONTROLS,
    observe_work,
    vertex_work,
    weighted,
    work_balance,
)
from dgbench.systems.dgc.experiments.settings import BY_NAME, MODEL_TITLES, panel, workload
from dgbench.systems.dgc.partition import (
    PAPER,
    ChunkSettings,
    critical_path,
    partition_chunks,
    vertices_and_edges,
)
from dgbench.systems.dgc.recount import EdgeRecount, drawn, recounted
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
SLOW: Final = {
    *(name for name, one in VARIANTS.items() if one.by == "kahypar"),
    "refined, paper's labels only",
    "refined, labels only",
    "refined, encoders together",
    "refined, 4 seeds",
}
"""Variants from full on: 6 of 10 s of a process in quick went to the last four."""

CASES: Final[dict[Preset, tuple[tuple[str, str], ...]]] = {
    "smoke": (("email-eu-core", "tgcn_2layer"),),
    "quick": (("email-eu-core", "tgcn_2layer"),),
    "full": tuple(
        (name, model)
        for name in ("email-eu-core", "wikipedia", "amazon-magazine", "sx-mathoverflow")
        for model in ("tgcn_2layer", "dysat", "mpnn_lstm_bare")
    ),
}
CASES["paper"] = CASES["full"]

Rows = Sequence[Any]


class PartitionAblation(Grid):
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

    group = "{dataset}/{model}"
    timeout_s: ClassVar = {"full": 1800, "paper": 1800, None: 60}

    def points(self, preset: Preset, device: str) -> Iterator[dict[str, Any]]:
        return ({"dataset": name, "model": model} for name, model in CASES[preset])

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
        found = Measurement(data=describe(data))
        notes: list[str] = []
        with one_thread():
            graph, shape = weighted(data, task)
            hears = graph.incoming()
            work = vertex_work(graph)
            edges = EdgeRecount(data)
            checks = [edges.vertex_steps(graph)]
            known = [name for name in VARIANTS if long or name not in SLOW]
            chosen = drawn(known, 3)
            found.observe("edge_weight", int(graph.edge_weight.sum(dtype=torch.int64)) // 2)
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
                sent = traffic_of(graph, hears, made.placement, shape).bytes()
                inside, between = weight_inside(graph, made.chunk), cut_weight(graph, made.chunk)
                balance = work_balance(graph, made.placement, work)
                _observe(found, name, sent, inside, between)
                observe_work(found, {"setting": name}, shape, balance, stages, span)
                found.observe("chunks", made.count, setting=name)
                checks.append(edges.partition(made.placement, name))
                if name in (*chosen, "refined"):
                    checks += _recounted(edges, made, shape, name, found)
                if settings.by not in CONTROLS:  # those run in a process of their own
                    found.observe("preparation_time", seconds, setting=name)
        found.notes, found.checks = list(dict.fromkeys(notes)), checks
        return found

    def figures(self) -> list[FigureSpec]:
        return [
            sweep(NAME, "Bytes of an epoch by variant of the partition, 8 workers", points,
                xlabel="variant", ylabel="MB an epoch"),
            sweep(f"{NAME}_span",
                "Span by variant of the partition (1: all workers at once, 8: one by one)",
                span_points, xlabel="variant", ylabel="vertex-steps in a row, even share = 1"),
        ]  # fmt: skip

    def answer(self, rows: Rows) -> str:
        found = select(rows, experiment=NAME)
        if not found:
            return ""
        words = []
        for row in found:
            table = Table.of([row])
            sent = table.where("exchanged").numbers("setting")
            if not sent.get("paper") or not sent.get("levels"):
                continue
            spans = table.where("span").numbers("setting")
            words.append(
                f"{MODEL_TITLES[row.params['model']]} on {panel(row)}: the paper's labels "
                f"{sent['paper'] / 1e6:.3g} MB, levels {sent['levels'] / 1e6:.3g}, refined "
                f"{sent['refined'] / 1e6:.3g} at a span of {spans['refined']:.2f}"
                f" (any span: {sent['refined, any span'] / 1e6:.3g} at "
                f"{spans['refined, any span']:.2f})"
                + (f", METIS {sent['METIS'] / 1e6:.3g}" if sent.get("METIS") else "")
            )
        return "; ".join(words) + "." if words else ""


def _observe(found: Measurement, name: str, sent: int, inside: int, between: int) -> None:
    """Bytes of an epoch under a variant, and weight inside its chunks and between them."""
    found.observe("exchanged", sent, setting=name)
    found.observe("edge_weight", inside, of="inside", setting=name)
    found.observe("edge_weight", between, of="between", setting=name)


def _recounted(
    edges: EdgeRecount, made: ChunkPartition, shape: Shape, name: str, found: Measurement
) -> list[ResultCheck]:
    """Checks of what a row says of one variant, against a count over all edges."""
    chunk = made.chunk.numpy()
    inside, between = edges.weight(chunk, shape)
    wanted = Measurement()
    wanted.observe("edge_weight", inside + between)
    _observe(wanted, name, sum(edges.bytes(made.placement, shape).values()), inside, between)
    balance = edges.balance(made.placement)
    observe_work(wanted, {"setting": name}, shape, balance, *edges.span(made.placement))
    return [
        equal("chunks", np.clip(chunk, 0, made.count - 1), chunk, against="range of chunks"),
        *recounted(found, wanted),
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
    return _points(rows, "exchanged", 1e6)


def span_points(rows: Rows) -> list[dict[str, Any]]:
    """The same of spans; attention has none."""
    recurrent = [row for row in rows if row.params.get("model") != "dysat"]
    return _points(recurrent, "span", 1)


def _points(rows: Rows, metric: str, unit: float) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for row in select(rows, experiment=NAME):
        common = mark(row, panel=panel(row), series=MODEL_TITLES[row.params["model"]], counted=True)
        found += [
            {**common, "x": name, "y": height / unit}
            for name in VARIANTS
            if (height := number(row, metric, 0, setting=name)) > 0
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
