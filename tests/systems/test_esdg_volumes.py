"""Counts and costs behind ESDG's experiments, and parts of its partitions against lists."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from esdg_tiny import MODELS, data, workload
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_data import csr_of, matrix_of, tiny_sequence

from dgbench.datasets.transforms import EdgeLives, edge_life
from dgbench.kernels_cuda.difference import count_changes, encode_sequence
from dgbench.runtime.collectives import CountOnly
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError, UnsupportedError
from dgbench.systems.base.timeline import timeline_model
from dgbench.systems.esdg.experiments import table1
from dgbench.systems.esdg.experiments.common import Changes
from dgbench.systems.esdg.experiments.fig4 import bytes_by_rank, runs_of
from dgbench.systems.esdg.experiments.fig7 import random_graphs, task_of
from dgbench.systems.esdg.experiments.parts import Alone, MeasuredShare, take_shares
from dgbench.systems.esdg.experiments.projection import (
    Costs,
    ProjectedModel,
    fit_costs,
    plan_blocks,
    redistribution,
)
from dgbench.systems.esdg.experiments.recount import (
    Widths,
    parted,
    redistributed,
    sequence_bytes,
    sequence_changes,
)
from dgbench.systems.esdg.hybrid_plan import row_blocks
from dgbench.systems.esdg.partition import block_ranges
from dgbench.systems.esdg.vertex import VertexSplit
from dgbench.systems.esdg.vertex_parts import IMBALANCE, METHODS, VertexParts, split_vertices
from dgbench.systems.esdg.volumes import count_snapshot, gradient_floats, snapshot_floats, timeline

COSTS = Costs(epoch_s=0.01, partner_s=1e-5, step_s=1e-4, vertex_step_s=4e-7)


# Snapshots as differences.

GRAPHS = st.integers(2, 6).flatmap(
    lambda nodes: st.lists(
        st.lists(st.tuples(st.integers(0, nodes - 1), st.integers(0, nodes - 1)), max_size=12).map(
            lambda pairs: csr_of(pairs, nodes)
        ),
        min_size=2,
        max_size=7,
    )
)


def changes_of(snapshots: list, life: int) -> Changes:
    return Changes.of(EdgeLives.of_snapshots(snapshots), life)


@given(GRAPHS, st.integers(1, 4), st.booleans())
@settings(max_examples=60, deadline=None)
def test_counted_bytes_are_those_of_the_encoded_snapshots(raw, life, fallback):
    smoothed = edge_life(raw, life)
    changes = changes_of(raw, life)
    sent = encode_sequence(smoothed, fallback=fallback)
    assert changes.sent(fallback=fallback) == sum(d.nbytes for d in sent)
    assert changes.plain() == 20 * sum(c.nnz for c in smoothed)
    pairs = [count_changes(a, b) for a, b in pairwise(smoothed)]
    assert [*zip(changes.removed[1:], changes.added[1:], strict=True)] == pairs


@given(GRAPHS, st.integers(1, 3), st.integers(1, 4), st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_bytes_by_rank_are_those_of_its_snapshots_one_by_one(raw, life, blocks, ranks):
    blocks, row = min(blocks, len(raw)), 8
    changes = sequence_changes(edge_life(raw, life))
    shares = [parted(block, ranks) for block in parted(range(len(raw)), blocks)]
    own = [[block[rank] for block in shares] for rank in range(ranks)]
    starts = {part[0] for parts in own for part in parts if part}
    each = {
        "plain": sequence_bytes(changes, starts=range(len(raw))),
        "sent": sequence_bytes(changes, starts=starts),
        "forced": sequence_bytes(changes, starts=starts, fallback=False),
    }
    busiest = {
        name: max(sum(each[name][t] + row for part in parts for t in part) for parts in own)
        for name in ("plain", "sent")
    }
    matrices = {name: sum(each[name]) for name in ("sent", "forced")}
    runs = runs_of(len(raw), blocks, ranks)
    assert bytes_by_rank(changes_of(raw, life), runs, row) == (matrices, busiest)


@given(GRAPHS, st.floats(0, 8))
@settings(max_examples=40, deadline=None)
def test_the_smallest_life_that_reaches_a_ratio(raw, ratio):
    lives = EdgeLives.of_snapshots(raw)
    total = [int(lives.entries(life).sum()) for life in range(1, len(raw) + 1)]
    enough = [life for life, n in enumerate(total, 1) if n >= ratio * total[0]]
    assert table1.smallest_life(lives, ratio) == (enough[0] if enough else None)


@settings(max_examples=12, deadline=None)
@given(
    model=st.sampled_from(MODELS),
    size=st.integers(1, 9),
    steps=st.integers(1, 12),
    nodes=st.integers(1, 11),
    draw=st.data(),
)
def test_closed_form_is_what_is_counted(model, size, steps, nodes, draw):
    blocks = draw.draw(st.integers(1, steps))
    found = count_snapshot(model, size=size, steps=steps, num_nodes=nodes, blocks=blocks)
    count, messages = redistribution(timeline(model), steps, nodes, size, blocks)
    np.testing.assert_array_equal(found.matrix("bytes"), count)
    np.testing.assert_array_equal(found.matrix("messages"), messages)
    # Pair by pair of ranks, from the widths of tensors.
    widths, net = Widths.of(model, task="class"), timeline(model)
    pairs = redistributed(widths.redistributed, steps, nodes, size, blocks=blocks)
    np.testing.assert_array_equal(found.matrix("floats"), pairs)
    assert snapshot_floats(net, nodes, block_ranges(steps, blocks), size) == pairs.sum()
    assert gradient_floats(net, size) == 2 * (size - 1) * widths.parameters


def test_a_rank_without_others_keeps_its_part_and_gets_zeros():
    comm = Alone(3)
    x = torch.arange(6.0).reshape(6, 1).requires_grad_()
    got = comm.all_to_all(x, [2, 3, 1], [2, 1, 1])
    assert got.flatten().tolist() == [0, 1, 0, 0]
    got.sum().backward()
    assert x.grad.flatten().tolist() == [1, 1, 0, 0, 0, 0]
    assert comm.all_gather(torch.ones(2, 1), [2, 1, 1]).flatten().tolist() == [1, 1, 0, 0]
    assert comm.all_reduce(torch.ones(2)).tolist() == [1, 1]
    assert comm.away_s > 0
    with pytest.raises(UnsupportedError):
        comm.all_traffic()
    with pytest.raises(UnsupportedError):
        comm.exchange_sizes([1, 1, 1])


def _shares(costs):
    return [
        MeasuredShare(size, nodes, steps, [costs.time(size, steps, steps * nodes)])
        for nodes in (500, 2000)
        for size, steps in ((1, 199), (4, 50), (16, 13), (128, 2))
    ]


def test_costs_are_found_again():
    shares = _shares(COSTS)
    found = fit_costs(shares)
    for name in ("epoch_s", "partner_s", "step_s", "vertex_step_s"):
        assert getattr(found, name) == pytest.approx(getattr(COSTS, name), rel=1e-6)
    assert found.error < 1e-6
    off = replace(shares[0], samples=[2 * shares[0].seconds])
    assert fit_costs([off, *shares[1:]]).error > 0.3


def test_bad_arguments_are_refused():
    sizes = {"plain_bytes": 1.1e8, "difference_bytes": 3e7}
    shares, job = _shares(COSTS), ProjectedModel("tm_gcn", 200, 10**6, COSTS, window=16, **sizes)
    for name, call in (
        ("", lambda: fit_costs(shares[:4])),
        ("", lambda: fit_costs(shares[:1] * 6)),
        ("memory_bytes", lambda: plan_blocks(job, 1, memory=1e9)),
        ("", lambda: random_graphs(1)),
        ("", lambda: take_shares(task_of("tm_gcn"), [])),
        ("timeline", lambda: count_snapshot("tgcn_model", size=2)),
    ):
        with pytest.raises(InvalidInputError, match=name or None):
            call()


@pytest.mark.parametrize("method", METHODS)
def test_parts_cover_all_vertices_and_none_is_too_heavy(method):
    if method in ("pymetis", "kahypar"):
        pytest.importorskip(method)
    for size in (1, 2, 5, 20):
        bare = [matrix_of(entries, 9) for entries in ([], [(3, 3)])]
        for topology in (tiny_sequence(120, 6, 480).topology, data().topology, bare):
            nodes = topology[0].num_rows
            parts = split_vertices(topology, size, method)
            assert torch.equal(parts.order.sort().values, torch.arange(nodes))
            assert torch.equal(parts.position[parts.order], torch.arange(nodes))
            for part in range(size):
                assert (parts.owner[parts.vertices(part)] == part).all()
            assert torch.equal(parts.owner, split_vertices(topology, size, method).owner)
            if nodes > size and method != "ranges":
                weight = len(topology) + sum(c.indptr.diff() for c in topology)
                load = torch.zeros(size, dtype=torch.int64).index_add_(0, parts.owner, weight)
                # Vertices are not cut: those that change places may differ by one.
                assert load.max() <= (1 + IMBALANCE) * load.sum() / size + 2 * weight.max()


def test_what_is_taken_unless_asked(monkeypatch):
    there = importlib.util.find_spec("pymetis") is not None
    parts = split_vertices(data().topology, 3)
    assert parts.method == ("pymetis" if there else "propagation")
    assert split_vertices(data().topology, 11).method == "ranges"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert split_vertices(data().topology, 3).method == "propagation"
    for method in ("pymetis", "kahypar"):
        with pytest.raises(UnsupportedError, match=method):
            split_vertices(data().topology, 3, method)


@given(
    st.lists(st.lists(st.integers(0, 9), max_size=30), min_size=1, max_size=3), st.integers(1, 12)
)
def test_rows_are_cut_by_entries(readers, group):
    topology = [matrix_of([(row, 0) for row in rows], 10) for rows in readers]
    weight = [len(readers) + sum(rows.count(v) for rows in readers) for v in range(10)]
    blocks = row_blocks(topology, 10, group, "entries")
    assert [v for b in blocks for v in b] == list(range(10))
    assert len(blocks) == group
    for block in blocks:
        # A row goes where its middle lies, so half a row may hang over at each end.
        over = max((weight[v] for v in block), default=0)
        assert sum(weight[v] for v in block) <= sum(weight) / group + over
    equal = row_blocks(topology, 10, group)
    assert max(map(len, equal)) - min(map(len, equal)) <= 1


def test_wrong_arguments_are_named():
    model = timeline_model(workload("tm_gcn", "class"))
    topology, parts = data().topology, VertexParts(torch.arange(11) % 2, 2)
    with pytest.raises(UnknownKeyError, match="method"):
        split_vertices(topology, 2, "dice")
    for name, call in (
        ("parts", lambda: split_vertices([], 2)),
        ("owner", lambda: VertexParts(torch.tensor([0, 2]), 2)),
        ("pieces", lambda: VertexSplit(CountOnly(0, 2), model, data(), range(8), parts, pieces=0)),
        ("parts", lambda: VertexSplit(CountOnly(0, 3), model, data(), range(8), parts)),
    ):
        with pytest.raises(InvalidInputError, match=name):
            call()
