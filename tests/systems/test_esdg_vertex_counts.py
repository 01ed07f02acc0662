"""Traffic of the vertex partition, counted without data, against lists, formulas and real runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_esdg_spread import LIMIT_S, MODELS, data, workload

from dgbench.kernels_cuda.csr import Csr
from dgbench.runtime.collectives import Communicator, CountOnly
from dgbench.runtime.errors import InvalidInputError
from dgbench.runtime.ranks import launch
from dgbench.systems.base.timeline import TimelineTask, timeline_model
from dgbench.systems.esdg.partition import accumulate, block_ranges
from dgbench.systems.esdg.vertex import VertexSplit
from dgbench.systems.esdg.vertex_parts import VertexParts
from dgbench.systems.esdg.vertex_plan import needs, pair_counts, read_counts, remote_reads
from dgbench.systems.esdg.volumes import count_vertex, timeline, vertex_floats

NODES = 11


def owners(size: int) -> VertexParts:
    return VertexParts(torch.arange(NODES) * 7 % size, size)


@given(
    st.integers(1, 12),
    st.lists(
        st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=40),
        min_size=0,
        max_size=4,
    ),
    st.randoms(use_true_random=False),
)
def test_counts_are_those_of_lists(size, graphs, random):
    """Duplicates, loops, empty snapshots, vertices that nobody reads, parts without a vertex."""
    parts = VertexParts(torch.tensor([random.randrange(size) for _ in range(9)]), size)
    topology, wanted = [], []
    for pairs in graphs:
        indptr = torch.zeros(10, dtype=torch.int64)
        rows = torch.tensor([r for r, _ in sorted(pairs)], dtype=torch.int64)
        indptr[1:] = torch.bincount(rows, minlength=9).cumsum(0)
        cols = torch.tensor([c for _, c in sorted(pairs)], dtype=torch.int64)
        topology.append(Csr(indptr, cols.to(torch.int32), 9))
        found = np.zeros((size, size), dtype=np.int64)
        for v, reader in {(c, int(parts.owner[r])) for r, c in pairs}:
            found[int(parts.owner[v]), reader] += reader != int(parts.owner[v])
        wanted.append(found)
        assert needs(rows, cols, parts).shape[1] == found.sum()
        (by_pairs,) = pair_counts([torch.stack([cols, rows])], parts)
        assert (by_pairs == found).all()
    counted = list(read_counts(topology, parts))
    assert len(counted) == len(wanted)
    assert all((a == b).all() for a, b in zip(counted, wanted, strict=True))
    assert remote_reads(topology, parts) == sum(int(f.sum()) for f in wanted)


def trained_links(comm: Communicator, todo: list[Any]) -> list[Any]:
    """Floats per link and phase of one epoch of every case."""
    found = []
    for name, task_name, o in todo:
        work = workload(name, task_name)
        model, task = timeline_model(work), TimelineTask(data(), work)
        split = VertexSplit(
            comm,
            model,
            data(),
            range(task.steps),
            owners(comm.size),
            task=task,
            pieces=o["pieces"],
            precompute=o["precompute"],
        )
        blocks = block_ranges(task.steps, o["blocks"])
        split.prepare(blocks)
        comm.traffic.clear()
        accumulate(split, blocks, split.loss_sum, checkpoint=o["checkpoint"])
        matrix = comm.all_traffic()
        found.append(
            [
                matrix.matrix(unit, operation="all_to_all", phase=phase)
                for phase in ("forward", "rerun", "backward")
                for unit in ("floats", "messages")
            ]
        )
    return found


def test_a_walk_without_data_sends_what_a_run_sends_over_every_link():
    ranks = 3
    todo = [
        (
            model,
            task,
            {"checkpoint": checkpoint, "pieces": pieces, "precompute": pre, "blocks": blocks},
        )
        for model in MODELS
        for task, checkpoint, pieces, pre, blocks in (
            ("link", True, 1, True, 3),
            ("class", True, 2, True, 1),
            ("class", False, 1, False, 2),
        )
    ]
    results = launch(trained_links, ranks, (todo,), timeout_s=LIMIT_S, stall_s=20, threads=1)
    for (model, task_name, o), found in zip(todo, results[0], strict=True):
        task = TimelineTask(data(), workload(model, task_name))
        parts = owners(ranks)
        reads = list(read_counts(data().topology[: task.steps], parts))
        pairs = None
        if task_name == "link":
            pairs = list(pair_counts([task.pairs(t)[0] for t in range(task.steps)], parts))
        counted = count_vertex(model, reads, pair_reads=pairs, window=3, **o)
        links = [
            counted.matrix(unit, phase=phase)
            for phase in ("forward", "rerun", "backward")
            for unit in ("floats", "messages")
        ]
        for mine, real in zip(links, found, strict=True):
            np.testing.assert_array_equal(mine, real, err_msg=f"{model}, {task_name}, {o}")
        assert counted.total("floats") == vertex_floats(
            timeline(model),
            sum(int(r.sum()) for r in reads),
            remote_pairs=sum(int(r.sum()) for r in pairs or ()),
            checkpoint=o["checkpoint"],
            precompute=o["precompute"],
        )


@pytest.mark.parametrize("size", [1, 128])
def test_many_ranks_are_walked(size):
    draw = np.random.default_rng(1)
    reads = [draw.integers(0, 1000, (size, size)) * (1 - np.eye(size, dtype=int)) for _ in range(5)]
    total = sum(int(r.sum()) for r in reads)
    counted = count_vertex("cd_gcn", reads, blocks=2)
    assert counted.total("floats") == vertex_floats(timeline("cd_gcn"), total) == 18 * total
    np.testing.assert_array_equal(counted.matrix("floats", phase="forward"), 6 * sum(reads))
    np.testing.assert_array_equal(counted.matrix("floats", phase="backward"), 6 * sum(reads).T)


def test_wrong_arguments_are_named():
    with pytest.raises(InvalidInputError, match="reads"):
        count_vertex("cd_gcn", [])
    with pytest.raises(InvalidInputError, match="reads"):
        count_vertex("cd_gcn", [np.zeros((2, 3), dtype=np.int64)])
    with pytest.raises(InvalidInputError, match="pair_reads"):
        count_vertex("cd_gcn", [np.zeros((2, 2), dtype=np.int64)], pair_reads=[])
    with pytest.raises(InvalidInputError, match="pieces"):
        count_vertex("cd_gcn", [np.zeros((2, 2), dtype=np.int64)], pieces=0)
    model = timeline_model(workload("tm_gcn", "class"))
    with pytest.raises(InvalidInputError, match="parts"):
        VertexSplit(CountOnly(0, 2), model, data(), range(8), owners(3))
