"""Traffic of every partition on the data available here, and of each switch of section 3 and each
of our additions (sections 2.2, 3 and 7.2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import torch
from torch import Tensor

from dgbench.kernels_cuda.supergraph import Supergraph
from dgbench.lab import rule_combinations as combine
from dgbench.lab import rules
from dgbench.lab.estimates import prefer, real_data
from dgbench.lab.figure_forms import Sweep
from dgbench.lab.quantities import MeasuredQuantity, observed
from dgbench.lab.result_checks import ResultCheck, equal
from dgbench.lab.study import FormExperiment
from dgbench.runtime.errors import UnsupportedError
from dgbench.runtime.threads import one_thread
from dgbench.systems.base import Cell, Measurement, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.base.sequences import load_sequences, sequence_model, vertex_steps
from dgbench.systems.dgc.controls import timed_cut
from dgbench.systems.dgc.experiments.settings import BY_NAME, FORMS, GRAPHS, MODELS, workload
from dgbench.systems.dgc.partition import (
    PAPER,
    ChunkSettings,
    critical_path,
    partition_chunks,
    vertices_and_edges,
)
from dgbench.systems.dgc.placement import Placement, by_both, by_chunks, by_sequences, by_snapshots
from dgbench.systems.dgc.recount import EdgeRecount, drawn, recounted
from dgbench.systems.dgc.refinement import hypergraph_of
from dgbench.systems.dgc.supergraph import ChunkStatistics, cut_weight
from dgbench.systems.dgc.volumes import SPATIAL, Shape, shape_of, traffic_of
from dgbench.systems.dgc.workloads import workload_of

if TYPE_CHECKING:
    from dgbench.datasets import SnapshotSequence
    from dgbench.systems.base.sequences import SequenceWorkload

CONTIGUOUS: Final = "snapshots-contiguous"
BASELINES: Final = ("snapshots", CONTIGUOUS, "sequences", "both")
"""Placements without chunks: the paper's baselines, and whole runs of snapshots."""
LABELS_ONCE: Final = "chunks-labels-once"
"""Chunks as the paper prints them: labels propagated once, without our refinement."""

PLACED: Final[Mapping[str, Callable[[Supergraph, int], Placement]]] = {
    "snapshots": by_snapshots,
    CONTIGUOUS: lambda graph, workers: by_snapshots(graph, workers, contiguous=True),
    "sequences": by_sequences,
    "both": by_both,
}
ANY_SPAN: Final = "chunks-any-span"
"""Chunks of a recurrence without a limit of span, as general partitioners know none."""

WORKERS: Final = (4, 8)
MOST: Final = WORKERS[-1]
DATASETS: Final = ("email-eu-core", "wikipedia", "amazon-magazine", "sx-mathoverflow",
                   "epinions-2011-ratings", *(graph.name for graph in GRAPHS))  # fmt: skip
TITLES: Final = {
    "snapshots": "PSS",
    CONTIGUOUS: "PSS, contiguous",
    "sequences": "PTS",
    "both": "PSS-TS",
    "chunks": "PGC + dgbench",
    LABELS_ONCE: "PGC",
    ANY_SPAN: "PGC + dgbench, any span",
    "metis": "METIS",
}
RECURRENT: Final = ("tgcn_2layer", "mpnn_lstm_bare")
TGCN, MPNN = RECURRENT
ROUNDS: Final = {"smoke": 0, "quick": 1}
"""Of refinement with coarsening; None: as many as the partition takes by default."""

SLOW: Final = ("email-eu-core", "wikipedia")
"""Graphs small enough for KaHyPar."""

CASES: Final[dict[str, Any]] = {"per": ("model", "dataset", "ranks"), "ranks": WORKERS}
SENT: Final = observed("exchanged", **CASES)
BY_LABELS, BY_BOTH = (
    SENT.where(method=name).keep(prefer(real_data)) for name in (LABELS_ONCE, "both")
)
SPATIAL_BYTES, TEMPORAL_BYTES = (
    BY_LABELS.where(of=of, model=TGCN) for of in ("spatial", "temporal")
)
NEEDED: Final = observed(
    "remote_steps", per="dataset", ranks=MOST, method="snapshots"
).keep(prefer(real_data))  # fmt: skip
OF_OTHERS: Final = observed("vertex_steps", per="dataset", of="longest").map(
    lambda steps: steps - max(1, steps // MOST)
)
"""Steps of the longest sequence but for those of one worker, which has every P-th."""


def by_partition(metric: str) -> dict[str, MeasuredQuantity]:
    """A number of each partition between most workers; chunks of any span are of recurrences."""
    every = {
        title: observed(metric, per=("model", "dataset"), ranks=MOST, method=name)
        for name, title in TITLES.items()
    }
    unlimited = TITLES[ANY_SPAN]
    return every | {unlimited: every[unlimited].where(model=RECURRENT)}


class Partition(FormExperiment):
    forms, name = FORMS, "partition"
    device = "cpu"
    headline = (
        SENT.where(method="chunks").over(SENT.where(method=BASELINES).joined_over(min, "method"))
    ).keep(real_data)
    unit = "x"
    figure_forms = (
        Sweep(
            "partition", "Bytes of an epoch between 8 workers", by_partition("exchanged"),
            scale=1e-6, panel="{model}", series="of", x="{dataset}",
            gaps={"series": TITLES["chunks"]}, xlabel="graph", ylabel="MB an epoch",
        ),
        Sweep(
            "partition_span",
            "How serial the recurrence is, 8 workers (1: all at once, 8: one by one)",
            {name: of.where(model=RECURRENT) for name, of in by_partition("span").items()},
            panel="{model}", series="of", x="{dataset}", gaps={"series": TITLES["chunks"]},
            xlabel="graph", ylabel="vertex-steps in a row, even share = 1",
        ),
    )  # fmt: skip
    claims = {
        "dgc-s41-spatial-weight-twice": rules.all_equal(
            observed(
                "exchanges", per=("dataset", "of"), model=TGCN, ranks=WORKERS[0], method="chunks"
            ),
            lambda value, at: value[at["of"]],
        ),
        # A cut edge of a snapshot costs three times a cut in time, so the partition cuts in time.
        "dgc-s72-tgcn-spatial-more": rules.all_above(
            SPATIAL_BYTES / (SPATIAL_BYTES + TEMPORAL_BYTES), 0.5
        ),
        "dgc-s72-mpnn-more-comm": combine.as_proxy(
            combine.both(
                rules.largest_at(BY_LABELS, "model", MPNN),
                rules.largest_at(BY_LABELS / BY_BOTH, "model", MPNN),
            ),
            "bytes for the time of communication",
        ),
        "dgc-s72-attention-neighbours": combine.both(
            rules.all_equal(NEEDED.where(model=TGCN), 1),
            rules.all_equal(NEEDED.where(model="dysat") - OF_OTHERS, 0),
        ),
    }

    axes: ClassVar = {
        "dataset": {"smoke": ("email-eu-core",), "quick": ("wikipedia",), None: DATASETS}
    }
    timeout_s: ClassVar = {"full": 1800, "paper": 1800, None: 60}

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph = BY_NAME[str(cell.params["dataset"])]
        long = context.preset in ("full", "paper")
        # Real data is taken whole: windows and snapshots decide what is sent.
        tasks = {
            model: workload(
                graph, model, context.preset, **({"snapshots": None} if graph.real else {})
            )
            for model in MODELS
        }
        data = load_sequences(tasks[MODELS[0]])
        with one_thread():
            return count_partitions(
                data,
                tasks,
                WORKERS,
                settings=ChunkSettings(rounds=ROUNDS.get(context.preset)),
                controls=("metis", "kahypar") if long and graph.name in SLOW else ("metis",),
                rest=partial(workload_of, "mlp") if long else None,
            )


def weighted(data: SnapshotSequence, task: SequenceWorkload) -> tuple[Supergraph, Shape]:
    """The supergraph of a task, its edges weighted as profiled, and the model's shape."""
    shape = shape_of(sequence_model(task))
    counts = shape.counts()
    spatial, temporal = counts.weights()
    graph = vertex_steps(
        data, task, spatial=spatial, temporal=temporal, per_length=counts.all_steps
    )
    return graph, shape


def count_partitions(
    data: SnapshotSequence,
    tasks: Mapping[str, SequenceWorkload],
    workers: tuple[int, ...],
    *,
    settings: ChunkSettings,
    controls: tuple[str, ...] = ("metis",),
    rest: Callable[[Shape], Callable[[ChunkStatistics], Tensor]] | None = None,
) -> Measurement:
    """Count every partition (`method`) for every model and number of workers; for comparison with
    general partitioners (`controls`) recurrences have `chunks-any-span`, too. `rest` makes the
    workload model of a shape; None: vertices and edges."""
    found = Measurement(data=describe(data))
    notes: list[str] = []
    checks: list[ResultCheck] = []
    edges = EdgeRecount(data)
    for model, task in tasks.items():
        graph, shape = weighted(data, task)
        checks.append(edges.vertex_steps(graph))
        hears = graph.incoming()
        if model == next(iter(tasks)):  # the same for all
            longest = int(graph.start.diff().max()) if graph.num_vertices else 0
            found.observe("vertex_steps", graph.num_vertices)
            found.observe("edges", hears.nnz)
            found.observe("vertex_steps", longest, of="longest")
        guess = rest(shape) if rest is not None else vertices_and_edges
        chosen = drawn(workers, 1)
        for size in workers:
            made = _placements(graph, shape, size, settings, controls, guess, notes)
            others = drawn([name for name in made if name != "chunks"], 1)
            for name, placement in made.items():
                dims = {"model": model, "ranks": size, "method": name}
                sent = traffic_of(graph, hears, placement, shape)
                forward = [flow.name for flow in sent.select(direction="forward")]
                exchanges = (
                    sum(n.startswith(SPATIAL) for n in forward),
                    sum(n in ("state", "time") for n in forward),
                )
                heard = most_heard(graph, placement, shape)
                span = 1.0 if shape.attention else critical_path(graph, placement)[1]
                _observe(found, dims, (sent.spatial, sent.temporal), exchanges, heard, span)
                checks.append(edges.partition(placement, name))
                if size in chosen and name in ("chunks", *others):
                    checks += recounted(found, _recount(edges, placement, shape, dims))
    found.notes = list(dict.fromkeys(notes))
    found.checks = [*checks, *recounted(found, edges.sizes())]
    return found


def _observe(
    found: Measurement,
    dims: Mapping[str, Any],
    sent: tuple[int, int],
    exchanges: tuple[int, int],
    heard: int,
    span: float,
) -> None:
    """Bytes of an epoch and exchanges of a forward pass, spatial and temporal, steps needed of
    other workers, and how serial the time encoder is; attention is not."""
    found.observe("exchanged", sum(sent), **dims)
    for of, size, count in zip(("spatial", "temporal"), sent, exchanges, strict=True):
        found.observe("exchanged", size, of=of, **dims)
        found.observe("exchanges", count, of=of, **dims)
    found.observe("remote_steps", heard, **dims)
    found.observe("span", span, **dims)


def _recount(
    edges: EdgeRecount, placement: Placement, shape: Shape, dims: Mapping[str, Any]
) -> Measurement:
    """Recount a row's values for one placement, over all edges."""
    by_name, found = edges.bytes(placement, shape), Measurement()
    spatial = sum(count for name, count in by_name.items() if name.startswith(SPATIAL))
    sent = spatial, sum(by_name.values()) - spatial
    span = 1.0 if shape.attention else edges.span(placement)[1]
    heard = edges.most_heard(placement, shape)
    _observe(found, dims, sent, (len(shape.round_dims), 1), heard, span)
    return found


def most_heard(graph: Supergraph, placement: Placement, shape: Shape) -> int:
    """Largest number of other steps of its entity that a vertex-step needs from other workers."""
    worker = placement.time.long()
    if not worker.numel():
        return 0
    if not shape.attention:
        away = (graph.entity[1:] == graph.entity[:-1]) & (worker[1:] != worker[:-1])
        return int(away.any())
    owned = torch.zeros(graph.start.numel() - 1, placement.workers, dtype=torch.int64)
    owned.index_put_((graph.entity.long(), worker), torch.ones_like(worker), accumulate=True)
    lengths = owned.sum(1, keepdim=True)
    return int(torch.where(owned > 0, lengths - owned, 0).max())


def _placements(
    graph: Supergraph,
    shape: Shape,
    size: int,
    settings: ChunkSettings,
    controls: tuple[str, ...],
    guess: Callable[[ChunkStatistics], Tensor],
    notes: list[str],
) -> dict[str, Placement]:
    """Placements by name; a partitioner that is not there leaves a note."""
    found = {name: place(graph, size) for name, place in PLACED.items()}
    kinds = {"chunks": settings, LABELS_ONCE: PAPER}
    if not shape.attention:
        kinds[ANY_SPAN] = replace(settings, span_limit=None)
    for name, chosen in kinds.items():
        made = partition_chunks(graph, shape.counts(), size, chosen, guess, threads=1)
        found[name] = made.placement
    work = 1 + graph.incoming().indptr.diff()  # a vertex-step and each edge that ends there
    own = torch.arange(size, dtype=torch.int32)
    for name in controls:
        try:
            hyper = hypergraph_of(graph, shape.counts(), work) if name == "kahypar" else None
            part, _ = timed_cut(name, graph, size, hyper=hyper, load=work)
        except UnsupportedError as error:
            notes.append(f"{name}: {error}")
            continue
        found[name] = by_chunks(graph, part, size, own, size)
    return found


# The ablation

ABLATION: Final = "partition_ablation"
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
SLOW_VARIANTS: Final = {
    *(name for name, one in VARIANTS.items() if one.by == "kahypar"),
    "refined, paper's labels only",
    "refined, labels only",
    "refined, encoders together",
    "refined, 4 seeds",
}
"""Variants from full on: 6 of 10 s of a process in quick went to the last four."""

BY_VARIANT: Final = observed("exchanged", per=("dataset", "model"))
WEIGHT: Final = observed("edge_weight", per=("dataset", "model"))
PARTS: Final = WEIGHT.per("setting")
OPTIONS: Final[dict[str, Any]] = {
    "panel": "{dataset}", "series": "{model}", "x": "setting", "gaps": {"x": "refined"},
    "xlabel": "variant",
}  # fmt: skip


class PartitionAblation(FormExperiment):
    forms, name = FORMS, ABLATION
    device = "cpu"
    axes: ClassVar = {
        "dataset": {"smoke": DATASETS[:1], "quick": DATASETS[:1], None: DATASETS[:4]},
        "model": {"smoke": MODELS[:1], "quick": MODELS[:1], None: MODELS},
    }
    group = "{dataset}/{model}"
    timeout_s: ClassVar = {"full": 1800, "paper": 1800, None: 60}
    headline, unit = BY_VARIANT.where(setting="refined") / BY_VARIANT.where(setting="paper"), "x"
    figure_forms = (
        Sweep(ABLATION, "Bytes of an epoch by variant of the partition, 8 workers",
              BY_VARIANT.per("setting"), scale=1e-6, ylabel="MB an epoch", **OPTIONS),
        Sweep(f"{ABLATION}_span",
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
        found, wanted = Measurement(data=describe(data)), Measurement()
        notes: list[str] = []
        with one_thread():
            supergraph, shape = weighted(data, task)
            hears, edges = supergraph.incoming(), EdgeRecount(data)
            checks = [edges.vertex_steps(supergraph)]
            known = [name for name in VARIANTS if long or name not in SLOW_VARIANTS]
            chosen = drawn(known, 3)
            found.observe("edge_weight", int(supergraph.edge_weight.sum(dtype=torch.int64)) // 2)
            for name in known:
                settings = VARIANTS[name]
                if context.preset == "smoke":
                    settings = replace(settings, rounds=0)
                try:
                    made = partition_chunks(
                        supergraph, shape.counts(), MOST, settings, vertices_and_edges, threads=1
                    )
                except UnsupportedError as error:
                    notes.append(f"{name}: {error}")
                    continue
                placement, chunk = made.placement, made.chunk.numpy()
                sent = traffic_of(supergraph, hears, placement, shape).bytes()
                weight = weight_inside(supergraph, made.chunk), cut_weight(supergraph, made.chunk)
                sides = [(found, sent, weight, critical_path(supergraph, placement))]
                checks.append(edges.partition(placement, name))
                if name in (*chosen, "refined"):
                    weight = edges.weight(chunk, shape)
                    sent = sum(edges.bytes(placement, shape).values())
                    sides += [(wanted, sent, weight, edges.span(placement))]
                    wanted.observe("edge_weight", sum(weight))
                    inside = np.clip(chunk, 0, made.count - 1)
                    checks.append(equal("chunks", inside, chunk, against="range of chunks"))
                for out, size, weights, path in sides:
                    out.observe("exchanged", size, setting=name)
                    for of, total in zip(("inside", "between"), weights, strict=True):
                        out.observe("edge_weight", total, of=of, setting=name)
                    out.observe("span", 1.0 if shape.attention else path[1], setting=name)
        found.notes = list(dict.fromkeys(notes))
        found.checks = [*checks, *recounted(found, wanted)]
        return found


def weight_inside(graph: Supergraph, chunk: Tensor) -> int:
    """Weight of the edges with both ends in a chunk, each once, summed chunk by chunk."""
    lengths = graph.csr.indptr.diff()
    home = torch.repeat_interleave(chunk, lengths, output_size=graph.csr.nnz)
    inside = home == chunk[graph.csr.indices.long()]
    sums = torch.zeros(int(chunk.max()) + 1 if chunk.numel() else 0, dtype=torch.int64)
    sums.index_add_(0, home[inside].long(), graph.edge_weight[inside].long())
    return int(sums.sum()) // 2
