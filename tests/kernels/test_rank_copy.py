"""The rank-copy operator: exact counts, the same bytes however it is cut, and the laws it draws."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgbench.kernels_cuda.twins import (
    RankCopy,
    RankCopySpec,
    exact_exp2,
    exact_log2,
    lag_draws,
    rank_copy,
    rank_draws,
    uniforms,
)
from dgbench.runtime.errors import InvalidInputError

M64 = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15

BIPARTITE = RankCopySpec(
    events=6000, num_src=700, num_dst=90, repeat=0.4, mem_src=0.5, mem_dst=0.3, reach_pair=500,
    reach_src=300, reach_dst=800, phi=0.1, beta_src=0.7, beta_dst=0.3, s_src=0.8, q_src=5,
    s_dst=1.0, q_dst=9,
)  # fmt: skip
ONE_POOL = RankCopySpec(
    events=6000, num_src=800, repeat=0.2, reply=0.3, loop=0.1, mem_src=0.6, mem_dst=0.4,
    reach_pair=200, reach_src=100, reach_dst=100, p_src=0.3, s_src=1.5, q_src=20, s_dst=0.5,
    q_dst=3,
)  # fmt: skip
SIMPLE = replace(ONE_POOL, repeat=0.0, loop=0.0, simple=True, phi=0.2)
BLOCKS = replace(SIMPLE, blocks=12, mixing=0.1)
SPECS = {"bipartite": BIPARTITE, "one pool": ONE_POOL, "simple": SIMPLE, "blocks": BLOCKS}


PINNED_UNIFORM = 0.6935121390102292
PINNED_EDGES = [
    (74, 400),
    (141, 74),
    (396, 52),
    (13, 100),
    (29, 74),
    (5, 20),
    (25, 11),
    (33, 401),
    (1, 75),
    (5, 330),
    (25, 390),
    (19, 258),
]


def mix(x: int) -> int:
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & M64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & M64
    return x ^ (x >> 31)


def slow_uniform(seed: int, event: int, slot: int) -> float:
    key = mix((seed + GOLDEN) & M64)
    key = mix((key + GOLDEN * (event + 1)) & M64)
    return (mix((key + GOLDEN * (slot + 1)) & M64) >> 11) * 2.0**-53


def pairs(src, dst):
    return set(zip(src.tolist(), dst.tolist(), strict=True))


@given(st.integers(0, M64), st.integers(0, 2**40), st.integers(0, 2**31))
def test_uniforms_are_a_hash_of_seed_event_and_slot(seed, event, slot):
    assert uniforms(seed, event, 1, slot)[0] == slow_uniform(seed, event, slot)


def test_first_uniforms_are_pinned():
    assert uniforms(1, 0, 4, 0).tolist() == [slow_uniform(1, k, 0) for k in range(4)]
    assert uniforms(1, 0, 1, 0)[0] == PINNED_UNIFORM


def test_edges_are_pinned():
    """A change here changes every twin that was ever measured."""
    src, dst = rank_copy(SIMPLE, 7, 3000, 3012)
    assert list(zip(src.tolist(), dst.tolist(), strict=True)) == PINNED_EDGES


@pytest.mark.parametrize("name", SPECS)
def test_counts_are_exact_and_ids_arrive_in_order(name):
    spec = SPECS[name]
    src, dst = rank_copy(spec, 3)
    assert len(src) == len(dst) == spec.events
    if spec.num_dst:
        assert set(src) == set(range(spec.num_src))
        assert set(dst) == set(range(spec.num_src, spec.num_nodes))
        sides = [src, dst - spec.num_src]
    else:
        assert set(src) | set(dst) == set(range(spec.num_src))
        sides = [np.stack([src, dst], 1).ravel()]
    for ids in sides:
        _, first = np.unique(ids, return_index=True)
        slack = 0 if spec.num_dst else 1  # event 0 brings two vertices
        assert np.all(np.diff(first) >= -slack)


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize(("chunk", "threads"), [(1, 1), (1000, 2), (6000, 2), (777, 1)])
def test_same_bytes_for_any_chunk_and_thread_count(name, chunk, threads):
    spec = SPECS[name]
    whole = rank_copy(spec, 11)
    stream, parts = RankCopy(spec, 11, threads=threads), []
    while stream.position < spec.events:
        parts.append(stream.take(min(chunk, spec.events - stream.position)))
    for side in (0, 1):
        assert np.array_equal(np.concatenate([p[side] for p in parts]), whole[side])


def test_ring_of_history_gives_the_same_bytes_as_keeping_all():
    """Without draws from the whole past only the reach is kept: 300 events of 40,000."""
    spec = replace(BIPARTITE, events=40_000, phi=0.0, reach_pair=300, reach_src=7, reach_dst=250)
    src, dst = rank_copy(spec, 5)
    head = rank_copy(spec, 5, 0, 39_000)
    assert np.array_equal(head[0], src[:39_000])
    # An all but impossible draw from the whole past makes the operator keep all of it.
    kept = rank_copy(replace(spec, phi=1e-300), 5)
    assert np.array_equal(kept[0], src)
    assert np.array_equal(kept[1], dst)


def test_a_part_equals_the_slice_of_the_whole():
    src, dst = rank_copy(SIMPLE, 2)
    part = rank_copy(SIMPLE, 2, 2500, 4100)
    assert np.array_equal(part[0], src[2500:4100])
    assert np.array_equal(part[1], dst[2500:4100])


def test_seeds_differ():
    assert not np.array_equal(rank_copy(SIMPLE, 1)[0], rank_copy(SIMPLE, 2)[0])


@pytest.mark.parametrize(("name", "distinct"), [("simple", 0.98), ("blocks", 0.9)])
def test_simple_graphs_have_no_loops_and_few_repeated_pairs(name, distinct):
    src, dst = rank_copy(SPECS[name], 4)
    assert not np.any(src == dst)
    assert len(pairs(src, dst)) >= distinct * len(src)
    allowed = rank_copy(replace(SPECS[name], simple=False), 4)
    assert len(pairs(*allowed)) < 0.9 * distinct * len(src)


def test_more_redraws_refuse_more_pairs():
    crowded = replace(SIMPLE, num_src=60, events=1500, reply=0.0)
    few, many = (len(pairs(*rank_copy(replace(crowded, redraws=n), 1))) for n in (0, 40))
    assert few < many


def test_a_bipartite_pair_set_refuses_too():
    spec = replace(BIPARTITE, repeat=0.0, simple=True)
    assert len(pairs(*rank_copy(spec, 1))) > 0.95 * spec.events
    assert len(pairs(*rank_copy(replace(spec, simple=False), 1))) < 0.8 * spec.events


def test_self_loops_come_at_their_rate_and_not_at_all_without():
    src, dst = rank_copy(replace(ONE_POOL, repeat=0.0, reply=0.0, num_src=100), 9)
    assert np.mean(src == dst) == pytest.approx(0.1, abs=0.02)
    src, dst = rank_copy(replace(ONE_POOL, loop=0.0), 9)
    assert not np.any(src == dst)


def test_everything_repeats_when_repeat_is_one():
    spec = replace(BIPARTITE, repeat=1.0)
    src, dst = rank_copy(spec, 1)
    assert len(pairs(src, dst)) <= spec.num_src + spec.num_dst  # only arrivals make new pairs


def test_replies_reverse_earlier_pairs():
    spec = replace(SIMPLE, reply=1.0, num_src=40, events=60)
    src, dst = rank_copy(spec, 1)
    fresh = {0}
    seen: set[int] = {0, 1}
    for k in range(1, len(src)):
        if src[k] in seen and dst[k] in seen:
            earlier = pairs(src[:k], dst[:k])
            open_pairs = [p for p in earlier if p[::-1] not in earlier]
            if open_pairs and (dst[k], src[k]) not in earlier:
                fresh.add(k)  # tries may run out; it must stay rare
        seen |= {int(src[k]), int(dst[k])}
    assert len(fresh) <= 5


def test_blocks_keep_edges_inside():
    spec = replace(BLOCKS, reply=0.0, mixing=0.0, mem_dst=0.0)
    src, dst = rank_copy(spec, 1)
    arrivals = np.zeros(len(src), bool)
    seen: set[int] = set()
    for k, d in enumerate(dst.tolist()):
        arrivals[k] = d not in seen
        seen |= {d, int(src[k])}
    drawn = ~arrivals & (dst >= spec.blocks)
    assert np.mean((src % 12 == dst % 12)[drawn]) > 0.97
    free = rank_copy(replace(spec, mixing=1.0), 1)
    assert np.mean(free[0] % 12 == free[1] % 12) < 0.2


@pytest.mark.parametrize(
    ("s", "q", "vertices"),
    [(0.0, 1.0, 50), (0.5, 4.0, 1000), (1.0, 2.0, 1000), (1.0 + 1e-6, 2.0, 1000), (2.27, 55.0, 800),
     (4.0, 40_000.0, 3000), (4.0, 0.1, 20)],
)  # fmt: skip
def test_ranks_follow_their_law(s, q, vertices):
    u = uniforms(5, 0, 100_000, 3)
    drawn = np.bincount(rank_draws(s, q, vertices, u), minlength=vertices) / len(u)
    x = np.arange(vertices + 1)
    mass = np.log(x + q) if s == 1 else np.sign(1 - s) * (x + q) ** (1 - s)
    exact = (mass - mass[0]) / (mass[-1] - mass[0])  # the integral of the density, per rank
    assert np.abs(np.cumsum(drawn) - exact[1:]).max() < 0.01


def test_rank_of_one_vertex_is_zero():
    assert rank_draws(0.7, 3.0, 1, np.array([0.0, 0.5, 1 - 2**-53])).tolist() == [0, 0, 0]


def test_lags_are_log_uniform_and_partly_uniform():
    old, u = uniforms(1, 0, 100_000, 1), uniforms(1, 0, 100_000, 2)
    recent = lag_draws(0.0, 1000, 5000, old, u)
    assert recent.min() == 1
    assert recent.max() <= 1000
    for m in (1, 3, 10, 100, 500):
        # floor(1000^u) <= m exactly when u < log(m + 1) / log(1000)
        assert np.mean(recent <= m) == pytest.approx(math.log(m + 1) / math.log(1000), abs=0.01)
    whole = lag_draws(1.0, 10, 5000, old, u)
    assert np.abs(np.sort(whole) / 5000 - np.linspace(0, 1, len(u))).max() < 0.01
    assert lag_draws(0.0, 1000, 1, old, u).max() == 1
    assert lag_draws(0.0, 1000, 20, old, u).max() <= 20


@given(st.floats(1e-290, 1e290))
def test_log2_is_exact_enough(x):
    assert exact_log2(np.array([x]))[0] == pytest.approx(math.log2(x), rel=1e-14, abs=1e-15)


@given(st.floats(-900, 900))
def test_exp2_is_exact_enough(x):
    assert exact_exp2(np.array([x]))[0] == pytest.approx(2.0**x, rel=1e-13)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_valid_spec_gives_exact_counts(data):
    events = data.draw(st.integers(1, 400))
    bipartite = data.draw(st.booleans())
    simple = data.draw(st.booleans())
    share = st.floats(0, 1)
    low = 1 if bipartite else 2
    spec = RankCopySpec(
        events=events,
        num_src=data.draw(st.integers(low, max(low, events + (not bipartite)))),
        num_dst=data.draw(st.integers(1, events)) if bipartite else 0,
        simple=simple,
        repeat=0.0 if simple else data.draw(share),
        reply=0.0 if bipartite else data.draw(share),
        loop=0.0 if bipartite or simple else data.draw(share),
        mem_src=data.draw(share),
        mem_dst=data.draw(share),
        phi=data.draw(share),
        p_src=data.draw(share),
        reach_pair=data.draw(st.integers(1, 500)),
        reach_src=data.draw(st.integers(1, 500)),
        reach_dst=data.draw(st.integers(1, 500)),
        beta_src=data.draw(st.floats(0.05, 3)),
        beta_dst=data.draw(st.floats(0.05, 3)),
        s_src=data.draw(st.floats(0, 5)),
        q_src=data.draw(st.floats(0.01, 1e5)),
        s_dst=data.draw(st.floats(0, 5)),
        q_dst=data.draw(st.floats(0.01, 1e5)),
        blocks=data.draw(st.sampled_from([1, 3, 12])),
        mixing=data.draw(share),
        redraws=data.draw(st.integers(0, 8)),
    )
    seed = data.draw(st.integers(0, M64))
    src, dst = rank_copy(spec, seed)
    if bipartite:
        assert set(src) == set(range(spec.num_src))
        assert set(dst) == set(range(spec.num_src, spec.num_nodes))
    else:
        assert set(src) | set(dst) == set(range(spec.num_src))
        if spec.loop == 0:
            assert not np.any(src == dst)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"events": 0}, "events"),
        ({"num_src": 1}, "num_src"),
        ({"num_src": 6002}, "num_src"),
        ({"num_dst": -1}, "num_dst"),
        ({"repeat": 1.5}, "repeat"),
        ({"phi": math.nan}, "phi"),
        ({"q_src": 0.0}, "q_src"),
        ({"s_dst": -1.0}, "s_dst"),
        ({"beta_dst": 0.0}, "beta_dst"),
        ({"reach_src": 0}, "reach_src"),
        ({"redraws": -1}, "redraws"),
        ({"blocks": 0}, "blocks"),
        ({"simple": True}, "repeat"),
        ({"num_dst": 5}, "reply"),
    ],
)
def test_bad_parameters_are_named(change, word):
    with pytest.raises(InvalidInputError, match=word):
        replace(ONE_POOL, **change)


@pytest.mark.parametrize("seed", [-1, 2**64, 1.5, True])
def test_bad_seeds_are_refused(seed):
    with pytest.raises(InvalidInputError, match="seed"):
        rank_copy(SIMPLE, seed)


def test_taking_too_much_is_refused():
    stream = RankCopy(SIMPLE, 1)
    stream.take(5990)
    with pytest.raises(InvalidInputError, match="10 events left"):
        stream.take(11)
    assert len(stream.take(0)[0]) == 0
    with pytest.raises(InvalidInputError, match="begin, end"):
        rank_copy(SIMPLE, 1, 5, 3)


@pytest.mark.parametrize(
    ("s", "q", "vertices"),
    [(math.nan, 1.0, 5), (-1.0, 1.0, 5), (17.0, 1.0, 5), (1.0, 0.0, 5), (1.0, math.inf, 5),
     (1.0, math.nan, 5), (1.0, 1.0, 0)],
)  # fmt: skip
def test_laws_without_ranks_are_refused(s, q, vertices):
    with pytest.raises(InvalidInputError, match="s, q, vertices"):
        rank_draws(s, q, vertices, np.array([0.5]))
