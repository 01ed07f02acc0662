"""The samplers of stores and of rebuilt rows (T-CSR) against the oracle, record by record."""

from __future__ import annotations

import itertools
from typing import Any
from unittest import mock

import pytest
import torch
from device_cases import assert_hops_equal
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_checks import refuses
from torch import Tensor

from dgbench.kernels_cuda.tcsr import Tcsr, build_tcsr, sample_tcsr, sample_tcsr_hops
from dgbench.kernels_cuda.temporal_sample import (
    Sample,
    TemporalSampler,
    batch,
    random_walks,
    sample_between,
    sample_hops,
    sample_neighbours,
)
from dgbench.kernels_cuda.temporal_store import BlockPolicy, TemporalStore
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.base.plain_sampler import (
    PlainGraph,
    plain_between,
    plain_hops,
    plain_sample,
    plain_walks,
)

POLICIES = tuple(BlockPolicy(*one) for one in (
    ("adaptive", 4), ("adaptive_literal", 3), ("fixed", 1), ("fixed", 4), ("strawman",),
))  # fmt: skip


def same(found: Sample, expected: Sample) -> None:
    assert_hops_equal([[expected]], [[found]])
    assert found.fanout == expected.fanout


def stream(vertices: int, events: int, span: int, seed: int) -> tuple[Tensor, ...]:
    """src, dst, t with many ties, duplicate and self edges; low ids get most edges."""
    draw = torch.Generator().manual_seed(seed)
    ends = (torch.rand(2, events, generator=draw) ** 3 * vertices).long()
    times = torch.randint(0, span, (events,), generator=draw).double().sort().values
    return ends[0], ends[1], times


def both(
    vertices: int = 12, events: int = 300, span: int = 60, seed: int = 0, *, batch: int = 37,
    **how: Any,
) -> tuple[TemporalStore, PlainGraph]:  # fmt: skip
    src, dst, t = stream(vertices, events, span, seed)
    how = {"policy": POLICIES[0], "undirected": True, **how}
    store = TemporalStore(vertices, **how)
    plain = PlainGraph(vertices, undirected=how["undirected"])
    for first in range(0, events, batch):
        part = slice(first, first + batch)
        store.insert(src[part], dst[part], t[part])
        plain.insert(src[part], dst[part], t[part])
    return store, plain


def roots(vertices: int, count: int, span: int, seed: int = 1) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    nodes = (torch.rand(count, generator=draw) ** 2 * vertices).long()
    return nodes, torch.randint(-2, span + 3, (count,), generator=draw).double()


@pytest.mark.parametrize("policy", ["recent", "uniform"])
def test_all_ways_agree_on_long_lists_and_many_roots(policy) -> None:
    """Hubs with thousands of records in hundreds of blocks; groups, threads, uneven last group."""
    store, plain = both(40, 20_000, 5_000, batch=100)
    nodes, times = roots(40, 4_001, 5_000)
    how = {"fanout": 10, "policy": policy, "seed": 7, "draw": 9, "window": 3_000.0}
    how |= {"hop": 3, "snapshot": 2}
    expected = plain_sample(plain, nodes, times, **how)
    for search, grouped, threads in itertools.product(
        ("binary", "linear"), (True, False), (1, 2, 5)
    ):
        found = sample_neighbours(
            store, nodes, times, search=search, grouped=grouped, threads=threads, **how
        )
        same(found, expected)


@pytest.mark.parametrize("layout", ["packed", "wide"])
@pytest.mark.parametrize("block", [BlockPolicy("adaptive", 64), BlockPolicy("grown", 1024)])
def test_times_far_from_a_line_are_found(layout, block) -> None:
    """Bursts, and gaps of every length: where to look first is only a guess."""
    events = 6_000
    draw = torch.Generator().manual_seed(2)
    gaps = torch.rand(events, generator=draw, dtype=torch.float64)
    steep = (gaps * 600 - 300).exp().sort().values  # 1e-130 to 1e130
    bursts = (gaps * 5).round().exp().cumsum(0) // 50
    ends = torch.randint(0, 3, (2, events), generator=draw)
    for times in (steep, bursts):
        store, plain = TemporalStore(3, policy=block, layout=layout), PlainGraph(3)
        for first in range(0, events, 500):
            part = slice(first, first + 500)
            store.insert(ends[0, part], ends[1, part], times[part])
            plain.insert(ends[0, part], ends[1, part], times[part])
        nodes = torch.randint(0, 3, (700,), generator=draw)
        asked = times[torch.randint(0, events, (700,), generator=draw)]
        for policy in ("recent", "uniform"):
            how = {"fanout": 7, "policy": policy, "seed": 1}
            same(
                sample_neighbours(store, nodes, asked, threads=1, **how),
                plain_sample(plain, nodes, asked, **how),
            )


def test_a_window_of_its_own_for_each_root() -> None:
    store, plain = both()
    nodes, ends = roots(12, 500, 60)
    begins = ends - torch.arange(500).double() % 40 + 5  # some end before they begin
    for policy, closed in itertools.product(("recent", "uniform"), (False, True)):
        how = {"fanout": 4, "policy": policy, "closed": closed, "seed": 3}
        expected = plain_between(plain, nodes, begins, ends, **how)
        same(sample_between(store, nodes, begins, ends, **how), expected)


@settings(deadline=None, max_examples=50)
@given(
    seed=st.integers(0, 2**64 - 1),
    shape=st.tuples(st.integers(1, 20), st.integers(0, 200), st.integers(1, 40)),
    block=st.sampled_from(POLICIES), layout=st.sampled_from(("packed", "compact", "wide")),
    undirected=st.booleans(), gone=st.booleans(), count=st.integers(0, 80),
    fanouts=st.lists(st.integers(1, 5), min_size=1, max_size=3) | st.sampled_from([[12], [1_025]]),
    policy=st.sampled_from(("recent", "uniform")), snapshots=st.integers(1, 3),
    window=st.one_of(st.none(), st.integers(0, 30).map(float)), prop_time=st.booleans(),
    closed=st.booleans(), replace=st.booleans(), shifted=st.booleans(), threads=st.integers(1, 2),
    search=st.sampled_from(("binary", "linear")), grouped=st.booleans(),
    limit=st.sampled_from([0, 100, 300, batch.MAX_UNCOUNTED]),
)  # fmt: skip
def test_all_hops_and_snapshots_are_the_oracles(
    seed, shape, block, layout, undirected, gone, count, fanouts, policy, snapshots, window,
    prop_time, closed, replace, shifted, threads, search, grouped, limit,
) -> None:  # fmt: skip
    """Also for one vertex, no edges, ties, self edges, roots that repeat, and hops that are counted
    before they take memory."""
    vertices, events, span = shape
    how = {"policy": block, "layout": layout, "undirected": undirected}
    store, plain = both(vertices, events, span, seed % 1000, **how)
    nodes, times = roots(vertices, count, span, seed % 997)
    how = {
        "policy": policy, "window": window, "prop_time": prop_time, "closed": closed,
        "replace": replace and max(fanouts) < 1_000, "seed": seed, "draw": seed % 2**32,
        "snapshots": 1 if window is None else snapshots,
        "positions": torch.arange(count) * 3 + 5 if shifted else None,
    }  # fmt: skip
    asked, ways = (nodes, times, fanouts), {"search": search, "grouped": grouped}
    rows = build_tcsr(vertices, *stream(*shape, seed % 1000), undirected=undirected)
    expected = plain_hops(plain, *asked, **how)
    assert_hops_equal(expected, sample_tcsr_hops(rows, *asked, threads=threads, **how))
    thirds = torch.arange(0, vertices, 3)
    for change, ids in (
        ("delete_edges", torch.arange(0)), ("delete_edges", torch.arange(0, events, 3)),
        ("delete_vertices", thirds), ("revive_vertices", thirds[::2]),
    )[: 4 if gone else 1]:  # fmt: skip
        getattr(store, change)(ids), getattr(plain, change)(ids)
        with mock.patch.object(batch, "MAX_UNCOUNTED", limit):
            found = sample_hops(store, *asked, threads=threads, **ways, **how)
        assert_hops_equal(plain_hops(plain, *asked, **how), found)


@pytest.mark.parametrize("policy", ["recent", "uniform"])
def test_walks(policy) -> None:
    store, plain = both()
    nodes, times = roots(12, 40, 60)
    how = {"policy": policy, "window": 30.0, "seed": 8, "draw": 1}
    found = random_walks(store, nodes, times, 5, **how)
    expected = plain_walks(plain, nodes, times, 5, **how)
    for name in ("nodes", "eids", "times"):
        one, other = (getattr(walks, name).nan_to_num(-1) for walks in (found, expected))
        assert torch.equal(one, other)
    assert random_walks(store, nodes, times, 0).eids.shape == (40, 0)


def test_two_calls_differ_and_a_given_one_repeats() -> None:
    store, _ = both()
    nodes, times = roots(12, 300, 60)
    sampler = TemporalSampler(store, (3, 3), policy="uniform", seed=2)
    first, second = (sampler.sample(nodes, times)[0][1] for _ in range(2))
    assert not torch.equal(first.eids[:100], second.eids[:100])
    same(sampler.sample(nodes, times, draw=0)[0][1], first)
    assert sampler.draws == 2
    other = TemporalSampler(store, (3, 3), policy="uniform", seed=3).sample(nodes, times)[0][1]
    assert not torch.equal(first.eids[:100], other.eids[:100])


def test_uniform_is_uniform_and_without_duplicates() -> None:
    store = TemporalStore(1)
    store.insert(*(torch.zeros(20, dtype=torch.int64),) * 2, torch.arange(20).double())
    count = 40_000
    one = sample_neighbours(
        store, torch.zeros(count, dtype=torch.int64), torch.full((count,), 20.0).double(), fanout=6,
        policy="uniform", seed=1,
    )  # fmt: skip
    rows = one.eids.view(count, 6)
    assert (rows.sort(1).values.diff(dim=1) > 0).all()
    expected = count * 6 / 20
    chi = ((rows.flatten().bincount(minlength=20) - expected) ** 2 / expected).sum()
    assert chi < 45  # 19 degrees of freedom: beyond once in 1500 seeds


def test_nothing_asked_and_the_ends_of_time_and_ids() -> None:
    store, plain = both()
    none, far = torch.empty(0, dtype=torch.int64), torch.full((12,), torch.inf).double()
    empty = sample_neighbours(store, none, far[:0], fanout=3)
    assert empty.offsets.tolist() == [0]
    for times, window in itertools.product((far, -far), (None, 5.0)):
        how = {"fanout": 3, "window": window}
        expected = plain_sample(plain, torch.arange(12), times, **how)
        same(sample_neighbours(store, torch.arange(12), times, **how), expected)
    bare = TemporalStore(3)
    assert sample_neighbours(bare, torch.arange(3), far[:3], fanout=2).neighbours.numel() == 0
    large, last = TemporalStore(3, undirected=True), 2**32 - 2
    ends = torch.tensor([0, 1]), torch.tensor([1, 2])
    large.insert(*ends, torch.tensor([1.0, 2.0]).double(), torch.tensor([last - 1, last]))
    hops = sample_hops(large, torch.tensor([2]), far[:1], (2, 2))[0]
    assert [hop.neighbours.tolist() for hop in hops] == [[1], [1, 0]]
    assert [hop.eids.tolist() for hop in hops] == [[last], [last, last - 1]]


@pytest.mark.parametrize("threads", [1, 2])
def test_refusals_name_the_argument(threads) -> None:
    right = {"nodes": torch.tensor([0, 1]), "times": torch.tensor([1.0, 2.0]).double()}
    right |= {"fanout": 2, "threads": threads}
    wrong = (
        ("fanout", 0), ("window", -1.0), ("window", float("nan")), ("seed", -1), ("draw", 2**32),
        ("threads", 0), ("policy", "latest"), ("nodes", torch.tensor([0, 12])),
        ("nodes", torch.tensor([-1, 0])), ("nodes|elements", torch.tensor([0])),
        ("nodes", torch.tensor([0, 1], dtype=torch.int32)), ("times", torch.tensor([1.0, 2.0])),
        ("times", torch.tensor([1.0, torch.nan]).double()), ("positions", torch.tensor([1])),
    )  # fmt: skip
    store, _ = both()
    refuses(
        lambda **given: sample_neighbours(store, **given), right, *wrong, ("search", "tree"),
        ("hop", 256),
    )  # fmt: skip
    with pytest.raises(InvalidInputError, match="fanout"):
        sample_neighbours(store, **{**right, "fanout": 2**18}, policy="uniform")
    rows = build_tcsr(12, *stream(12, 30, 9, 0))
    refuses(lambda **given: sample_tcsr(rows, **given), right, *wrong)
    asked = right["nodes"], right["times"]
    for call in (
        lambda: sample_hops(store, *asked, (2,), snapshots=2),
        lambda: sample_hops(store, *asked, ()),
        lambda: sample_tcsr_hops(rows, *asked, (2,), snapshots=2),
        lambda: sample_tcsr_hops(rows, *asked, ()),
    ):  # fmt: skip
        with pytest.raises(InvalidInputError):
            call()
    lying = Tcsr(torch.tensor([0, 9, 9]), rows.neighbours[:1], rows.eids[:1], rows.times[:1])
    with pytest.raises(InvalidInputError, match="indptr"):  # nothing is read outside
        sample_tcsr(lying, torch.tensor([0]), torch.ones(1).double(), fanout=1)


def test_a_wrong_build_is_named_and_large_numbers_stay_whole() -> None:
    one, late = torch.tensor([0]), 2.0**52 + torch.arange(1.0, 3.0).double()
    large = build_tcsr(2, one.repeat(2), one.repeat(2) + 1, late, torch.tensor([2**62, 2**62 + 1]))
    found = sample_tcsr(large, one, late[1:], fanout=5)
    assert (found.eids.tolist(), found.edge_times.tolist()) == ([2**62], [float(late[0])])
    refuses(
        build_tcsr, {"num_vertices": 2, "src": one, "dst": one, "t": one}, ("num_vertices", -1),
        ("src", one + 2), ("dst", one - 1), ("dst", one[:0]), ("t", one[:0]), ("t", torch.zeros(1)),
        ("t", torch.full((1,), torch.nan).double()), ("src", [0]),
    )  # fmt: skip
