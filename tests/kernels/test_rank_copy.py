"""The rank-copy operator: exact counts, the same bytes however it is cut, and the laws it draws."""

import hashlib
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_checks import refuses

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


PINNED = dict(zip(SPECS, (
    "dcacc25f1b6d453c", "9c6b6446a60c6795", "90e086efe4ce3ace", "921f1bc3a4b38101",
), strict=True))  # fmt: skip
"""Digests of 6000 events: a change here changes every twin that was ever measured."""


def mix(x: int) -> int:
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & M64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & M64
    return x ^ (x >> 31)


def slow_uniform(seed: int, event: int, slot: int) -> float:
    key = mix((seed + GOLDEN) & M64)
    key = mix((key + GOLDEN * (event + 1)) & M64)
    return (mix((key + GOLDEN * (slot + 1)) & M64) >> 11) * 2.0**-53


@given(st.integers(0, M64), st.integers(0, 2**40), st.integers(0, 2**31))
def test_uniforms_are_a_hash_of_seed_event_and_slot(seed, event, slot):
    assert uniforms(seed, event, 1, slot)[0] == slow_uniform(seed, event, slot)


@pytest.mark.parametrize("name", SPECS)
def test_edges_are_pinned(name):
    src, dst = rank_copy(SPECS[name], 7)
    assert hashlib.sha256(src.tobytes() + dst.tobytes()).hexdigest()[:16] == PINNED[name]
    part = rank_copy(SPECS[name], 7, 2500, 4100)
    assert np.array_equal(part, [src[2500:4100], dst[2500:4100]])


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


@given(st.floats(1e-290, 1e290), st.floats(-900, 900))
def test_logarithms_and_powers_are_exact_enough(x, y):
    assert exact_log2(np.array([x]))[0] == pytest.approx(math.log2(x), rel=1e-14, abs=1e-15)
    assert exact_exp2(np.array([y]))[0] == pytest.approx(2.0**y, rel=1e-13)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_valid_spec_gives_exact_counts(data):
    def draw(strategy, allowed=True):
        return data.draw(strategy) if allowed else 0

    events, bipartite, simple = draw(st.integers(1, 400)), draw(st.booleans()), draw(st.booleans())
    low, share, sides = 1 if bipartite else 2, st.floats(0, 1), ("src", "dst")
    ranges = {"reach": st.integers(1, 500), "beta": st.floats(0.05, 3)}
    ranges |= {"s": st.floats(0, 5), "q": st.floats(0.01, 1e5), "mem": share}
    spec = RankCopySpec(
        events=events,
        num_src=draw(st.integers(low, max(low, events + (not bipartite)))),
        num_dst=draw(st.integers(1, events), bipartite),
        simple=simple,
        repeat=draw(share, not simple),
        reply=draw(share, not bipartite),
        loop=draw(share, not bipartite and not simple),
        reach_pair=draw(st.integers(1, 500)),
        blocks=draw(st.sampled_from([1, 3, 12])),
        redraws=draw(st.integers(0, 8)),
        **{name: draw(share) for name in ("phi", "p_src", "mixing")},
        **{f"{name}_{side}": draw(one) for name, one in ranges.items() for side in sides},
    )
    seed = data.draw(st.integers(0, M64))
    src, dst = rank_copy(spec, seed)
    if bipartite:
        assert set(src) == set(range(spec.num_src))
        assert set(dst) == set(range(spec.num_src, spec.num_nodes))
        sides = [src, dst]
    else:
        assert set(src) | set(dst) == set(range(spec.num_src))
        assert spec.loop or not np.any(src == dst)
        sides = [np.stack([src, dst], 1).ravel()]
    for ids in sides:  # they arrive in order, but for event 0, which brings two vertices
        assert np.all(np.diff(np.unique(ids, return_index=True)[1]) >= bipartite - 1)


def test_bad_parameters_are_named():
    for name, value in (
        ("events", 0), ("num_src", 1), ("num_src", 6002), ("num_dst", -1), ("repeat", 1.5),
        ("phi", math.nan), ("q_src", 0.0), ("s_dst", -1.0), ("beta_dst", 0.0), ("reach_src", 0),
        ("redraws", -1), ("blocks", 0),
    ):  # fmt: skip
        with pytest.raises(InvalidInputError, match=name):
            replace(ONE_POOL, **{name: value})
    for change in ({"simple": True}, {"num_dst": 5}):  # with repeats, with replies
        with pytest.raises(InvalidInputError):
            replace(ONE_POOL, **change)
    for seed in (-1, 2**64, 1.5, True):
        with pytest.raises(InvalidInputError, match="seed"):
            rank_copy(SIMPLE, seed)
    stream = RankCopy(SIMPLE, 1)
    stream.take(5990)
    with pytest.raises(InvalidInputError):
        stream.take(11)
    assert len(stream.take(0)[0]) == 0
    with pytest.raises(InvalidInputError, match="begin, end"):
        rank_copy(SIMPLE, 1, 5, 3)
    refuses(
        lambda s, q, vertices: rank_draws(s, q, vertices, np.array([0.5])),
        {"s": 1.0, "q": 1.0, "vertices": 5}, ("s", math.nan), ("s", -1.0), ("s", 17.0), ("q", 0.0),
        ("q", math.inf), ("q", math.nan), ("vertices", 0),
    )  # fmt: skip
