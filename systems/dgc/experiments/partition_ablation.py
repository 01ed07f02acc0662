"""Ablation of the partition: every switch of section 3, and our additions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import torch
from torch import Tensor

from dgbench.kernels_cuda.supergraph import Supergraph
from dgbench.lab import rules
from dgbench.lab.figure_forms import Sweep
from dgbench.lab.quantities import observed
from dgbench.lab.result_checks import ResultCheck, equal
from dgbench.lab.study import FormExperiment
from dgbench.runtime.errors import UnsupportedError
from dgbench.runtime.threads import one_thread
from dgbench.systems.base import Cell, Measurement, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.base.sequences import load_sequences
from dgbench.systems.dgc.experiments.partition import weighted
from dgbench.systems.dgc.experiments.settings import BY_NAME, FORMS, MODELS, workload
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

SENT: Final = observed("exchanged", per=("dataset", "model"))
WEIGHT: Final = observed("edge_weight", per=("dataset", "model"))
PARTS: Final = WEIGHT.per("setting")
OPTIONS: Final[dict[str, Any]] = {
    "panel": "{dataset}", "series": "{model}", "x": "setting", "gaps": {"x": "refined"},
    "xlabel": "variant",
}  # fmt: skip


class PartitionAblation(FormExperiment):
    forms, name = FORMS, NAME
    device = "cpu"
    axes: ClassVar = {
        "dataset": {
            "smoke": ("email-eu-core",),
            "quick": ("email-eu-core",),
            None: ("email-eu-core", "wikipedia", "amazon-magazine", "sx-mathoverflow"),
        },
        "model": {"smoke": MODELS[:1], "quick": MODELS[:1], None: MODELS},
    }
    group = "{dataset}/{model}"
    timeout_s: ClassVar = {"full": 1800, "paper": 1800, None: 60}
    headline, unit = SENT.where(setting="refined") / SENT.where(setting="paper"), "x"
    figure_forms = (
        Sweep(NAME, "Bytes of an epoch by variant of the partition, 8 workers", SENT.per("setting"),
              scale=1e-6, ylabel="MB an epoch", **OPTIONS),
        Sweep(f"{NAME}_span",
              "Span by variant of the partition (1: all workers at once, 8: one by one)",
              observed("span", per=("dataset", "model", "setting"), model=lambda m: m != "dysat"),
              ylabel="vertex-steps in a row, even share = 1", **OPTIONS),
    )  # fmt: skip
    claims = {
        "dgc-s41-equivalence": rules.all_equal(
            PARTS.where(of="inside") + PARTS.where(of="between") - WEIGHT, 0
        ),
    }  # fmt: skip

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph, model = BY_NAME[str(cell.params["dataset"])], str(cell.params["model"])
        task = workload(graph, model, context.preset, snapshots=None)
        data = load_sequences(task)
        long = context.preset in ("full", "paper")
        found = Measurement(data=describe(data))
        notes: list[str] = []
        with one_thread():
            supergraph, shape = weighted(data, task)
            hears, edges = supergraph.incoming(), EdgeRecount(data)
            checks = [edges.vertex_steps(supergraph)]
            known = [name for name in VARIANTS if long or name not in SLOW]
            chosen = drawn(known, 3)
            found.observe("edge_weight", int(supergraph.edge_weight.sum(dtype=torch.int64)) // 2)
            for name in known:
                settings = VARIANTS[name]
                if context.preset == "smoke":
                    settings = replace(settings, rounds=0)
                try:
                    made = partition_chunks(
                        supergraph, shape.counts(), WORKERS, settings, vertices_and_edges, threads=1
                    )
                except UnsupportedError as error:
                    notes.append(f"{name}: {error}")
                    continue
                sent = traffic_of(supergraph, hears, made.placement, shape).bytes()
                weight = weight_inside(supergraph, made.chunk), cut_weight(supergraph, made.chunk)
                span = 1.0 if shape.attention else critical_path(supergraph, made.placement)[1]
                _observe(found, name, sent, weight, span)
                checks.append(edges.partition(made.placement, name))
                if name in (*chosen, "refined"):
                    checks += _recounted(edges, made, shape, name, found)
        found.notes, found.checks = list(dict.fromkeys(notes)), checks
        return found


def _observe(
    found: Measurement, name: str, sent: int, weight: tuple[int, int], span: float
) -> None:
    """Bytes of an epoch and span under a variant, and weight inside its chunks and between them."""
    found.observe("exchanged", sent, setting=name)
    for of, total in zip(("inside", "between"), weight, strict=True):
        found.observe("edge_weight", total, of=of, setting=name)
    found.observe("span", span, setting=name)


def _recounted(
    edges: EdgeRecount, made: ChunkPartition, shape: Shape, name: str, found: Measurement
) -> list[ResultCheck]:
    """Checks of what a row says of one variant, against a count over all edges."""
    chunk, wanted = made.chunk.numpy(), Measurement()
    weight = edges.weight(chunk, shape)
    wanted.observe("edge_weight", sum(weight))
    span = 1.0 if shape.attention else edges.span(made.placement)[1]
    _observe(wanted, name, sum(edges.bytes(made.placement, shape).values()), weight, span)
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
