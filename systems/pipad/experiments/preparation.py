"""One-off facts of sections 2.2, 3.3, 4.3 and 4.4: reordering, reuse, partition memory."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch

from dgbench.kernels_cuda.aggregate import aggregate_parts, spmm
from dgbench.systems.base import Cell, Experiment, Measurement, Preset, RunContext
from dgbench.systems.base.compare import select
from dgbench.systems.base.race import relative
from dgbench.systems.base.training import FrameTask
from dgbench.systems.pipad.experiments.common import data_of, names, open_graph
from dgbench.systems.pipad.experiments.settings import BY_NAME, FRAME, workload
from dgbench.systems.pipad.partitions import Partitions, split

S_OPTIONS = (2, 4, 8)
REORDERED = 3


class Preparation(Experiment):
    paper = "pipad"
    name = "preparation"
    title = "Sections 2.2, 3.3, 4.3, 4.4: preparation, reuse and memory"
    question = (
        "What does preparation cost, is reuse exact, and how much memory does a partition take?"
    )
    reading = (
        "Reordering is timed with SciPy's reverse Cuthill-McKee on one core. Partition memory is "
        "counted from the tensors of one aggregation: topology, coalescent input and output."
    )

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        return [
            Cell(
                paper=self.paper,
                experiment=self.name,
                params={"dataset": name},
                group=name,
                timeout_s=300,
            )
            for name in names(preset)
        ]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph = BY_NAME[str(cell.params["dataset"])]
        data = open_graph(graph, context.preset)
        partitions = Partitions(data, norm="sym")
        values: dict[str, float] = {"reorder_s": _reorder_seconds(data)}
        start = time.perf_counter()
        for size in S_OPTIONS:
            partitions.extract([range(t, t + size) for t in range(len(data) - size + 1)])
        values["extract_all_s"] = time.perf_counter() - start
        task = FrameTask(
            data, workload(graph, "tgcn_model", context.preset), device=torch.device("cpu")
        )
        first, second = task.times(0), task.times(1)
        counters = {"stride": second.start - first.start, "frame": len(first)}
        counters["snapshots"] = len(data)
        counters |= _memory(data, partitions)
        gap = _reuse_gap(data, partitions)
        return Measurement(
            values=values,
            units={"reorder_s": "s per snapshot", "extract_all_s": "s"},
            counters=counters,
            deviation={"output": gap},
            data=data_of(data),
        )

    def answer(self, rows: Sequence[Any]) -> str:
        found = select(rows, experiment="preparation")
        if not found:
            return ""
        worst = max(found, key=lambda r: r.values["extract_all_s"])
        return (
            f"Extracting all partitions of 2, 4 and 8 snapshots took at most "
            f"{worst.values['extract_all_s']:.2g} s ({BY_NAME[worst.params['dataset']].title}); "
            f"kept aggregation equals fresh aggregation to float rounding."
        )


def _reorder_seconds(data: Any) -> float:
    """Mean seconds of one reverse Cuthill-McKee pass over a snapshot."""
    import numpy as np
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    times = list(range(len(data)))[-REORDERED:]
    spent = 0.0
    for t in times:
        csr = data.topology[t]
        ones = np.ones(csr.nnz, dtype=np.float32)
        shape = (csr.num_rows, csr.num_cols)
        matrix = csr_matrix((ones, csr.indices.numpy(), csr.indptr.numpy()), shape=shape)
        start = time.perf_counter()
        order = reverse_cuthill_mckee(matrix, symmetric_mode=False)
        matrix[order][:, order]
        spent += time.perf_counter() - start
    return spent / len(times)


def _memory(data: Any, partitions: Partitions) -> dict[str, int]:
    """Bytes of one aggregation of S snapshots at once, and of the largest single snapshot."""
    floats = data.num_nodes * data.features.shape[2]
    times = range(len(data) - max(S_OPTIONS), len(data))
    single = max(4 * partitions.snapshot_words(t) for t in times) + 2 * 4 * floats
    counted = {"bytes_1": single}
    for size in S_OPTIONS:
        group = times[:size]
        counted[f"bytes_{size}"] = 4 * partitions.partition(group).words + 2 * 4 * floats * size
    return counted


def _reuse_gap(data: Any, partitions: Partitions) -> float:
    """Largest relative gap between kept (merged, once) and fresh (single) aggregation."""
    worst = 0.0
    times = range(len(data) - FRAME, len(data))
    for group in split(times, 8):
        part = partitions.partition(group)
        x = data.features[group.start : group.stop]
        kept = aggregate_parts(
            part.parts,
            x.transpose(0, 1).contiguous(),
            part.row_scale,
            part.col_scale,
            self_loop=True,
        )
        for i, t in enumerate(group):
            csr, row, col = partitions.snapshot(t)
            fresh = spmm(csr, x[i].contiguous(), row_scale=row, col_scale=col, self_loop=True)
            if torch.isnan(fresh).any():
                return float("nan")
            worst = max(worst, relative(kept[:, i], fresh))
    return worst
