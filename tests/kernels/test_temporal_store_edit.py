"""Deletion, blocks in files and back, whole stores in files: against plain lists."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dgbench.kernels_cuda.temporal_store import BlockPolicy, TemporalStore
from dgbench.runtime.errors import DataError, InvalidInputError, StoreError

EDGES = [(0, 1, 1), (1, 2, 2), (0, 2, 3), (2, 2, 3), (0, 1, 4), (3, 0, 5), (0, 3, 9), (1, 0, 9)]
"""
    0 --1,4--> 1 --2--> 2 (3: self)     0 --3--> 2     0 <--5,9--> 3     1 --9--> 0
"""


def columns(edges):
    table = torch.tensor(edges, dtype=torch.int64).reshape(-1, 3)
    return table[:, 0].contiguous(), table[:, 1].contiguous(), table[:, 2].double()


def small(**options):
    store = TemporalStore(5, **{"policy": BlockPolicy("fixed", 2), **options})
    for edge in EDGES:
        store.insert(*columns([edge]))
    return store


def contents(store):
    """Everything that can be seen of a store."""
    found = []
    for v in range(store.num_vertices):
        ids, eids, times = store.neighbours(v)
        found.append(list(zip(ids.tolist(), eids.tolist(), times.tolist(), strict=True)))
    return found


def eids(store, vertex):
    return store.neighbours(vertex)[1].tolist()


@pytest.mark.parametrize("layout", ["packed", "compact", "wide"])
def test_deleted_edges_are_hidden_and_counted(layout):
    store = small(layout=layout, undirected=True)
    assert store.delete_edges(torch.tensor([0, 3])) == 4
    assert eids(store, 0) == [2, 4, 5, 6, 7]
    assert eids(store, 2) == [1, 2]
    assert store.degrees().tolist() == [5, 3, 2, 2, 0]
    assert store.num_records == 12
    assert store.memory().records == 16
    with pytest.raises(InvalidInputError, match="eid 3 "):
        store.delete_edges(torch.tensor([2, 3]))
    assert 2 in eids(store, 0)  # nothing of it happened
    assert store.delete_edges(torch.tensor([], dtype=torch.int64)) == 0
    store.insert(*columns([(0, 4, 10)]))
    assert eids(store, 0) == [2, 4, 5, 6, 7, 8]


def test_deleted_vertices_hide_their_records_everywhere_until_they_come_back():
    store = small(undirected=True)
    before = contents(store)
    store.delete_vertices(torch.tensor([2, 2]))
    assert contents(store) == [
        [r for r in one if r[0] != 2] if v != 2 else [] for v, one in enumerate(before)
    ]
    assert store.degrees().tolist() == [len(one) for one in contents(store)]
    with pytest.raises(InvalidInputError, match=r"dst\[0\] is vertex 2"):
        store.insert(*columns([(0, 2, 10)]))
    with pytest.raises(InvalidInputError, match=r"ids\[1\] is 5"):
        store.delete_vertices(torch.tensor([0, 5]))
    store.revive_vertices(torch.tensor([2]))
    assert contents(store) == before
    store.insert(*columns([(0, 2, 10)]))


def test_offload_takes_whole_old_blocks_only(tmp_path):
    store = small()
    # vertex 0 has blocks with times (1, 3), (4, 9); vertex 1 (2, 9); vertex 2 (3, -); 3 (5, -)
    gone = store.offload(4.0, tmp_path / "old")
    assert (gone.vertices, gone.blocks, gone.records) == (2, 2, 3)
    assert gone.bytes == (tmp_path / "old").stat().st_size
    assert [eids(store, v) for v in range(5)] == [[4, 6], [1, 7], [], [5], []]
    assert store.list_lengths().tolist() == [1, 1, 0, 1, 0]
    assert (store.num_records, store.num_events) == (5, 8)
    store.insert(*columns([(0, 4, 11), (2, 4, 12)]))
    store.reload(tmp_path / "old")
    assert [eids(store, v) for v in range(5)] == [[0, 2, 4, 6, 8], [1, 7], [3, 9], [5], []]


def test_offload_of_everything_and_of_nothing(tmp_path):
    store = small()
    before = contents(store)
    assert store.offload(-1.0, tmp_path / "none").records == 0
    assert contents(store) == before
    assert store.offload(float("inf"), tmp_path / "all").records == 8
    assert store.memory().slots == store.num_records == 0
    store.reload(tmp_path / "none")
    store.reload(tmp_path / "all")
    assert contents(store) == before
    with pytest.raises(InvalidInputError, match="reach to"):
        store.reload(tmp_path / "all")
    assert contents(store) == before


@settings(max_examples=60)
@given(
    edges=st.lists(st.tuples(*[st.integers(0, 4)] * 2, st.integers(0, 20)), max_size=50),
    more=st.lists(st.tuples(*[st.integers(0, 4)] * 2, st.integers(0, 40)), max_size=20),
    before=st.integers(0, 21),
    size=st.integers(1, 12),
    name=st.sampled_from(["adaptive", "grown"]),
    layout=st.sampled_from(["packed", "compact", "wide"]),
    kill=st.lists(st.integers(0, 49), max_size=8),
)
def test_offload_insert_reload_is_as_if_nothing_had_left(
    tmp_path_factory, edges, more, before, size, name, layout, kill
):
    path = tmp_path_factory.mktemp("blocks") / "old"
    dead = torch.tensor([e for e in kill if e < len(edges)], dtype=torch.int64)
    stores = []
    for leaves in (True, False):
        store = TemporalStore(
            5, policy=BlockPolicy(name, size), layout=layout, late="sort", undirected=True
        )
        for first in range(0, len(edges), 7):
            store.insert(*columns(edges[first : first + 7]))
        store.delete_edges(dead)
        if leaves:
            records = store.num_records
            gone = store.offload(before, path)
            assert store.num_records <= records <= store.num_records + gone.records
        for first in range(0, len(more), 4):
            store.insert(*columns(more[first : first + 4]))
        if leaves:
            store.reload(path)
        stores.append(store)
    assert contents(stores[0]) == [sorted(one, key=lambda r: r[2]) for one in contents(stores[1])]
    assert stores[0].num_records == stores[1].num_records
    assert stores[0].degrees().tolist() == stores[1].degrees().tolist()


def test_a_saved_store_comes_back_and_goes_on(tmp_path):
    store = small(layout="compact", undirected=True, late="sort")
    store.delete_edges(torch.tensor([1]))
    store.delete_vertices(torch.tensor([3]))
    store.save(tmp_path / "store")
    loaded = TemporalStore.load(tmp_path / "store")
    for one in (store, loaded):
        one.insert(*columns([(4, 0, 9), (0, 1, 8)]))
    assert contents(loaded) == contents(store)
    assert (loaded.policy, loaded.layout, loaded.undirected, loaded.late) == (
        store.policy, "compact", True, "sort",
    )  # fmt: skip
    assert (loaded.num_events, loaded.last_time) == (10, 9.0)
    assert loaded.memory().slots == store.memory().slots
    assert loaded.list_lengths().tolist() == store.list_lengths().tolist()
    loaded.revive_vertices(torch.tensor([3]))
    assert eids(loaded, 3) == [5, 6]
    TemporalStore(0).save(tmp_path / "empty")
    assert TemporalStore.load(tmp_path / "empty").num_vertices == 0


@pytest.mark.parametrize("late", ["refuse", "sort"])
def test_grown_blocks_go_on_growing_after_they_came_from_a_file(tmp_path, late):
    """Deleted records, a saved store and one that was emptied in part among them."""
    options = {"policy": BlockPolicy("grown", 16), "undirected": True, "late": late}
    store = small(**options)
    store.delete_edges(torch.tensor([0, 4]))
    store.save(tmp_path / "store")
    loaded = TemporalStore.load(tmp_path / "store")
    store.offload(3.0, tmp_path / "old")
    store.reload(tmp_path / "old")
    for one in (store, loaded):
        for now in range(10, 40):
            one.insert(*columns([(0, now % 3, now), (2, 4, now)]))
    assert contents(loaded) == contents(store)
    assert store.list_lengths().max() > 1
    assert eids(loaded, 4) == list(range(9, 68, 2))


def test_every_change_of_the_pools_is_a_generation(tmp_path):
    store = small()
    seen = [store.handle.generation]
    store.insert(*columns([(0, 4, 11)]))
    store.add_vertices(1)
    assert store.handle.generation == seen[0]
    for change in (
        lambda: store.offload(4.0, tmp_path / "old"),
        lambda: store.offload(-1.0, tmp_path / "none"),
        lambda: store.reload(tmp_path / "old"),
    ):
        change()
        assert store.handle.generation not in seen
        seen.append(store.handle.generation)


def test_files_that_do_not_fit_are_refused(tmp_path):
    store = small()
    before = contents(store)
    store.save(tmp_path / "store")
    with pytest.raises(DataError, match="layout packed, not wide"):
        small(layout="wide").reload(tmp_path / "store")
    with pytest.raises(DataError, match="cannot read"):
        store.reload(tmp_path / "absent")
    (tmp_path / "text").write_text("no blocks")
    with pytest.raises(DataError):
        TemporalStore.load(tmp_path / "text")
    np.savez(tmp_path / "other.npz", header=np.frombuffer(b"{}", np.uint8))
    with pytest.raises(DataError):
        TemporalStore.load(tmp_path / "other.npz")
    with pytest.raises(StoreError, match="cannot write"):
        store.offload(5.0, tmp_path / "no" / "folder")
    assert contents(store) == before


DAMAGE = {
    "vertices": lambda a: a[::-1].copy(),
    "counts": lambda a: a + 1,
    "sizes": lambda a: a * 2,
    "capacity": lambda a: a * 0,
    "records": lambda a: np.full_like(a, 255),
}


@pytest.mark.parametrize("array", DAMAGE)
def test_damaged_files_are_refused(tmp_path, array):
    store = small()
    store.save(tmp_path / "store")
    with np.load(tmp_path / "store") as file:
        arrays = dict(file)
    arrays[array] = DAMAGE[array](arrays[array])
    with (tmp_path / "bad").open("wb") as file:
        np.savez(file, **arrays)
    with pytest.raises(DataError, match="damaged"):
        TemporalStore.load(tmp_path / "bad")
    empty = TemporalStore(5)
    with pytest.raises(DataError, match="damaged"):
        empty.reload(tmp_path / "bad")
    assert empty.num_records == 0
    for name, other in (("num_vertices", 2), ("policy", {"name": "x"}), ("deleted", [9])):
        header = json.loads(arrays["header"].tobytes()) | {name: other}
        text = np.frombuffer(json.dumps(header).encode(), np.uint8)
        with np.load(tmp_path / "store") as file, (tmp_path / "bad").open("wb") as out:
            np.savez(out, **{**dict(file), "header": text})
        with pytest.raises(DataError):
            TemporalStore.load(tmp_path / "bad")
