"""Weighted draws on the device: the k smallest keys of sets of any size, and trees of sums."""

from __future__ import annotations

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
    [1],
    [5, 0, 32, 33, 1],
    [31, 32, 33, 64, 8191, 8192],
    [8193],
    [3, 20_000, 7, 9000, 0, 4100, 12_289],
    [50_001],
]


def smallest(keys: np.ndarray, begin: int, end: int, count: int) -> np.ndarray:
    """The obvious way: sort by (key, item)."""
    order = np.argsort(keys[begin:end], kind="stable")[:count]
    return np.sort(order) + begin


def put_words(native, keys: np.ndarray) -> Tensor:
    return native.put(keys.astype(np.uint32).view(np.int32))


def ranges(sizes: list[int], gap: int = 0) -> tuple[np.ndarray, np.ndarray]:
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


@pytest.mark.parametrize("sizes", SHAPES, ids=lambda s: "-".join(map(str, s)))
@pytest.mark.parametrize("kind", ["any", "equal", "few", "floats"])
@pytest.mark.parametrize("share", ["none", "one", "half", "all"])
def test_selection_takes_what_sorting_takes(native, sizes, kind, share):
    random = np.random.default_rng([len(sizes), len(kind)])
    begin, end = ranges(sizes, gap=3)
    keys = key_values(random, kind, int(end[-1]) + 5)
    wanted = {"none": 0, "one": 1, "half": np.array(sizes) // 2, "all": np.array(sizes)}[share]
    wanted = np.minimum(np.zeros(len(sizes), dtype=np.int64) + wanted, sizes)
    offsets = np.concatenate([[0], np.cumsum(wanted)])
    right = [smallest(keys, *one) for one in zip(begin, end, wanted, strict=True)]
    found = draw_sets(
        native.put(begin), native.put(end), native.put(offsets), keys=put_words(native, keys),
        native=native.module,
    )  # fmt: skip
    assert np.array_equal(found.items.cpu().numpy(), np.concatenate(right))


@pytest.mark.parametrize("order", ["forward", "reverse"])
@pytest.mark.parametrize("processors", [1, 7])
def test_order_of_threads_and_number_of_blocks_change_nothing(
    native, order, processors, monkeypatch
):
    monkeypatch.setenv("EMULATED_PROCESSORS", str(processors))
    if order == "reverse":
        monkeypatch.setenv("EMULATED_ORDER", "reverse")
    random = np.random.default_rng(5)
    sizes = [40_000, 70, 9000, 20, 500]
    begin, end = ranges(sizes)
    keys = key_values(random, "few", int(end[-1]))
    wanted = [20_000, 35, 1, 20, 499]
    offsets = np.concatenate([[0], np.cumsum(wanted)])
    right = [smallest(keys, *one) for one in zip(begin, end, wanted, strict=True)]
    for _ in range(2):
        found = draw_sets(
            native.put(begin), native.put(end), native.put(offsets),
            keys=put_words(native, keys), native=native.module,
        )  # fmt: skip
        assert np.array_equal(found.items.cpu().numpy(), np.concatenate(right))


@pytest.mark.parametrize("sizes", [[6, 40, 9001], [3]])
def test_items_without_weight_are_never_taken(native, sizes):
    random = np.random.default_rng(1)
    begin, end = ranges(sizes)
    keys = key_values(random, "floats", int(end[-1]))
    keys[random.random(keys.size) < 0.5] = NEVER
    there = [int((keys[b:e] != NEVER).sum()) for b, e in zip(begin, end, strict=True)]
    offsets = np.concatenate([[0], np.cumsum(there)])
    arguments = [native.put(begin), native.put(end)]
    found = draw_sets(
        *arguments, native.put(offsets), keys=put_words(native, keys), native=native.module
    )
    assert np.array_equal(found.items.cpu().numpy(), np.flatnonzero(keys != NEVER))
    assert int(found.missing) == 0
    offsets[1:] += np.cumsum(np.arange(1, len(sizes) + 1))
    found = draw_sets(
        *arguments, native.put(offsets), keys=put_words(native, keys), native=native.module
    )
    wanted, where = found.items.cpu().numpy(), np.flatnonzero(keys != NEVER)
    for s, (b, e) in enumerate(zip(begin, end, strict=True)):
        own = wanted[offsets[s] : offsets[s + 1]]
        assert np.array_equal(own[: there[s]], where[(where >= b) & (where < e)])
        assert (own[there[s] :] == -1).all()
        assert own.size == there[s] + s + 1
    assert int(found.missing) == offsets[-1] - sum(there)


def test_any_negative_key_is_never_taken(native):
    keys = np.array([3, -5, 2, -(2**31), 1, -1] * 7000, dtype=np.int64)
    for count in (6, 300, keys.size):
        offsets = np.array([0, count // 2])
        found = draw_sets(
            native.put([0]), native.put([count]), native.put(offsets),
            keys=native.put(keys[:count].astype(np.int32)), native=native.module,
        )  # fmt: skip
        assert np.array_equal(found.items.cpu().numpy(), np.flatnonzero(keys[:count] > 0))


@pytest.mark.parametrize("sizes", SHAPES[2:], ids=lambda s: "-".join(map(str, s)))
def test_keys_are_the_same_in_every_size_of_set(native, sizes):
    random = np.random.default_rng(3)
    begin, end = ranges(sizes, gap=1)
    weights = random.exponential(size=int(end[-1]) + 2).astype(np.float32)
    weights[::9] = 0
    there = native.put(weights)
    keys = make_keys(weights.size, there, seed=2**63 + 5, stream=77, device=native.device,
                     native=native.module)  # fmt: skip
    plain = keys.cpu().numpy().view(np.uint32)
    assert np.array_equal(plain == NEVER, weights == 0)
    assert not np.isnan(plain[weights > 0].view(np.float32)).any()
    wanted = [int((weights[b:e] > 0).sum()) // 2 for b, e in zip(begin, end, strict=True)]
    offsets = np.concatenate([[0], np.cumsum(wanted)])
    right = [smallest(plain, *one) for one in zip(begin, end, wanted, strict=True)]
    found = draw_sets(
        native.put(begin), native.put(end), native.put(offsets), weights=there, seed=2**63 + 5,
        stream=77, native=native.module,
    )  # fmt: skip
    assert np.array_equal(found.items.cpu().numpy(), np.concatenate(right))


class Waits(TorchDispatchMode):
    """Record of torch operations that a host waits in for its device."""

    names = ("_local_scalar_dense", "nonzero", "masked_select", "repeat_interleave", "_to_copy")

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        masks = [a for a in args[1] if a is not None] if "index.Tensor" in str(func) else []
        if func.__name__.split(".")[0] in self.names or any(m.dtype == torch.bool for m in masks):
            self.calls.append(func.__name__)
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
    begin, end = ranges(sizes)
    wanted = np.array(sizes) // 2
    offsets = np.concatenate([[0], np.cumsum(wanted)])
    weights = np.random.default_rng(8).exponential(size=int(end[-1])).astype(np.float32)
    arrays = native.put(begin), native.put(end), native.put(offsets)
    there = native.put(weights)
    with Waits() as waits:
        found = draw_sets(
            *arrays, weights=there, total=int(offsets[-1]), largest=max(sizes),
            candidates=sum(sizes), native=native.module,
        )  # fmt: skip
    assert waits.calls == []
    assert len(log.calls("launch")) == launches
    asked = draw_sets(*arrays, weights=there, native=native.module)
    assert torch.equal(found.items, asked.items)
    with Waits() as waits:
        int(found.missing)
        found.items[found.items > 0]
    assert len(waits.calls) == 2


@pytest.mark.parametrize("looseness", [1, 3])
def test_bounds_need_not_be_tight(native, looseness):
    random = np.random.default_rng(4)
    sizes = np.concatenate([random.integers(0, 40, 2000), [9000, 40_000, 8193], [200] * 30])
    random.shuffle(sizes)
    begin, end = ranges(sizes.tolist())
    wanted = random.integers(0, sizes + 1)
    offsets = np.concatenate([[0], np.cumsum(wanted)])
    keys = key_values(random, "few", int(end[-1]))
    found = draw_sets(
        native.put(begin), native.put(end), native.put(offsets), keys=put_words(native, keys),
        total=int(offsets[-1]), largest=int(sizes.max()) * looseness,
        candidates=int(sizes.sum()) * looseness, native=native.module,
    )  # fmt: skip
    right = [smallest(keys, *one) for one in zip(begin, end, wanted, strict=True)]
    assert np.array_equal(found.items.cpu().numpy(), np.concatenate(right))
    assert int(found.missing) == 0


@pytest.mark.parametrize(
    ("largest", "candidates"), [(20_000, 20_000), (20_000, 30_000), (40, 70_000), (9000, 0)]
)
def test_sets_beyond_their_bounds_are_missing(native, largest, candidates):
    begin, end = ranges([20, 20_000, 30_000, 5, 20_000])
    offsets = np.arange(6) * 4
    found = draw_sets(
        native.put(begin), native.put(end), native.put(offsets), total=20, largest=largest,
        candidates=candidates, native=native.module,
    )  # fmt: skip
    exact = draw_sets(native.put(begin), native.put(end), native.put(offsets), native=native.module)
    sets, right = found.items.cpu().view(5, 4), exact.items.cpu().view(5, 4)
    lost = (sets == -1).all(1)
    assert 0 < int(lost.sum()) == int(found.missing) / 4
    assert torch.equal(sets[~lost], right[~lost])


@pytest.mark.cuda
@pytest.mark.usefixtures("usable_device")
@pytest.mark.parametrize("sizes", [[20, 300] * 40, [500_000], [30_000, 12, 0, 900, 9000] * 3])
def test_a_cuda_graph_holds_a_draw(sizes):
    begin, end = ranges(sizes)
    wanted = np.array(sizes) // 3
    offsets = np.concatenate([[0], np.cumsum(wanted)])
    arrays = [torch.from_numpy(a).cuda() for a in (begin, end, offsets)]
    weights = torch.rand(int(end[-1]), device="cuda")

    def draw():
        return draw_sets(
            *arrays, weights=weights, seed=3, total=int(offsets[-1]), largest=max(sizes),
            candidates=sum(sizes),
        )  # fmt: skip

    draw()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = draw()
    for step in range(3):
        weights.copy_(torch.rand(weights.numel(), generator=torch.Generator().manual_seed(step)))
        graph.replay()
        assert torch.equal(found.items, draw().items)
        assert int(found.missing) == 0
        if len(sizes) == 1:
            cpu = draw_without_replacement(weights.cpu(), int(wanted[0]), method="keys", seed=3)
            assert torch.equal(found.items.cpu(), cpu)


def test_keys_are_exponential_and_of_their_stream(native):
    count = 60_000
    made = [
        make_keys(count, seed=seed, stream=stream, device=native.device, native=native.module)
        for seed, stream in ((0, 0), (0, 1), (1, 0))
    ]
    values = [m.cpu().view(torch.float32).double() for m in made]
    for one in values:
        assert abs(float(one.mean()) - 1) < 4 / count**0.5
        assert abs(float((one > 2).double().mean()) - np.exp(-2)) < 4 * (0.14 / count) ** 0.5
    for one, other in ((0, 1), (0, 2), (1, 2)):
        both = torch.corrcoef(torch.stack([values[one], values[other]]))[0, 1]
        assert abs(float(both)) < 4 / count**0.5


@pytest.mark.parametrize("kind", ["floats", "doubles", "integers", "equal"])
@pytest.mark.parametrize(("count", "share"), [(1, 1.0), (70, 0.5), (5000, 0.1), (30_000, 0.5)])
def test_draws_are_those_of_the_cpu(native, kind, count, share):
    random = np.random.default_rng(count)
    weights = torch.from_numpy(random.pareto(1.0, count) + 0.01)
    weights[::7] = 0 if count > 1 else 1
    if kind == "floats":
        weights = weights.float()
    elif kind == "integers":
        weights = weights.ceil().long()
    elif kind == "equal":
        weights = torch.full((count,), 3.0)
    k = int(share * int((weights > 0).sum()))
    right = draw_without_replacement(weights, k, method="keys", seed=9, stream=count)
    found = draw_keys(weights.to(native.device), k, seed=9, stream=count, native=native.module)
    assert torch.equal(found.cpu(), right)


class Operations(TorchDispatchMode):
    """Record of torch operations that compute: all but views and fresh memory."""

    cheap = ("slice", "empty", "empty_like")

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.__name__.split(".")[0]
        if name not in self.cheap:
            self.calls.append(name)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("count", "launches"), [(30, 2), (5000, 3), (50_001, 6)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_a_draw_costs_few_calls(native, log, count, launches, dtype):
    weights = native.put(np.random.default_rng(3).integers(1, 9, count), dtype)
    with Operations() as operations:
        draw_keys(weights, count // 2, native=native.module)
    assert operations.calls == ["zeros"]
    assert len(log.calls("launch")) == launches


def test_independent_draws_from_a_tree_look_at_no_weight(native, log):
    weights = native.put(np.arange(1, 5001))
    tree = DeviceSegmentTree(weights, native=native.module)
    before = len(log.calls("launch"))
    with Operations() as operations:
        tree.draw(20, seed=1, remove=False)
    assert len(log.calls("launch")) == before + 1
    assert operations.calls == []


def test_a_tree_knows_how_many_items_have_weight(native):
    tree = DeviceSegmentTree(native.put([0, 3, 0, 2, 1]), native=native.module)
    tree.draw(1, seed=1)
    with pytest.raises(InvalidInputError, match="2 items have weight"):
        tree.draw(3, seed=1)
    tree.modify(native.put([0, 2]), native.put([4, 4]))
    assert tree.draw(4, seed=1).unique().numel() == 4
    for remove in (True, False):
        with pytest.raises(InvalidInputError, match="0 items have weight"):
            tree.draw(1, seed=1, remove=remove)
        assert tree.draw(0, seed=1, remove=remove).numel() == 0


def test_what_cannot_be_drawn_is_refused(native):
    def draw(values, k, dtype=torch.float64):
        return draw_keys(native.put(values, dtype), k, native=native.module)

    assert draw([], 0).numel() == 0
    assert draw([0.0, 1.0], 0).numel() == 0
    for values, k, found in [
        ([1.0, -1.0], 1, "negative"),
        ([1.0, float("nan")], 1, "not finite"),
        ([1.0, 1e30], 1, "between"),
        ([1.0, 1e300], 1, "between"),
        ([1.0, 1e-300], 1, "between"),
        ([1.0, float("inf")], 1, "not finite"),
        ([1.0, 0.0], 2, "1 more items"),
        ([1.0], 2, "k is 2"),
    ]:
        with pytest.raises(InvalidInputError, match=found):
            draw(values, k)
    with pytest.raises(InvalidInputError, match="weights is"):
        draw([1], 1, torch.int32)


@pytest.mark.parametrize("count", [1, 3, 4, 5, 17, 1000, 4097])
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
        items = torch.from_numpy(random.integers(0, count, 40))
        values = torch.from_numpy(random.integers(0, 9, 40)).to(dtype)
        values[-1] = 5
        tree.modify(items.to(native.device), values.to(native.device))
        for i, w in zip(items.tolist(), values.tolist(), strict=True):
            weights[i] = w
        if step == 1:
            tree.modify(items[:0].to(native.device), values[:0].to(native.device))


def test_independent_draws_from_a_tree_are_those_of_the_cpu(native):
    weights = torch.from_numpy(np.random.default_rng(2).integers(0, 50, 3000))
    tree = DeviceSegmentTree(weights.to(native.device), native=native.module)
    found = tree.draw(501, seed=4, stream=6, remove=False)
    right = SegmentTree(weights).draw(501, seed=4, stream=6, remove=False)
    assert torch.equal(found.cpu(), right)
    assert tree.total == int(weights.sum())


@pytest.mark.parametrize(("count", "taken"), [(40_000, 900), (500, 400), (9, 9), (3, 0)])
def test_what_is_drawn_is_removed(native, count, taken):
    weights = torch.from_numpy(np.random.default_rng(count).pareto(1.2, count) + 0.1)
    tree = DeviceSegmentTree(weights.to(native.device), native=native.module)
    drawn = tree.draw(taken, seed=1).cpu()
    assert drawn.numel() == taken
    assert drawn.unique().numel() == taken
    left = weights.clone()
    left[drawn] = 0
    assert torch.equal(tree.weights.cpu(), left)
    assert tree.total == pytest.approx(float(left.sum()), rel=1e-12)
    with pytest.raises(InvalidInputError, match="items have weight"):
        tree.draw(count - taken + 1, seed=1)


@pytest.mark.parametrize("rounds", [0, 4])
def test_sequences_have_the_exact_distribution(native, monkeypatch, rounds):
    """First and second of two draws out of three items of weight 1, 2 and 5."""
    monkeypatch.setattr(device_weighted_tree, "ROUNDS", rounds)
    monkeypatch.setattr(device_weighted_tree, "WORTH", 1)
    weights = torch.tensor([1.0, 2.0, 5.0] + [0.0] * 3, dtype=torch.float64)
    trials, seen = 200, torch.zeros(3, 3)
    plain = weights.to(native.device)
    for trial in range(trials):
        tree = DeviceSegmentTree(plain, native=native.module)
        one, other = tree.draw(2, seed=trial).tolist()
        seen[one, other] += 1
    for one in range(3):
        for other in range(3):
            first = float(weights[one]) / 8
            share = 0 if one == other else first * float(weights[other]) / (8 - float(weights[one]))
            spread = (share * (1 - share) / trials) ** 0.5
            assert abs(float(seen[one, other]) / trials - share) <= 4.5 * spread


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


def _range_numbers(seed: int, stream: int, count: int) -> list[int]:
    """64 random bits of numbers 0, 1, .. of a range's stream, by philox as published."""
    found: list[int] = []
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
        found += [words[1] << 32 | words[0], words[3] << 32 | words[2]]
    return found[:count]


def _plain_range(weights: list[int], count: int, seed: int, stream: int) -> list[int]:
    """Segment Its Search as printed, one draw after the other, with rounds of `draw_ranges`."""
    left, taken, number = list(weights), [], 0
    bits = _range_numbers(seed, stream, 64 * (count + 1))
    while len(taken) < count:
        total, lacking = sum(left), count - len(taken)
        sums, fresh = np.cumsum(left).tolist(), set()
        for one in bits[number : number + lacking]:
            g = one * total >> 64
            fresh.add(next(i for i, s in enumerate(sums) if s > g))
        number += lacking
        taken += sorted(fresh)
        for i in fresh:
            left[i] = 0
    return sorted(taken)


@pytest.mark.parametrize("sizes", [[1], [4], [16], [5, 0, 33, 1, 64, 7], [300, 2, 41]], ids=str)
@pytest.mark.parametrize("kind", ["equal", "weighed"])
def test_ranges_of_a_tree_are_drawn_from_by_segment_its_search(native, sizes, kind):
    random = np.random.default_rng(len(sizes))
    begin, end = ranges(sizes)
    weights = np.ones(end[-1], dtype=np.int64)
    if kind == "weighed":
        weights = random.integers(0, 40, end[-1])
        weights[begin[np.array(sizes) > 0]] = 7
    there = [int((weights[b:e] > 0).sum()) for b, e in zip(begin, end, strict=True)]
    for share in (0.0, 0.5, 1.0):
        counts = np.floor(share * np.array(there) + 0.5).astype(np.int64)
        tree = DeviceSegmentTree(native.put(weights), native=native.module)
        found = tree.draw_ranges(
            native.put(begin), native.put(end), native.put(counts), seed=2**40 + 9, stream=2**33
        ).cpu()
        right = [
            b + i
            for s, (b, e, k) in enumerate(zip(begin, end, counts, strict=True))
            for i in _plain_range(weights[b:e].tolist(), int(k), 2**40 + 9, 2**33 + s)
        ]
        assert found.tolist() == right
        left = weights.copy()
        left[found.numpy()] = 0
        assert torch.equal(tree.weights.cpu(), torch.from_numpy(left))
        assert tree.total == left.sum()


def test_a_range_is_drawn_from_in_proportion_to_its_weights(native):
    """Pairs without replacement out of 1, 2, 3 and 6 by many ranges, against their chances."""
    weights, count = [1, 2, 3, 6], 4000
    begin = 4 * np.arange(count)
    tree = DeviceSegmentTree(native.put(np.tile(weights, count)), native=native.module)
    found = tree.draw_ranges(
        native.put(begin), native.put(begin + 4), native.put(np.full(count, 2)), seed=5
    )
    pairs = (found.cpu().view(count, 2) % 4).tolist()
    chances = {}
    for i in range(4):
        for j in range(4):
            if i != j:
                chance = weights[i] / 12 * weights[j] / (12 - weights[i])
                pair = (min(i, j), max(i, j))
                chances[pair] = chances.get(pair, 0) + chance
    distance = sum(
        (sum(tuple(p) == pair for p in pairs) - count * c) ** 2 / (count * c)
        for pair, c in chances.items()
    )
    assert distance < 25  # chi-square of 5 degrees: 1.4e-4


def test_a_range_that_lacks_items_is_refused(native):
    def draw(begin, end, counts, dtype=torch.int64):
        tree = DeviceSegmentTree(native.put([1, 0, 2, 1], dtype), native=native.module)
        arrays = (native.put(x, torch.int64) for x in (begin, end, counts))
        return tree.draw_ranges(*arrays, seed=1)

    assert draw([0, 2], [2, 4], [1, 2]).tolist() == [0, 2, 3]
    assert draw([], [], []).numel() == 0
    for arguments in (([0], [2], [2]), ([1], [2], [1]), ([0, 2], [2], [1])):
        with pytest.raises(InvalidInputError):
            draw(*arguments)
    with pytest.raises(InvalidInputError, match="weights"):
        draw([0], [2], [1], torch.float64)
