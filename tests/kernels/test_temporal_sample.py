"""The compiled temporal sampler against the oracle, record by record.

Over 500 lines: all ways to ask one sampler, on the same few streams.
"""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dgbench.kernels_cuda.temporal_sample import (
    Sample,
    TemporalSampler,
    batch,
    next_targets,
    random_walks,
    sample_between,
    sample_hops,
    sample_neighbours,
)
from dgbench.kernels_cuda.temporal_store import BlockPolicy, TemporalStore
from dgbench.runtime.errors import DgbenchError, InvalidInputError
from dgbench.systems.base.plain_sampler import (
    PlainGraph,
    plain_between,
    plain_hops,
    plain_sample,
    plain_walks,
)

FIELDS = ("nodes", "times", "positions", "offsets", "neighbours", "eids", "edge_times")
POLICIES = (
    BlockPolicy("adaptive", 4),
    BlockPolicy("adaptive_literal", 3),
    BlockPolicy("fixed", 1),
    BlockPolicy("fixed", 4),
    BlockPolicy("strawman"),
)


def same(found: Sample, expected: Sample) -> None:
    for field in FIELDS:
        assert torch.equal(getattr(found, field), getattr(expected, field)), field
    assert found.fanout == expected.fanout


def stream(vertices: int, events: int, span: int, seed: int) -> tuple[Tensor, ...]:
    """src, dst, t with many ties, duplicate and self edges; low ids get most edges."""
    draw = torch.Generator().manual_seed(seed)
    ends = (torch.rand(2, events, generator=draw) ** 3 * vertices).long()
    times = torch.randint(0, span, (events,), generator=draw).double().sort().values
    return ends[0], ends[1], times


def both(
    vertices: int = 12,
    events: int = 300,
    span: int = 60,
    seed: int = 0,
    *,
    policy: BlockPolicy = POLICIES[0],
    layout: str = "packed",
    undirected: bool = True,
    batch: int = 37,
) -> tuple[TemporalStore, PlainGraph]:
    src, dst, t = stream(vertices, events, span, seed)
    store = TemporalStore(vertices, policy=policy, layout=layout, undirected=undirected)
    plain = PlainGraph(vertices, undirected=undirected)
    for first in range(0, events, batch):
        part = slice(first, first + batch)
        store.insert(src[part], dst[part], t[part])
        plain.insert(src[part], dst[part], t[part])
    return store, plain


def roots(vertices: int, count: int, span: int, seed: int = 1) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    nodes = (torch.rand(count, generator=draw) ** 2 * vertices).long()
    return nodes, torch.randint(-2, span + 3, (count,), generator=draw).double()


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**64 - 1),
    shape=st.tuples(st.integers(1, 20), st.integers(0, 200), st.integers(1, 40)),
    policy=st.sampled_from(POLICIES),
    layout=st.sampled_from(("packed", "compact", "wide")),
    undirected=st.booleans(),
    fanout=st.integers(1, 12),
    uniform=st.booleans(),
    window=st.one_of(st.none(), st.integers(0, 30)),
    closed=st.booleans(),
    replace=st.booleans(),
    search=st.sampled_from(("binary", "linear")),
    grouped=st.booleans(),
    threads=st.integers(1, 2),
)
def test_every_sample_is_the_oracles(
    seed, shape, policy, layout, undirected, fanout, uniform, window, closed, replace, search,
    grouped, threads,
) -> None:  # fmt: skip
    vertices, events, span = shape
    store, plain = both(
        vertices, events, span, seed % 1000, policy=policy, layout=layout, undirected=undirected
    )
    nodes, times = roots(vertices, 70, span, seed % 997)
    how = {
        "fanout": fanout, "policy": "uniform" if uniform else "recent", "window": window,
        "closed": closed, "replace": replace, "seed": seed, "draw": seed % 2**32, "hop": 3,
        "snapshot": 2,
    }  # fmt: skip
    found = sample_neighbours(
        store, nodes, times, search=search, grouped=grouped, threads=threads, **how
    )
    same(found, plain_sample(plain, nodes, times, **how))


@pytest.mark.parametrize("policy", ["recent", "uniform"])
@pytest.mark.parametrize("layout", ["packed", "compact", "wide"])
@pytest.mark.parametrize("search", ["binary", "linear"])
def test_deleted_edges_and_vertices_are_no_candidates(policy, layout, search) -> None:
    store, plain = both(layout=layout)
    nodes, times = roots(12, 1500, 60)
    how = {"fanout": 5, "policy": policy, "window": 25.0, "seed": 4}
    gone = torch.arange(0, 300, 3)
    for change in (
        lambda graph: graph.delete_edges(gone),
        lambda graph: graph.delete_vertices(torch.tensor([1, 5])),
        lambda graph: graph.revive_vertices(torch.tensor([5])),
    ):
        change(store), change(plain)
        expected = plain_sample(plain, nodes, times, **how)
        for threads in (1, 2):
            same(
                sample_neighbours(store, nodes, times, search=search, threads=threads, **how),
                expected,
            )


@pytest.mark.parametrize("policy", ["recent", "uniform"])
def test_all_ways_agree_on_long_lists_and_many_roots(policy) -> None:
    """Hubs with thousands of records in hundreds of blocks; groups, threads, uneven last group."""
    store, plain = both(40, 20_000, 5_000, batch=100)
    nodes, times = roots(40, 4_001, 5_000)
    how = {"fanout": 10, "policy": policy, "seed": 7, "draw": 9, "window": 3_000.0}
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


@pytest.mark.parametrize("policy", ["recent", "uniform"])
def test_wide_fanouts_count_before_they_take_places(policy) -> None:
    store, plain = both(6, 3_000, 100)
    nodes, times = roots(6, 300, 100)
    for fanout in (1_000, 1_025, 100_000):
        how = {"fanout": fanout, "policy": policy}
        expected = plain_sample(plain, nodes, times, **how)
        for threads in (1, 2):
            same(sample_neighbours(store, nodes, times, threads=threads, **how), expected)


def test_a_window_of_its_own_for_each_root() -> None:
    store, plain = both()
    nodes, ends = roots(12, 500, 60)
    begins = ends - torch.arange(500).double() % 40 + 5  # some end before they begin
    for policy, closed in itertools.product(("recent", "uniform"), (False, True)):
        how = {"fanout": 4, "policy": policy, "closed": closed, "seed": 3}
        expected = plain_between(plain, nodes, begins, ends, **how)
        same(sample_between(store, nodes, begins, ends, **how), expected)
        inside = expected.edge_times.repeat_interleave(1)
        owner = torch.arange(500).repeat_interleave(expected.offsets.diff())
        assert (inside >= begins[owner]).all()
        assert (inside <= ends[owner]).all() if closed else (inside < ends[owner]).all()


@pytest.mark.parametrize("policy", ["recent", "uniform"])
def test_hops_and_snapshots(policy) -> None:
    store, plain = both()
    nodes, times = roots(12, 60, 60)
    asked = itertools.product(((1, None), (1, 20.0), (3, 7.0)), (False, True))
    for (snapshots, window), prop_time in asked:
        how = {"policy": policy, "snapshots": snapshots, "window": window, "prop_time": prop_time}
        how |= {"seed": 11, "draw": 2}
        found = sample_hops(store, nodes, times, (4, 3, 2), **how)
        expected = plain_hops(plain, nodes, times, (4, 3, 2), **how)
        assert [len(hops) for hops in found] == [3] * snapshots
        for mine, theirs in zip(found, expected, strict=True):
            for one, other in zip(mine, theirs, strict=True):
                same(one, other)


def hop_by_hop(
    store: TemporalStore,
    nodes: Tensor,
    times: Tensor,
    fanouts: tuple[int, ...],
    *,
    window: float | None,
    snapshots: int,
    prop_time: bool,
    positions: Tensor | None,
    **how: object,
) -> list[list[Sample]]:
    """[snapshot][hop] by a call for every hop."""
    every = []
    for snapshot in range(snapshots):
        targets = nodes, times - snapshot * window if snapshot else times, positions
        hops = []
        for hop, fanout in enumerate(fanouts):
            hops.append(
                sample_neighbours(
                    store, targets[0], targets[1], positions=targets[2], fanout=fanout, hop=hop,
                    snapshot=snapshot, window=window, **how,
                )
            )  # fmt: skip
            targets = next_targets(hops[-1], prop_time)
        every.append(hops)
    return every


def all_same(found: list[list[Sample]], expected: list[list[Sample]]) -> None:
    assert [len(hops) for hops in found] == [len(hops) for hops in expected]
    for mine, theirs in zip(found, expected, strict=True):
        for one, other in zip(mine, theirs, strict=True):
            same(one, other)


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**64 - 1),
    shape=st.tuples(st.integers(1, 12), st.integers(0, 150), st.integers(1, 30)),
    layout=st.sampled_from(("packed", "compact", "wide")),
    count=st.integers(0, 80),
    fanouts=st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple),
    policy=st.sampled_from(("recent", "uniform")),
    snapshots=st.integers(1, 3),
    window=st.integers(0, 20).map(float),
    prop_time=st.booleans(),
    closed=st.booleans(),
    replace=st.booleans(),
    shifted=st.booleans(),
    threads=st.integers(1, 2),
)
def test_all_hops_of_one_call_are_those_of_a_call_for_each(
    seed, shape, layout, count, fanouts, policy, snapshots, window, prop_time, closed, replace,
    shifted, threads,
) -> None:  # fmt: skip
    """Also for one vertex, no edges, no roots, ties, self edges, and roots that repeat."""
    vertices, events, span = shape
    store, plain = both(vertices, events, span, seed % 1000, layout=layout)
    nodes, times = roots(vertices, count, span, seed % 997)
    how = {
        "policy": policy, "window": window, "snapshots": snapshots, "prop_time": prop_time,
        "closed": closed, "replace": replace, "seed": seed, "draw": seed % 2**32,
        "positions": torch.arange(count) * 3 + 5 if shifted else None,
    }  # fmt: skip
    found = sample_hops(store, nodes, times, fanouts, threads=threads, **how)
    all_same(found, hop_by_hop(store, nodes, times, fanouts, **how))
    all_same(found, plain_hops(plain, nodes, times, fanouts, **how))


@pytest.mark.parametrize("policy", ["recent", "uniform"])
@pytest.mark.parametrize("prop_time", [False, True])
def test_hops_too_large_to_allocate_are_counted_first(policy, prop_time, monkeypatch) -> None:
    store, plain = both()
    nodes, times = roots(12, 60, 60)
    how = {"policy": policy, "prop_time": prop_time, "window": 9.0, "snapshots": 3, "seed": 5}
    expected = plain_hops(plain, nodes, times, (4, 3, 2), **how)
    for limit in (0, 100, 300, 2_000):  # all hops, some of them, and those after others
        monkeypatch.setattr(batch, "MAX_UNCOUNTED", limit)
        for threads in (1, 2):
            all_same(sample_hops(store, nodes, times, (4, 3, 2), threads=threads, **how), expected)


def test_largest_ids_through_two_hops() -> None:
    store, last = TemporalStore(3, undirected=True), 2**32 - 2
    ends = torch.tensor([0, 1]), torch.tensor([1, 2])
    store.insert(*ends, torch.tensor([1.0, 2.0]).double(), torch.tensor([last - 1, last]))
    hops = sample_hops(store, torch.tensor([2]), torch.tensor([torch.inf]).double(), (2, 2))[0]
    assert [hop.neighbours.tolist() for hop in hops] == [[1], [1, 0]]
    assert [hop.eids.tolist() for hop in hops] == [[last], [last, last - 1]]


def outside(hops: list[Sample], ends: Tensor, window: float) -> int:
    """Neighbours at any hop whose edge is not in [end - window, end) of the root they belong to."""
    root, count = torch.arange(ends.numel()), 0
    for hop in hops:
        owner = root.repeat_interleave(hop.offsets.diff())
        t, end = hop.edge_times, ends[owner]
        count += int(((t < end - window) | (t >= end)).sum())
        root = torch.cat([root, owner])
    return count


@given(st.integers(0, 10**6), st.sampled_from(["recent", "uniform"]), st.integers(1, 4))
@settings(max_examples=30, deadline=None)
def test_with_root_times_every_hop_stays_in_the_snapshot_of_its_root(seed, policy, fanout) -> None:
    store, _ = both(8, 150, 40, seed=seed)
    nodes, times = roots(8, 30, 40, seed)
    how = {"policy": policy, "window": 9.0, "snapshots": 3, "seed": seed}
    found = sample_hops(store, nodes, times, (fanout,) * 3, prop_time=True, **how)
    assert [outside(hops, times - 9.0 * s, 9.0) for s, hops in enumerate(found)] == [0, 0, 0]


def test_root_times_and_edge_times_are_different_neighbourhoods() -> None:
    """Every edge that a target may see is found, and with the times of edges others are."""
    vertices, span, window = 8, 40, 9.0
    store, plain = both(vertices, 150, span)
    nodes, times = roots(vertices, 30, span)
    left = []
    for prop_time in (True, False):
        how = {"window": window, "prop_time": prop_time}
        ((first, second),) = sample_hops(store, nodes, times, (300, 300), **how)
        left.append(outside([first, second], times, window))
        root = torch.cat([torch.arange(30), torch.arange(30).repeat_interleave(
            first.offsets.diff())])  # fmt: skip
        asked = torch.cat([times, first.edge_times])
        for i, target in enumerate(second.nodes.tolist()):
            end = float(times[root[i]] if prop_time else asked[i])
            _, eids, t = plain.neighbours(target)
            wanted = eids[(t >= end - window) & (t < end)]
            at, to = second.offsets[i : i + 2].tolist()
            assert second.eids[at:to].tolist() == wanted.tolist()
    assert left[0] == 0
    assert left[1] > 100


def test_a_share_of_the_batch_is_sampled_like_the_whole() -> None:
    """Ranks that take parts of a batch draw what one that takes all of it draws."""
    store, _ = both()
    nodes, times = roots(12, 200, 60)
    how = {"policy": "uniform", "seed": 5, "draw": 3}
    whole = sample_hops(store, nodes, times, (3, 2), **how)[0]
    for part in (torch.arange(0, 200, 2), torch.arange(199, 0, -2)):
        mine = sample_hops(store, nodes[part], times[part], (3, 2), positions=part, **how)[0]
        for share, full in zip(mine, whole, strict=True):
            by_position = {int(p): i for i, p in enumerate(full.positions)}
            for i, p in enumerate(share.positions.tolist()):
                there = by_position[p]
                assert torch.equal(
                    share.eids[share.offsets[i] : share.offsets[i + 1]],
                    full.eids[full.offsets[there] : full.offsets[there + 1]],
                )


def test_next_targets_are_the_old_ones_and_their_neighbours() -> None:
    store, _ = both()
    nodes, times = roots(12, 50, 60)
    one = sample_neighbours(store, nodes, times, fanout=3)
    targets, when, positions = next_targets(one)
    assert torch.equal(targets, torch.cat((nodes, one.neighbours)))
    assert torch.equal(when, torch.cat((times, one.edge_times)))
    assert positions.unique().numel() == positions.numel()
    assert torch.equal(positions[:50], one.positions * 4)


def test_padding() -> None:
    store, _ = both()
    one = sample_neighbours(store, *roots(12, 80, 60), fanout=6)
    padded = one.padded()
    assert padded.index.shape == padded.mask.shape == (80, 6)
    assert torch.equal(padded.mask.sum(1), one.offsets.diff())
    assert torch.equal(padded.index[padded.mask], torch.arange(one.eids.numel()))
    assert (padded.index[~padded.mask] == 0).all()


@pytest.mark.parametrize("policy", ["recent", "uniform"])
def test_walks(policy) -> None:
    store, plain = both()
    nodes, times = roots(12, 40, 60)
    how = {"policy": policy, "window": 30.0, "seed": 8, "draw": 1}
    found = random_walks(store, nodes, times, 5, **how)
    expected = plain_walks(plain, nodes, times, 5, **how)
    assert torch.equal(found.nodes, expected.nodes)
    assert torch.equal(found.eids, expected.eids)
    assert torch.equal(found.times.nan_to_num(-1), expected.times.nan_to_num(-1))
    steps = found.times.diff(dim=1)
    assert (steps[~steps.isnan()] < 0).all()
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
    pairs = (rows[:, :, None] * 20 + rows[:, None, :]).flatten().bincount(minlength=400)
    expected = count * 30 / 380
    off = pairs.view(20, 20)[~torch.eye(20, dtype=torch.bool)]
    assert ((off - expected) ** 2 / expected).sum() / 2 < 190 * 1.4


def test_nothing_at_or_after_the_roots_time() -> None:
    src, dst, t = stream(15, 500, 50, 3)
    store = TemporalStore(15, undirected=True)
    store.insert(src, dst, t)
    for policy in ("recent", "uniform"):
        for hops in sample_hops(store, src, t, (5, 5), policy=policy):
            for one in hops:
                owner = one.times.repeat_interleave(one.offsets.diff())
                assert (one.edge_times < owner).all()
    leak = sample_neighbours(store, src, t, fanout=5, closed=True)
    own = leak.times.repeat_interleave(leak.offsets.diff())
    assert (leak.edge_times == own).any()  # what the closed window lets through


def test_edges_of_the_question() -> None:
    store, plain = both()
    none = torch.empty(0, dtype=torch.int64)
    empty = sample_neighbours(store, none, torch.empty(0, dtype=torch.float64), fanout=3)
    assert empty.offsets.tolist() == [0]
    assert empty.neighbours.numel() == 0
    assert empty.padded().mask.shape == (0, 3)
    nodes, far = torch.arange(12), torch.full((12,), torch.inf, dtype=torch.float64)
    for times in (far, -far):
        for window in (None, 5.0):
            how = {"fanout": 3, "window": window}
            same(
                sample_neighbours(store, nodes, times, **how),
                plain_sample(plain, nodes, times, **how),
            )
    bare = TemporalStore(3)
    assert sample_neighbours(bare, torch.arange(3), far[:3], fanout=2).neighbours.numel() == 0
    large = TemporalStore(2)  # ids next to the largest that a record holds
    last = torch.tensor([2**32 - 2])
    large.insert(torch.tensor([0]), torch.tensor([1]), torch.tensor([1.5]).double(), last)
    assert sample_neighbours(large, nodes[:1], far[:1], fanout=2).eids.tolist() == [2**32 - 2]


def test_times_that_a_float32_would_merge() -> None:
    """Unix seconds are 128 apart in float32; here neighbouring seconds stay apart."""
    base = 1.5e9
    store = TemporalStore(2, layout="compact", origin=base)
    times = base + torch.arange(50).double()
    store.insert(torch.zeros(50, dtype=torch.int64), torch.ones(50, dtype=torch.int64), times)
    one = sample_neighbours(store, torch.zeros(50, dtype=torch.int64), times, fanout=1)
    assert one.offsets.tolist() == [0, *range(50)]
    assert torch.equal(one.edge_times, times[:-1])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"fanout": 0}, "fanout is 0"),
        ({"fanout": 2**18, "policy": "uniform"}, "fanout is 262144"),
        ({"policy": "latest"}, "policy is 'latest'"),
        ({"search": "tree"}, "search is 'tree'"),
        ({"window": -1.0}, "window is -1.0"),
        ({"window": float("nan")}, "window is nan"),
        ({"seed": -1}, "seed is -1"),
        ({"draw": 2**32}, "draw is 4294967296"),
        ({"hop": 256}, "hop is 256"),
        ({"threads": 0}, "threads is 0"),
        ({"nodes": torch.tensor([0, 12])}, r"nodes\[1\] is 12, allowed is 0 <= x < 12"),
        ({"nodes": torch.tensor([-1, 0])}, r"nodes\[0\] is -1"),
        ({"nodes": torch.tensor([0])}, "nodes has 1 elements, expected 2"),
        ({"nodes": torch.tensor([0, 1], dtype=torch.int32)}, "nodes is torch.int32"),
        ({"times": torch.tensor([1.0, torch.nan]).double()}, r"times\[1\] is nan"),
        ({"times": torch.tensor([1.0, 2.0])}, "times is torch.float32"),
        ({"positions": torch.tensor([1])}, "positions has 1 elements"),
    ],
)
@pytest.mark.parametrize("threads", [1, 2])
def test_refusals_name_what_was_found(change, words, threads) -> None:
    store, _ = both()
    asked = {
        "nodes": torch.tensor([0, 1]), "times": torch.tensor([1.0, 2.0]).double(), "fanout": 2,
        "threads": threads, **change,
    }  # fmt: skip
    with pytest.raises(DgbenchError, match=words):
        sample_neighbours(store, **asked)


def test_snapshots_need_a_window() -> None:
    store, _ = both()
    nodes, times = roots(12, 3, 60)
    with pytest.raises(InvalidInputError, match="snapshots is 2 and window None"):
        sample_hops(store, nodes, times, (2,), snapshots=2)
    with pytest.raises(InvalidInputError, match=r"len\(fanouts\) is 0"):
        sample_hops(store, nodes, times, ())
