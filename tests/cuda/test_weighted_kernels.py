"""Weighted draws on the device: the k smallest keys of sets of any size, and trees of sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from dgbench.kernels_cuda.weighted import SegmentTree, draw_many, draw_without_replacement
from dgbench.kernels_cuda.weighted import device_segment_tree as device_weighted_tree
from dgbench.kernels_cuda.weighted.device import draw_keys, draw_sets, make_keys
from dgbench.kernels_cuda.weighted.device_segment_tree import DeviceSegmentTree
from dgbench.runtime.errors import InvalidInputError, UnsupportedError

NEVER = 2**32 - 1

SHAPES = [  # sizes of the sets that lie one behind the other
    [0],
    [5, 0, 32, 33, 1],
    [31, 32, 33, 64, 8191, 8192],
    [3, 20_000, 7, 9000, 0, 4100, 12_289, 8193],
    [50_001],
]


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
def test_selection_takes_what_sorting_takes(native, sizes, kind):
    random, sizes = np.random.default_rng([len(sizes), len(kind)]), np.array(sizes)
    keys = key_values(random, kind, int(ranges(sizes, 3)[1][-1]) + 5)
    for wanted in (0 * sizes, np.minimum(1, sizes), sizes // 2, sizes):
        check(draw(native, sizes, wanted, keys, 3), sizes, wanted, keys, 3)


@pytest.mark.parametrize("processors", [1, 7])
@pytest.mark.usefixtures("order")
def test_order_of_threads_and_number_of_blocks_change_nothing(native, emulate, processors):
    emulate(processors=processors)
    sizes, wanted = [40_000, 70, 9000, 20, 500], [20_000, 35, 1, 20, 499]
    keys = key_values(np.random.default_rng(5), "few", sum(sizes))
    for _ in range(2):
        check(draw(native, sizes, wanted, keys), sizes, wanted, keys)


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


class Operations(TorchDispatchMode):
    """Record of torch operations: all that compute, and those that a host waits in."""

    cheap = ("slice", "empty", "empty_like", "view", "detach")
    waiting = ("_local_scalar_dense", "nonzero", "masked_select", "repeat_interleave", "_to_copy")

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.waits: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.__name__.split(".")[0]
        masks = [a for a in args[1] if a is not None] if "index.Tensor" in str(func) else []
        if name in self.waiting or any(m.dtype == torch.bool for m in masks):
            self.waits.append(name)
        if name not in self.cheap:
            self.calls.append(name)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("sizes", "launches"),
    [
        ([30, 0, 7] * 50, 1),  # warps alone
        ([30, 300] * 50, 2),  # .. and blocks
        ([30, 20_000, 300, 9000] * 3, 6),  # .. and many blocks a set
        ([50_001], 5),
    ],
)
def test_bounds_leave_nothing_to_ask_the_device(native, log, sizes, launches):
    wanted = np.array(sizes) // 2
    weights = np.random.default_rng(8).exponential(size=sum(sizes)).astype(np.float32)
    begin, end = ranges(sizes)
    arrays = [*map(native.put, (begin, end, np.concatenate([[0], np.cumsum(wanted)])))]
    there = native.put(weights)
    with Operations() as operations:
        found = draw_sets(
            *arrays, weights=there, total=int(wanted.sum()), largest=max(sizes),
            candidates=sum(sizes), native=native.module,
        )  # fmt: skip
    assert operations.waits == []
    assert len(log.calls("launch")) == launches
    assert torch.equal(found.items, draw_sets(*arrays, weights=there, native=native.module).items)
    with Operations() as operations:
        int(found.missing)
        found.items[found.items > 0]
    assert len(operations.waits) == 2  # so that the record is one


@pytest.mark.parametrize("looseness", [1, 3])
def test_bounds_need_not_be_tight(native, looseness):
    random = np.random.default_rng(4)
    sizes = np.concatenate([random.integers(0, 40, 500), [9000, 20_000, 8193], [200] * 30])
    random.shuffle(sizes)
    wanted = random.integers(0, sizes + 1)
    keys = key_values(random, "few", int(sizes.sum()))
    found = draw(
        native, sizes, wanted, keys, total=int(wanted.sum()), largest=int(sizes.max()) * looseness,
        candidates=int(sizes.sum()) * looseness,
    )  # fmt: skip
    check(found, sizes, wanted, keys)
    assert int(found.missing) == 0


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


@pytest.mark.parametrize(("count", "launches"), [(30, 2), (5000, 3), (50_001, 6)])
@pytest.mark.parametrize("dtype", KINDS.values())
def test_a_draw_costs_few_calls(native, log, count, launches, dtype):
    weights = native.put(np.random.default_rng(3).integers(1, 9, count), dtype)
    with Operations() as operations:
        draw_keys(weights, count // 2, native=native.module)
    assert operations.calls == ["zeros"]
    assert len(log.calls("launch")) == launches


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


@pytest.mark.parametrize("count", [1, 4, 5, 17, 1000, 4097])
@pytest.mark.parametrize("dtype", [torch.int64, torch.float64])
def test_a_tree_finds_what_prefix_sums_find(native, count, dtype):
    random = np.random.default_rng(count)
    weights = torch.from_numpy(random.integers(0, 9, count)).to(dtype)
    weights[count // 2] = 3  # at least one has weight
    tree = DeviceSegmentTree(weights.to(native.device), native=native.module)
    for step in range(3):
        sums = weights.cumsum(0)
        total = int(sums[-1])
        assert tree.total == total
        assert torch.equal(tree.weights.cpu(), weights)
        g = torch.arange(total).to(dtype) + (0.5 if dtype == torch.float64 else 0)
        found = tree.search(g.to(native.device)).cpu()
        assert torch.equal(found, torch.searchsorted(sums, g, right=True))
        items = torch.from_numpy(random.integers(0, count, 40 if step < 2 else 0))
        values = torch.from_numpy(random.integers(0, 9, items.numel())).to(dtype)
        values[-1:] = 5
        tree.modify(items.to(native.device), values.to(native.device))
        for i, w in zip(items.tolist(), values.tolist(), strict=True):
            weights[i] = w


def test_independent_draws_are_those_of_the_cpu_and_look_at_no_weight(native, log):
    weights = torch.from_numpy(np.random.default_rng(2).integers(1, 50, 5000))
    tree = DeviceSegmentTree(weights.to(native.device), native=native.module)
    before = len(log.calls("launch"))
    with Operations() as operations:
        found = tree.draw(501, seed=4, stream=6, remove=False)
    assert len(log.calls("launch")) == before + 1
    assert operations.calls == []
    assert torch.equal(found.cpu(), SegmentTree(weights).draw(501, seed=4, stream=6, remove=False))
    assert tree.total == int(weights.sum())


def test_a_tree_knows_how_many_items_have_weight(native):
    tree = DeviceSegmentTree(native.put([0, 3, 0, 2, 1]), native=native.module)
    tree.draw(1, seed=1)
    with pytest.raises(InvalidInputError):
        tree.draw(3, seed=1)
    tree.modify(native.put([0, 2]), native.put([4, 4]))
    assert tree.draw(4, seed=1).unique().numel() == 4
    for remove in (True, False):
        with pytest.raises(InvalidInputError):
            tree.draw(1, seed=1, remove=remove)
        assert tree.draw(0, seed=1, remove=remove).numel() == 0


@pytest.mark.parametrize(("count", "taken"), [(40_000, 900), (500, 400), (9, 9), (3, 0)])
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
    for given in (weights, weights.float(), weights.ceil().long()):
        right = draw_many(given, 100_000, 2, seed=5, stream=3)
        found = draw_many(given.cuda(), 100_000, 2, seed=5, stream=3)
        assert torch.equal(found.cpu(), right)
    with pytest.raises(UnsupportedError, match="sis"):
        draw_without_replacement(weights.cuda(), 5, method="sis")
    tree = DeviceSegmentTree(weights.cuda())
    drawn = tree.draw(1000, seed=1)
    assert drawn.unique().numel() == 1000
    assert tree.total == pytest.approx(float(weights.sum() - weights[drawn.cpu()].sum()), rel=1e-9)
