"""Numbers that GNNFlow's experiments count and derive, against slow and obvious forms."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from gnnflow_rows import row
from hypothesis import given, settings
from hypothesis import strategies as st

from dgbench.datasets import EventStream
from dgbench.kernels_cuda.tcsr import build_tcsr
from dgbench.kernels_cuda.temporal_sample import count_walk, sample_hops
from dgbench.kernels_cuda.temporal_store import BlockPolicy, TemporalStore
from dgbench.lab.laws import fit, gini
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.gnnflow import experiments as ex
from dgbench.systems.gnnflow.block_counts import BlockCounts
from dgbench.systems.gnnflow.experiments.accuracy_runs import difference, over_seeds
from dgbench.systems.gnnflow.experiments.round_race import loss_gap, rounds_of
from dgbench.systems.gnnflow.experiments.settings import BY_NAME
from dgbench.systems.gnnflow.plain_cache import ListedCache, TorchCache


def test_differences_have_intervals_of_their_seeds() -> None:
    assert difference([0.6, 0.7, 0.8], [0.5, 0.5, 0.5]) == pytest.approx(20)
    rows = [row("x", {"dataset": "wikipedia", "seed": seed}) for seed in (1, 2, 3)]
    found = over_seeds(rows, [10.0, 20.0, 30.0])
    assert (found.value, found.n, found.side) == (20, 3, 0)
    assert found.error == pytest.approx(10 / 3**0.5)
    assert found.high - found.value == pytest.approx(4.3027 * found.error, rel=1e-4)
    assert over_seeds(rows[:1], [10.0]).side == 0  # rounds of one seed are no sample of seeds
    assert over_seeds(rows, [10.0, 11.0, 10.0]).side == 1
    assert over_seeds(rows, [-10.0, -11.0, -10.0]).side == -1
    assert over_seeds(rows, [10.0, 20.0, 30.0], 0.99).low < found.low
    other = [row("x", {"dataset": "enron", "seed": seed}) for seed in (1, 2)]
    both = over_seeds([*rows, *other], [1.0, 2.0, 3.0, 5.0, 7.0])
    assert (both.value, both.n) == (4.0, 2)
    assert both.error == pytest.approx((1 / 3 + 1.0) ** 0.5 / 2)


@pytest.mark.parametrize("kind", [TorchCache, ListedCache])
def test_other_caches_give_the_rows(kind: type) -> None:
    table = torch.rand(60, 4)
    cache = kind(table, 7)
    for ids in torch.randint(0, 60, (20, 11)):
        assert torch.equal(cache.fetch(ids), table[ids])
    assert 0 < cache.hits < cache.requests == 220
    with pytest.raises(InvalidInputError):
        cache.fetch(torch.tensor([60]))
    with pytest.raises(InvalidInputError, match="capacity"):
        kind(table, 0)


def test_laws_and_shares() -> None:
    a, b = (torch.tensor(x).bool() for x in ([1, 1, 0, 1], [0, 1, 1, 1]))
    assert (ex.table4.jaccard(a, b), ex.table4.contained(a, b)) == (1 / 2, pytest.approx(2 / 3))
    assert ex.table4.jaccard(a & ~a, b & ~b) == 0
    assert ex.table3.different(ex.table3.RowCache(10, 1, 0), torch.tensor([4, 4, 9, 0, 9])) == 3
    counts = {("node", "unique"): 10, ("edge", "unique"): 20}
    graph = SimpleNamespace(node_dim=100, edge_dim=50)
    assert ex.table3.share(counts, "tgn", graph, "unique") == pytest.approx(1 / 2)
    assert ex.table3.share(counts, "tgn", graph, "unique memory") == pytest.approx(1 / 3)
    draw = np.random.default_rng(4)
    power, exponential = draw.zipf(2.2, 4000), draw.geometric(0.05, 4000)
    assert fit(power).nearer == "power law"
    assert fit(power).exponent == pytest.approx(2.2, abs=0.1)
    assert fit(exponential).nearer == "exponential"
    assert fit(exponential).rate == pytest.approx(-np.log1p(-0.05), rel=0.1)
    assert fit(np.append(power, np.zeros(50, int)), 2).n == int((power >= 2).sum())
    with pytest.raises(InvalidInputError):
        fit(np.array([3, 3, 3]))
    assert [gini(np.array(x)) for x in ([1] * 9, [0, 0, 0, 8], [])] == pytest.approx([0, 0.75, 0])


# --- blocks and walks -----------------------------------------------------------------------------


@settings(max_examples=60)
@given(
    batches=st.lists(st.lists(st.integers(0, 5), max_size=25), max_size=8),
    name=st.sampled_from(("adaptive", "adaptive_literal", "fixed", "strawman", "static")),
    size=st.integers(1, 12),
)
def test_counting_gives_the_blocks_of_the_store(batches, name, size) -> None:
    policy = BlockPolicy(name, size)
    counted = BlockCounts(6, policy)
    store = TemporalStore(6, policy=policy if name != "static" else BlockPolicy())
    for now, owners in enumerate(batches):
        counted.add(*np.unique(np.array(owners, np.int64), return_counts=True))
        src = torch.tensor(owners, dtype=torch.int64)
        store.insert(src, src, torch.full((len(owners),), float(now), dtype=torch.float64))
    if name == "static":
        src = torch.tensor([one for owners in batches for one in owners], dtype=torch.int64)
        store = TemporalStore.static(6, src, src, torch.zeros(src.numel(), dtype=torch.float64))
    memory = store.memory()
    assert counted.blocks.tolist() == store.list_lengths().tolist()
    assert (counted.slots, counted.records) == (memory.slots, memory.records)


def test_what_differs_fails_its_check() -> None:
    """Counts of another store, a graph that was rebuilt otherwise, samples of another graph."""
    store = TemporalStore(2, policy=BlockPolicy("fixed", 2))
    counted = BlockCounts(2, store.policy)
    assert all(check.passed for check in ex.table6._agreement(store, counted))
    counted.add(np.array([0]), np.array([1]))
    assert not ex.table6._agreement(store, counted)[0].passed

    ends, t = torch.tensor([[0, 1, 2], [1, 2, 0]]), torch.arange(3, dtype=torch.float64)
    store = TemporalStore(3, undirected=True)
    store.insert(*ends, t)
    for undirected in (True, False):
        (check,) = ex.update.compare(store, build_tcsr(3, *ends, t, undirected=undirected), 0)
        assert check.passed == undirected

    roots = torch.tensor([0, 1]), torch.tensor([9.0, 9.0], dtype=torch.float64)
    right = sample_hops(store, *roots, [2])
    assert ex.fig13.equal_samples(right, right).passed
    store.insert(ends[0], ends[0], torch.full((3,), 5.0, dtype=torch.float64))
    assert not ex.fig13.equal_samples(sample_hops(store, *roots, [2]), right).passed


def test_a_walk_counts_blocks_and_comparisons() -> None:
    store = TemporalStore(2, policy=BlockPolicy("fixed", 4))
    ids, times = torch.zeros(16, dtype=torch.int64), torch.arange(16).double()
    store.insert(ids, ids, times)
    begins, ends = (torch.tensor(x).double() for x in ([12.0, 0, -5], [16.0, 16, 0]))
    blocks, compared = count_walk(store, ids[:3], begins, ends)
    # Blocks that begin at 12, 8, 4, 0. The first walk sees that the next block ends before 12, the
    # second has all, the third passes all as they are newer.
    assert blocks.tolist() == [2, 4, 4]
    assert 0 == compared[2] < compared[0] < compared[1]
    with pytest.raises(InvalidInputError, match="layout"):
        count_walk(TemporalStore(1, layout="wide"), ids[:1], begins[:1], ends[:1])
    with pytest.raises(InvalidInputError, match="nodes"):
        count_walk(store, ids[:1] + 2, begins[:1], ends[:1])


# --- rounds ---------------------------------------------------------------------------------------


def test_rounds_lie_where_most_of_the_stream_is_there() -> None:
    ends = torch.zeros(100, dtype=torch.int64)
    half_days = torch.arange(100, dtype=torch.float64) * 43200
    data = SimpleNamespace(events=EventStream.build(ends, ends, half_days))
    graph = BY_NAME["gdelt"]
    assert [one.first for one in rounds_of(graph, data, 3)] == [66, 68, 70]
    assert rounds_of(graph, data, 30)[-1].last == 100
    at_once = SimpleNamespace(events=EventStream.build(ends, ends, ends))
    with pytest.raises(InvalidInputError):
        rounds_of(graph, at_once, 1)
    one, same, other = ([SimpleNamespace(losses=[1.0, last])] for last in (0.5, 0.5, 0.6))
    assert loss_gap([one, same]) == 0.0
    assert loss_gap([one, same, other]) == pytest.approx(1 / 6)
