"""Basis of ESDG's experiments: sizes by formula, shares run alone, costs, traffic, projections."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from esdg_tiny import MODELS, data, workload
from hypothesis import given, settings
from hypothesis import strategies as st

from dgbench.lab.table import number
from dgbench.runtime.errors import InvalidInputError, UnsupportedError
from dgbench.systems.esdg.experiments import table2, table2_runs
from dgbench.systems.esdg.experiments.fig7 import task_of
from dgbench.systems.esdg.experiments.parts import snapshot_bytes
from dgbench.systems.esdg.experiments.projection import (
    Costs,
    ProjectedModel,
    fit_costs,
    plan_blocks,
    redistribution,
)  # fmt: skip
from dgbench.systems.esdg.experiments.random_graphs import random_graphs
from dgbench.systems.esdg.experiments.shares import Alone, MeasuredShare, take_shares
from dgbench.systems.esdg.volumes import count_snapshot, timeline

COSTS = Costs(epoch_s=0.01, partner_s=1e-5, step_s=1e-4, vertex_step_s=4e-7)
JOB = ProjectedModel(
    "tm_gcn", 200, 1_000_000, COSTS, plain_bytes=1.1e8, difference_bytes=3e7, window=16
)


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
        ("num_nodes", lambda: random_graphs(1)),
        ("steps", lambda: random_graphs(5, steps=0)),
        ("density", lambda: random_graphs(5, density=0)),
        ("", lambda: take_shares(task_of("tm_gcn"), [])),
    ):
        with pytest.raises(InvalidInputError, match=name):
            call()
