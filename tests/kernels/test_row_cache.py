"""The compiled caches against a slow one in plain Python, and their edges."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from device_fixtures import ONE_PLACE, Native
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_checks import refuses

from dgbench.kernels_cuda.row_cache import CacheState, RowCache
from dgbench.kernels_cuda.row_cache import device as device_cache
from dgbench.kernels_cuda.row_cache.device import DeviceRowCache
from dgbench.kernels_cuda.row_cache.host_rows import read_over_bus
from dgbench.runtime.errors import InvalidInputError

SERVED = (device_cache,)


class SlowCache:
    """The rules of `dgbench.kernels_cuda.row_cache`, one dictionary and loops."""

    def __init__(self, capacity: int, policy: str, limit: int) -> None:
        self.capacity, self.policy, self.limit = capacity, policy, limit
        self.ids: list[int] = []
        self.last: list[int] = []
        self.score: list[int] = []
        self.ring = self.batch = 0

    def fetch(self, ids: list[int]) -> tuple[list[int], int, tuple[int, int]]:
        counts = Counter(i for i in ids if i not in self.ids)
        misses = list(counts)
        hit = {i for i in ids if i in self.ids}
        self.batch += 1
        for i in hit:
            slot = self.ids.index(i)
            self.last[slot] = self.batch
            self.score[slot] += 1
        if self.policy == "static":
            return misses, len(hit), (0, 0)
        wanted = min(len(misses), self.limit)
        free = min(wanted, self.capacity - len(self.ids))
        slots = list(range(len(self.ids), len(self.ids) + free))
        if self.policy == "fifo":
            for _ in range(wanted - free):
                slots.append(self.ring)
                self.ring = (self.ring + 1) % self.capacity
        else:
            rank = self.last if self.policy == "lru" else self.score
            spare = [s for s in range(len(self.ids)) if self.last[s] != self.batch]
            slots += sorted(sorted(spare, key=lambda s: (rank[s], s))[: wanted - free])
        best = sorted(misses, key=lambda i: (-counts[i], misses.index(i)))[: len(slots)]
        for slot, i in zip(slots, [i for i in misses if i in best], strict=True):
            if slot == len(self.ids):
                self.ids.append(i)
                self.last.append(self.batch)
                self.score.append(1)
            else:
                self.ids[slot], self.last[slot], self.score[slot] = i, self.batch, 1
        return misses, len(hit), (len(slots), len(slots) - free)


def table(num_ids: int, dim: int) -> torch.Tensor:
    """A row says whose it is."""
    return torch.arange(num_ids).float()[:, None] + torch.arange(dim) / 1024


def cache_on(place: Native, *sizes: int, **how: Any) -> RowCache | DeviceRowCache:
    if place.own:
        return RowCache(*sizes, **how)
    return DeviceRowCache(*sizes, **how, device=place.device)


@settings(max_examples=25, suppress_health_check=ONE_PLACE)
@given(
    policy=st.sampled_from(["lru", "lfu", "fifo", "static"]),
    index=st.sampled_from(["dense", "hash"]), capacity=st.integers(0, 12),
    share=st.floats(0.05, 1.0), dim=st.integers(1, 19), by_id=st.booleans(),
    batches=st.lists(st.lists(st.integers(0, 29), max_size=25), max_size=14),
)  # fmt: skip
def test_equals_the_slow_cache(place, policy, index, capacity, share, dim, by_id, batches) -> None:
    limit = min(capacity, max(1, int(share * capacity)))
    how = {"policy": policy, "limit": limit, "index": index}
    cache = cache_on(place, 30, dim, capacity, **how)
    slow, rows = SlowCache(capacity, policy, limit), table(35, dim)
    if policy == "static":
        slow.ids = list(range(0, capacity, 2))
        slow.last, slow.score = ([0] * len(slow.ids) for _ in range(2))
        zeros = torch.zeros(len(slow.ids), dtype=torch.int32)
        cache.assign(CacheState(torch.tensor(slow.ids).long(), rows[slow.ids], zeros, zeros, 0, 0))
    for number, batch in enumerate(batches):
        ids = torch.tensor(batch, dtype=torch.int64)
        found, out = cache.lookup(place.put(ids)), place.poisoned(len(batch), dim)
        source = rows[:30] if by_id else rows[found.misses.cpu()]
        cache.gather(found, place.put(source) if number % 2 else source, out, by_id=by_id)
        assert torch.equal(out.cpu(), rows[ids])
        kept = set(slow.ids)
        misses, hits, admitted = slow.fetch(batch)
        assert found.misses.tolist() == misses
        assert found.hits == hits
        assert found.request_hits == sum(i in kept for i in batch)
        assert cache.update(found, out) == admitted
        state = cache.state()
        for name in ("ids", "last", "score"):
            assert getattr(state, name).tolist() == getattr(slow, name)
        assert (state.ring, state.batch) == (slow.ring, slow.batch)
        assert torch.equal(state.rows, rows[state.ids])
    cache.grow(35)
    assert cache.lookup(place.put(torch.tensor([34, 0]))).hits == (0 in slow.ids)


@pytest.mark.parametrize("policy", ["lru", "lfu"])
def test_victims_over_wide_scores(policy: str) -> None:
    """Ranks that differ by much more than a histogram's bins are still told apart."""
    generator = torch.Generator().manual_seed(1)
    rank = (torch.rand(5000, generator=generator) ** 6 * 2**30).int()
    rank[:50] = rank[50]  # ties go by slot
    rows = table(10_000, 1)
    cache = RowCache(10_000, 1, 5000, policy=policy, limit=777)
    cache.assign(CacheState(torch.arange(5000), rows[:5000], rank, rank, 0, 2**30))
    found = cache.lookup(torch.arange(5000, 7000))
    cache.update(found, rows[5000:7000])
    order = torch.sort(rank, stable=True).indices
    gone = set(order[:777].tolist())
    assert set(range(5000)) - set(cache.ids().tolist()) == gone
    assert cache.ids()[sorted(gone)].tolist() == list(range(5000, 5777))


@pytest.mark.parametrize("index", ["dense", "hash"])
def test_assign_is_all_or_nothing(place, index: str) -> None:
    rows, zeros = table(10, 2), torch.zeros(3).int()
    cache = cache_on(place, 10, 2, 4, index=index)
    ones = torch.ones(2).int()
    cache.assign(CacheState(torch.tensor([3, 7]), rows[[3, 7]], ones, ones, 0, 5))
    right = CacheState(torch.tensor([1, 2, 4]), rows[[1, 2, 4]], zeros, zeros, 0, 0)
    for change in (
        *({"ids": torch.tensor(bad)} for bad in ([1, 2, 1], [1, 2, 10], [1, 2, -1])),
        {"ids": torch.arange(6)}, {"rows": rows[:2]}, {"last": zeros[:2]}, {"ring": 5},
    ):  # fmt: skip
        with pytest.raises(InvalidInputError):
            cache.assign(replace(right, **change))
        assert cache.ids().tolist() == [3, 7]
        assert cache.lookup(torch.tensor([1, 7, 3])).place.tolist() == [-1, 1, 0]
    cache.assign(CacheState(torch.tensor([9]), rows[[9]], zeros[:1], zeros[:1], 0, 0))
    assert cache.lookup(torch.tensor([3, 9, 7])).misses.tolist() == [3, 7]


@pytest.mark.parametrize("index", ["dense", "hash"])
def test_grows_and_takes_the_largest_id(place, index: str) -> None:
    cache = cache_on(place, 5, 1, 2, index=index)
    with pytest.raises(InvalidInputError, match="0 <= x < 5"):
        cache.lookup(torch.tensor([5]))
    cache.grow(1_000_001)
    found = cache.lookup(torch.tensor([1_000_000, 4]))
    assert cache.update(found, place.put(torch.tensor([[1.0], [2.0]]))) == (2, 0)
    assert cache.lookup(torch.tensor([4, 1_000_000])).hits == 2
    with pytest.raises(InvalidInputError, match="already"):
        cache.grow(7)


def test_wrong_arguments_are_named_and_leave_nothing_behind(place) -> None:
    refuses(
        partial(cache_on, place), {"num_ids": 4, "dim": 2, "capacity": 3}, ("capacity", -1),
        ("dim", 0), ("num_ids", -1), ("limit", 5), ("policy", "lrru"), ("index", "tree"),
    )  # fmt: skip
    cache = cache_on(place, 4, 2, 3)
    for ids in (torch.tensor([1, 2, 7]), torch.tensor([1], dtype=torch.int32)):
        with pytest.raises(InvalidInputError):
            cache.lookup(ids)
    for _ in range(2):  # a lookup changes nothing
        batch = cache.lookup(torch.tensor([1, 1, 2]))
        assert batch.misses.tolist() == [1, 2]
    out = place.put(torch.zeros(3, 2))
    refuses(
        lambda source, out: cache.gather(batch, source, out, by_id=True),
        {"source": torch.zeros(4, 2), "out": out}, ("source", torch.zeros(3, 2)),
        ("out", place.put(torch.zeros(3, 3))),
    )  # fmt: skip
    with pytest.raises(InvalidInputError, match="out"):
        cache.update(batch, place.put(torch.zeros(4, 2)))
    cache.update(batch, out)
    with pytest.raises((ValueError, InvalidInputError)):  # a lookup is used up
        cache.update(batch, out)


# --- A device's -----------------------------------------------------------------------------------


IDS = 90


@pytest.mark.parametrize("dim", [1, 3, 8])
def test_page_locked_tables_are_read_in_place(serve, native, dim):
    """By the cache, and over the bus without one: by repeated ids and by none."""
    rows, ids = table(IDS, dim), torch.tensor([3, 80, 3, 5])
    rows = rows.pin_memory() if native.device == "cuda" else rows
    cache = DeviceRowCache(IDS, dim, 10, device=serve(device_cache))
    found, out = cache.lookup(ids), native.poisoned(4, dim)
    native.call(
        "gather_rows_pinned", found.place, found.misses, native.poisoned(10, dim), rows, out
    )
    assert torch.equal(out.cpu(), rows[ids])
    stream = (torch.cuda.current_stream().cuda_stream if native.device == "cuda" else 0,)
    for some in (ids, ids[:0]):
        read = read_over_bus(native.module, rows, native.put(some), stream)
        assert read.device.type == native.device
        assert torch.equal(read.cpu(), rows[some])
    if native.device == "cpu":
        with pytest.raises(InvalidInputError, match="ids"):
            read_over_bus(native.module, rows, torch.tensor([IDS]), (0,))
