"""The feature cache: contents, counts, reuse, restoration and files; what static caches choose."""

from __future__ import annotations

from collections import OrderedDict
from itertools import chain
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from looped_cache import LoopedCache, looped_dynamic, looped_static

from dgbench.runtime.errors import DataError, InvalidInputError, UnknownKeyError
from dgbench.systems.gnnflow.cache import FeatureCache, FeatureTable, read_state
from dgbench.systems.gnnflow.experiments import cache_play, fig14
from dgbench.systems.gnnflow.experiments.accesses import Access
from dgbench.systems.gnnflow.experiments.cache_play import KINDS
from dgbench.systems.gnnflow.experiments.settings import LAMBDA
from dgbench.systems.gnnflow.plain_cache import ListedCache
from dgbench.systems.gnnflow.static_cache import Visits, by_degree, presampled


def table(num_ids: int = 40, dim: int = 5) -> torch.Tensor:
    return torch.arange(num_ids).float()[:, None] + torch.arange(dim) / 1024


class Elsewhere:
    """Rows that are not in a table here, counted as they are asked for."""

    def __init__(self, rows: torch.Tensor) -> None:
        self._rows, self.asked = rows, []
        self.num_rows, self.dim = rows.shape

    def gather(self, ids: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        self.asked.append(ids.tolist())
        return self._rows[ids]


actions = st.lists(
    st.one_of(
        st.lists(st.integers(0, 39), max_size=30),
        st.sampled_from(["snapshot", "restore", "fill", "look"]),
    ),
    max_size=25,
)


@given(
    actions, st.sampled_from(["lru", "lfu", "fifo", "static"]), st.integers(0, 20), st.booleans()
)
def test_contents_are_their_rows_after_any_sequence(steps, policy, capacity, local) -> None:
    rows = table()
    source = FeatureTable(rows) if local else Elsewhere(rows)
    cache = FeatureCache(source, capacity, policy=policy, admission=0.5)
    state = cache.snapshot()
    asked = 0
    for step in steps:
        if step == "snapshot":
            state = cache.snapshot()
        elif step == "restore":
            cache.restore(state)
            assert torch.equal(cache.contents(), state.ids)
        elif step == "fill":
            cache.fill(torch.arange(min(capacity, 7)))
        else:
            look = step == "look"
            ids = torch.tensor([3, 3, 9] if look else step, dtype=torch.int64)
            before = cache.contents()
            assert torch.equal(cache.fetch(ids, update=not look), rows[ids])
            asked += ids.numel()
            if look or policy == "static":
                assert torch.equal(cache.contents(), before)
        kept = cache.snapshot()
        assert torch.equal(kept.rows, rows[kept.ids])
        assert kept.ids.unique().numel() == kept.ids.numel() <= capacity
    counts = cache.counts
    assert cache.hits + cache.misses == cache.requests == asked
    assert counts.unique_hits + counts.unique_misses == counts.unique
    assert counts.evicted <= counts.admitted


batches_of_ids = st.lists(st.lists(st.integers(0, 39), max_size=30), min_size=1, max_size=8)


@settings(max_examples=40, deadline=None)
@given(batches_of_ids, st.sampled_from(["lru", "lfu", "fifo"]), st.integers(1, 20))
def test_hits_are_those_of_a_cache_in_plain_python(batches, policy, capacity) -> None:
    loop = LoopedCache(capacity, policy, LAMBDA)
    caches = {
        kind: FeatureCache(FeatureTable(table()), capacity, policy=policy, admission=LAMBDA)
        for kind in KINDS
    }
    start = loop.snapshot()
    for _ in range(2):  # epochs of a round, each from its begin
        loop.restore(start)
        for ids in batches:
            loop.fetch(ids)
    tensors = [torch.tensor(ids, dtype=torch.int64) for ids in batches]
    fig14.serve(caches, [[Access(ids, ids) for ids in tensors]] * 2, restoration=True)
    for cache in caches.values():
        assert {name: getattr(cache.counts, name) for name in loop.counts} == loop.counts
    listed, kept, hits = ListedCache(table(), capacity), OrderedDict(), 0
    for ids in batches:
        rows = listed.fetch(torch.tensor(ids, dtype=torch.int64))
        assert torch.equal(rows, table()[torch.tensor(ids, dtype=torch.int64)])
        for i in ids:
            hits += i in kept
            kept[i] = None
            kept.move_to_end(i)
            if len(kept) > capacity:
                kept.popitem(last=False)
    assert listed.hits == hits


def test_each_miss_is_asked_for_once_and_a_source_that_fails_changes_nothing() -> None:
    source = Elsewhere(table())
    cache = FeatureCache(source, 4, admission=1.0)
    for ids in ([5, 6, 5, 5], [6, 7, 5]):
        cache.fetch(torch.tensor(ids))
    assert source.asked == [[5, 6], [7]]
    assert (cache.counts.unique, cache.counts.unique_hits) == (5, 2)
    assert cache.meter.counters["cache_bytes_missed"] == 3 * 5 * 4
    broken = Elsewhere(table())
    broken.gather = None
    cache = FeatureCache(broken, 4, admission=1.0)
    with pytest.raises(TypeError):
        cache.fetch(torch.tensor([5, 6]))
    assert cache.requests == cache.contents().numel() == 0
    cache.rows = FeatureTable(table())
    assert torch.equal(cache.fetch(torch.tensor([6, 5])), table()[[6, 5]])
    assert cache.contents().tolist() == [6, 5]


def test_admission_bounds_what_one_batch_replaces() -> None:
    cache = FeatureCache(FeatureTable(table()), 10, admission=0.2)
    for first in range(0, 30, 5):
        before = set(cache.contents().tolist())
        cache.fetch(torch.arange(first, first + 5))
        assert len(set(cache.contents().tolist()) - before) == 2
    assert FeatureCache(FeatureTable(table()), 3, admission=0.01)._slots.capacity == 3


@pytest.mark.parametrize("policy", ["lru", "lfu", "fifo"])
def test_a_saved_cache_goes_on_as_if_nothing_had_been(tmp_path, policy: str) -> None:
    batches = [torch.randint(0, 40, (12,)) for _ in range(12)]
    cache = FeatureCache(FeatureTable(table()), 9, policy=policy)
    for ids in batches[:6]:
        cache.fetch(ids)
    cache.save(tmp_path / "kept.npz")
    other = FeatureCache.load(
        tmp_path / "kept.npz", FeatureTable(table()), 9, policy=policy, index="hash"
    )
    for ids in batches[6:]:
        cache.fetch(ids)
        other.fetch(ids)
    assert torch.equal(cache.contents(), other.contents())
    assert [p.name for p in tmp_path.iterdir()] == ["kept.npz"]


def test_bad_input_is_named(tmp_path) -> None:
    cut = tmp_path / "cut.npz"
    FeatureCache(FeatureTable(table()), 3).save(cut)
    cut.write_bytes(cut.read_bytes()[:40])
    for path in (tmp_path / "none.npz", cut):
        with pytest.raises(DataError):
            read_state(path)
    wide = FeatureCache(FeatureTable(table(40, 6)), 9, admission=1.0)
    wide.fetch(torch.arange(9))
    cache, visits = FeatureCache(FeatureTable(table()), 9), Visits(4)
    for name, call in (
        ("rows", lambda: cache.restore(wide.snapshot())),
        ("slots", lambda: FeatureCache(FeatureTable(table(40, 6)), 8).restore(wide.snapshot())),
        ("places", lambda: cache.fill(torch.tensor([1, 2, 1]))),
        ("x < 40", lambda: cache.fill(torch.tensor([40]))),
        ("x < 4", lambda: visits.add(torch.tensor([4]))), ("capacity", lambda: visits.top(-1)),
        ("admission", lambda: FeatureCache(FeatureTable(table()), 3, admission=0.0)),
    ):  # fmt: skip
        with pytest.raises(InvalidInputError, match=name):
            call()
    with pytest.raises(UnknownKeyError, match="mru"):
        FeatureCache(FeatureTable(table()), 3, policy="mru")


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.lists(batches_of_ids, min_size=2, max_size=2), min_size=3, max_size=5),
    st.booleans(), st.booleans(), st.integers(1, 2),
)  # fmt: skip
def test_schedules_hit_as_in_plain_python(rounds, reuse, restoration, every) -> None:
    epochs = [
        [
            [Access(*[torch.tensor(ids, dtype=torch.int64)] * 2) for ids in batches]
            for batches in one
        ]
        for one in rounds
    ]
    accesses = SimpleNamespace(count=lambda kind: 40, capacity=lambda kind, times: 7)
    one = cache_play.Played(accesses, [], epochs, [list(chain(*one)) for one in epochs])
    how = {"reuse": reuse, "restoration": restoration}
    counts = cache_play.dynamic(one, cache_play.narrow(one, "node", 1.0), "node", **how)
    loop = looped_dynamic(one, "node", 7, admission=LAMBDA, **how)
    assert {name: getattr(counts, name) for name in loop} == loop
    kept = cache_play.narrow(one, "node", 1.0, "static")
    counts, _ = cache_play.static(one, kept, "node", every=every)
    loop = looped_static(one, "node", 7, every)
    assert {name: getattr(counts, name) for name in loop} == loop


def test_static_choices() -> None:
    batches = [torch.tensor([3, 3, 3, 1]), torch.tensor([1, 2]), torch.tensor([2, 9])]
    assert presampled(10, batches, 2).tolist() == [1, 2]  # each twice; 3 counts once a batch
    assert presampled(10, batches, 99).tolist() == [1, 2, 3, 9]
    assert presampled(10, [], 3).tolist() == []
    assert by_degree(torch.tensor([0, 5, 7, 5]), 2).tolist() == [2, 1]
