"""Weighted draws against exact probabilities, and the tree of sums against prefix sums."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_checks import order_probabilities, refuses
from scipy import stats

from dgbench.kernels_cuda.build_info import extension
from dgbench.kernels_cuda.weighted import (
    ARITIES,
    METHODS,
    DrawStats,
    SegmentTree,
    draw_many,
    draw_without_replacement,
)
from dgbench.runtime.errors import InvalidInputError

LARGEST = 2**63 - 1
SKEWED = [0.1, 0.2, 0.3, 0.25, 0.15]
EXACT = tuple(m for m in METHODS if m not in ("brs_literal", "reservoir"))


@pytest.mark.parametrize("arity", [2, 8])
@pytest.mark.parametrize("method", EXACT)
def test_every_order_has_its_probability(method: str, arity: int) -> None:
    weights = torch.tensor([*SKEWED, 0.0], dtype=torch.float64)
    drawn = draw_many(weights, 3, 30_000, method=method, seed=11, arity=arity)
    wanted: Counter[tuple[int, ...]] = Counter()
    for order, p in order_probabilities([*SKEWED, 0.0], 3).items():
        wanted[tuple(sorted(order)) if method == "keys" else order] += p  # keys come rising
    counts = Counter(map(tuple, drawn.tolist()))
    assert set(counts) <= set(wanted)
    found = [counts[one] for one in wanted]
    assert stats.chisquare(found, [p * len(drawn) for p in wanted.values()]).pvalue > 1e-4


def test_the_printed_region_search_is_biased_as_worked_out() -> None:
    """Third of (.1, .2, .3, .25, .15) is taken: the same number again gives .1, .328, .422, .15."""
    weights = torch.tensor(SKEWED, dtype=torch.float64)
    for method, expected in [
        ("brs_literal", [0.1, 0.328, 0, 0.422, 0.15]),
        ("brs", [1 / 7, 2 / 7, 0, 2.5 / 7, 1.5 / 7]),
        ("brs_recycled", [1 / 7, 2 / 7, 0, 2.5 / 7, 1.5 / 7]),
    ]:
        drawn = draw_many(weights, 2, 60_000, method=method, seed=4)
        second = drawn[drawn[:, 0] == 2, 1]
        found = torch.bincount(second, minlength=5) / second.numel()
        assert found.tolist() == pytest.approx(expected, abs=4 * 0.5 / np.sqrt(second.numel()))


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.integers(0, 5) | st.just(0), max_size=60),
    st.sampled_from([m for m in METHODS if m != "reservoir"]),
    st.sampled_from([torch.float64, torch.float32, torch.int64]), st.data(),
)  # fmt: skip
def test_draws_are_distinct_and_never_weigh_nothing(
    weights: list[int], method: str, dtype: torch.dtype, data: st.DataObject
) -> None:
    w = torch.tensor(weights, dtype=dtype)
    positive = int((w > 0).sum())
    k = data.draw(st.integers(0, positive))
    stats = DrawStats()
    drawn = draw_without_replacement(w, k, method=method, seed=1, stats=stats)
    assert drawn.dtype == torch.int64
    assert len(set(drawn.tolist())) == k == stats.draws
    assert bool((w[drawn] > 0).all())
    again = draw_without_replacement(w, k, method=method, seed=1)
    assert torch.equal(drawn, again)
    with pytest.raises(InvalidInputError):
        draw_without_replacement(w, positive + 1, method=method)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.int64])
@pytest.mark.parametrize("shape", ["power", "equal", "rising", "sparse"])
def test_the_fast_keys_take_what_plain_keys_take(shape: str, dtype: torch.dtype) -> None:
    """Sample, band, digits and vectors against logarithms in double precision and a selection."""
    rng = np.random.default_rng(3)
    for n in (1, 5, 31, 32, 33, 1000, 8193, 70_001):
        w = {
            "power": rng.pareto(1.2, n) + 1,
            "equal": np.ones(n),
            "rising": np.arange(n) + 1.0,
            "sparse": np.where(rng.random(n) < 0.02, rng.pareto(1.2, n) + 1, 0),
        }[shape]
        weights = torch.from_numpy(w).to(dtype)
        positive = int((weights > 0).sum())
        for k in {min(1, positive), positive // 2, max(0, positive - 1), positive}:
            drawn = draw_without_replacement(weights, k, seed=n, stream=k, threads=2)
            assert torch.equal(drawn, draw_without_replacement(weights, k, seed=n, stream=k))
            plain = torch.empty(k, dtype=torch.int64)
            extension(weights.device).weighted_keys(weights, k, n, k, 1, True, 1, plain)
            # Neighbours in the order whose keys agree to 7 digits may change places.
            assert len(set(drawn.tolist()) ^ set(plain.tolist())) <= 4


@pytest.mark.parametrize("method", EXACT)
def test_ends_of_the_number_range(method: str) -> None:
    huge = torch.tensor([LARGEST // 3, 1, LARGEST // 3, 0])
    tiny = torch.tensor([5e-324, 0.0, 1e-320], dtype=torch.float64)
    assert set(draw_without_replacement(huge, 3, method=method).tolist()) == {0, 1, 2}
    assert set(draw_without_replacement(tiny, 2, method=method).tolist()) == {0, 2}
    assert draw_without_replacement(tiny, 0, method=method).tolist() == []
    assert draw_without_replacement(torch.empty(0), 0, method=method).tolist() == []
    assert draw_without_replacement(torch.ones(1), 1, method=method).tolist() == [0]
    wide = torch.tensor([1e-300, 1e300, 0.0], dtype=torch.float64)
    assert draw_many(wide, 1, 50, method=method).unique().tolist() == [1]


def test_bad_input_is_named() -> None:
    ones = torch.ones(3)
    right = {"weights": ones, "k": 1, "method": "keys", "seed": 0}
    refuses(
        draw_without_replacement, right, ("method", "its_bitmab"), ("k", 4), ("k", -1),
        ("seed", -1), ("weights", ones.int()), ("weights", [1.0]),
    )  # fmt: skip
    with pytest.raises(InvalidInputError):
        draw_without_replacement(torch.tensor([1.0, 2.0]), 1, method="reservoir")
    for method in ("keys", "sis", "alias"):
        wrong = [torch.zeros(3), *(torch.tensor([1.0, x, 1.0]) for x in (-1.0, math.nan, math.inf))]
        for weights in wrong:
            with pytest.raises(InvalidInputError, match="weight"):
                draw_without_replacement(weights, 1, method=method)
    with pytest.raises(InvalidInputError):
        draw_without_replacement(torch.tensor([LARGEST, LARGEST]), 1, method="sis")
    assert draw_without_replacement(torch.tensor([LARGEST, LARGEST]), 2).tolist() == [0, 1]


# --- The tree of sums ----------------------------------------------------------------------------


whole = st.lists(st.integers(0, 9) | st.just(0), min_size=1, max_size=70)
arities = st.sampled_from(ARITIES)


@settings(deadline=None, max_examples=60)
@given(whole, st.lists(st.tuples(st.integers(0, 69), st.integers(0, 9)), max_size=40), arities)
def test_searches_and_changes_are_those_of_prefix_sums(
    weights: list[int], changes: list[tuple[int, int]], arity: int
) -> None:
    w = torch.tensor(weights)
    tree = SegmentTree(w.clone(), arity=arity)
    assert len(tree) == len(weights)
    for i, weight in [(0, weights[0]), *changes]:
        tree.modify(i % len(weights), weight)
        w[i % len(weights)] = weight
    total = int(w.sum())
    assert tree.total == total
    assert torch.equal(tree.weights, w)
    every, before = torch.arange(total), tree.nodes_visited
    places = tree.search(every)
    assert torch.equal(places, torch.repeat_interleave(torch.arange(len(w)), w))
    assert tree.nodes_visited - before == total * tree.height
    if total:  # numbers one by one take another path than numbers in step
        assert [tree.search(g).item() for g in (0, total - 1)] == [places[0], places[-1]]


@pytest.mark.parametrize("arity", ARITIES)
def test_floats_never_drift(arity: int) -> None:
    """1e5 changes between weights 20 decades apart leave the sums of a fresh tree, to the bit."""
    rng = np.random.default_rng(5)
    n = 1000
    tree = SegmentTree(torch.rand(n, dtype=torch.float64), arity=arity)
    where = torch.from_numpy(rng.integers(0, n, 100_000))
    weights = torch.from_numpy(10.0 ** rng.uniform(-10, 10, 100_000))
    tree.modify(where, weights)
    fresh = SegmentTree(tree.weights, arity=arity)
    assert tree.total == fresh.total
    tree.modify(torch.arange(n), torch.zeros(n, dtype=torch.float64))
    assert tree.total == 0.0  # subtracting would leave a rest
    tree.modify(7, 1e-300)
    assert tree.draw(1, seed=1).tolist() == [7]


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.floats(0, 1e6, allow_subnormal=False) | st.just(0.0), min_size=1, max_size=70),
    arities, st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=20),
)  # fmt: skip
def test_floats_never_find_a_weight_of_zero(
    weights: list[float], arity: int, shares: list[float]
) -> None:
    tree = SegmentTree(torch.tensor(weights, dtype=torch.float64), arity=arity)
    if tree.total == 0:
        return
    last = np.nextafter(tree.total, 0.0)
    g = torch.tensor([min(s * tree.total, last) for s in shares] + [0.0, last])
    assert bool((tree.weights[tree.search(g.double())] > 0).all())
    assert all(tree.weights[tree.search(x)] > 0 for x in g.double())


@pytest.mark.parametrize("arity", ARITIES)
def test_the_tree_draws_until_nothing_is_left(arity: int) -> None:
    weights = torch.tensor([0, 3, 0, 1, LARGEST // 2, 2, 0])
    tree = SegmentTree(weights, arity=arity)
    assert sorted(tree.draw(4, seed=3).tolist()) == [1, 3, 4, 5]
    assert tree.total == 0
    assert tree.nodes_visited == 2 * 4 * tree.height
    for empty in (tree, SegmentTree(torch.empty(0))):
        assert empty.draw(0, seed=3).numel() == 0
        with pytest.raises(InvalidInputError):
            empty.draw(1, seed=3)
    one = SegmentTree(torch.tensor([5]), arity=arity)
    assert (one.height, one.search(torch.tensor([0, 4])).tolist()) == (0, [0, 0])


def test_wrong_trees_are_named() -> None:
    tree = SegmentTree(torch.tensor([1, 2, 3]))
    refuses(lambda g: tree.search(g), {"g": 5}, ("g", 6))
    refuses(
        lambda i, w: tree.modify(i, w), {"i": 2, "w": 3}, ("i", 3), ("w", -1), ("w|2\\^63", LARGEST)
    )
    with pytest.raises(InvalidInputError):
        tree.draw(4, seed=0)
    assert tree.total == 6
    refuses(
        SegmentTree, {"weights": torch.ones(2), "arity": 2}, ("arity", 3),
        ("weights", torch.tensor([1.0, torch.nan])), ("weights", torch.tensor([LARGEST, 1])),
        ("weights", torch.ones(2, dtype=torch.int32)),
    )  # fmt: skip
