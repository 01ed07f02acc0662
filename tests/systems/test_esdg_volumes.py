"""Counts and costs behind ESDG's experiments: traffic against formulas and lists, bytes of
differences against what is sent, shares of a rank run alone, projections."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from esdg_tiny import MODELS, data, workload
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_data import csr_of, tiny_sequence

from dgbench.datasets.transforms import EdgeLives, edge_life
from dgbench.kernels_cuda.difference import count_changes, encode_sequence
from dgbench.lab.table import number
from dgbench.runtime.errors import InvalidInputError, UnsupportedError
from dgbench.runtime.meter import Meter
from dgbench.runtime.transfer import open_link
from dgbench.systems.esdg.experiments import fig4, table1, table2, table2_runs
from dgbench.systems.esdg.experiments.common import Changes, formula
from dgbench.systems.esdg.experiments.fig7 import task_of
from dgbench.systems.esdg.experiments.parts import snapshot_bytes
from dgbench.systems.esdg.experiments.projection import (
    Costs,
    ProjectedModel,
    fit_costs,
    plan_blocks,
    redistribution,
)
from dgbench.systems.esdg.experiments.random_graphs import random_graphs
from dgbench.systems.esdg.experiments.shares import Alone, MeasuredShare, take_shares
from dgbench.systems.esdg.partition import block_ranges
from dgbench.systems.esdg.transfer import Delivery, TransferFormat, slots_for
from dgbench.systems.esdg.volumes import count_snapshot, count_vertex, snapshot_floats, timeline

COSTS = Costs(epoch_s=0.01, partner_s=1e-5, step_s=1e-4, vertex_step_s=4e-7)
JOB = ProjectedModel(
    "tm_gcn", 200, 1_000_000, COSTS, plain_bytes=1.1e8, difference_bytes=3e7, window=16
)


@pytest.mark.parametrize(
    ("model", "width", "floats"), [("tm_gcn", 12, 5_184_000_000), ("cd_gcn", 32, 13_824_000_000)]
)
@pytest.mark.parametrize(
    ("steps", "nodes", "ranks", "blocks", "pieces"),
    [
        (7, 11, 4, 1, 1),
        (7, 11, 4, 3, 2),
        (3, 2, 5, 2, 3),
        (1, 1, 3, 1, 1),
        (192, 1_000_000, 4, 1, 1),
    ],
)
def test_shares_are_counted_to_the_float(steps, nodes, ranks, blocks, pieces, model, width, floats):
    """Every float of a step goes to each vertex's owner unless it is at home, there and back."""
    counted = count_snapshot(
        model, size=ranks, steps=steps, num_nodes=nodes, blocks=blocks, pieces=pieces
    )
    found = 0
    for times in block_ranges(steps, blocks):
        parts = [len(p) for p in block_ranges_or_empty(len(times), ranks)]
        chunks = [len(p) for p in block_ranges_or_empty(nodes, ranks)]
        found += sum(s * c for p, s in enumerate(parts) for q, c in enumerate(chunks) if p != q)
    assert counted.total("floats") == 3 * width * found
    assert counted.total("bytes") == 4 * counted.total("floats")
    for phase in ("forward", "rerun", "backward"):
        assert counted.total("floats", phase=phase) == width * found
    ranges = block_ranges(steps, blocks)
    assert snapshot_floats(timeline(model), nodes, ranges, ranks) == 3 * width * found
    assert nodes < 1_000_000 or counted.total("floats") == floats  # as Table 2 prints


def block_ranges_or_empty(total: int, parts: int) -> list[range]:
    cuts = [total // parts * i + min(i, total % parts) for i in range(parts + 1)]
    return [range(a, b) for a, b in pairwise(cuts)]


def test_wrong_reads_are_named():
    two = [np.zeros((2, 2), dtype=np.int64)]
    for name, reads, options in (
        ("reads", [], {}),
        ("reads", [np.zeros((2, 3), dtype=np.int64)], {}),
        ("pair_reads", two, {"pair_reads": []}),
        ("pieces", two, {"pieces": 0}),
    ):
        with pytest.raises(InvalidInputError, match=name or None):
            count_vertex("cd_gcn", reads, **options)
    with pytest.raises(InvalidInputError, match="timeline"):
        count_snapshot("tgcn_model", size=2)


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


@given(GRAPHS, st.integers(1, 4), st.booleans(), st.sampled_from(["int64", "int32"]), st.booleans())
@settings(max_examples=60, deadline=None)
def test_counted_bytes_are_those_of_the_encoded_snapshots(raw, life, fallback, index, loops):
    smoothed = edge_life(raw, life)
    changes = changes_of(raw, life)
    restarts = {0, len(raw) // 2}
    sent = encode_sequence(
        smoothed, restarts=restarts, index=index, fallback=fallback, self_loops=loops
    )
    found = changes.sent(
        restarts, index=index, fallback=fallback, loops=raw[0].num_rows if loops else 0
    )
    assert found == sum(d.nbytes for d in sent)
    assert changes.plain(index) == (20 if index == "int64" else 12) * sum(c.nnz for c in smoothed)
    pairs = [count_changes(a, b) for a, b in pairwise(smoothed)]
    assert [*zip(changes.removed[1:], changes.added[1:], strict=True)] == pairs


def test_the_share_of_changes_gives_the_gain():
    first, second = csr_of([(0, 1), (1, 2), (2, 3), (3, 0)], 4), csr_of([(0, 1), (1, 2)], 4)
    changes = changes_of([first, second, first], 1)
    assert changes.share == 4 / 6
    steady = changes.plain() - 80
    assert steady / (changes.sent(fallback=False) - 80) == pytest.approx(formula(changes.share))
    assert formula(0) == 5.0
    assert formula(0, "int32") == 3.0
    assert formula(0.055) == pytest.approx(4.1, abs=0.01)
    assert formula(1) == 1.0
    assert changes_of([csr_of([], 3)] * 2, 1).share == 0.0


@given(GRAPHS, st.floats(0, 8))
@settings(max_examples=40, deadline=None)
def test_the_smallest_life_that_reaches_a_ratio(raw, ratio):
    lives = EdgeLives.of_snapshots(raw)
    total = [int(lives.entries(life).sum()) for life in range(1, len(raw) + 1)]
    enough = [life for life, n in enumerate(total, 1) if n >= ratio * total[0]]
    assert table1.smallest_life(lives, ratio) == (enough[0] if enough else None)


def test_bytes_by_ranks_are_those_the_engine_prepares():
    """Every rank's Delivery encodes its own runs; together they send what was counted."""
    raw = tiny_sequence(snapshots=12, features=2)
    data = replace(raw, topology=edge_life(raw.topology, 3))
    changes = changes_of(list(raw.topology), 3)
    for ranks in (1, 2, 3):
        runs = fig4.runs_of(12, 2, ranks)
        counted, most = fig4._by_ranks(changes, runs, 4 * 2 * raw.num_nodes)
        for kind, fallback in (("sent", True), ("forced", False)):
            sent, busiest = 0, 0
            for own in runs:
                meter = Meter()
                delivery = Delivery(
                    data,
                    [t for run in own for t in run],
                    TransferFormat(fallback=fallback),
                    "sym",
                    open_link("cpu", meter, slots=slots_for(12)),
                    meter,
                )
                delivery.prepare(own)
                matrices = delivery.topology_bytes(own)
                sent += matrices
                busiest = max(busiest, matrices + delivery.feature_bytes(own))
                delivery.close()
            assert counted[kind] == sent
            if kind == "sent":
                assert most["sent"] == busiest


def test_parts_are_scaled_to_the_papers_size(monkeypatch):
    monkeypatch.setattr(table2_runs, "load_timeline", lambda task: data(6, 13))
    found = table2_runs.part(workload("tm_gcn"), "ranges")
    assert number(found, "vertices", of="steps") == 6 * 13
    assert number(found, "edges") == sum(csr.nnz for csr in data(6, 13).topology)
    for ranks in table2_runs.RANKS:
        per = number(found, "remote_reads", ranks=ranks) / (6 * 13)
        assert table2.remote_parts(found, ranks) == per
        assert table2.billions(found, ranks=ranks) == pytest.approx(18 * per * 192 * 1e-3)


@settings(max_examples=25, deadline=None)
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


def _shares(costs, seconds=lambda s: s):
    found = []
    for nodes in (500, 2000):
        for size in (1, 4, 16, 128):
            steps = -(-199 // size)
            found.append(
                MeasuredShare(size, nodes, steps, [seconds(costs.time(size, steps, steps * nodes))])
            )
    return found


def test_costs_are_found_again():
    found = fit_costs(_shares(COSTS))
    for name in ("epoch_s", "partner_s", "step_s", "vertex_step_s"):
        assert getattr(found, name) == pytest.approx(getattr(COSTS, name), rel=1e-6)
    assert found.error < 1e-6
    shares = _shares(COSTS)
    shares[0] = replace(shares[0], samples=[2 * shares[0].seconds])
    assert fit_costs(shares).error > 0.3


def test_random_graphs_follow_the_recipe():
    made, again = (random_graphs(200, steps=5, seed=3) for _ in range(2))
    assert len(made.check()) == 5
    for t, csr in enumerate(made.topology):
        assert 0.95 * 600 < csr.nnz <= 600
        rows = torch.repeat_interleave(torch.arange(200), csr.indptr.diff())
        assert bool(((rows * 200 + csr.indices).diff() > 0).all())
        assert not bool((rows == csr.indices).any())
        assert torch.equal(csr.indices, again.topology[t].indices)
        assert made.features[t, :, 0].sum() == made.features[t, :, 1].sum() == csr.nnz
    assert not torch.equal(made.topology[0].indices[:50], made.topology[1].indices[:50])
    plain, different = snapshot_bytes(made)
    assert plain == pytest.approx(20 * np.mean([c.nnz for c in made.topology[1:]]))
    assert different == plain  # they share next to nothing, so changes are sent plain


def test_bad_arguments_are_refused():
    for shares in (_shares(COSTS)[:4], _shares(COSTS)[0:8:4], _shares(COSTS)[:1] * 6):
        with pytest.raises(InvalidInputError):
            fit_costs(shares)
    for name, call in (
        ("memory_bytes", lambda: plan_blocks(JOB, 1, memory=1e9)),
        ("", lambda: random_graphs(1)),
        ("", lambda: random_graphs(5, steps=0)),
        ("", lambda: random_graphs(5, density=0)),
        ("", lambda: take_shares(task_of("tm_gcn"), [])),
    ):
        with pytest.raises(InvalidInputError, match=name or None):
            call()
