"""Training sets from the pools of Algorithm 4: whole runs, counts by formula, distribution."""

from __future__ import annotations

import random

import pytest
import torch
from tgcn_tiny import events, losses, opened

from dgbench.kernels_cuda.edge_sampling import EdgeTable
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError
from dgbench.systems.tgcn.pools import sample_pools, sample_subgraphs
from dgbench.systems.tgcn.program import Program
from dgbench.systems.tgcn.recounts import check_sample


def pooled(on=("union",), **options):
    return opened(stream=events(400, 40), on=on, **options)


@pytest.mark.parametrize("kind", [None, "layer"])
@pytest.mark.parametrize("off", [(), ("sis",)])
def test_pools_are_part_of_a_whole_run(kind, off):
    one = pooled(program=Program(kind=kind), off=off)
    count = one.data.train_end
    trained = losses(one, epochs=2)
    assert one.kept[0].numel() == (count + 1) // 2
    sample, counted = one.program.pooled, one.meter.counters
    assert counted["sample_roots"] == sample.roots.numel()
    assert counted["pool_edges"] == int(sample.pools.sum())
    assert counted["drawn_edges"] == int(((sample.pools + 1) // 2).sum()) == int(sample.drawn.sum())
    assert counted["drawn_edges"] > one.kept[0].numel()  # several reach the same edges
    assert all(check.passed for check in check_sample(one, "tgcn"))
    four = pooled(program=Program(kind=kind), off=off, devices=4)
    assert losses(four, epochs=2) == pytest.approx(trained, abs=1e-9, rel=0)
    other = pooled(on=())
    other.prepare()
    assert other.program.pooled is None
    assert not torch.equal(other.kept[0], one.kept[0])


def test_subgraphs_are_trained_on_in_turns():
    one = pooled(program=Program(kind="subgraph"))
    first, second, third = (one.train_epoch() for _ in range(3))
    assert len(one.kept) > 1
    assert len({first, second, third}) == 3


def table_of(edges) -> EdgeTable:
    src, dst = (torch.tensor(end) for end in zip(*edges, strict=True))
    count = 1 + int(torch.cat([src, dst]).max())
    t = torch.arange(len(edges)).double()
    return EdgeTable.build(src, dst, t, count, undirected=True)


GRAPH = [(0, 1), (0, 1), (1, 2), (2, 3), (0, 2), (3, 4), (4, 4), (1, 4)]


def algorithm4(seed: int, layers: int = 2) -> frozenset[int]:
    """The training set by plain Python: a pool is a list, a draw `random.sample`."""
    dice, found = random.Random(seed), set()
    roots = list(range(5))
    dice.shuffle(roots)
    wanted = (len(GRAPH) + 1) // 2
    for root in roots:
        reached, drawn = {root}, set()
        for _ in range(layers):
            pool = [
                (eid, far)
                for eid, (u, v) in enumerate(GRAPH)
                for near, far in ((u, v), (v, u))
                if near in reached
            ]
            taken = dice.sample(pool, (len(pool) + 1) // 2)
            drawn |= {eid for eid, _ in taken}
            reached = {far for _, far in taken}
        fresh = sorted(drawn - found)
        found |= set(dice.sample(fresh, min(len(fresh), wanted - len(found))))
        if len(found) == wanted:
            break
    return frozenset(found)


def test_training_sets_have_the_distribution_of_algorithm_4():
    table, count = table_of(GRAPH), 1000
    ours = [frozenset(sample_pools(table, 0.5, seed=k).edges.tolist()) for k in range(count)]
    plain = [algorithm4(seed) for seed in range(count)]
    assert {len(one) for one in ours} == {4}
    sets = set(ours) | set(plain)
    distance, degrees = 0.0, 0
    for one in sets:
        a, b = ours.count(one), plain.count(one)
        if a + b >= 12:
            distance, degrees = distance + (a - b) ** 2 / (a + b), degrees + 1
    assert degrees > 20
    # Chi-square of two samples: its mean is `degrees`, its deviation the root of twice that.
    assert distance < degrees + 5 * (2 * degrees) ** 0.5


def test_arguments_are_checked():
    table = table_of(GRAPH)
    directed = EdgeTable.build(*(torch.tensor([0, 1]),) * 2, torch.arange(2).double(), 2)
    with pytest.raises(UnknownKeyError, match="kind"):
        sample_pools(table, 0.5, kind="all")
    with pytest.raises(UnknownKeyError, match="kind"):
        Program(kind="all")
    for wrong in ((directed, 0.5), (table, 0.0), (table, 1.5)):
        with pytest.raises(InvalidInputError):
            sample_pools(*wrong)
    assert all(one.numel() for one in sample_subgraphs(table, frontier=3, count=2, seed=1))
    assert opened().on["union"] is False
