"""Weighted draws against exact probabilities, and the tree of sums against prefix sums."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_checks import refuses

from dgbench.kernels_cuda.build_info import extension
from dgbench.kernels_cuda.weighted import (
    ARITIES,
    METHODS,
    DrawStats,
    SegmentTree,
    draw_many,
    draw_without_replacement,
    time_draws,
)
from dgbench.runtime.errors import InvalidInputError

LARGEST = 2**63 - 1
SKEWED = [0.1, 0.2, 0.3, 0.25, 0.15]
EXACT = tuple(m for m in METHODS if m not in ("brs_literal", "reservoir"))


def order_probabilities(weights: list[float], k: int) -> dict[tuple[int, ...], float]:
    """Probability of every ordered draw of k, by definition."""
    found = {}
    for order in permutations([i for i, w in enumerate(weights) if w > 0], k):
        left, p = sum(weights), 1.0
        for i in order:
            p *= weights[i] / left
            left -= weights[i]
        found[order] = p
    return found


def chi_square(counts: np.ndarray, expected: np.ndarray) -> float:
    """In standard deviations above its mean; below 4 in all but one of some thousand draws."""
    freedom = len(expected) - 1
    return (((counts - expected) ** 2 / expected).sum() - freedom) / np.sqrt(2 * freedom)


def codes(drawn: torch.Tensor) -> torch.Tensor:
    """One number for each row."""
    return (drawn * 10 ** torch.arange(drawn.shape[1])).sum(1)


def deviation(drawn: torch.Tensor, probabilities: dict[tuple[int, ...], float]) -> float:
    """`chi_square` of rows of `drawn` against the probabilities of rows."""
    seen = dict(zip(*(x.tolist() for x in codes(drawn).unique(return_counts=True)), strict=True))
    keys = codes(torch.tensor(list(probabilities))).tolist()
    counts = np.array([seen.get(key, 0) for key in keys])
    assert counts.sum() == len(drawn), "a row that must not come"
    return chi_square(counts, np.array(list(probabilities.values())) * len(drawn))


def as_sets(orders: dict[tuple[int, ...], float]) -> dict[tuple[int, ...], float]:
    """Probabilities of sets, from those of orders."""
    found: dict[tuple[int, ...], float] = {}
    for order, p in orders.items():
        key = tuple(sorted(order))
        found[key] = found.get(key, 0.0) + p
    return found


@pytest.mark.parametrize("arity", [2, 8])
@pytest.mark.parametrize("method", EXACT)
def test_every_order_has_its_probability(method: str, arity: int) -> None:
    weights = torch.tensor([*SKEWED, 0.0], dtype=torch.float64)
    drawn = draw_many(weights, 3, 30_000, method=method, seed=11, arity=arity)
    orders = order_probabilities([*SKEWED, 0.0], 3)
    if method == "keys":  # rising, so only the set is told
        assert bool((drawn.diff() > 0).all())
        orders = as_sets(orders)
    assert deviation(drawn, orders) < 4


def test_keys_of_a_large_set_include_as_often_as_they_should() -> None:
    """More items than are taken without a sample of keys; two classes of weights."""
    n, k, repeats = 20_000, 10_000, 40
    weights = torch.ones(n, dtype=torch.float64)
    weights[::2] = 3.0
    drawn = draw_many(weights, k, repeats, seed=8)
    heavy = (drawn % 2 == 0).double().mean().item()
    # With x = e^-t: an item of weight w is left out with probability x^w, and half of all are.
    x = np.roots([1, 0, 1, -1])
    x = x[abs(x.imag) < 1e-12].real[0]
    assert heavy == pytest.approx(1 - x**3, abs=4 * 0.5 / np.sqrt(n * repeats))
    places = torch.bincount(drawn.reshape(-1) // 500, minlength=40)
    assert chi_square(places.numpy(), np.full(40, k * repeats / 40)) < 4


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


def smallest_keys(weights: torch.Tensor, k: int, seed: int, stream: int) -> torch.Tensor:
    """The same draw from logarithms of keys in double precision, and a plain selection."""
    out = torch.empty(k, dtype=torch.int64)
    extension(weights.device).weighted_keys(weights, k, seed, stream, 1, True, 1, out)
    return out


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
            plain = smallest_keys(weights, k, n, k)
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


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("replace", [False, True])
def test_single_draws_are_timed_with_their_counts(method: str, replace: bool) -> None:
    took = time_draws(torch.ones(200), method=method, replace=replace, seconds=1e-4)
    assert min(took.build_s, took.draw_s) > 0
    # Half is taken at most, and the first draw is not counted.
    assert 0 < took.stats.draws < (100 if not replace else math.inf)
    if method == "sis":
        assert took.stats.nodes_visited == 2 * 3 * took.stats.draws


# --- The tree of sums ----------------------------------------------------------------------------


whole = st.lists(st.integers(0, 9) | st.just(0), min_size=1, max_size=70)
arities = st.sampled_from(ARITIES)


def place_of(weights: torch.Tensor, g: int) -> int:
    """Where `g` falls among the prefix sums: the first of them that is above it."""
    return next(i for i, s in enumerate(weights.cumsum(0).tolist()) if s > g)


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
    assert places.tolist() == [place_of(w, g) for g in every.tolist()]
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
    many = torch.arange(1000) % 100
    drawn = [SegmentTree(many, arity=a).draw(300, seed=9) for a in (arity, 2)]
    assert torch.equal(*drawn)
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
