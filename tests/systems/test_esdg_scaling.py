"""Basis of ESDG's scaling: shares run alone, random graphs, costs, traffic, projections."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from esdg_rows import number
from hypothesis import given, settings
from hypothesis import strategies as st

from dgbench.runtime.errors import InvalidInputError, UnsupportedError
from dgbench.runtime.topology import esdg_cluster
from dgbench.systems.base.timeline import PlainTimeline
from dgbench.systems.esdg.experiments import projection, random_graphs
from dgbench.systems.esdg.experiments.fig7 import task_of
from dgbench.systems.esdg.experiments.parts import IDLE_STEPS, counted, links, snapshot_bytes
from dgbench.systems.esdg.experiments.projection import (
    Costs,
    ProjectedModel,
    ProjectedSnapshotEpoch,
    fit_costs,
    gradient_ring,
    h200,
    plan_blocks,
    printed_speed,
    redistribution,
    snapshot_epoch,
    speedups,
    v100_cluster,
    vertex_epoch,
)
from dgbench.systems.esdg.experiments.settings import table2
from dgbench.systems.esdg.experiments.shares import (
    Alone,
    MeasuredShare,
    blocks_of,
    copy_rate,
    take_shares,
)
from dgbench.systems.esdg.partition_trainer import SnapshotRankTrainer
from dgbench.systems.esdg.volumes import count_snapshot, gradient_floats, timeline

MODELS = ("tm_gcn", "cd_gcn", "evolvegcn_o")
COSTS = Costs(epoch_s=0.01, partner_s=1e-5, step_s=1e-4, vertex_step_s=4e-7)
JOB = ProjectedModel(
    "tm_gcn", 200, 1_000_000, COSTS, plain_bytes=1.1e8, difference_bytes=3e7, window=16
)


# Traffic.


@settings(max_examples=25, deadline=None)
@given(
    model=st.sampled_from(MODELS),
    size=st.integers(1, 9),
    steps=st.integers(1, 12),
    nodes=st.integers(1, 11),
    data=st.data(),
)
def test_closed_form_is_what_is_counted(model, size, steps, nodes, data):
    blocks = data.draw(st.integers(1, steps))
    found = count_snapshot(model, size=size, steps=steps, num_nodes=nodes, blocks=blocks)
    count, messages = redistribution(timeline(model), steps, nodes, size, blocks)
    np.testing.assert_array_equal(found.matrix("bytes"), count)
    np.testing.assert_array_equal(found.matrix("messages"), messages)


@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_ring_carries_all_gradients(size):
    model = timeline("evolvegcn_o")
    count, messages = gradient_ring(model, size)
    assert count.sum() == 4 * gradient_floats(model, size)
    assert (messages > 0).sum() == (size if size > 1 else 0)


def test_counted_part_checks_itself_and_finds_idle_ranks():
    found = counted((8, 16))
    steps, nodes = (number(found, metric, of="counted") for metric in ("snapshots", "vertices"))
    for size in (8, 16):
        inside, between, kept = (
            number(found, "floats", of=of, ranks=size) for of in ("inside", "between", "kept")
        )
        whole = inside + between + kept
        assert (inside + kept) * (size // 8) == whole
        assert whole == 36 * steps * nodes
    idle = {size: number(found, "processes", of="idle", ranks=size) for size in (64, 100, 128)}
    assert idle == {64: 0, 100: 0, 128: 128 - IDLE_STEPS}


# Shares.


@pytest.mark.parametrize("model", MODELS)
def test_one_rank_alone_trains_as_the_plain_timeline(model):
    data = random_graphs.random_graphs(30, steps=7)
    task = task_of(model)
    plain, alone = PlainTimeline(task, data), SnapshotRankTrainer(Alone(1), task, data, blocks=2)
    for _ in range(3):
        assert alone.train_epoch() == pytest.approx(plain.train_epoch(), rel=1e-5)


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


def test_shares_are_those_of_rank_zero():
    small, large = (random_graphs.random_graphs(n, steps=11) for n in (20, 40))
    wanted = [(large, 1), (large, 4), (small, 4), (small, 16)]
    found = take_shares(task_of("tm_gcn"), wanted, turns=2)
    assert [(s.size, s.nodes, s.steps) for s in found] == [
        (1, 40, 10),
        (4, 40, 3),
        (4, 20, 3),
        (16, 20, 1),
    ]
    assert all(len(s.samples) == 2 and min(s.samples) > 0 for s in found)
    assert found[1].vertex_steps == 120
    with pytest.raises(InvalidInputError):
        take_shares(task_of("tm_gcn"), [])


def test_a_rank_holds_at_most_so_many_snapshots():
    for steps in (1, 25, 26, 199, 256):
        for size in (1, 2, 8, 128):
            blocks = blocks_of(steps, size)
            assert 1 <= blocks <= steps
            assert -(-steps // blocks) <= 25 * size
    assert blocks_of(199, 1) == 8
    assert blocks_of(199, 8) == 1


def test_copy_rate_is_a_rate():
    assert 1e8 < copy_rate(0.01) < 1e13


# Costs.


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


def test_costs_are_never_negative():
    found = fit_costs(_shares(replace(COSTS, epoch_s=0.0, step_s=0.0)))
    assert min(found.epoch_s, found.step_s, found.partner_s) >= 0


@pytest.mark.parametrize("keep", [slice(0, 4), slice(0, 8, 4)])
def test_too_few_shares_are_refused(keep):
    with pytest.raises(InvalidInputError):
        fit_costs(_shares(COSTS)[keep])
    with pytest.raises(InvalidInputError, match="apart"):
        fit_costs(_shares(COSTS)[:1] * 6)


# Projections.


def test_an_epoch_by_hand():
    job = replace(JOB, steps=10, nodes=1000, plain_bytes=2e4, difference_bytes=1e4)
    assert plan_blocks(job, 2) == 1
    machine = v100_cluster(2, 10.0)
    found = snapshot_epoch(job, 2, machine)
    steps = 5
    assert found.compute_s == pytest.approx(COSTS.time(2, steps, steps * 1000, 10.0))
    sent = 2e4 + 4 * 1e4 + steps * 1000 * 2 * 4
    assert found.transfer_s == pytest.approx(2 * sent / 12e9)
    # 36 floats a vertex and step, half of them moved, half of those each way; one NVLink brick.
    moved = 36 * 10 * 1000 / 2 / 2 * 4
    ring = gradient_ring(job.built(), 2)
    expected = moved / 25e9 + 6 * 5e-6 + esdg_cluster(1).first(2).time(*ring)
    assert found.communicate_s == pytest.approx(expected)
    assert found.seconds == found.compute_s + found.transfer_s + found.communicate_s
    plain = snapshot_epoch(job, 2, machine, difference=False)
    assert plain.transfer_s == pytest.approx(2 * steps * (2e4 + 8000) / 12e9)


def test_the_cluster_is_within_a_factor_of_what_table_2_says_of_exchanges():
    """Epochs less those of EvolveGCN, which sends nothing, in seconds; peak rates are not met."""
    printed = {("tm_gcn", 16): 1.384 - 0.944, ("tm_gcn", 64): 0.593 - 0.308,
               ("cd_gcn", 16): 2.545 - 0.944, ("cd_gcn", 64): 1.135 - 0.308}  # fmt: skip
    for (model, size), seconds in printed.items():
        count = redistribution(timeline(model), 192, 1_000_000, size)
        ratio = seconds / projection.cluster(size).time(*count)
        assert 1.55 < ratio < 2.25


def test_epochs_change_with_ranks_as_they_must():
    line = {p: snapshot_epoch(JOB, p, v100_cluster(p, 20.0)) for p in (1, 2, 8, 16, 128)}
    assert line[1].communicate_s == 0
    assert line[1].share == 0
    values = list(line.values())
    assert all(a.compute_s > b.compute_s for a, b in itertools.pairwise(values))
    assert all(a.transfer_s > b.transfer_s for a, b in itertools.pairwise(values))
    assert line[16].communicate_s > 2 * line[8].communicate_s
    assert all(e.topology.startswith("esdg-cluster") for e in values)


def test_evolvegcn_sends_gradients_only():
    machine = v100_cluster(16, 20.0)
    found = snapshot_epoch(replace(JOB, model="evolvegcn_o"), 16, machine)
    assert 0 < found.communicate_s < 0.1 * snapshot_epoch(JOB, 16, machine).communicate_s


def test_faster_devices_and_networks_change_their_part_only():
    slow, fast = (snapshot_epoch(JOB, 32, v100_cluster(32, s)) for s in (10.0, 20.0))
    assert fast.compute_s < slow.compute_s
    assert (fast.transfer_s, fast.communicate_s) == (slow.transfer_s, slow.communicate_s)
    wide = snapshot_epoch(JOB, 32, v100_cluster(32, 10.0, network=1e13))
    assert wide.communicate_s < 0.6 * slow.communicate_s
    assert wide.compute_s == slow.compute_s
    assert (
        snapshot_epoch(JOB, 8, h200(8, 10.0)).seconds
        < 0.5 * snapshot_epoch(JOB, 8, v100_cluster(8, 10.0)).seconds
    )


def test_blocks_fit_and_what_does_not_is_refused():
    assert plan_blocks(JOB, 1) > plan_blocks(JOB, 8) == 1
    with pytest.raises(InvalidInputError, match="memory_bytes"):
        plan_blocks(JOB, 1, memory=1e9)
    assert projection.held_steps(JOB, 128) == 2


@pytest.mark.parametrize("model", MODELS)
def test_the_printed_speed_gives_the_printed_seconds(model):
    job = replace(JOB, model=model, steps=192)
    speed = printed_speed(job)
    found = snapshot_epoch(job, 4, v100_cluster(4, speed))
    assert found.seconds == pytest.approx(table2("time", model)[4] / 1e3)
    assert printed_speed(replace(job, costs=replace(COSTS, epoch_s=9.0))) is None


def test_vertex_partition_pays_for_remote_rows_and_messages():
    machine = v100_cluster(16, 20.0)
    none, some, more = (vertex_epoch(JOB, 16, machine, r) for r in (0.0, 2.0, 40.0))
    assert none.communicate_s < some.communicate_s < more.communicate_s
    assert none.compute_s == more.compute_s > snapshot_epoch(JOB, 16, machine).compute_s
    # Base: everything travels plain, twice, in shares.
    sent = 200 * (1.1e8 + 8e6) / 16
    assert none.transfer_s == pytest.approx(2 * sent / 12e9)


def test_speedup_takes_the_smallest_feasible_count_as_its_own_speedup():
    line = {p: ProjectedSnapshotEpoch(p, 1.0 / p, 0, 0, "") for p in (4, 8, 16)}
    assert speedups(line) == pytest.approx({4: 4.0, 8: 8.0, 16: 16.0})


# Random graphs.


def test_random_graphs_follow_the_recipe():
    data = random_graphs.random_graphs(200, steps=5, seed=3).check()
    again = random_graphs.random_graphs(200, steps=5, seed=3)
    assert len(data) == 5
    assert data.num_nodes == 200
    for t, csr in enumerate(data.topology):
        assert 0.95 * 600 < csr.nnz <= 600
        rows = torch.repeat_interleave(torch.arange(200), csr.indptr.diff())
        keys = rows * 200 + csr.indices
        assert bool((keys.diff() > 0).all())
        assert not bool((rows == csr.indices).any())
        assert torch.equal(csr.indices, again.topology[t].indices)
        assert data.features[t, :, 0].sum() == data.features[t, :, 1].sum() == csr.nnz
    assert not torch.equal(data.topology[0].indices[:50], data.topology[1].indices[:50])
    plain, different = snapshot_bytes(data)
    assert plain == pytest.approx(20 * np.mean([c.nnz for c in data.topology[1:]]))
    assert different == plain  # they share next to nothing, so changes are sent plain
    assert not data.origin.twin


def test_random_graphs_refuse_nonsense_and_take_two_vertices():
    assert len(random_graphs.random_graphs(2, steps=1)) == 1
    for bad in ({"num_nodes": 1}, {"num_nodes": 5, "steps": 0}, {"num_nodes": 5, "density": 0}):
        with pytest.raises(InvalidInputError):
            random_graphs.random_graphs(**bad)


def test_paper_edges_are_the_printed_totals():
    assert random_graphs.paper_edges(1) == 2**24
    assert random_graphs.paper_edges(128) == 2**31


def test_links_are_fitted_on_half_of_the_sizes():
    found = links(short=True)
    ends = [one.dims for one in found.observations if one.metric == "bandwidth"]
    assert {"link": "shared", "ranks": 2} in ends
    assert {"link": "gloo", "ranks": 2} in ends

    def error(statistic: str, **where: Any) -> float:
        return number(found, "relative_error", of="links", statistic=statistic, **where)

    for end in ends:
        assert number(found, "operation_time", of="message", **end) >= 0
        assert number(found, "bandwidth", **end) > 0
        assert error("largest", **end) >= error("median", **end) >= 0
    most = max(end["ranks"] for end in ends)
    assert error("largest") == error("largest", link="shared", ranks=most)
    assert error("largest") >= error("median")
