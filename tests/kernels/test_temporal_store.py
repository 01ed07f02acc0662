"""The block store against lists that are sorted anew: inserts, policies, deletion, files."""

from __future__ import annotations

import json
import os
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_checks import refuses
from torch import Tensor

from dgbench.kernels_cuda.temporal_store import ADAPTIVE, BlockPolicy, TemporalStore
from dgbench.runtime.errors import (
    DataError,
    InvalidInputError,
    StoreError,
    UnknownKeyError,
    UnsupportedError,
)
from dgbench.systems.base.plain_sampler import PlainGraph

POLICIES = ("adaptive", "adaptive_literal", "fixed", "strawman", "grown")
Edge = tuple[int, int, int]


def lists(edges: list[Edge], vertices: int, undirected: bool) -> list[list[tuple[int, int, float]]]:
    """Records of each vertex: all of them, sorted by time, equal times as they came."""
    found: list[list[tuple[int, int, float]]] = [[] for _ in range(vertices)]
    for eid, (u, v, t) in enumerate(edges):
        for here, there in ((u, v), (v, u))[: 1 + undirected]:
            found[here].append((there, eid, float(t)))
    return [sorted(one, key=lambda record: record[2]) for one in found]


def records(store: TemporalStore, vertex: int) -> list[tuple[int, int, float]]:
    ids, eids, times = store.neighbours(vertex)
    return list(zip(ids.tolist(), eids.tolist(), times.tolist(), strict=True))


def contents(store: TemporalStore) -> list[list[tuple[int, int, float]]]:
    return [records(store, vertex) for vertex in range(store.num_vertices)]


def columns(edges: list[Edge]) -> tuple[Tensor, Tensor, Tensor]:
    table = torch.tensor(edges, dtype=torch.int64).reshape(-1, 3)
    return table[:, 0].contiguous(), table[:, 1].contiguous(), table[:, 2].double()


def filled(edges: list[Edge], vertices: int, cuts: list[int], **options: object) -> TemporalStore:
    store = TemporalStore(vertices, **options)  # type: ignore[arg-type]
    borders = [0, *sorted(min(cut, len(edges)) for cut in cuts), len(edges)]
    for first, last in pairwise(borders):
        store.insert(*columns(edges[first:last]))
    return store


edge_lists = st.lists(st.tuples(*[st.integers(0, 6)] * 2, st.integers(0, 9)), max_size=60)


@settings(max_examples=50)
@given(
    edges=edge_lists, cuts=st.lists(st.integers(0, 60), max_size=6),
    name=st.sampled_from(POLICIES), size=st.sampled_from([1, 2, 3, 5, 64]),
    layout=st.sampled_from(["packed", "compact", "wide"]), undirected=st.booleans(),
    late=st.sampled_from(["refuse", "sort"]),
)  # fmt: skip
def test_records_are_those_of_sorted_lists(edges, cuts, name, size, layout, undirected, late):
    if late == "refuse":
        edges = sorted(edges, key=lambda edge: edge[2])
    policy = BlockPolicy(name, size)
    store = filled(edges, 7, cuts, policy=policy, layout=layout, undirected=undirected, late=late)
    expected = lists(edges, 7, undirected)
    assert contents(store) == expected
    assert store.degrees().tolist() == [len(one) for one in expected]
    memory = store.memory()
    assert memory.records == store.num_records == len(edges) * (1 + undirected)
    assert memory.blocks == int(store.list_lengths().sum())
    assert memory.slots >= memory.records
    assert store.num_events == len(edges)
    whole = TemporalStore.static(7, *columns(edges), layout=layout, undirected=undirected)
    assert contents(whole) == expected
    assert whole.list_lengths().tolist() == [min(1, len(one)) for one in expected]
    with pytest.raises(UnsupportedError, match="static"):
        whole.insert(*columns([(0, 1, 99)]))


def blocks_of(policy: BlockPolicy, batches: list[int]) -> tuple[int, int]:
    """Blocks and slots of one vertex that gets so many records per batch, by the rule in words."""
    degree = blocks = slots = free = 0
    for new in batches:
        degree += new
        if policy.name == "grown" and new > free and degree <= policy.size and blocks <= 1:
            blocks, capacity = 1, min(policy.size, max(4, 1 << (degree - 1).bit_length()))
            slots, free = slots + capacity, capacity - degree  # the old run stays, for others
            continue
        rest, free = max(0, new - free), max(0, free - new)
        while rest > 0:
            bound = min(degree, policy.size)
            capacity = {
                "adaptive": max(rest, bound), "adaptive_literal": bound, "fixed": policy.size,
                "strawman": rest, "grown": max(rest, policy.size),
            }[policy.name]  # fmt: skip
            blocks, slots = blocks + 1, slots + capacity
            free, rest = max(0, capacity - rest), max(0, rest - capacity)
    return blocks, slots


@settings(max_examples=40)
@given(
    name=st.sampled_from(POLICIES), size=st.integers(1, 40),
    batches=st.lists(st.integers(0, 30), max_size=15),
)  # fmt: skip
def test_blocks_follow_the_rule_of_the_policy(name, size, batches):
    policy = BlockPolicy(name, size)
    store = TemporalStore(2, policy=policy)
    for now, new in enumerate(batches):
        src = torch.zeros(new, dtype=torch.int64)
        store.insert(src, src + 1, torch.full((new,), float(now), dtype=torch.float64))
    memory = store.memory()
    assert (memory.blocks, memory.slots) == blocks_of(policy, batches)
    assert store.list_lengths().tolist() == [memory.blocks, 0]


def test_empty_stores_and_batches():
    nothing, store = TemporalStore(0), TemporalStore(1)
    nothing.insert(*columns([]))
    assert nothing.degrees().numel() == store.insert(*columns([])).records == 0
    assert (records(store, 0), store.last_time) == ([], float("-inf"))
    store.insert(*columns([(0, 0, 5)]))
    store.add_vertices(3)
    store.insert(*columns([(3, 0, 6), (0, 3, 7)]))
    assert contents(store) == [[(0, 0, 5.0), (3, 2, 7.0)], [], [], [(0, 1, 6.0)]]
    assert store.last_time == 7.0


def test_largest_ids_and_times_that_a_layout_holds():
    one = torch.zeros(1, dtype=torch.int64)
    for layout, eid in {"packed": 2**32 - 2, "compact": 2**32 - 2, "wide": 2**63 - 1}.items():
        store = TemporalStore(2, layout=layout)
        store.insert(one, one + 1, one.double(), torch.tensor([eid]))
        assert records(store, 0) == [(1, eid, 0.0)]
        if layout != "wide":
            with pytest.raises(InvalidInputError, match="eid"):
                store.insert(one, one, one.double(), torch.tensor([eid + 1]))
    store = TemporalStore(1, layout="compact", origin=1_500_000_000)
    for bad in (1_500_000_000.5, 1_499_999_999.0, 1_500_000_000.0 + 2**32):
        with pytest.raises(InvalidInputError):
            store.insert(one, one, torch.tensor([bad], dtype=torch.float64))
    last = 1_500_000_000.0 + 2**32 - 1
    store.insert(one, one, torch.tensor([last], dtype=torch.float64))
    assert store.neighbours(0)[2].tolist() == [last]


def test_a_late_edge_is_refused_and_nothing_changes():
    edges = [(0, 1, 5), (1, 2, 7)]
    store = filled(edges, 4, [])
    with pytest.raises(InvalidInputError, match="t") as caught:
        store.insert(*columns([(2, 1, 9), (0, 3, 4)]))
    assert "late='sort'" in caught.value.hint
    assert contents(store) == lists(edges, 4, False)
    store.insert(*columns([(2, 1, 6)]))  # older than the newest of the store, not of its vertex
    assert records(store, 2) == [(1, 2, 6.0)]
    with pytest.raises(InvalidInputError, match="t"):
        store.insert(*columns([(3, 1, 10), (3, 1, 9)]))
    assert records(store, 3) == []


def test_what_does_not_fit_into_memory_is_refused():
    with pytest.raises(UnsupportedError):
        TemporalStore(2**32 - 2)
    with pytest.raises(InvalidInputError):
        TemporalStore(2**32 - 1)
    store = TemporalStore(3)
    with pytest.raises(UnsupportedError):
        store.add_vertices(2**32 - 6)
    assert store.num_vertices == 3


def test_bad_edges_and_options_are_refused_and_nothing_changes():
    store = filled([(0, 1, 0)], 3, [])
    src, dst, t = columns([(0, 1, 0), (1, 2, 1)])
    taken = lists([(0, 1, 0), (0, 1, 0), (1, 2, 1)], 3, False)
    refuses(
        store.insert, {"src": src, "dst": dst, "t": t, "eid": None},
        ("src", src - 1), ("dst", dst + 1), ("src", src.int()), ("dst", dst[:1]), ("t", t / 0),
        ("t", t + torch.inf), ("t", t.float()), ("t", t.long() + 2**60), ("eid", src[:1]),
    )  # fmt: skip
    assert (store.num_events, contents(store)) == (3, taken)
    store.insert(src.repeat_interleave(2)[::2], dst, t.long() + 1_500_000_000)  # strided, integers
    assert records(store, 1)[-1] == (2, 4, 1_500_000_001.0)
    assert store.delete_edges(src[:0]) == 0
    assert store.delete_edges(torch.tensor([1])) == 1
    store.delete_vertices(torch.tensor([2, 2]))
    before = contents(store)
    for call in (
        lambda: store.delete_edges(torch.tensor([0, 1])), lambda: store.insert(src, dst, t + 1e10),
        lambda: store.delete_vertices(torch.tensor([0, 3])), lambda: store.neighbours(3),
        lambda: store.add_vertices(-1), lambda: BlockPolicy("fixed", 0),
        lambda: BlockPolicy("adaptiv"), lambda: TemporalStore(1, layout="tight"),
        lambda: TemporalStore(1, late="drop"), lambda: TemporalStore(-1),
    ):  # fmt: skip
        with pytest.raises((InvalidInputError, UnknownKeyError)):
            call()
    assert contents(store) == before


# --- Deletion and files --------------------------------------------------------------------------

edges_of_five = st.lists(st.tuples(*[st.integers(0, 4)] * 2, st.integers(0, 30)), max_size=15)
some_vertices = st.lists(st.integers(0, 4), max_size=2)
STEPS = {
    "insert": edges_of_five, "delete edges": st.lists(st.integers(0, 60), max_size=8),
    "delete vertices": some_vertices, "revive vertices": some_vertices,
    "offload": st.tuples(st.integers(0, 31), edges_of_five), "save": st.none(),
}  # fmt: skip
step = st.one_of(*(st.tuples(st.just(name), value) for name, value in STEPS.items()))
histories = st.lists(step, min_size=2, max_size=10)


@settings(max_examples=40, deadline=None)
@given(
    history=histories, name=st.sampled_from(["adaptive", "grown", "fixed"]),
    size=st.integers(1, 12), layout=st.sampled_from(["packed", "compact", "wide"]),
    undirected=st.booleans(),
)  # fmt: skip
def test_any_history_leaves_what_sorted_arrays_hold(
    tmp_path_factory, history, name, size, layout, undirected
):
    """Deletion, whole stores in files, and blocks that leave, miss insertions and come back."""
    folder = tmp_path_factory.mktemp("store")
    options = {"policy": BlockPolicy(name, size), "layout": layout, "undirected": undirected}
    store, plain = TemporalStore(5, late="sort", **options), PlainGraph(5, undirected=undirected)
    alive: set[int] = set()
    gone: set[int] = set()

    def insert(edges: list[Edge]) -> None:
        batch = [edge for edge in edges if not {edge[0], edge[1]} & gone]
        alive.update(range(store.num_events, store.num_events + len(batch)))
        store.insert(*columns(batch)), plain.insert(*columns(batch))

    for step, value in [("insert", [(0, 1, 4), (1, 1, 4), (2, 0, 9)]), *history]:
        if step == "insert":
            insert(value)
        elif step == "delete edges" and not gone:
            ids = torch.tensor(sorted(alive & set(value)), dtype=torch.int64)
            store.delete_edges(ids), plain.delete_edges(ids)
            alive -= set(ids.tolist())
        elif step.endswith("vertices"):
            ids, method = torch.tensor(value, dtype=torch.int64), step.replace(" ", "_")
            getattr(store, method)(ids), getattr(plain, method)(ids)
            gone = gone | set(value) if step.startswith("delete") else gone - set(value)
        elif step == "offload" and not gone:
            records = store.num_records
            left = store.offload(float(value[0]), folder / "old")
            assert store.num_records <= records <= store.num_records + left.records
            insert(value[1])
            store.reload(folder / "old")
        elif step == "save":
            store.save(folder / "all")
            store = TemporalStore.load(folder / "all")
            assert {one: getattr(store, one) for one in options} == options
        expected = [zip(*(x.tolist() for x in plain.neighbours(v)), strict=True) for v in range(5)]
        expected = [list(one) for one in expected]
        assert contents(store) == expected
        assert store.degrees().tolist() == [len(one) for one in expected]


EDGES = [(0, 1, 1), (1, 2, 2), (0, 2, 3), (2, 2, 3), (0, 1, 4), (3, 0, 5), (0, 3, 9), (1, 0, 9)]


def small(**options):
    return filled(EDGES, 5, [2, 4, 6], **{"policy": BlockPolicy("fixed", 2), **options})


def test_files_that_do_not_fit_are_refused(tmp_path):
    store = small()
    before = contents(store)
    store.save(tmp_path / "store")
    (tmp_path / "text").write_text("no blocks")
    np.savez(tmp_path / "other.npz", header=np.frombuffer(b"{}", np.uint8))
    for call in (
        lambda: small(layout="wide").reload(tmp_path / "store"),
        lambda: store.reload(tmp_path / "absent"),
        lambda: TemporalStore.load(tmp_path / "text"),
        lambda: TemporalStore.load(tmp_path / "other.npz"),
    ):
        with pytest.raises(DataError):
            call()
    with pytest.raises(StoreError):
        store.offload(5.0, tmp_path / "no" / "folder")
    store.offload(4.0, tmp_path / "old")
    store.reload(tmp_path / "old")
    with pytest.raises(InvalidInputError):  # a second time
        store.reload(tmp_path / "old")
    assert contents(store) == before


DAMAGE = {
    "vertices": lambda a: a[::-1].copy(), "counts": lambda a: a + 1, "sizes": lambda a: a * 2,
    "capacity": lambda a: a * 0, "records": lambda a: np.full_like(a, 255), "num_vertices": 2,
    "policy": {"name": "x"}, "deleted": [9],
}  # fmt: skip


@pytest.mark.parametrize("part", DAMAGE)
def test_damaged_files_are_refused(tmp_path, part):
    small().save(tmp_path / "store")
    with np.load(tmp_path / "store") as file:
        arrays = dict(file)
    if part in arrays:
        arrays[part] = DAMAGE[part](arrays[part])
    else:
        header = json.loads(arrays["header"].tobytes()) | {part: DAMAGE[part]}
        arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    with (tmp_path / "bad").open("wb") as file:
        np.savez(file, **arrays)
    with pytest.raises(DataError):
        TemporalStore.load(tmp_path / "bad")
    if part not in ("num_vertices", "policy", "deleted"):
        empty = TemporalStore(5)
        with pytest.raises(DataError):
            empty.reload(tmp_path / "bad")
        assert empty.num_records == 0


def test_who_follows_a_store_sees_it_and_changes_nothing(tmp_path) -> None:
    draw = torch.Generator().manual_seed(3)
    src, dst = (torch.randint(40, (300,), generator=draw) for _ in range(2))
    t = torch.randint(300, (300,), generator=draw).sort().values.double()
    files = [os.memfd_create("test") for _ in range(4)]
    how = {"policy": ADAPTIVE, "undirected": True, "files": files}
    writer, reader = TemporalStore(40, **how), TemporalStore(40, **how, writes=False)
    one = torch.tensor([5])
    for change in (lambda: writer.insert(src, dst, t), lambda: writer.delete_edges(one)):
        change()
        reader.follow(writer.counts())
        for vertex in range(40):
            for own, wanted in zip(*(s.neighbours(vertex) for s in (reader, writer)), strict=True):
                assert torch.equal(own, wanted)
    for change in (
        lambda: reader.insert(src, dst, t + 1000), lambda: reader.add_vertices(1),
        lambda: reader.delete_edges(one), lambda: reader.delete_vertices(one),
        lambda: writer.follow(writer.counts()), lambda: TemporalStore(40, files=files[:3]),
        lambda: TemporalStore(40, writes=False),
    ):  # fmt: skip
        with pytest.raises(InvalidInputError):
            change()
    with pytest.raises(UnsupportedError):
        writer.offload(1e9, tmp_path / "old")
    assert not (tmp_path / "old").exists()
    for file in files:
        os.close(file)
