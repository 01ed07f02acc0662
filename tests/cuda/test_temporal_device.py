"""Temporal stores on a device: what an update sends, and samples that equal the CPU's."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch

from dgbench.kernels_cuda.temporal_sample import sample_hops, sample_neighbours
from dgbench.kernels_cuda.temporal_store import BlockPolicy, TemporalStore
from dgbench.kernels_cuda.temporal_store import device as device_store
from dgbench.kernels_cuda.temporal_store.device import PLACEMENTS, DeviceStore
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError, UnsupportedError

FIELDS = ("nodes", "times", "positions", "offsets", "neighbours", "eids", "edge_times")
VERTICES = 40

Open = Callable[..., DeviceStore]


@pytest.fixture
def open_device(native, monkeypatch) -> Open:
    """Opens a store on the device that is emulated or there."""
    if native.device == "cpu":
        monkeypatch.setattr(device_store, "extension", lambda device: native.module)
    return lambda store, *how, **named: DeviceStore(store, *how, device=native.device, **named)


def events(seed: int, count: int, begin: float = 0.0, vertices: int = VERTICES) -> list[Any]:
    """src, dst, t: a hub, self edges, doubled edges and ties in whole units of time."""
    random = torch.Generator().manual_seed(seed)
    src = torch.randint(0, vertices - 5, (count,), generator=random)
    src[::3] = 1
    dst = torch.randint(0, vertices - 5, (count,), generator=random)
    dst[::7] = src[::7]
    t = begin + torch.randint(0, max(1, count // 2), (count,), generator=random).double()
    return [src, dst, t.sort().values]


def a_store(count: int = 400, **how: Any) -> TemporalStore:
    store = TemporalStore(VERTICES, **{"policy": BlockPolicy("adaptive", 8), **how})
    store.insert(*events(1, count // 2))
    store.insert(*events(2, count - count // 2, store.last_time))
    return store


def roots(count: int = 60, latest: float = 250.0) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(9)
    nodes = torch.randint(0, VERTICES, (count,), generator=random)
    times = (latest * torch.rand(count, generator=random, dtype=torch.float64)).round()
    times[0], times[1] = -1.0, torch.inf
    return nodes, times


def assert_equal(there: DeviceStore, store: TemporalStore, fanouts=(3, 2), **how: Any) -> int:
    """Both sample the same; returns how many neighbours."""
    nodes, times = roots()
    right = sample_hops(store, nodes, times, list(fanouts), **how)
    found = there.sample_hops(nodes, times, list(fanouts), **how)
    total = 0
    for expected, got in zip(right, found, strict=True):
        for one, other in zip(expected, got, strict=True):
            assert one.fanout == other.fanout
            for field in FIELDS:
                home = getattr(other, field).cpu()
                assert torch.equal(getattr(one, field), home), field
                assert home.dtype == getattr(one, field).dtype
            total += one.neighbours.numel()
    return total


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("search", ["binary", "linear"])
@pytest.mark.parametrize("policy", ["recent", "uniform"])
def test_samples_equal_the_cpus(open_device, placement, search, policy):
    store = a_store(undirected=True)
    there = open_device(store, placement)
    for draw in (0, 5):
        how = {"policy": policy, "search": search, "seed": 7 << 33, "draw": draw}
        assert assert_equal(there, store, **how) > 100


@pytest.mark.parametrize("placement", ["cuda", "guided"])
@pytest.mark.parametrize("layout", ["packed", "compact", "wide"])
@pytest.mark.parametrize(
    "how",
    [
        {"window": 20.0, "snapshots": 3},
        {"window": 20.0, "snapshots": 3, "prop_time": True, "policy": "uniform"},
        {"window": 20.0, "closed": True},
        {"policy": "uniform", "replace": True},
        {"policy": "uniform", "fanouts": (70,)},
        {"window": 0.0, "closed": True, "fanouts": (2, 2, 2)},
    ],
    ids=lambda how: "-".join(how),
)
def test_layouts_and_windows_equal_the_cpus(open_device, placement, layout, how):
    store = a_store(layout=layout, policy=BlockPolicy("adaptive", 100))
    assert_equal(open_device(store, placement), store, **how)


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("search", ["binary", "linear"])
@pytest.mark.parametrize("policy", ["recent", "uniform"])
def test_one_hop_of_many_equals_the_cpus(open_device, native, placement, search, policy):
    """As ranks ask for it: by number of hop and snapshot, at any positions, also for nothing."""
    store = a_store(undirected=True)
    there = open_device(store, placement)
    nodes, times = roots()
    positions = torch.randperm(nodes.numel(), generator=torch.Generator().manual_seed(2)) * 5
    for count, fanout, hop, snapshot in ((60, 3, 0, 0), (60, 70, 2, 1), (1, 1, 1, 0), (0, 4, 0, 2)):
        asked = nodes[:count], times[:count]
        how = {
            "fanout": fanout, "hop": hop, "snapshot": snapshot, "policy": policy, "window": 90.0,
            "search": search, "seed": 11, "draw": 3,
        }  # fmt: skip
        right = sample_neighbours(store, *asked, positions=positions[:count], **how)
        for put in (native.put, lambda x: x):
            found = there.sample_hop(
                *(put(x) for x in asked), positions=put(positions[:count]), **how
            )
            for field in FIELDS:
                home = getattr(found, field)
                assert home.device.type == native.device
                assert torch.equal(getattr(right, field), home.cpu()), field
    assert torch.equal(
        there.sample_hop(nodes, times, fanout=2).eids.cpu(),
        sample_neighbours(store, nodes, times, fanout=2).eids,
    )
    with pytest.raises(InvalidInputError, match="nodes"):
        there.sample_hop(torch.tensor([VERTICES]), times[:1], fanout=2)
    with pytest.raises(InvalidInputError, match="fanout is 0"):
        there.sample_hop(nodes, times, fanout=0)


@pytest.mark.parametrize("placement", ["hybrid", "guided", "uva"])
def test_a_device_reads_what_another_process_writes(open_device, placement):
    """The records of a store in shared memory are page-locked where they are, and never sent."""
    files = [os.memfd_create("test") for _ in range(4)]
    how = {"policy": BlockPolicy("adaptive", 8), "undirected": True, "files": files}
    writer, reader = TemporalStore(VERTICES, **how), TemporalStore(VERTICES, **how, writes=False)
    plain, last = TemporalStore(VERTICES, policy=how["policy"], undirected=True), 0.0
    reader.follow(writer.counts())
    there, alone = open_device(reader, placement), open_device(plain, placement)
    for seed, count in enumerate((300, 20, 900)):
        for store in (writer, plain):
            store.insert(*events(seed, count, last))
        last = writer.last_time
        reader.follow(writer.counts())
        assert there.update().bytes == alone.update().bytes
        assert there.pinned_bytes == alone.pinned_bytes > 0
        assert assert_equal(there, plain, policy="uniform") > 0
    there.close()
    for file in files:
        os.close(file)


@pytest.mark.parametrize("name", ["adaptive", "adaptive_literal", "fixed", "strawman", "grown"])
@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("late", ["refuse", "sort"])
def test_updates_bring_what_changed(open_device, name, placement, late):
    size = 64 if name == "grown" else 4
    store = TemporalStore(VERTICES, policy=BlockPolicy(name, size), undirected=True, late=late)
    there = open_device(store, placement)
    last = 0.0
    for seed, count in enumerate((300, 1, 40, 0, 900, 3)):
        store.insert(*events(seed, count, 0.0 if late == "sort" else last))
        last = max(last, store.last_time)
        sent = there.update()
        assert sent.vertices <= 2 * count or seed == 0
        for policy in ("recent", "uniform"):
            assert_equal(there, store, policy=policy, search="linear")
            assert assert_equal(there, store, policy=policy) > 0


def test_an_update_sends_little(open_device):
    store = TemporalStore(2000, undirected=True)
    store.insert(*events(1, 20_000, vertices=2000))
    # Pools of a device grow by half, so this room is there from the first growth on.
    there = open_device(store, "cuda")
    assert there.sent.whole == 4
    before = there.device_bytes
    store.insert(*events(2, 2_000, store.last_time, vertices=2000))
    grown = there.update()
    assert there.device_bytes > before
    assert grown.whole == 0  # what the pools held moved on with them
    assert grown.bytes < before
    store.insert(*events(3, 10, store.last_time, vertices=2000))
    sent = there.update()
    assert sent.whole == 0
    assert 0 < sent.vertices <= 20
    assert sent.bytes < 20 * (64 + 2 * 48 + 24 * 400 + 16 * 70)
    again = there.update()
    assert (again.bytes, again.patches, again.vertices) == (0, 0, 0)


@pytest.mark.parametrize("placement", ["cuda", "unified", "guided"])
@pytest.mark.parametrize("layout", ["packed", "compact"])
def test_changes_of_several_buffers_arrive(open_device, placement, layout):
    """More than two page-locked buffers hold, and pieces that are cut: a hub with many fences."""
    vertices = 30_000
    store = TemporalStore(
        vertices, layout=layout, policy=BlockPolicy("adaptive", 8), undirected=True
    )
    store.insert(*events(1, 3000, vertices=vertices))
    there = open_device(store, placement)
    for seed in (2, 3):
        hub, ids = torch.full((vertices,), 7), torch.arange(vertices)
        times = store.last_time + torch.arange(vertices).double()
        store.insert(hub, ids, times)
        sent = there.update()
        assert sent.whole == 0
        assert sent.vertices == vertices
        assert sent.bytes > 3 * 2**20
        nodes, at = ids.roll(seed), times.flip(0) + 1
        for how in ({"policy": "recent"}, {"policy": "uniform", "search": "linear"}):
            (found,), (right,) = (
                there.sample_hops(nodes, at, [4], **how)[0],
                sample_hops(store, nodes, at, [4], **how)[0],
            )
            for field in FIELDS:
                assert torch.equal(getattr(found, field).cpu(), getattr(right, field)), field


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_where_the_bytes_lie(open_device, placement):
    store = a_store()
    there = open_device(store, placement)
    held = store.memory().held
    graph = held["vertices"] + held["fences"] + held["blocks"] + held["records"]
    if placement == "cuda":
        assert (there.device_bytes, there.pinned_bytes) == (graph, 0)
    elif placement in ("hybrid", "guided"):
        guide = 8 * -(-store.memory().slots // 8) if placement == "guided" else 0
        assert there.device_bytes == graph - held["records"] + guide
        assert there.pinned_bytes >= held["records"]
        assert there.sent.bytes == there.device_bytes
    elif placement == "uva":
        assert (there.device_bytes, there.sent.bytes) == (0, 0)
        assert there.pinned_bytes >= graph
    else:
        assert (there.device_bytes, there.managed_bytes) == (0, graph)
    there.close()
    assert there.device_bytes == there.pinned_bytes == there.managed_bytes == 0
    there.update()
    assert_equal(there, store)


def test_a_limit_is_kept(open_device):
    store = a_store(4000)
    held = store.memory().held
    graph = held["vertices"] + held["fences"] + held["blocks"] + held["records"]
    open_device(store, "cuda", graph)
    with pytest.raises(MemoryError, match=f"at most {graph - 1} are allowed"):
        open_device(store, "cuda", graph - 1)
    there = open_device(store, "hybrid", graph - held["records"])
    store.insert(*events(2, 4000, store.last_time))
    with pytest.raises(MemoryError, match="out of device memory"):
        there.update()
    assert there.device_bytes == 0
    with pytest.raises(ValueError, match="call update first"):
        there.sample_hops(*roots(), [2])
    open_device(store, "uva", 1)


def test_managed_memory_is_oversubscribed_only_if_asked_for(open_device, monkeypatch):
    store = a_store(4000)
    held = store.memory().held
    graph = held["vertices"] + held["fences"] + held["blocks"] + held["records"]
    ballast = []
    monkeypatch.setattr(device_store, "free_bytes", lambda device: graph)
    monkeypatch.setattr(
        device_store, "hold_ballast", lambda leave, device: ballast.append(leave) or torch.ones(3)
    )
    there = open_device(store, "unified", graph // 2)
    assert (ballast, there.ballast_bytes, there.managed_bytes) == ([], 0, graph)
    there.close()
    there = open_device(store, "unified", graph // 2, oversubscribe=True)
    assert ballast == [graph // 2 + device_store.WORKING_BYTES]
    assert (there.ballast_bytes, there.managed_bytes) == (12, graph)
    there.close()
    assert there.ballast_bytes == 0
    # And never more than the device has free.
    monkeypatch.setattr(device_store, "free_bytes", lambda device: graph - 1)
    for asked in (False, True):
        with pytest.raises(MemoryError, match=f"at most {graph - 1} are allowed"):
            open_device(store, "unified", graph // 2, oversubscribe=asked)
    for placement, limit in (("cuda", 1), ("unified", None)):
        with pytest.raises(InvalidInputError, match="it is for 'unified' with a limit"):
            open_device(store, placement, limit, oversubscribe=True)


def test_deleted_edges_and_vertices_are_no_candidates(open_device):
    store = a_store(undirected=True)
    there = open_device(store, "cuda")
    store.delete_edges(torch.arange(0, 400, 3))
    there.update()
    for how in (
        {},
        {"policy": "uniform"},
        {"search": "linear"},
        {"policy": "uniform", "search": "linear"},
    ):
        assert assert_equal(there, store, **how) > 0
    store.delete_vertices(torch.tensor([1, 5]))
    there.update()
    for how in (
        {},
        {"policy": "uniform"},
        {"search": "linear", "replace": True, "policy": "uniform"},
    ):
        assert assert_equal(there, store, **how) > 0


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_blocks_that_are_taken_out_are_gone_from_the_device(open_device, placement, tmp_path):
    store = a_store(undirected=True)
    there = open_device(store, placement)
    store.offload(90.0, tmp_path / "old")
    there.update()
    assert_equal(there, store)
    store.reload(tmp_path / "old")
    store.add_vertices(3)
    there.update()
    assert_equal(there, store, policy="uniform")


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_blocks_that_grew_are_sent_whole(open_device, placement):
    """They lie elsewhere then, and what they left belongs to other vertices."""
    store = TemporalStore(VERTICES, policy=BlockPolicy("grown", 256))
    store.insert(*events(1, 2000))
    there = open_device(store, placement)
    ids = torch.arange(VERTICES)
    for step in range(70):  # pools have room for most: what is sent are patches
        store.insert(ids, (ids + step) % VERTICES, torch.full((VERTICES,), 2000 + step))
        if step % 3 == 0:
            there.update()
            assert_equal(there, store)
            assert assert_equal(there, store, policy="uniform", search="linear") > 0


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_pools_that_were_built_anew_are_sent_anew(open_device, placement, tmp_path):
    """Also where two changes put them back to where they were."""
    store = a_store(undirected=True)
    there = open_device(store, placement)
    whole = there.sent.whole
    store.offload(60.0, tmp_path / "old")
    store.offload(90.0, tmp_path / "older")
    assert there.update().whole == whole
    assert_equal(there, store)
    store.reload(tmp_path / "older")
    store.reload(tmp_path / "old")
    assert there.update().whole == whole
    assert_equal(there, store, policy="uniform")
    assert there.update().whole == 0
    # The same addresses, but of pools that were built anew.
    handle = store.handle
    again = handle.pools(), 0, 0.0, 0, handle.generation + 1, False, *there._stream()
    assert there._graph.update(*again[0], *again[1:])["whole"] == whole


def test_empty_stores_and_no_roots(open_device):
    store = TemporalStore(VERTICES)
    there = open_device(store, "cuda")
    assert assert_equal(there, store) == 0
    nothing = torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.float64)
    ((one, two),) = there.sample_hops(*nothing, [2, 2])
    assert one.offsets.tolist() == two.offsets.tolist() == [0]
    assert two.neighbours.numel() == 0


def test_several_mirrors_share_one_store(open_device):
    store = a_store(3000)
    there = [open_device(store, placement) for placement in (*PLACEMENTS, "uva")]
    for seed in range(3):
        store.insert(*events(seed, 2000, store.last_time))
        for one in there:
            one.update()
            assert_equal(one, store, policy="uniform")
        there.pop().close()


def test_pools_of_many_page_locked_steps_are_sent(open_device, native):
    """A copy that crosses two ranges of page-locked memory is one that the runtime refuses."""
    vertices, more = (50_000, 100) if native.device == "cpu" else (500_000, 400_000)
    store = TemporalStore(vertices, policy=BlockPolicy("adaptive", 64), undirected=True)
    store.insert(*events(1, 100 + vertices // 2, vertices=vertices))
    there = [open_device(store, placement) for placement in ("uva", "cuda", "guided", "hybrid")]
    for size in (100, more):
        store.insert(*events(size, size, store.last_time, vertices))
        for one in there:
            one.update()
            assert_equal(one, store, policy="uniform")


def test_positions_make_a_part_of_a_batch_what_it_is_in_the_whole(open_device):
    store = a_store()
    there = open_device(store, "hybrid")
    nodes, times = roots()
    whole = there.sample_hops(nodes, times, [3], policy="uniform")[0][0]
    some = torch.arange(5, 60, 7)
    part = there.sample_hops(nodes[some], times[some], [3], policy="uniform", positions=some)[0][0]
    for i, root in enumerate(some.tolist()):
        at, to = part.offsets[i : i + 2].tolist()
        first, last = whole.offsets[root : root + 2].tolist()
        assert torch.equal(part.eids[at:to], whole.eids[first:last])


def test_rooms_that_would_be_large_are_counted_first(open_device, monkeypatch):
    from dgbench.kernels_cuda.temporal_sample import hops as device_hops

    store = a_store(undirected=True)
    there = open_device(store, "cuda")
    monkeypatch.setattr(device_hops, "MAX_UNCOUNTED", 10)
    for how in ({}, {"window": 60.0, "prop_time": True}):
        assert assert_equal(there, store, fanouts=(4, 3, 2), policy="uniform", **how) > 100


@pytest.mark.parametrize("count", [1, 2047, 2048, 2049, 5000])
def test_offsets_of_batches_about_as_long_as_a_tile(open_device, count):
    store = a_store(undirected=True)
    there = open_device(store, "cuda")
    nodes, times = torch.arange(count) % VERTICES, torch.linspace(-1, 250, count).double()
    how = {"window": 40.0, "snapshots": 2, "closed": True, "policy": "uniform", "seed": 5}
    found = there.sample_hops(nodes, times, [2, 1], **how)
    for mine, its in zip(found, sample_hops(store, nodes, times, [2, 1], **how), strict=True):
        for one, other in zip(mine, its, strict=True):
            for field in FIELDS:
                assert torch.equal(getattr(one, field).cpu(), getattr(other, field)), field


def test_wrong_settings_are_refused(open_device):
    store = a_store()
    there = open_device(store, "cuda")
    nodes, times = roots()
    for wrong, found in [
        ({"policy": "newest"}, "recent and uniform"),
        ({"search": "tree"}, "binary and linear"),
        ({"snapshots": 2}, "window"),
        ({"window": -1.0}, "from 0"),
        ({"draw": 1 << 32}, "draw"),
        ({"seed": -1}, "seed"),
        ({"positions": torch.arange(3)}, "positions"),
    ]:
        with pytest.raises(InvalidInputError, match=found):
            there.sample_hops(nodes, times, [2], **wrong)
    with pytest.raises(InvalidInputError, match="fanout is 0"):
        there.sample_hops(nodes, times, [0])
    with pytest.raises(InvalidInputError, match="nodes must satisfy"):
        there.sample_hops(nodes + VERTICES, times, [2])
    with pytest.raises(InvalidInputError, match="nan"):
        there.sample_hops(nodes, times * torch.nan, [2])
    with pytest.raises(InvalidInputError, match="cap_bytes"):
        open_device(store, "cuda", 0)
    with pytest.raises(UnknownKeyError, match="placement"):
        open_device(store, "gpu")


def test_a_store_on_the_cpu_has_no_mirror():
    with pytest.raises(UnsupportedError, match="needs no mirror"):
        DeviceStore(a_store(), "cuda", device="cpu")
