"""Partitions by label propagation against METIS, on the same graph of vertices over time."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.label_propagation import propagate_labels
from dgbench.kernels_cuda.snapshots import edge_snapshots
from dgbench.kernels_cuda.supergraph import (
    Supergraph,
    assign_greedy,
    build_supergraph,
    chunk_traffic,
)
from dgbench.lab.experiment import Preset
from dgbench.lab.result_checks import ResultCheck, at_most
from dgbench.systems.operators.race import OURS, OperatorCase, OperatorRace

METIS = "METIS"
WORKERS, CHUNKS_PER_WORKER = 8, 16
GROUP, STEPS = 60, 16
EVENNESS = 0.25
"""Share that the fullest worker may hold above the mean."""


class Labels(OperatorRace):
    name = "labels"
    title = "A partition by label propagation"
    question = "How much faster are chunks by label propagation than METIS, and how good?"
    reading = (
        "One thread, processor time. Both end with a worker for every vertex of every step: ours "
        "by labels of bounded size, their traffic and a greedy assignment of chunks; DGC's own "
        "partition goes on to levels and refinement (`dgbench run dgc/partition`)."
    )
    claims = ("operators-labels-metis",)
    packages = ("pymetis",)
    threads = 1
    clock = staticmethod(time.process_time)
    slow_s = 300.0
    turns = {"smoke": 2, "quick": 3, None: 2}
    workloads = {
        "smoke": ({"entities": 600, "meetings": 3000},),
        "quick": ({"entities": 8000, "meetings": 100_000},),
        None: ({"entities": 150_000, "meetings": 3_200_000},),
    }
    label = "{meetings:,} meetings"

    def case(self, params: Mapping[str, Any], preset: Preset, device: str) -> OperatorCase:
        topology = meetings(params["entities"], params["meetings"])
        graph = build_supergraph(topology, spatial=2, temporal=1, threads=1)
        weight = int(graph.edge_weight.sum(dtype=torch.int64))

        def cut(part: Tensor) -> float:
            rows = torch.repeat_interleave(
                torch.arange(graph.num_vertices), graph.csr.indptr.diff()
            )
            apart = part[rows] != part[graph.csr.indices.long()]
            return int(graph.edge_weight[apart].sum(dtype=torch.int64)) / weight

        parts = {OURS: by_labels(graph), METIS: by_metis(graph)}
        return OperatorCase(
            calls={OURS: lambda _: by_labels(graph), METIS: lambda _: by_metis(graph)},
            check=lambda name, _, part: check_partition(part, graph.num_vertices),
            observe=(
                *(
                    ("portion", cut(part), {"of": "cut edges", "method": name})
                    for name, part in parts.items()
                ),
                *(
                    ("imbalance", evenness(part, graph.num_vertices), {"method": name})
                    for name, part in parts.items()
                ),
            ),
        )


def meetings(entities: int, count: int) -> list[Csr]:
    """Symmetric snapshots: entities of power-law popularity meet, mostly inside their group."""
    draw = np.random.default_rng(1)
    names = draw.permutation(entities)
    source = (draw.random(count) ** 1.5 * entities).astype(np.int64)
    inside = source // GROUP * GROUP + draw.integers(0, GROUP, count)
    anywhere = (draw.random(count) ** 1.5 * entities).astype(np.int64)
    target = np.where(draw.random(count) < 0.8, np.minimum(inside, entities - 1), anywhere)
    when = torch.from_numpy(draw.integers(0, STEPS, count))
    one, other = (torch.from_numpy(names[ids]) for ids in (source, target))
    both = torch.cat([one, other]), torch.cat([other, one])
    return edge_snapshots(*both, torch.cat([when, when]), STEPS, entities)


def chunk_cap(graph: Supergraph) -> int:
    """Vertices of a chunk at most."""
    return max(1, graph.num_vertices // (WORKERS * CHUNKS_PER_WORKER))


def by_labels(graph: Supergraph) -> Tensor:
    """Chunks, their traffic, their workers; loads are numbers of vertices."""
    run = propagate_labels(
        graph.csr, graph.edge_weight, cap=chunk_cap(graph), active_only=True, threads=1
    )
    chunk, count = run.chunks()
    sizes = torch.bincount(chunk, minlength=count).double()
    order = torch.argsort(sizes, descending=True, stable=True)
    target = float(sizes.sum()) / WORKERS
    traffic = chunk_traffic(graph, chunk, count)
    worker = assign_greedy(order, sizes, traffic, WORKERS, target, 1.0, True)
    return worker[chunk.long()]


def by_metis(graph: Supergraph) -> Tensor:
    """METIS with its own defaults."""
    import pymetis

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        _, part = pymetis.part_graph(
            WORKERS,
            xadj=graph.csr.indptr.numpy(),
            adjncy=graph.csr.indices.numpy(),
            eweights=graph.edge_weight.numpy(),
        )
    return torch.tensor(part)


def evenness(part: Tensor, vertices: int) -> float:
    """Vertices of the fullest worker over the mean."""
    return float(torch.bincount(part.long(), minlength=WORKERS).max()) / (vertices / WORKERS)


def check_partition(part: Tensor, vertices: int) -> ResultCheck:
    """Every vertex has one of the workers, and none has much more than its share."""
    inside = bool(((part >= 0) & (part < WORKERS)).all()) and len(part) == vertices
    gap = evenness(part, vertices) - 1 if inside else 1.0
    return at_most("shares", gap, EVENNESS, against="even shares", compared=len(part))
