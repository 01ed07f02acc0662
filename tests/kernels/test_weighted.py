"""Weighted draws against exact probabilities, and the tree of sums against prefix sums.

Over 500 lines: draws and trees of the CPU, the emulator and a device.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from device_fixtures import ONE_PLACE, Native
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_checks import order_probabilities, refuses
from scipy import stats
from torch import Tensor

from dgbench.kernels_cuda.build_info import extension
from dgbench.kernels_cuda.weighted import (
    ARITIES,
    METHODS,
    DrawStats,
    SegmentTree,
    draw_many,
    draw_without_replacement,
)
from dgbench.kernels_cuda.weighted import device_segment_tree as device_weighted_tree
from dgbench.kernels_cuda.weighted.device import draw_keys, draw_sets, make_keys
from dgbench.kernels_cuda.weighted.device_segment_tree import DeviceSegmentTree
from dgbench.runtime.errors import InvalidInputError, UnsupportedError

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


@settings(deadline=None, max_examples=25)
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


arities = st.sampled_from(ARITIES)


def open_tree(place: Native, weights: torch.Tensor, arity: int = 8):
    if place.own:
        return SegmentTree(weights, arity=arity)
    return DeviceSegmentTree(place.put(weights), native=place.module)


@settings(deadline=None, max_examples=25, suppress_health_check=ONE_PLACE)
@given(
    st.integers(1, 70) | st.sampled_from([1000, 4097]), st.integers(0, 99), arities,
    st.sampled_from([torch.int64, torch.float64]),
)  # fmt: skip
def test_searches_and_changes_are_those_of_prefix_sums(place, count, seed, arity, dtype) -> None:
    random = np.random.default_rng(seed)
    w = torch.from_numpy(random.integers(0, 9, count) * (random.random(count) < 0.7)).to(dtype)
    tree = open_tree(place, w.clone(), arity)
    assert len(tree) == count
    for changes in (0, 1, 40):
        where = torch.from_numpy(random.integers(0, count, changes))
        values = torch.from_numpy(random.integers(0, 9, changes)).to(dtype)
        tree.modify(place.put(where), place.put(values))
        for i, weight in zip(where.tolist(), values.tolist(), strict=True):  # the last one counts
            w[i] = weight
        total = int(w.sum())
        assert tree.total == total
        assert torch.equal(tree.weights.cpu(), w)
        every = torch.arange(total).to(dtype) + (0.5 if dtype == torch.float64 else 0)
        before = tree.nodes_visited if place.own else 0
        found = tree.search(place.put(every)).cpu()
        assert torch.equal(found, torch.repeat_interleave(torch.arange(count), w.long()))
        if place.own:
            assert tree.nodes_visited - before == total * tree.height
    if total and place.own:  # numbers one by one take another path than numbers in step
        assert [tree.search(g).item() for g in every[[0, -1]]] == [found[0], found[-1]]


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


@settings(deadline=None, max_examples=25)
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
def test_the_tree_draws_until_nothing_is_left(place, arity: int) -> None:
    weights = torch.tensor([0, 3, 0, 1, LARGEST // 4, 2, 0])
    tree = open_tree(place, weights, arity)
    assert sorted(tree.draw(4, seed=3).tolist()) == [1, 3, 4, 5]
    assert tree.total == 0
    assert not place.own or tree.nodes_visited == 2 * 4 * tree.height
    for empty in (tree, *([SegmentTree(torch.empty(0))] if place.own else [])):
        for remove in (True, False):
            assert empty.draw(0, seed=3, remove=remove).numel() == 0
            with pytest.raises(InvalidInputError):
                empty.draw(1, seed=3, remove=remove)
    tree.modify(place.put(torch.tensor([0, 2])), place.put(torch.tensor([4, 4])))
    assert tree.draw(2, seed=1).unique().numel() == 2
    one = open_tree(place, torch.tensor([5]), arity)
    assert one.search(place.put(torch.tensor([0, 4]))).tolist() == [0, 0]
    assert not place.own or one.height == 0


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


# --- A device's -----------------------------------------------------------------------------------


NEVER = 2**32 - 1

SHAPES = [  # sizes of the sets that lie one behind the other
    [0], [5, 0, 32, 33, 1], [31, 32, 33, 64, 8191, 8192], [50_001],
    [3, 20_000, 7, 9000, 0, 4100, 12_289, 8193],
]  # fmt: skip


def smallest(keys: np.ndarray, begin: int, end: int, count: int) -> np.ndarray:
    """The obvious way: sort by (key, item)."""
    order = np.argsort(keys[begin:end], kind="stable")[:count]
    return np.sort(order) + begin


def put_words(native, keys: np.ndarray) -> Tensor:
    return native.put(keys.astype(np.uint32).view(np.int32))


def ranges(sizes: Any, gap: int = 0) -> tuple[np.ndarray, np.ndarray]:
    end = np.cumsum(np.array(sizes) + gap)
    return end - np.array(sizes), end


def key_values(random: np.random.Generator, kind: str, count: int) -> np.ndarray:
    if kind == "equal":
        return np.full(count, 0x3F800000)
    if kind == "few":
        return random.integers(0, 5, count) * 0x00200001
    if kind == "floats":
        return random.exponential(size=count).astype(np.float32).view(np.uint32)
    return random.integers(0, 2**31, count)


def draw(native, sizes: Any, wanted: Any, keys: np.ndarray | None, gap: int = 0, **how: Any) -> Any:
    """Draw `wanted` items of each set."""
    begin, end = ranges(sizes, gap)
    offsets = np.concatenate([[0], np.cumsum(wanted)])
    if keys is not None:
        how["keys"] = put_words(native, keys)
    return draw_sets(*map(native.put, (begin, end, offsets)), native=native.module, **how)


def check(found: Any, sizes: Any, wanted: Any, keys: np.ndarray, gap: int = 0) -> None:
    right = [smallest(keys, *one) for one in zip(*ranges(sizes, gap), wanted, strict=True)]
    assert np.array_equal(found.items.cpu().numpy(), np.concatenate(right))


@pytest.mark.parametrize("sizes", SHAPES, ids=lambda s: "-".join(map(str, s)))
@pytest.mark.parametrize("kind", ["any", "equal", "few", "floats"])
def test_selection_takes_what_sorting_takes(native, emulate, sizes, kind):
    random, sizes = np.random.default_rng([len(sizes), len(kind)]), np.array(sizes)
    keys = key_values(random, kind, int(ranges(sizes, 3)[1][-1]) + 5)
    for processors, wanted in ((1, 0 * sizes), (7, np.minimum(1, sizes)), (1, sizes // 2),
                               (7, sizes // 2), (7, sizes)):  # fmt: skip
        emulate(processors=processors)
        check(draw(native, sizes, wanted, keys, 3), sizes, wanted, keys, 3)


@pytest.mark.parametrize("sizes", [[6, 40, 9001], [3], [42_000]])
def test_items_without_weight_and_negative_keys_are_never_taken(native, sizes):
    random = np.random.default_rng(1)
    keys = key_values(random, "floats", sum(sizes))
    dead = random.random(keys.size) < 0.5
    keys[dead] = random.choice([NEVER, 2**31, 2**32 - 5], keys.size)[dead]
    alive = [int((~dead[b:e]).sum()) for b, e in zip(*ranges(sizes), strict=True)]
    found = draw(native, sizes, alive, keys)
    assert np.array_equal(found.items.cpu().numpy(), np.flatnonzero(~dead))
    assert int(found.missing) == 0
    more = np.array(alive) + np.arange(1, len(sizes) + 1)
    found, (first, last) = draw(native, sizes, more, keys), ranges(more)
    for s, (count, b, e) in enumerate(zip(alive, *ranges(sizes), strict=True)):
        own = found.items.cpu().numpy()[first[s] : last[s]]
        assert np.array_equal(own[:count], b + np.flatnonzero(~dead[b:e]))
        assert (own[count:] == -1).all()
    assert int(found.missing) == more.sum() - sum(alive)


@pytest.mark.parametrize("sizes", SHAPES[1:], ids=lambda s: "-".join(map(str, s)))
def test_keys_are_the_same_in_every_size_of_set(native, sizes):
    begin, end = ranges(sizes, gap=1)
    weights = np.random.default_rng(3).exponential(size=int(end[-1]) + 2).astype(np.float32)
    weights[::9] = 0
    there, how = native.put(weights), {"seed": 2**63 + 5, "stream": 77}
    keys = make_keys(weights.size, there, device=native.device, native=native.module, **how)
    plain = keys.cpu().numpy().view(np.uint32)
    assert np.array_equal(plain == NEVER, weights == 0)
    assert not np.isnan(plain[weights > 0].view(np.float32)).any()
    wanted = [int((weights[b:e] > 0).sum()) // 2 for b, e in zip(begin, end, strict=True)]
    check(draw(native, sizes, wanted, None, 1, weights=there, **how), sizes, wanted, plain, 1)


@pytest.mark.parametrize(
    ("largest", "candidates"), [(20_000, 20_000), (20_000, 30_000), (40, 70_000), (9000, 0)]
)
def test_sets_beyond_their_bounds_are_missing(native, largest, candidates):
    sizes, wanted = [20, 20_000, 30_000, 5, 20_000], [4] * 5
    found = draw(native, sizes, wanted, None, total=20, largest=largest, candidates=candidates)
    exact = draw(native, sizes, wanted, None)
    sets, right = found.items.cpu().view(5, 4), exact.items.cpu().view(5, 4)
    lost = (sets == -1).all(1)
    assert 0 < int(lost.sum()) == int(found.missing) / 4
    assert torch.equal(sets[~lost], right[~lost])


KINDS = {"floats": torch.float32, "doubles": torch.float64, "integers": torch.int64}


@pytest.mark.parametrize("kind", [*KINDS, "equal"])
@pytest.mark.parametrize(("count", "share"), [(1, 1.0), (70, 0.5), (5000, 0.1), (30_000, 0.5)])
def test_draws_are_those_of_the_cpu(native, kind, count, share):
    weights = torch.from_numpy(np.random.default_rng(count).pareto(1.0, count) + 0.01)
    weights[::7] = 0 if count > 1 else 1
    if kind == "equal":
        weights = torch.full((count,), 3.0)
    else:
        weights = (weights.ceil() if kind == "integers" else weights).to(KINDS[kind])
    k = int(share * int((weights > 0).sum()))
    right = draw_without_replacement(weights, k, method="keys", seed=9, stream=count)
    found = draw_keys(weights.to(native.device), k, seed=9, stream=count, native=native.module)
    assert torch.equal(found.cpu(), right)


def test_what_cannot_be_drawn_is_refused(native):
    def one(values, k, dtype=torch.float64):
        return draw_keys(native.put(values, dtype), k, native=native.module)

    assert one([], 0).numel() == one([0.0, 1.0], 0).numel() == 0
    for wrong in (-1.0, float("nan"), 1e30, 1e300, 1e-300, float("inf")):
        with pytest.raises(InvalidInputError, match="weight"):
            one([1.0, wrong], 1)
    for values in ([1.0, 0.0], [1.0]):
        with pytest.raises(InvalidInputError, match="k"):
            one(values, 2)
    with pytest.raises(InvalidInputError, match="weights"):
        one([1], 1, torch.int32)


# --- trees ----------------------------------------------------------------------------------------


def test_independent_draws_are_those_of_the_cpu(native):
    weights = torch.from_numpy(np.random.default_rng(2).integers(1, 50, 5000))
    tree = DeviceSegmentTree(weights.to(native.device), native=native.module)
    found = tree.draw(501, seed=4, stream=6, remove=False)
    assert torch.equal(found.cpu(), SegmentTree(weights).draw(501, seed=4, stream=6, remove=False))
    assert tree.total == int(weights.sum())


@pytest.mark.parametrize(("count", "taken"), [(40_000, 900), (9, 9), (3, 0)])
def test_what_is_drawn_is_removed(native, count, taken):
    weights = torch.from_numpy(np.random.default_rng(count).pareto(1.2, count) + 0.1)
    tree = DeviceSegmentTree(weights.to(native.device), native=native.module)
    drawn = tree.draw(taken, seed=1).cpu()
    assert drawn.unique().numel() == drawn.numel() == taken
    left = weights.clone()
    left[drawn] = 0
    assert torch.equal(tree.weights.cpu(), left)
    assert tree.total == pytest.approx(float(left.sum()), rel=1e-12)
    with pytest.raises(InvalidInputError):
        tree.draw(count - taken + 1, seed=1)


@pytest.mark.parametrize("rounds", [0, 4])
def test_sequences_have_the_exact_distribution(native, monkeypatch, rounds):
    """First and second of two draws out of three items of weight 1, 2 and 5."""
    monkeypatch.setattr(device_weighted_tree, "ROUNDS", rounds)
    monkeypatch.setattr(device_weighted_tree, "WORTH", 1)
    weights, trials, seen = [1.0, 2.0, 5.0], 200, torch.zeros(3, 3)
    there = native.put(weights + [0.0] * 3, torch.float64)
    for trial in range(trials):
        one, other = DeviceSegmentTree(there, native=native.module).draw(2, seed=trial).tolist()
        seen[one, other] += 1
    for one in range(3):
        for other in range(3):
            share = 0 if one == other else weights[one] / 8 * weights[other] / (8 - weights[one])
            spread = (share * (1 - share) / trials) ** 0.5
            assert abs(float(seen[one, other]) / trials - share) <= 4.5 * spread


def range_numbers(seed: int, stream: int, count: int) -> list[int]:
    """64 random bits of numbers 0, 1, .. of a range's stream, by philox as published."""
    numbers: list[int] = []
    for pair in range((count + 1) // 2):
        words = [pair & 0xFFFFFFFF, pair >> 32, stream & 0xFFFFFFFF, stream >> 32 & 0xFFFFFFFF]
        key = [seed & 0xFFFFFFFF, (seed >> 32 & 0xFFFFFFFF) ^ 0x53495352]
        for _ in range(10):
            low, high = 0xD2511F53 * words[0], 0xCD9E8D57 * words[2]
            words = [
                high >> 32 ^ words[1] ^ key[0], high & 0xFFFFFFFF,
                low >> 32 ^ words[3] ^ key[1], low & 0xFFFFFFFF,
            ]  # fmt: skip
            key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
        numbers += [words[1] << 32 | words[0], words[3] << 32 | words[2]]
    return numbers[:count]


def plain_range(weights: list[int], count: int, seed: int, stream: int) -> list[int]:
    """Segment Its Search as printed, one draw after the other, with rounds of `draw_ranges`."""
    left, taken, number = list(weights), [], 0
    bits = range_numbers(seed, stream, 64 * (count + 1))
    while len(taken) < count:
        total, lacking = sum(left), count - len(taken)
        sums, fresh = np.cumsum(left).tolist(), set()
        for one in bits[number : number + lacking]:
            fresh.add(next(i for i, s in enumerate(sums) if s > one * total >> 64))
        number += lacking
        taken += sorted(fresh)
        for i in fresh:
            left[i] = 0
    return sorted(taken)


@pytest.mark.parametrize("sizes", [[1], [4], [5, 0, 33, 1, 64, 7], [300, 2, 41]], ids=str)
@pytest.mark.parametrize("kind", ["equal", "weighed"])
def test_ranges_of_a_tree_are_drawn_from_by_segment_its_search(native, sizes, kind):
    random, (begin, end) = np.random.default_rng(len(sizes)), ranges(sizes)
    weights = np.ones(end[-1], dtype=np.int64)
    if kind == "weighed":
        weights = random.integers(0, 40, end[-1])
        weights[begin[np.array(sizes) > 0]] = 7
    there = [int((weights[b:e] > 0).sum()) for b, e in zip(begin, end, strict=True)]
    for share in (0.0, 0.5, 1.0):
        counts = np.floor(share * np.array(there) + 0.5).astype(np.int64)
        tree = DeviceSegmentTree(native.put(weights), native=native.module)
        given = map(native.put, (begin, end, counts))
        found = tree.draw_ranges(*given, seed=2**40 + 9, stream=2**33).cpu()
        right = [
            b + i
            for s, (b, e, k) in enumerate(zip(begin, end, counts, strict=True))
            for i in plain_range(weights[b:e].tolist(), int(k), 2**40 + 9, 2**33 + s)
        ]
        assert found.tolist() == right
        left = weights.copy()
        left[found.numpy()] = 0
        assert torch.equal(tree.weights.cpu(), torch.from_numpy(left))
        assert tree.total == left.sum()


def test_a_range_that_lacks_items_is_refused(native):
    def one(begin, end, counts, dtype=torch.int64):
        tree = DeviceSegmentTree(native.put([1, 0, 2, 1], dtype), native=native.module)
        return tree.draw_ranges(*(native.put(x, torch.int64) for x in (begin, end, counts)), seed=1)

    assert one([0, 2], [2, 4], [1, 2]).tolist() == [0, 2, 3]
    assert one([], [], []).numel() == 0
    for arguments in (([0], [2], [2]), ([1], [2], [1]), ([0, 2], [2], [1])):
        with pytest.raises(InvalidInputError):
            one(*arguments)
    with pytest.raises(InvalidInputError, match="weights"):
        one([0], [2], [1], torch.float64)


# --- CUDA's own -----------------------------------------------------------------------------------


@pytest.mark.cuda
@pytest.mark.usefixtures("usable_device")
@pytest.mark.parametrize("sizes", [[20, 300] * 40, [500_000], [30_000, 12, 0, 900, 9000] * 3])
def test_a_cuda_graph_holds_a_draw(sizes):
    begin, end = ranges(sizes)
    wanted = np.array(sizes) // 3
    arrays = [torch.from_numpy(a).cuda() for a in (begin, end, np.append(0, np.cumsum(wanted)))]
    weights = torch.rand(int(end[-1]), device="cuda")

    def one():
        return draw_sets(
            *arrays, weights=weights, seed=3, total=int(wanted.sum()), largest=max(sizes),
            candidates=sum(sizes),
        )  # fmt: skip

    one()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = one()
    for step in range(3):
        weights.copy_(torch.rand(weights.numel(), generator=torch.Generator().manual_seed(step)))
        graph.replay()
        assert torch.equal(found.items, one().items)
        assert int(found.missing) == 0


@pytest.mark.cuda
@pytest.mark.usefixtures("usable_device")
def test_public_draws_on_a_device():
    weights = torch.from_numpy(np.random.default_rng(0).pareto(1.0, 3_000_000) + 0.01)
    for one in (weights, weights.float(), weights.ceil().long()):
        right = draw_many(one, 100_000, 2, seed=5, stream=3)
        found = draw_many(one.cuda(), 100_000, 2, seed=5, stream=3)
        assert torch.equal(found.cpu(), right)
    with pytest.raises(UnsupportedError, match="sis"):
        draw_without_replacement(weights.cuda(), 5, method="sis")
    tree = DeviceSegmentTree(weights.cuda())
    drawn = tree.draw(1000, seed=1)
    assert drawn.unique().numel() == 1000
    assert tree.total == pytest.approx(float(weights.sum() - weights[drawn.cpu()].sum()), rel=1e-9)
