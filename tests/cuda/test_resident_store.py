"""A temporal store that lives on a device, against the CPU's: samples, blocks and refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from dgbench.kernels_cuda.temporal_sample import sample_hops
from dgbench.kernels_cuda.temporal_store import BlockPolicy, TemporalStore, resident
from dgbench.kernels_cuda.temporal_store.resident import ResidentStore
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError, UnsupportedError

FIELDS = ("nodes", "times", "positions", "offsets", "neighbours", "eids", "edge_times")
VERTICES = 40
POLICIES = [
    BlockPolicy("adaptive", 8),
    BlockPolicy("adaptive_literal", 8),
    BlockPolicy("fixed", 3),
    BlockPolicy("strawman"),
    BlockPolicy("grown", 32),
    BlockPolicy("grown", 21),
]

Open = Callable[..., ResidentStore]


@pytest.fixture
def open_resident(native, monkeypatch) -> Open:
    """Opens a store on the device that is emulated or there."""
    if native.device == "cpu":
        monkeypatch.setattr(resident, "extension", lambda device: native.module)
    return lambda *how, **named: ResidentStore(*how, device=native.device, **named)


def events(seed: int, count: int, begin: float = 0.0, vertices: int = VERTICES) -> list[Any]:
    """src, dst, t: a hub, self edges, doubled edges and ties in whole units of time."""
    random = torch.Generator().manual_seed(seed)
    src = torch.randint(0, max(1, vertices - 5), (count,), generator=random)
    src[::3] = 1 % vertices
    dst = torch.randint(0, max(1, vertices - 5), (count,), generator=random)
    dst[::7] = src[::7]
    src[1::11], dst[1::11] = src[:-1:11], dst[:-1:11]
    t = begin + torch.randint(0, max(1, count // 2), (count,), generator=random).double()
    return [src, dst, t.sort().values]


class Pair:
    """A store on the device and the CPU's, which are given the same."""

    def __init__(self, open_resident: Open, vertices: int = VERTICES, **how: Any) -> None:
        self.there = open_resident(vertices, **how)
        self.here = TemporalStore(vertices, **how)

    def insert(self, *batch: torch.Tensor) -> None:
        self.here.insert(*batch)
        self.there.insert(*batch)

    def refuse(self, *batch: torch.Tensor, match: str = "") -> None:
        """Both refuse the batch, for the same reason."""
        with pytest.raises(InvalidInputError) as right:
            self.here.insert(*batch)
        self.there.insert(*batch)
        with pytest.raises(InvalidInputError, match=match) as found:
            self.there.check()
        reason = str(found.value).split(" (batch ")[0]
        assert reason == str(right.value).split("\n")[0]

    def check(self, fanouts=(3, 2), roots: int = 60, **how: Any) -> int:
        """Both sample the same; returns how many neighbours."""
        random = torch.Generator().manual_seed(9)
        vertices = self.here.num_vertices
        nodes = torch.randint(0, vertices, (roots,), generator=random)
        latest = max(1.0, self.here.last_time)
        times = (1.2 * latest * torch.rand(roots, generator=random, dtype=torch.float64)).round()
        times[0], times[-1] = -1.0, torch.inf
        right = sample_hops(self.here, nodes, times, list(fanouts), **how)
        found = self.there.sample_hops(nodes, times, list(fanouts), **how)
        total = 0
        for expected, got in zip(right, found, strict=True):
            for one, other in zip(expected, got, strict=True):
                for field in FIELDS:
                    assert torch.equal(getattr(one, field), getattr(other, field).cpu()), field
                total += one.neighbours.numel()
        return total

    def check_all(self) -> None:
        """All records of all vertices, and what blocks they are in."""
        vertices = self.here.num_vertices
        nodes = torch.arange(vertices)
        times = torch.full((vertices,), torch.inf).double()
        most = max(1, int(self.here.degrees().max())) if vertices else 1
        for search in ("binary", "linear"):
            ((right,),) = sample_hops(self.here, nodes, times, [most], search=search)
            ((found,),) = self.there.sample_hops(nodes, times, [most], search=search)
            for field in FIELDS:
                assert torch.equal(getattr(right, field), getattr(found, field).cpu()), field
        told, memory = self.there.memory(), self.here.memory()
        assert (told.records, told.blocks) == (memory.records, memory.blocks)
        if self.here.policy.name != "grown":  # the CPU's uses again what blocks grew out of
            assert told.slots == memory.slots
        assert told.slots >= memory.slots
        assert self.there.num_events == self.here.num_events


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: f"{policy.name}-{policy.size}")
@pytest.mark.parametrize("undirected", [False, True])
def test_every_batch_leaves_what_the_cpu_has(open_resident, policy, undirected):
    pair = Pair(open_resident, policy=policy, undirected=undirected)
    last = 0.0
    for seed, count in enumerate((300, 1, 0, 40, 900, 3, 257)):
        pair.insert(*events(seed, count, last))
        last = max(last, pair.here.last_time)
        pair.check_all()
        for how in ({"policy": "recent"}, {"policy": "uniform", "search": "linear"}):
            assert pair.check(**how) > 0
    assert pair.check(window=20.0, snapshots=3, prop_time=True, policy="uniform", closed=True) > 0


@pytest.mark.parametrize("layout", ["packed", "compact", "wide"])
def test_layouts_hold_their_largest_numbers(open_resident, layout):
    pair = Pair(open_resident, layout=layout, origin=-7.0)
    most = 2**63 - 1 if layout == "wide" else 2**32 - 2
    latest = 2.0**32 - 8 if layout == "compact" else 1e300
    eids = torch.tensor([0, most, most])
    times = torch.tensor([-7.0, 0.0, latest], dtype=torch.float64)
    pair.insert(torch.tensor([0, VERTICES - 1, 0]), torch.tensor([VERTICES - 1, 0, 0]), times, eids)
    pair.check_all()
    pair.check(policy="uniform", replace=True)


@pytest.mark.parametrize("vertices", [1, 2, 2048, 2049, 70_000, 2**22 + 1])
def test_every_number_of_passes_sorts_by_vertex(open_resident, vertices):
    pair = Pair(open_resident, vertices, undirected=True, policy=BlockPolicy("adaptive", 4))
    for seed in range(3):
        src, dst, t = events(seed, 500, 1000.0 * seed, vertices)
        src[-1], dst[-1] = vertices - 1, 0
        pair.insert(src, dst, t)
    pair.check(roots=200)
    if vertices < 10_000:
        pair.check_all()
    assert pair.there.num_events == 1500


@pytest.mark.parametrize("order", ["forward", "reverse"])
@pytest.mark.parametrize("policy", [BlockPolicy("fixed", 16), BlockPolicy("grown", 64)])
def test_a_hub_has_all_events_of_many_tiles(open_resident, monkeypatch, policy, order):
    """Segments longer than a tile of the sort, a run of the plan and a block's threads."""
    if order == "reverse":  # a missing barrier changes the result
        monkeypatch.setenv("EMULATED_ORDER", "reverse")
    count = 4096 + 700
    pair = Pair(open_resident, policy=policy, undirected=True)
    others = torch.arange(count) % VERTICES
    for step in range(2):
        pair.insert(torch.full((count,), 7), others, torch.full((count,), 1.0 + step).double())
        pair.check_all()
    pair.insert(
        torch.full((count,), 7), torch.full((count,), 7), torch.full((count,), 9.0).double()
    )
    pair.check_all()


def test_more_halves_than_a_wave_of_blocks_takes(open_resident, native):
    """Blocks of the sort and of the plan take several tiles each then."""
    vertices, count = 250, 40_000 if native.device == "cpu" else 400_000
    pair = Pair(open_resident, vertices, undirected=True, policy=BlockPolicy("adaptive", 8))
    src, dst, t = events(1, count, vertices=vertices)
    src[: count // 2] = torch.arange(count // 2) * 79 % vertices
    pair.insert(src, dst, t)
    pair.check_all()


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: f"{policy.name}-{policy.size}")
def test_room_is_enough_however_small_the_batches(open_resident, policy):
    """The bounds on places hold for one event at a time: nothing is refused for want of room."""
    pair = Pair(open_resident, 6, policy=policy, undirected=True)
    pair.there.reserve(120, 1)
    grown = pair.there.growths
    for i in range(120):
        one = torch.tensor([i * i % 5])
        pair.insert(one, torch.tensor([i % 3]), torch.tensor([float(i)], dtype=torch.float64))
    assert pair.there.growths == grown
    pair.check_all()


def test_pools_grow_with_what_they_hold(open_resident):
    pair = Pair(open_resident, policy=BlockPolicy("adaptive", 4))
    held = []
    for seed in range(8):
        pair.insert(*events(seed, 60 << seed, pair.here.last_time if seed else 0.0))
        held.append(pair.there.device_bytes)
    assert 2 < pair.there.growths <= 8
    assert held == sorted(held)
    pair.check_all()
    memory = pair.there.memory()
    assert memory.total <= pair.there.device_bytes


def test_inserts_take_few_launches_and_no_wait(open_resident, log):
    for vertices, most in ((2048, 4), (500_000, 6), (2**22 + 1, 8)):
        there = open_resident(vertices, undirected=True, room=3000)
        batches = [events(seed, 1000, 1000.0 * seed, vertices) for seed in range(3)]
        grown = there.growths
        log.clear()
        for batch in batches:
            there.insert(*batch)
        there.launch_hops(batches[2][0], batches[2][2], [4])
        *names, locate, emit = [call.name for call in log.calls()]
        assert (locate, emit) == ("launch", "launch")
        assert names == 3 * (most * ["launch"] + ["copy"])
        assert there.growths == grown
        assert there.num_events == 3000


@pytest.mark.parametrize(
    "how",
    [
        {"policy": "recent"},
        {"policy": "uniform", "window": 30.0, "snapshots": 2, "prop_time": True},
        {"policy": "uniform", "search": "linear", "replace": True, "seed": 1 << 60, "draw": 3},
    ],
    ids=lambda how: "-".join(how),
)
def test_hops_are_launched_without_a_wait(open_resident, native, how):
    pair = Pair(open_resident, undirected=True)
    pair.insert(*events(1, 400))
    nodes, times = torch.arange(60) % VERTICES, torch.linspace(-1, 250, 60).double().round()
    found = pair.there.launch_hops(nodes.to(native.device), times.to(native.device), [3, 2], **how)
    right = sample_hops(pair.here, nodes, times, [3, 2], **how)
    for expected, got in zip(right, found, strict=True):
        for one, hop in zip(expected, got, strict=True):
            live, taken = int(hop.targets.live), int(hop.offsets[-1])
            other = hop.cut(live, taken)
            for field in FIELDS:
                assert torch.equal(getattr(one, field), getattr(other, field).cpu()), field
    wrong = torch.tensor([VERTICES, -1], device=native.device)
    ((hop,),) = pair.there.launch_hops(wrong, torch.ones_like(wrong).double(), [2])
    assert hop.offsets.tolist() == [0, 0, 0]
    with pytest.raises(InvalidInputError, match="have to be counted"):
        pair.there.launch_hops(nodes, times, [1 << 10, 1 << 10])


@pytest.mark.parametrize("fanouts", [[3, 2], [70]])
def test_draws_follow_a_number_on_the_device(open_resident, native, fanouts):
    """So that a CUDA graph draws anew each time it is played."""
    pair = Pair(open_resident, undirected=True)
    pair.insert(*events(1, 400))
    nodes, times = torch.arange(20), torch.full((20,), 300.0).double()
    on = nodes.to(native.device), times.to(native.device)
    draws = torch.zeros(1, dtype=torch.int64, device=native.device)
    seen = []
    for number in (0, 1, 5, 2**32 - 3, 2**32 - 2, 2**32):
        draws.fill_(number)
        (found,) = pair.there.launch_hops(*on, fanouts, policy="uniform", draw=2, draws=draws)
        draw = (2 + number) % 2**32
        (right,) = sample_hops(pair.here, nodes, times, fanouts, policy="uniform", draw=draw)
        for one, hop in zip(right, found, strict=True):
            other = hop.cut(int(hop.targets.live), int(hop.offsets[-1]))
            assert torch.equal(one.eids, other.eids.cpu())
        seen.append(right[-1].eids.tolist())
    assert seen[0] == seen[5]
    assert len({tuple(one) for one in seen}) == 5
    with pytest.raises(InvalidInputError, match="draws has 2 elements"):
        pair.there.launch_hops(*on, fanouts, draws=draws.repeat(2))


def test_a_limit_is_kept(open_resident):
    with pytest.raises(MemoryError, match="at most 100 are allowed"):
        open_resident(VERTICES, cap_bytes=100)
    there = open_resident(VERTICES, cap_bytes=40_000)
    there.insert(*events(1, 100))
    with pytest.raises(MemoryError, match="out of device memory"):
        there.insert(*events(2, 10_000, 100.0))
    assert there.num_events == 100
    there.insert(*events(3, 10, 100.0))
    assert there.num_events == 110


@pytest.mark.parametrize("layout", ["packed", "compact", "wide"])
def test_batches_are_refused_as_the_cpu_refuses_them(open_resident, layout):
    pair = Pair(open_resident, layout=layout, undirected=True)
    pair.insert(*events(1, 200))
    pair.there.check()
    end = pair.here.last_time
    good = [*events(2, 50, end), torch.arange(50)]
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
    two = [array.clone() for array in good]
    two[3][4], two[1][9], two[2][2] = -5, VERTICES + 2, 0.0
    pair.refuse(*two, match=r"eid\[4\] is -5")
    pair.insert(*good)
    pair.check_all()


def test_late_edges_are_refused_as_the_cpu_refuses_them(open_resident):
    pair = Pair(open_resident, undirected=True)
    three = torch.tensor([3])
    pair.insert(three, three + 1, torch.tensor([10.0]).double())
    # Older than others, but not at their vertices.
    pair.insert(three + 5, three + 6, torch.tensor([1.0]).double())
    pair.refuse(three - 3, three + 1, torch.tensor([9.0]).double(), match="vertex 4 at 10")
    many = torch.arange(8) % 4 + 20
    times = torch.tensor([1.0, 2, 3, 4, 5, 1, 6, 0]).double()
    pair.refuse(many, many + 10, times, match=r"t\[5\] is 1\.000000")
    pair.insert(many, many + 10, torch.tensor([4.0, 3, 2, 1, 5, 4, 3, 2]).double())
    pair.check_all()


def test_what_follows_a_refused_batch_is_left_out_until_it_is_heard_of(open_resident):
    pair = Pair(open_resident)
    first, second = events(1, 30), events(2, 20, 100.0)
    pair.insert(*first)
    bad = [array.clone() for array in second]
    bad[0][3] = VERTICES
    pair.there.insert(*bad)
    pair.there.insert(*second)
    with pytest.raises(InvalidInputError, match=r"src\[3\] is 40, .* \(batch 1\)"):
        pair.check()
    pair.check_all()
    pair.insert(*second)
    pair.check_all()


def test_an_empty_store_begins_anew(open_resident):
    pair = Pair(open_resident, undirected=True)
    pair.check_all()
    pair.insert(*events(1, 200))
    grown, held = pair.there.growths, pair.there.device_bytes
    pair.there.clear()
    pair.here = TemporalStore(VERTICES, undirected=True)
    pair.check_all()
    pair.insert(*events(2, 200))
    assert (pair.there.growths, pair.there.device_bytes) == (grown, held)
    pair.check_all()
    pair.there.close()
    assert pair.there.device_bytes == 0
    with pytest.raises(ValueError, match="clear it first"):
        pair.there.insert(*events(2, 200))
    pair.there.clear()
    pair.there.insert(*events(2, 200))
    pair.check_all()


def test_whole_numbers_of_time_and_rows_of_a_table_are_taken(open_resident, native):
    pair = Pair(open_resident)
    src, dst, t = events(1, 60)
    pair.insert(src, dst, t.long())
    rows = torch.stack([src, dst, torch.arange(60)], dim=1)
    pair.here.insert(rows[:, 0], rows[:, 1], t + 100, rows[:, 2])
    on = rows.to(native.device)
    pair.there.insert(on[:, 0], on[:, 1], (t + 100).to(native.device), on[:, 2])
    pair.check_all()


def test_wrong_arguments_are_refused(open_resident):
    there = open_resident(VERTICES)
    src, dst, t = events(1, 10)
    for batch, found in [
        ((src.int(), dst, t), "src is torch.int32"),
        ((src, dst[1:], t), "dst has 9 elements"),
        ((src, dst, t.float()), "t is torch.float32"),
        ((src, dst, t, t), "eid is torch.float64"),
        ((src, dst.to("meta"), t), "dst lies on meta"),
        (([1], dst, t), "src is a list"),
    ]:
        with pytest.raises(InvalidInputError, match=found):
            there.insert(*batch)
    with pytest.raises(InvalidInputError, match="beyond 2"):
        there.insert(src, dst, t.long() + 2**60)
    with pytest.raises(InvalidInputError, match="events is -1"):
        there.reserve(-1)
    with pytest.raises(InvalidInputError, match="num_vertices is -1"):
        open_resident(-1)
    with pytest.raises(InvalidInputError, match="cap_bytes"):
        open_resident(VERTICES, cap_bytes=0)
    with pytest.raises(UnknownKeyError, match="layout"):
        open_resident(VERTICES, layout="loose")
    with pytest.raises(UnsupportedError, match="static"):
        open_resident(VERTICES, policy=BlockPolicy("static"))
    assert there.num_events == 0


def test_a_store_on_the_cpu_is_the_cpus():
    with pytest.raises(UnsupportedError, match="is TemporalStore"):
        ResidentStore(VERTICES, device="cpu")
