"""Chunk fusion as DGC's experiments and checks show it: loads, memory, forms, verdicts."""

from __future__ import annotations

import pytest
import torch
from tiny_data import tiny_sequence

from dgbench.systems.base.sequences import SequenceWorkload, sequence_model, vertex_steps
from dgbench.systems.dgc.dealing import WorkAssignment
from dgbench.systems.dgc.loading import (
    OFF,
    ON,
    SPATIAL,
    TEMPORAL,
    count_loads,
    plans_of,
)
from dgbench.systems.dgc.placement import by_chunks
from dgbench.systems.dgc.plan import step_entries
from dgbench.systems.dgc.volumes import shape_of


def task_of(model: str = "mpnn_lstm_bare") -> SequenceWorkload:
    return SequenceWorkload(dataset="tiny", model=model, feature_dim=3, hidden_dim=4)


def dealt(task: SequenceWorkload, data, workers: int = 2, chunks: int = 9) -> WorkAssignment:
    """Chunks drawn at random: worse than real ones, so that there is much to fuse."""
    graph = vertex_steps(data, task)
    draw = torch.Generator().manual_seed(3)
    chunk = torch.randint(0, chunks, (graph.num_vertices,), generator=draw, dtype=torch.int32)
    placement = by_chunks(graph, chunk, chunks, torch.arange(chunks) % workers, workers)
    return WorkAssignment(graph, placement, step_entries(data, graph), None, 0.0)


@pytest.fixture(scope="module")
def tiny():
    data = tiny_sequence(nodes=14, snapshots=8, edges=10)
    task = task_of()
    return task, data, dealt(task, data)


def test_loads_are_counted_by_formula(tiny):
    task, data, out = tiny
    shape = shape_of(sequence_model(task))
    plans = plans_of(data, out, norm="sym")
    loads = {name: count_loads(plan, shape) for name, plan in plans.items()}
    for name, plan in plans.items():
        found = loads[name]
        runs = [run for stage in plan.time.stages for run in stage.groups]
        cells = sum(run.rows.row_length * run.rows.num_rows for run in runs)
        assert found.zeros == (cells - plan.time.rows.numel()) * 8
        matrices = sum(
            group.csr.indptr.nbytes + group.csr.indices.nbytes + group.csr.values.nbytes
            for group in plan.structure.groups
        )
        assert found.bytes == 4 * (found.rows * (3 + 4) + cells * 8) + matrices
        assert found.rows == sum(g.columns.numel() for g in plan.structure.groups)
    assert loads[SPATIAL].rows == loads[ON].rows < loads[OFF].rows == loads[TEMPORAL].rows
    assert loads[TEMPORAL].zeros == loads[ON].zeros < loads[OFF].zeros == loads[SPATIAL].zeros
    assert loads[ON].groups == 1 < loads[OFF].groups
