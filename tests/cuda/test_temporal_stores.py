"""Temporal stores on a device against the CPU's: mirrors in every placement, and resident ones.

A mirror follows a store of the CPU by what has changed; a resident store takes the events itself.
Over 500 lines: both are given the same streams, and compared by the same class.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from device_cases import HOP, assert_hops_equal, stream_events
from kernel_checks import refuses
from torch import Tensor

from dgbench.kernels_cuda.temporal_sample import hops as device_hops
from dgbench.kernels_cuda.temporal_sample import sample_hops, sample_neighbours
from dgbench.kernels_cuda.temporal_store import BlockPolicy, TemporalStore, resident
from dgbench.kernels_cuda.temporal_store import device as device_store
from dgbench.kernels_cuda.temporal_store.device import PLACEMENTS, DeviceStore
from dgbench.kernels_cuda.temporal_store.resident import ResidentStore
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError, UnsupportedError

VERTICES = 40
RESIDENT = "resident"
KINDS = [*PLACEMENTS, RESIDENT]
SIZES = {"adaptive": 8, "adaptive_literal": 8, "fixed": 3, "strawman": 64, "grown": 32}
POLICIES = [BlockPolicy(name, size) for name, size in SIZES.items()] + [BlockPolicy("grown", 21)]
EVERY_WAY = [
    {"policy": policy, "search": search, "seed": 7 << 33, "draw": 5}
    for policy in ("recent", "uniform")
    for search in ("binary", "linear")
]

Open = Callable[..., Any]


@pytest.fixture
def open_store(serve) -> Open:
    """Opens a resident store by a number of vertices, or a mirror of a store by its placement."""
    device = serve(resident, device_store)

    def opened(kind: str, of: Any, *more: Any, **how: Any) -> Any:
        if kind == RESIDENT:
            return ResidentStore(of, *more, device=device, **how)
        return DeviceStore(of, kind, *more, device=device, **how)

    return opened


def same_hops(here: TemporalStore, there: Any, *asked: Any, **how: Any) -> int:
    """Compare a sample of a device's store with the CPU's; return how many neighbours."""
    return assert_hops_equal(sample_hops(here, *asked, **how), there.sample_hops(*asked, **how))


class Pair:
    """A store on the device and the CPU's, which are given the same."""

    def __init__(self, open_store: Open, kind=RESIDENT, vertices=VERTICES, **how: Any) -> None:
        self.here, self.kind = TemporalStore(vertices, **how), kind
        self.there = open_store(kind, vertices if kind == RESIDENT else self.here,
                                **(how if kind == RESIDENT else {}))  # fmt: skip

    def insert(self, *batch: Tensor) -> None:
        self.here.insert(*batch)
        if self.kind == RESIDENT:
            self.there.insert(*batch)
        else:
            self.there.update()

    def refuse(self, *batch: Tensor) -> str:
        """The reason why both refuse the batch, which is the same."""
        with pytest.raises(InvalidInputError) as right:
            self.here.insert(*batch)
        self.there.insert(*batch)
        with pytest.raises(InvalidInputError) as refused:
            self.there.check()
        reason = str(refused.value).split(" (batch ")[0]
        assert reason == str(right.value).split("\n")[0]
        return reason

    def check(self, fanouts: Any = (3, 2), roots: int = 60, **how: Any) -> int:
        """Both sample the same; returns how many neighbours."""
        nodes, times = draw_roots(self.here.num_vertices, roots, max(1.0, self.here.last_time))
        return same_hops(self.here, self.there, nodes, times, list(fanouts), **how)

    def check_all(self) -> None:
        """All records of all vertices, and what blocks they are in."""
        vertices = self.here.num_vertices
        nodes, times = torch.arange(vertices), torch.full((vertices,), torch.inf).double()
        most = [max(1, int(self.here.degrees().max())) if vertices else 1]
        for search in ("binary", "linear"):
            same_hops(self.here, self.there, nodes, times, most, search=search)
        if self.kind == RESIDENT:
            mine, its = self.there.memory(), self.here.memory()
            assert (mine.records, mine.blocks) == (its.records, its.blocks)
            # The CPU's uses again what blocks grew out of.
            assert mine.slots == its.slots or self.here.policy.name == "grown"
            assert mine.slots >= its.slots
            assert self.there.num_events == self.here.num_events


def draw_roots(vertices: int, count: int, latest: float) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(9)
    nodes = torch.randint(0, vertices, (count,), generator=random)
    times = (1.2 * latest * torch.rand(count, generator=random, dtype=torch.float64)).round()
    times[0], times[-1] = -1.0, torch.inf
    return nodes, times


def filled(count: int = 400, **how: Any) -> TemporalStore:
    store = TemporalStore(VERTICES, **{"policy": BlockPolicy("adaptive", 8), **how})
    store.insert(*stream_events(1, count // 2))
    store.insert(*stream_events(2, count - count // 2, store.last_time))
    return store


def graph_bytes(store: TemporalStore) -> int:
    """Bytes of a store that a mirror of all of it holds."""
    held = store.memory().held
    return sum(held[name] for name in ("vertices", "fences", "blocks", "records"))


def filled_pair(open_store: Open, kind: str, **how: Any) -> Pair:
    pair = Pair(open_store, kind, **{"policy": BlockPolicy("adaptive", 8), **how})
    pair.insert(*stream_events(1, 200))
    pair.insert(*stream_events(2, 200, pair.here.last_time))
    return pair


# --- both -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "policy"),
    [(k, p) for k in KINDS for p in (POLICIES if k in ("cuda", RESIDENT) else POLICIES[::4])],
    ids=lambda x: x if isinstance(x, str) else f"{x.name}-{x.size}",
)
def test_every_batch_leaves_what_the_cpu_has(open_store, kind, policy):
    undirected = kind != "uva" and policy != POLICIES[1]
    pair, last = Pair(open_store, kind, policy=policy, undirected=undirected), 0.0
    for seed, count in enumerate((300, 1, 0, 40, 600, 3)):
        pair.insert(*stream_events(seed, count, last))
        last = max(last, pair.here.last_time)
        for how in (EVERY_WAY[0], EVERY_WAY[3]):
            assert pair.check(**how) > 0
    pair.check_all()
    assert all(pair.check(**how) > 0 for how in EVERY_WAY)


@pytest.mark.parametrize(
    ("kind", "layout"),
    [("cuda", "wide"), ("guided", "packed"), ("guided", "compact"), (RESIDENT, "packed"),
     (RESIDENT, "compact"), (RESIDENT, "wide")],
)  # fmt: skip
def test_layouts_and_windows_equal_the_cpus(open_store, monkeypatch, kind, layout):
    pair = filled_pair(open_store, kind, layout=layout, policy=BlockPolicy("adaptive", 100))
    for limit in (device_hops.MAX_UNCOUNTED, 10):  # rooms that would be large are counted first
        monkeypatch.setattr(device_hops, "MAX_UNCOUNTED", limit)
        for how in (
            {"window": 20.0, "snapshots": 3},
            {"window": 20.0, "snapshots": 3, "prop_time": True, "policy": "uniform",
             "closed": True},
            {"policy": "uniform", "replace": True}, {"policy": "uniform", "fanouts": (70,)},
            {"window": 0.0, "closed": True, "fanouts": (2, 2, 2)},
        ):  # fmt: skip
            pair.check(**how)


@pytest.mark.parametrize("kind", ["cuda", RESIDENT])
@pytest.mark.parametrize("layout", ["packed", "compact", "wide"])
def test_layouts_hold_their_largest_numbers(open_store, kind, layout):
    pair = Pair(open_store, kind, layout=layout, origin=-7.0)
    most = 2**63 - 1 if layout == "wide" else 2**32 - 2
    latest = 2.0**32 - 8 if layout == "compact" else 1e300
    ends = torch.tensor([0, VERTICES - 1, 0])
    times = torch.tensor([-7.0, 0.0, latest], dtype=torch.float64)
    pair.insert(ends, VERTICES - 1 - ends, times, torch.tensor([0, most, most]))
    pair.check_all()
    pair.check(policy="uniform", replace=True)


@pytest.mark.parametrize("kind", ["cuda", RESIDENT])
@pytest.mark.parametrize("count", [0, 1, 2048, 2049])
def test_batches_about_as_long_as_a_tile_and_at_any_time(open_store, kind, count):
    pair = filled_pair(open_store, kind, undirected=True)
    nodes, times = torch.arange(count) % VERTICES, torch.linspace(-1, 250, count).double()
    for how in (
        {"window": 40.0, "snapshots": 2, "closed": True, "policy": "uniform", "seed": 5},
        {"policy": "uniform", "positions": torch.arange(count) * 7},
    ):
        same_hops(pair.here, pair.there, nodes, times, [2, 1], **how)


def hub_store(records: int) -> TemporalStore:
    """A vertex with so many records, one at each time from 0 on, and one with three."""
    store = TemporalStore(6)
    src = torch.cat([torch.full((records,), 1), torch.full((3,), 2)])
    t = torch.cat([torch.arange(records), torch.full((3,), records)]).double()
    store.insert(src, torch.arange(records + 3) % 6, t)
    return store


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("fanouts", [[64], [65], [300], [3000], [70, 2], [2, 70]], ids=str)
def test_large_draws_equal_the_cpus(open_store, monkeypatch, fanouts, replace):
    """From no candidate over as many as are drawn, and one more, to many times as many."""
    most = max(fanouts)
    assert device_hops.draw_words(10**6, most) < 10**6 * most + 2 * device_hops._TABLE_WORDS
    sizes = [0, 1, most - 1, most, most + 1, most + 2, 2 * most, 9 * most]
    nodes = torch.tensor([1] * len(sizes) + [2, 5, 1])
    times = torch.tensor([*sizes, 1e6, 1e6, torch.inf], dtype=torch.float64)
    store = hub_store(9 * most)
    there = open_store("cuda", store)
    how = {"policy": "uniform", "seed": 7, "draw": 3, "replace": replace}
    for limit in (device_hops.MAX_UNCOUNTED, 10):  # the second way has a call for each hop
        monkeypatch.setattr(device_hops, "MAX_UNCOUNTED", limit)
        assert same_hops(store, there, nodes, times, fanouts, **how) > 5 * most


# --- mirrors --------------------------------------------------------------------------------------


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_one_hop_of_many_equals_the_cpus(open_store, native, placement):
    """As ranks ask for it: by number of hop and snapshot, at any positions, also for nothing."""
    store = filled(undirected=True)
    there = open_store(placement, store)
    nodes, times = draw_roots(VERTICES, 60, 250.0)
    positions = torch.randperm(60, generator=torch.Generator().manual_seed(2)) * 5
    for way in EVERY_WAY:
        for count, fanout, hop, snapshot in ((60, 70, 2, 1), (1, 1, 1, 0), (0, 4, 0, 2)):
            asked = nodes[:count], times[:count]
            how = {"fanout": fanout, "hop": hop, "snapshot": snapshot, "window": 90.0, **way}
            right = sample_neighbours(store, *asked, positions=positions[:count], **how)
            for put in (native.put, lambda x: x):
                found = there.sample_hop(
                    *(put(x) for x in asked), positions=put(positions[:count]), **how
                )
                for name in HOP:
                    assert getattr(found, name).device.type == native.device
                    assert torch.equal(getattr(right, name), getattr(found, name).cpu()), name
    with pytest.raises(InvalidInputError, match="nodes"):
        there.sample_hop(torch.tensor([VERTICES]), times[:1], fanout=2)
    with pytest.raises(InvalidInputError, match="fanout"):
        there.sample_hop(nodes, times, fanout=0)


@pytest.mark.parametrize("placement", ["hybrid", "guided", "uva"])
def test_a_device_reads_what_another_process_writes(open_store, placement):
    """The records of a store in shared memory are page-locked where they are, and never sent."""
    files = [os.memfd_create("test") for _ in range(4)]
    how = {"policy": BlockPolicy("adaptive", 8), "undirected": True, "files": files}
    writer, reader = TemporalStore(VERTICES, **how), TemporalStore(VERTICES, **how, writes=False)
    reader.follow(writer.counts())
    there = open_store(placement, reader)
    pair = Pair(open_store, placement, policy=how["policy"], undirected=True)
    for seed, count in enumerate((300, 20, 900)):
        batch = stream_events(seed, count, writer.last_time if seed else 0.0)
        writer.insert(*batch)
        pair.here.insert(*batch)
        reader.follow(writer.counts())
        assert there.update().bytes == pair.there.update().bytes
        assert there.pinned_bytes == pair.there.pinned_bytes > 0
        asked = draw_roots(VERTICES, 60, writer.last_time)
        assert same_hops(pair.here, there, *asked, [3, 2], policy="uniform") > 0
    there.close()
    for file in files:
        os.close(file)


def test_an_update_sends_little_and_late_events_too(open_store):
    how = {"undirected": True, "late": "sort"}
    pair = Pair(open_store, "cuda", 2000, **how)
    pair.insert(*stream_events(1, 20_000, vertices=2000))
    pair.there.close()
    # Pools of a device grow by half, so this room is there from the first growth on.
    there = pair.there = open_store("cuda", pair.here)
    assert there.sent.whole == 4
    before = there.device_bytes
    pair.here.insert(*stream_events(2, 2_000, pair.here.last_time, vertices=2000))
    grown = there.update()
    assert there.device_bytes > before
    assert grown.whole == 0  # what the pools held moved on with them
    assert grown.bytes < before
    for begin in (pair.here.last_time, 0.0):
        pair.here.insert(*stream_events(3, 10, begin, vertices=2000))
        sent = there.update()
        assert sent.whole == 0
        assert 0 < sent.vertices <= 20
        assert begin == 0.0 or sent.bytes < 20 * (64 + 2 * 48 + 24 * 400 + 16 * 70)
        again = there.update()
        assert (again.bytes, again.patches, again.vertices) == (0, 0, 0)
        assert pair.check(policy="uniform") > 0


@pytest.mark.parametrize(
    ("placement", "layout"), [("cuda", "packed"), ("guided", "compact"), ("unified", "packed")]
)
def test_changes_of_several_buffers_arrive(open_store, placement, layout):
    """More than two page-locked buffers hold, and pieces that are cut: a hub with many fences."""
    vertices = 30_000
    store = TemporalStore(
        vertices, layout=layout, policy=BlockPolicy("adaptive", 8), undirected=True
    )
    store.insert(*stream_events(1, 3000, vertices=vertices))
    there = open_store(placement, store)
    ids = torch.arange(vertices)
    store.insert(torch.full((vertices,), 7), ids, store.last_time + ids.double())
    sent = there.update()
    assert (sent.whole, sent.vertices) == (0, vertices)
    assert sent.bytes > 3 * 2**20
    nodes, at = ids.roll(2), store.last_time - ids.double() + 1
    for how in (EVERY_WAY[0], EVERY_WAY[3]):
        same_hops(store, there, nodes, at, [4], **how)


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_where_the_bytes_lie(open_store, placement):
    store = filled()
    there = open_store(placement, store)
    held, graph = store.memory().held, graph_bytes(store)
    if placement == "cuda":
        assert (there.device_bytes, there.pinned_bytes) == (graph, 0)
    elif placement in ("hybrid", "guided"):
        guide = 8 * -(-store.memory().slots // 8) if placement == "guided" else 0
        assert there.device_bytes == graph - held["records"] + guide == there.sent.bytes
        assert there.pinned_bytes >= held["records"]
    elif placement == "uva":
        assert (there.device_bytes, there.sent.bytes) == (0, 0)
        assert there.pinned_bytes >= graph
    else:
        assert (there.device_bytes, there.managed_bytes) == (0, graph)
    there.close()
    assert there.device_bytes == there.pinned_bytes == there.managed_bytes == 0
    there.update()
    same_hops(store, there, *draw_roots(VERTICES, 60, 250.0), [3])


def test_a_limit_of_a_mirror_is_kept(open_store):
    store = filled(4000)
    graph = graph_bytes(store)
    open_store("cuda", store, graph)
    with pytest.raises(MemoryError):
        open_store("cuda", store, graph - 1)
    there = open_store("hybrid", store, graph - store.memory().held["records"])
    store.insert(*stream_events(2, 4000, store.last_time))
    with pytest.raises(MemoryError):
        there.update()
    assert there.device_bytes == 0
    with pytest.raises(ValueError, match="update"):
        there.sample_hops(*draw_roots(VERTICES, 60, 250.0), [2])
    open_store("uva", store, 1)


def test_managed_memory_is_oversubscribed_only_if_asked_for(open_store, monkeypatch):
    store = filled(4000)
    graph = graph_bytes(store)
    ballast: list[int] = []
    monkeypatch.setattr(device_store, "free_bytes", lambda device: graph)
    monkeypatch.setattr(
        device_store, "hold_ballast", lambda leave, device: ballast.append(leave) or torch.ones(3)
    )
    there = open_store("unified", store, graph // 2)
    assert (ballast, there.ballast_bytes, there.managed_bytes) == ([], 0, graph)
    there.close()
    there = open_store("unified", store, graph // 2, oversubscribe=True)
    assert ballast == [graph // 2 + device_store.WORKING_BYTES]
    assert (there.ballast_bytes, there.managed_bytes) == (12, graph)
    there.close()
    assert there.ballast_bytes == 0
    # And never more than the device has free.
    monkeypatch.setattr(device_store, "free_bytes", lambda device: graph - 1)
    for asked in (False, True):
        with pytest.raises(MemoryError):
            open_store("unified", store, graph // 2, oversubscribe=asked)
    for placement, limit in (("cuda", 1), ("unified", None)):
        with pytest.raises(InvalidInputError, match="oversubscribe"):
            open_store(placement, store, limit, oversubscribe=True)


def test_deleted_edges_and_vertices_are_no_candidates(open_store):
    pair = filled_pair(open_store, "cuda", undirected=True)
    for delete, ids in (
        (pair.here.delete_edges, torch.arange(0, 400, 3)),
        (pair.here.delete_vertices, torch.tensor([1, 5])),
    ):
        delete(ids)
        pair.there.update()
        for how in (*EVERY_WAY, {"search": "linear", "replace": True, "policy": "uniform"}):
            assert pair.check(**how) > 0


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_pools_that_were_built_anew_are_sent_anew(open_store, placement, tmp_path):
    """Also where two changes put them back to where they were."""
    store = filled(undirected=True)
    pair = Pair(open_store, placement)
    pair.here, there = store, open_store(placement, store)
    pair.there, whole = there, there.sent.whole
    store.offload(60.0, tmp_path / "old")
    store.offload(90.0, tmp_path / "older")
    assert there.update().whole == whole
    pair.check()
    store.reload(tmp_path / "older")
    store.reload(tmp_path / "old")
    assert there.update().whole == whole
    store.add_vertices(3)
    there.update()
    pair.check(policy="uniform")
    assert there.update().whole == 0
    # The same addresses, but of pools that were built anew.
    handle = store.handle
    again = *handle.pools(), 0, 0.0, 0, handle.generation + 1, False, *there._stream()
    assert there._graph.update(*again)["whole"] == whole


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_blocks_that_grew_are_sent_whole(open_store, placement):
    """They lie elsewhere then, and what they left belongs to other vertices."""
    pair = Pair(open_store, placement, policy=BlockPolicy("grown", 256))
    pair.insert(*stream_events(1, 2000))
    ids = torch.arange(VERTICES)
    for step in range(40):  # pools have room for most: what is sent are patches
        batch = ids, (ids + step) % VERTICES, torch.full((VERTICES,), 2000.0 + step).double()
        if step % 4:
            pair.here.insert(*batch)
        else:
            pair.insert(*batch)
            assert pair.check(policy="uniform", search="linear") > 0
    pair.there.update()
    pair.check_all()


def test_wrong_settings_of_a_mirror_are_refused(open_store):
    store = filled()
    there = open_store("cuda", store)
    nodes, times = draw_roots(VERTICES, 60, 250.0)
    refuses(
        there.sample_hops, {"nodes": nodes, "times": times, "fanouts": [2]},
        ("policy", "newest"), ("search", "tree"), ("window", -1.0), ("draw", 1 << 32), ("seed", -1),
        ("positions", torch.arange(3)), ("snapshots|window", 2), ("fanouts|fanout", [0]),
        ("nodes", nodes + VERTICES), ("times", times * torch.nan),
    )  # fmt: skip
    with pytest.raises(InvalidInputError, match="cap_bytes"):
        open_store("cuda", store, 0)
    with pytest.raises(UnknownKeyError, match="placement"):
        open_store("gpu", store)


# --- resident stores ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("vertices", "count"), [(1, 500), (2048, 500), (2049, 500), (2**22 + 1, 500), (250, 40_000)]
)
def test_every_number_of_passes_and_of_tiles_sorts_by_vertex(open_store, native, vertices, count):
    """Also more halves of edges than a wave of blocks takes, so that each takes several tiles."""
    count *= 10 if native.device == "cuda" and count > 500 else 1
    pair = Pair(open_store, RESIDENT, vertices, undirected=True, policy=BlockPolicy("adaptive", 8))
    for seed in range(2):
        src, dst, t = stream_events(seed, count, 1e6 * seed, vertices)
        src[: count // 2] = torch.arange(count // 2) * 79 % vertices
        src[-1], dst[-1] = vertices - 1, 0
        pair.insert(src, dst, t)
    pair.check(roots=200)
    if vertices < 10_000:
        pair.check_all()
    assert pair.there.num_events == 2 * count


@pytest.mark.parametrize("policy", [BlockPolicy("fixed", 16), BlockPolicy("grown", 64)])
def test_a_hub_has_all_events_of_many_tiles(open_store, policy):
    """Segments longer than a tile of the sort, a run of the plan and a block's threads."""
    count = 4096 + 200
    pair = Pair(open_store, policy=policy, undirected=True)
    hub, ones = torch.full((count,), 7), torch.ones(count).double()
    pair.insert(hub, torch.arange(count) % VERTICES, ones)
    pair.insert(hub, hub, 9 * ones)
    pair.check_all()


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: f"{policy.name}-{policy.size}")
def test_room_is_enough_however_small_the_batches(open_store, policy):
    """The bounds on places hold for one event at a time: nothing is refused for want of room."""
    pair = Pair(open_store, RESIDENT, 3, policy=policy, undirected=True)
    pair.there.reserve(60, 1)
    grown = pair.there.growths
    for i in range(60):
        pair.insert(
            torch.tensor([i * i % 3]), torch.tensor([i % 3]), torch.tensor([float(i)]).double()
        )
    assert pair.there.growths == grown
    pair.check_all()


def test_inserts_take_few_launches_and_no_wait(open_store, log):
    for vertices, most in ((2048, 4), (500_000, 6), (2**22 + 1, 8)):
        there = open_store(RESIDENT, vertices, undirected=True, room=3000)
        batches = [stream_events(seed, 1000, 1000.0 * seed, vertices) for seed in range(3)]
        grown = there.growths
        log.clear()
        for batch in batches:
            there.insert(*batch)
        assert [call.name for call in log.calls()] == 3 * (most * ["launch"] + ["copy"])
        assert (there.growths, there.num_events) == (grown, 3000)


def test_a_limit_of_a_resident_store_is_kept(open_store):
    with pytest.raises(MemoryError):
        open_store(RESIDENT, VERTICES, cap_bytes=100)
    there = open_store(RESIDENT, VERTICES, cap_bytes=40_000)
    there.insert(*stream_events(1, 100))
    with pytest.raises(MemoryError):
        there.insert(*stream_events(2, 10_000, 100.0))
    assert there.num_events == 100
    there.insert(*stream_events(3, 10, 100.0))
    assert there.num_events == 110


@pytest.mark.parametrize("layout", ["packed", "compact", "wide"])
def test_batches_are_refused_as_the_cpu_refuses_them(open_store, layout):
    pair = Pair(open_store, layout=layout, undirected=True)
    pair.insert(*stream_events(1, 200))
    end = pair.here.last_time
    good = [*stream_events(2, 50, end), torch.arange(50)]
    wrong: list[tuple[int, int, Any]] = [
        (0, 9, VERTICES), (0, 9, -1), (0, 49, 2**32), (1, 9, VERTICES), (1, 0, -(2**62)),
        (2, 9, torch.nan), (2, 9, torch.inf), (2, 49, -torch.inf), (3, 9, -1),
    ]  # fmt: skip
    if layout != "wide":
        wrong.append((3, 9, 2**32 - 1))
    if layout == "compact":
        wrong += [(2, 9, end + 0.5), (2, 49, 2.0**32), (2, 9, -1.0)]
    for column, at, value in wrong:
        batch = [array.clone() for array in good]
        batch[column][at] = value
        pair.refuse(*batch)
    three = [array.clone() for array in good]
    three[3][4], three[1][9], three[2][2] = -5, VERTICES + 2, 0.0
    assert "eid[4]" in pair.refuse(*three)
    late = torch.arange(8) % 4 + 20  # within a batch, and older than a vertex, not than others
    times = end + torch.tensor([1.0, 2, 3, 4, 5, 1, 6, 0]).double()
    assert "t[5]" in pair.refuse(late, late + 10, times)
    pair.insert(late, late + 10, end + torch.tensor([4.0, 3, 2, 1, 5, 4, 3, 2]).double())
    pair.check_all()


def test_what_follows_a_refused_batch_is_left_out_until_it_is_heard_of(open_store):
    pair = Pair(open_store)
    first, second = stream_events(1, 30), stream_events(2, 20, 100.0)
    pair.insert(*first)
    bad = [array.clone() for array in second]
    bad[0][3] = VERTICES
    pair.there.insert(*bad)
    pair.there.insert(*second)
    with pytest.raises(InvalidInputError, match=r"src\[3\]"):
        pair.check()
    pair.check_all()
    pair.insert(*second)
    pair.check_all()


def test_an_empty_store_begins_anew(open_store):
    pair = Pair(open_store, undirected=True)
    pair.check_all()
    pair.insert(*stream_events(1, 200))
    grown, held = pair.there.growths, pair.there.device_bytes
    pair.there.clear()
    pair.here = TemporalStore(VERTICES, undirected=True)
    pair.check_all()
    pair.insert(*stream_events(2, 200))
    assert (pair.there.growths, pair.there.device_bytes) == (grown, held)
    pair.check_all()
    pair.there.close()
    assert pair.there.device_bytes == 0
    with pytest.raises(ValueError, match="clear"):
        pair.there.insert(*stream_events(2, 200))
    pair.there.clear()
    pair.there.insert(*stream_events(2, 200))
    pair.check_all()


def test_what_an_insert_takes_and_what_it_refuses(open_store, native):
    pair = Pair(open_store)
    src, dst, t = stream_events(1, 60)
    pair.insert(src, dst, t.long())  # whole numbers of time, and columns of a table
    rows = torch.stack([src, dst, torch.arange(60)], dim=1)
    pair.here.insert(rows[:, 0], rows[:, 1], t + 100, rows[:, 2])
    on = native.put(rows)
    pair.there.insert(on[:, 0], on[:, 1], native.put(t + 100), on[:, 2])
    pair.check_all()
    there = open_store(RESIDENT, VERTICES)
    for batch, name in [
        ((src.int(), dst, t), "src"), ((src, dst[1:], t), "dst"), ((src, dst, t.float()), "t"),
        ((src, dst, t, t), "eid"), ((src, dst.to("meta"), t), "dst"), (([1], dst, t), "src"),
        ((src, dst, t.long() + 2**60), "t"),
    ]:  # fmt: skip
        with pytest.raises(InvalidInputError, match=name):
            there.insert(*batch)
    with pytest.raises(InvalidInputError, match="events"):
        there.reserve(-1)
    assert there.num_events == 0
    refuses(
        lambda vertices, **how: open_store(RESIDENT, vertices, **how), {"vertices": VERTICES},
        ("vertices|num_vertices", -1), ("cap_bytes", 0), ("layout", "loose"),
        ("policy|static", BlockPolicy("static")),
    )  # fmt: skip


def test_a_cpu_has_neither():
    with pytest.raises(UnsupportedError):
        ResidentStore(VERTICES, device="cpu")
    with pytest.raises(UnsupportedError):
        DeviceStore(filled(), "cuda", device="cpu")
