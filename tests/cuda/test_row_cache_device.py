"""The feature cache on a device: what it keeps and hands out is what the CPU's does."""

from __future__ import annotations

import pytest
import torch

from dgbench.kernels_cuda.row_cache import CacheState, RowCache
from dgbench.kernels_cuda.row_cache import device as device_cache
from dgbench.kernels_cuda.row_cache.device import DeviceRowCache
from dgbench.kernels_cuda.row_cache.host_rows import read_over_bus
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError

IDS = 90


@pytest.fixture
def open_cache(native, monkeypatch):
    if native.device == "cpu":
        monkeypatch.setattr(device_cache, "extension", lambda device: native.module)
    return lambda *sizes, **how: DeviceRowCache(*sizes, **how, device=native.device)


def table(dim: int) -> torch.Tensor:
    return torch.arange(IDS * dim, dtype=torch.float32).reshape(IDS, dim)


def same(one: CacheState, other: CacheState) -> bool:
    arrays = ("ids", "rows", "last", "score")
    return (one.ring, one.batch) == (other.ring, other.batch) and all(
        torch.equal(getattr(one, name), getattr(other, name)) for name in arrays
    )


@pytest.mark.parametrize("index", ["dense", "hash"])
@pytest.mark.parametrize("policy", ["lru", "lfu", "fifo", "static"])
@pytest.mark.parametrize(
    ("capacity", "limit", "dim"), [(20, 4, 8), (1, 1, 3), (7, 7, 1), (90, 30, 4)]
)
def test_any_sequence_leaves_what_it_leaves_on_the_cpu(
    open_cache, native, index, policy, capacity, limit, dim
):
    how = {"policy": policy, "limit": limit, "index": index}
    rows = table(dim)
    right, found = RowCache(IDS, dim, capacity, **how), open_cache(IDS, dim, capacity, **how)
    if policy == "static":
        kept = torch.arange(0, capacity, 2)
        scores = torch.zeros(kept.numel(), dtype=torch.int32)
        for cache in (right, found):
            cache.assign(CacheState(kept, rows[kept], scores, scores, 0, 0))
    random = torch.Generator().manual_seed(capacity + dim)
    for step in range(12):
        count = (0, 1, 40)[step % 3]
        ids = (IDS * torch.rand(count, generator=random) ** 2).long()
        by_id = step % 2 == 0
        one, other = right.lookup(ids), found.lookup(native.put(ids))
        assert torch.equal(one.place, other.place.cpu())
        assert torch.equal(one.misses, other.misses.cpu())
        assert (one.hits, one.request_hits) == (other.hits, other.request_hits)
        source = rows if by_id else rows[one.misses]
        out, there = torch.empty(count, dim), native.poisoned(count, dim)
        right.gather(one, source, out, by_id=by_id)
        found.gather(other, source if step % 4 else native.put(source), there, by_id=by_id)
        assert torch.equal(out, there.cpu())
        assert torch.equal(out, rows[ids])
        if step != 7:
            assert right.update(one, out) == found.update(other, there)
        assert same(right.state(), found.state())
    right.grow(IDS + 5)
    found.grow(IDS + 5)
    last = torch.tensor([IDS + 4, 0])
    assert torch.equal(right.lookup(last).place, found.lookup(last).place.cpu())


@pytest.mark.parametrize("dim", [1, 3, 8])
def test_page_locked_tables_are_read_in_place(open_cache, native, dim):
    """By the cache, and over the bus without one: by repeated ids and by none."""
    rows, ids = table(dim), torch.tensor([3, 80, 3, 5])
    rows = rows.pin_memory() if native.device == "cuda" else rows
    found, out = open_cache(IDS, dim, 10).lookup(ids), native.poisoned(4, dim)
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


def test_what_does_not_fit_is_refused_and_changes_nothing(open_cache, native):
    cache = open_cache(IDS, 2, 5)
    zeros, rows = torch.zeros(3, dtype=torch.int32), table(2)
    good = CacheState(torch.tensor([1, 2, 3]), rows[:3], zeros, zeros, 1, 4)
    cache.assign(good)
    for wrong in (
        CacheState(torch.tensor([1, 2, 1]), rows[:3], zeros, zeros, 0, 0),
        CacheState(torch.tensor([1, 2, IDS]), rows[:3], zeros, zeros, 0, 0),
        CacheState(torch.arange(6), rows[:6], zeros, zeros, 0, 0),
        CacheState(torch.arange(3), rows[:2], zeros, zeros, 0, 0),
        CacheState(torch.arange(3), rows[:3], zeros[:2], zeros, 0, 0),
        CacheState(torch.arange(3), rows[:3], zeros, zeros, 5, 0),
    ):
        with pytest.raises(InvalidInputError):
            cache.assign(wrong)
        assert same(cache.state(), good)
    for ids in (torch.tensor([IDS]), torch.tensor([1], dtype=torch.int32)):
        with pytest.raises(InvalidInputError, match="ids"):
            cache.lookup(ids)
    found = cache.lookup(torch.tensor([1, 9]))
    with pytest.raises(InvalidInputError, match="out"):
        cache.gather(found, rows, native.poisoned(3, 2), by_id=True)
    cache.update(found, native.put(rows[:2]))
    with pytest.raises(InvalidInputError, match="lookup"):
        cache.update(found, native.put(rows[:2]))
    with pytest.raises(InvalidInputError):
        cache.grow(3)
    with pytest.raises(UnknownKeyError):
        open_cache(IDS, 2, 5, policy="random")
    with pytest.raises(InvalidInputError, match="limit"):
        open_cache(IDS, 2, 5, limit=6)
