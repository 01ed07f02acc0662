"""The tree of sums against prefix sums, through builds, searches and changes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dgbench.kernels_cuda.weighted import ARITIES, SegmentTree
from dgbench.runtime.errors import InvalidInputError

LARGEST = 2**63 - 1

whole = st.lists(st.integers(0, 9) | st.just(0), min_size=1, max_size=70)
arities = st.sampled_from(ARITIES)


def place_of(weights: torch.Tensor, g: int) -> int:
    """Where `g` falls among the prefix sums: the first of them that is above it."""
    return next(i for i, s in enumerate(weights.cumsum(0).tolist()) if s > g)


@settings(deadline=None, max_examples=60)
@given(whole, arities)
def test_search_finds_what_prefix_sums_find(weights: list[int], arity: int) -> None:
    w = torch.tensor(weights)
    tree = SegmentTree(w, arity=arity)
    assert tree.total == sum(weights)
    assert len(tree) == len(weights)
    every = torch.arange(sum(weights))
    found = tree.search(every)
    assert found.tolist() == [place_of(w, g) for g in every.tolist()]
    assert tree.nodes_visited == len(every) * tree.height
    assert bool((w[found] > 0).all())
    if sum(weights):  # numbers one by one take another path than numbers in step
        assert [tree.search(g).item() for g in (0, sum(weights) - 1)] == [found[0], found[-1]]


@settings(deadline=None, max_examples=60)
@given(whole, st.lists(st.tuples(st.integers(0, 69), st.integers(0, 9)), max_size=40), arities)
def test_changes_of_integers_keep_every_sum(
    weights: list[int], changes: list[tuple[int, int]], arity: int
) -> None:
    tree, w = SegmentTree(torch.tensor(weights), arity=arity), torch.tensor(weights)
    for i, weight in changes:
        tree.modify(i % len(weights), weight)
        w[i % len(weights)] = weight
    assert tree.total == int(w.sum())
    assert torch.equal(tree.weights, w)
    every = torch.arange(int(w.sum()))
    assert tree.search(every).tolist() == [place_of(w, g) for g in every.tolist()]


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
    arities,
    st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=20),
)
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
def test_draws_remove_until_nothing_is_left(arity: int) -> None:
    weights = torch.tensor([0, 3, 0, 1, LARGEST // 2, 2, 0])
    tree = SegmentTree(weights, arity=arity)
    drawn = tree.draw(4, seed=3)
    assert sorted(drawn.tolist()) == [1, 3, 4, 5]
    assert tree.total == 0
    assert tree.nodes_visited == 2 * 4 * tree.height
    with pytest.raises(InvalidInputError, match="no weight is above zero"):
        tree.draw(1, seed=3)
    assert tree.draw(0, seed=3).numel() == 0


def test_draws_are_in_proportion_with_and_without_removal() -> None:
    weights = torch.tensor([1.0, 2.0, 3.0, 0.0, 4.0])
    kept = SegmentTree(weights).draw(100_000, seed=1, remove=False)
    assert torch.equal(kept, SegmentTree(weights).draw(100_000, seed=1, remove=False))
    first = [SegmentTree(weights, arity=2).draw(2, seed=2, stream=s)[0] for s in range(2000)]
    for drawn in (kept, torch.tensor(first)):
        expected = weights.double() / 10 * drawn.numel()
        found = torch.bincount(drawn, minlength=5)
        chi2 = ((found - expected) ** 2 / expected)[expected > 0].sum()
        assert found[3] == 0
        assert chi2 < 16.3  # 1 in 1000 of 3 degrees


def test_arities_draw_the_same_from_integers() -> None:
    weights = torch.randint(0, 100, (1000,), generator=torch.Generator().manual_seed(1))
    drawn = [SegmentTree(weights, arity=a).draw(300, seed=9) for a in ARITIES]
    assert all(torch.equal(drawn[0], other) for other in drawn[1:])


def test_one_item_and_none() -> None:
    one = SegmentTree(torch.tensor([5]))
    assert (one.total, one.height, len(one)) == (5, 0, 1)
    assert one.search(torch.tensor([0, 4])).tolist() == [0, 0]
    none = SegmentTree(torch.empty(0))
    assert (none.total, len(none)) == (0.0, 0)
    with pytest.raises(InvalidInputError, match="no weight is above zero"):
        none.draw(1, seed=0)


def test_bad_input_is_named() -> None:
    tree = SegmentTree(torch.tensor([1, 2, 3]))
    with pytest.raises(InvalidInputError, match=r"g must satisfy 0 <= x < 6"):
        tree.search(6)
    with pytest.raises(InvalidInputError, match="i must satisfy 0 <= x < 3"):
        tree.modify(3, 1)
    with pytest.raises(InvalidInputError, match=r"w\[0\] is -1"):
        tree.modify(0, -1)
    with pytest.raises(InvalidInputError, match="above 2\\^63"):
        tree.modify(0, LARGEST)
    assert tree.total == 6
    with pytest.raises(InvalidInputError, match="only 3 weights"):
        tree.draw(4, seed=0)
    with pytest.raises(InvalidInputError, match="arity is 3"):
        SegmentTree(torch.ones(2), arity=3)
    with pytest.raises(InvalidInputError, match=r"weights\[1\] is nan"):
        SegmentTree(torch.tensor([1.0, torch.nan]))
    with pytest.raises(InvalidInputError, match="above 2\\^63"):
        SegmentTree(torch.tensor([LARGEST, 1]))
    with pytest.raises(InvalidInputError, match="int32"):
        SegmentTree(torch.ones(2, dtype=torch.int32))
