"""One-off facts of sections 2.2, 3.3, 4.3 and 4.4: reordering, reuse, partition memory."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from statistics import median
from typing import Any

import torch

from dgbench.kernels_cuda.aggregate import aggregate_parts, spmm
from dgbench.kernels_cuda.overlap import PartTopology
from dgbench.lab import outcomes, rules
from dgbench.lab import rule_combinations as combine
from dgbench.lab.estimates import Estimate, EvaluationContext
from dgbench.lab.quantities import observed, of_rows
from dgbench.lab.result_checks import ResultCheck, at_most, equal
from dgbench.lab.study import FormExperiment
from dgbench.lab.table import Entry, Table
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.base.race import TOLERANCE, relative
from dgbench.systems.base.training import FrameTask
from dgbench.systems.pipad.analyzer import Analyzer
from dgbench.systems.pipad.experiments.settings import (
    BY_NAME,
    COUNTED,
    FORMS,
    FRAME,
    FrameGraph,
    open_graph,
    workload,
)
from dgbench.systems.pipad.partitions import Partitions, split
from dgbench.systems.pipad.recounts import plain_aggregation, recount_partition

S_OPTIONS = (2, 4, 8)
REORDERED = 3
FULL_SIZE = "flickr"
"""The graph whose printed size the reordering pass at full size takes: the largest one."""
MIN_SECONDS, MAX_SECONDS = 1.0, 60.0
"""Bounds of what counts as seconds; from a minute on one would say minutes."""


def largest_at_full_size(entries: list[Entry], context: EvaluationContext) -> list[Entry]:
    """Entries on the largest graph of those at full size; none where that is a small one."""
    whole = [one for one in entries if one.row.data.get("scale", 1.0) >= 1]
    edges = [BY_NAME[one["dataset"]].printed.get("E_smoothed", 0) for one in whole]
    most = [one for one, count in zip(whole, edges, strict=True) if count == max(edges)]
    return [] if not most or BY_NAME[most[0]["dataset"]].small else most


REUSE_GAP = observed("relative_error", per="dataset", part=None, of="reuse").pooled("max")
"""Gap of kept and fresh aggregation."""
REORDERING = observed("operation_time", phase="reordering").keep(largest_at_full_size)


def takes_seconds(context: EvaluationContext) -> outcomes.RuleOutcome:
    """Rule: a reordering pass takes seconds and no minutes; open where processes differ."""
    samples = REORDERING.samples(context)
    if not samples:
        return outcomes.RuleOutcome(lacking="needs a large graph at full size")
    fit = [MIN_SECONDS <= one.value < MAX_SECONDS for one in samples]
    rows = tuple(one.row for one in samples)
    middle = {(): Estimate(median(one.value for one in samples), rows=rows)}
    side = 1 if all(fit) else 0 if any(fit) else -1
    return replace(outcomes.outcome(context, middle, "s"), sides=(("1 to 60 s", side),))


def strides(found: Table) -> Any:
    """The stride of all frames, or all that there are."""
    each = sorted(set(found.values))
    return each[0] if len(each) == 1 else each


def memory_share(row: Any) -> float:
    """Bytes of S snapshots at once over S times the bytes of one, the largest of all S."""
    counts = Table.of([row]).where("memory", of="aggregation").numbers("snapshots_together")
    return max((n / (s * counts[1]) for s, n in counts.items() if s > 1), default=math.nan)


class Preparation(FormExperiment):
    forms, name = FORMS, "preparation"
    device = "cpu"
    sources = {"relative_error": "counted"}  # of sums of the same numbers
    axes = {"dataset": COUNTED}
    timeout_s = 300
    headline = observed("operation_time", per="dataset", part=None, phase="extraction")
    unit = "s"
    claims = {
        "pipad-s2-reordering-cost": takes_seconds,
        "pipad-s33-first-agg-param-free": rules.at_most(REUSE_GAP, TOLERANCE),
        "pipad-s33-stride": rules.equals_claim(strides, "snapshots", of="stride", part=None),
        "pipad-s44-memory-bound": combine.by_model(
            rules.at_most(of_rows(memory_share, per="dataset", part=None).pooled("max"), 1.0),
            "formula of an aggregation's tensors",
        ),
    }

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        found = super().cells(preset, device)
        if preset not in ("quick", "full"):  # in `paper` the graphs themselves are whole
            return found
        whole = {"part": "reorder", "dataset": FULL_SIZE}
        return [self.cell(whole, preset, group="reorder", timeout_s=120, repeats=5), *found]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph = BY_NAME[str(cell.params["dataset"])]
        if cell.params.get("part") == "reorder":
            return _reorder_whole(graph)
        data = open_graph(graph, context.preset)
        partitions = Partitions(data, norm="sym")
        measured = Measurement(data=describe(data))
        measured.observe("operation_time", _reorder_seconds(data), phase="reordering")
        analyzer = Analyzer(partitions, frame=FRAME, options=S_OPTIONS, background=False)
        start = time.perf_counter()
        analyzer.start()
        analyzer.wait()
        measured.observe("operation_time", time.perf_counter() - start, phase="extraction")
        task = FrameTask(
            data, workload(graph, "tgcn_model", context.preset), device=torch.device("cpu")
        )
        stride = task.times(1).start - task.times(0).start
        measured.observe("snapshots", stride, of="stride")
        for size, nbytes in _memory(data, partitions).items():
            measured.observe("memory", nbytes, of="aggregation", snapshots_together=size)
        gap = _reuse_gap(data, partitions)
        measured.deviation = {"output": gap}
        measured.observe("relative_error", gap, of="reuse")
        count = FRAME * data.features[0].numel()
        csrs = [data.topology[t] for t in range(len(data) - max(S_OPTIONS), len(data))]
        measured.checks = [
            at_most("outputs", gap, TOLERANCE, against="float64 edge lists", compared=count),
            *recount_partition(csrs, PartTopology.build(csrs)),
        ]
        return measured


def _reorder_seconds(data: Any) -> float:
    """Mean seconds of one reverse Cuthill-McKee pass over a snapshot."""
    import numpy as np
    from scipy.sparse import csr_matrix

    times = list(range(len(data)))[-REORDERED:]
    spent = 0.0
    for t in times:
        csr = data.topology[t]
        ones = np.ones(csr.nnz, dtype=np.float32)
        shape = (csr.num_rows, csr.num_cols)
        spent += _pass(csr_matrix((ones, csr.indices.numpy(), csr.indptr.numpy()), shape=shape))[0]
    return spent / len(times)


def _reorder_whole(graph: FrameGraph) -> Measurement:
    """One pass over a random graph with the size of a smoothed snapshot as printed."""
    import numpy as np
    from scipy.sparse import coo_matrix

    nodes = graph.printed["N"]
    edges = graph.printed["E_smoothed"] // graph.printed["T"]
    draw = np.random.default_rng(1)
    # Cubed: a tenth of the vertices is at nearly half of the ends, as in a skewed graph.
    target, source = ((nodes * draw.random(edges) ** 3).astype(np.int32) for _ in range(2))
    ones = np.ones(edges, dtype=np.float32)
    matrix = coo_matrix((ones, (target, source)), shape=(nodes, nodes)).tocsr()
    seconds, checks = _pass(matrix)
    note = "a random graph with the vertices and edges of one smoothed snapshot"
    data = {"dataset": graph.name, "twin": True, "scale": 1.0, "note": note}
    measured = Measurement(checks=checks, data=data)
    measured.observe("operation_time", seconds, phase="reordering")
    return measured


def _pass(matrix: Any) -> tuple[float, list[ResultCheck]]:
    """Seconds to find the order and to apply it, and checks that it is one."""
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    start = time.perf_counter()
    order = reverse_cuthill_mckee(matrix, symmetric_mode=False)
    moved = matrix[order][:, order]
    seconds = time.perf_counter() - start
    size = matrix.shape[0]
    vertices = torch.from_numpy(order.astype("int64")).sort().values
    return seconds, [
        equal("order", vertices, torch.arange(size), against="all vertices once"),
        equal("entries", [moved.nnz], [matrix.nnz], against="matrix before"),
    ]


def _memory(data: Any, partitions: Partitions) -> dict[int, int]:
    """Bytes of one aggregation of S snapshots at once, of the largest single one for S = 1."""
    in_and_out = 2 * 4 * data.num_nodes * data.features.shape[2]
    times = range(len(data) - max(S_OPTIONS), len(data))
    words = {size: partitions.partition(times[:size]).words for size in S_OPTIONS}
    words[1] = max(partitions.snapshot_words(t) for t in times)
    return {size: 4 * count + in_and_out * size for size, count in words.items()}


def _reuse_gap(data: Any, partitions: Partitions) -> float:
    """Largest gap of kept (merged, once) and fresh (single) aggregation to float64 edge lists."""
    worst = 0.0
    times = range(len(data) - FRAME, len(data))
    for group in split(times, 8):
        part = partitions.partition(group)
        x = data.features[group.start : group.stop]
        wide = x.transpose(0, 1).contiguous()
        kept = aggregate_parts(part.parts, wide, part.row_scale, part.col_scale, self_loop=True)
        for i, t in enumerate(group):
            csr, row, col = partitions.snapshot(t)
            fresh = spmm(csr, x[i].contiguous(), row_scale=row, col_scale=col, self_loop=True)
            wanted = plain_aggregation(data.topology[t], x[i])
            gaps = [relative(found, wanted) for found in (kept[:, i], fresh)]
            if any(map(math.isnan, gaps)):
                return math.nan
            worst = max(worst, *gaps)
    return worst
