"""The emulated wire against its formula, on clocks that are told the time."""

from __future__ import annotations

import time
from typing import Any

import pytest
import ranks_workers as workers
from hypothesis import given, settings
from hypothesis import strategies as st

from dgbench.runtime.collectives import CountOnly, EmulatedLink, LinkEmulation, LocalCommunicator
from dgbench.runtime.collectives.shared import share_memory
from dgbench.runtime.collectives.wire import SLOTS, MonotonicClock, ProcessorClock, Timetable
from dgbench.runtime.errors import InvalidInputError, UnsupportedError
from dgbench.runtime.ranks import RankError, RankMemoryError, RankTimeoutError, launch


@pytest.fixture(autouse=True)
def no_copy_thread_is_left() -> None:
    """No test here opens a link, so the costly look for its threads is left out."""


LIMIT_S = 240.0  # stops a hang; a busy machine may take a minute
WIRES = [LinkEmulation(0.5, 4.0), LinkEmulation(0.0, 100.0), LinkEmulation(2.0, float("inf"))]

KINDS = ["compute", "start", "start", "wait", "reduce", "gather", "broadcast", "barrier"]


@st.composite
def steps(draw: st.DrawFn, ranks: int) -> list[workers.WireStep]:
    """Computing, exchanges begun and waited for in any order, other operations between."""
    some = st.one_of(st.just(0), st.integers(0, 4))
    seconds = st.floats(0, 30, allow_subnormal=False)
    found: list[workers.WireStep] = []
    begun, open_ = 0, []
    for _ in range(draw(st.integers(5, 25))):
        kind = draw(st.sampled_from(KINDS))
        if kind == "compute":
            found.append((kind, [draw(seconds) for _ in range(ranks)]))
        elif kind == "start":
            found.append((kind, [[draw(some) for _ in range(ranks)] for _ in range(ranks)]))
            open_.append(begun)
            begun += 1
        elif kind == "wait" and open_:
            found.append((kind, open_.pop(draw(st.integers(0, len(open_) - 1)))))
        elif kind == "reduce":
            found.append((kind, draw(st.integers(0, 7))))
        elif kind == "gather":
            found.append((kind, [draw(some) for _ in range(ranks)]))
        elif kind == "broadcast":
            found.append((kind, (draw(st.integers(0, ranks - 1)), draw(some))))
        elif kind == "barrier":
            found.append((kind, None))
    return found + [("wait", number) for number in open_]


def simulate(ranks: int, wire: LinkEmulation, steps: list[workers.WireStep]) -> Any:
    """Moments of all ranks after every step, sums received, seconds that links were busy."""
    clock, free, busy = [1.0] * ranks, [0.0] * ranks, [0.0] * ranks
    arrives: list[dict[tuple[int, int], float]] = []
    starts, moments, sums = [], [[] for _ in range(ranks)], [[] for _ in range(ranks)]

    def send(by: int, to: int, messages: int, floats: int, size: int = 4) -> float:
        seconds = messages * wire.seconds_per_message + size * floats / wire.bytes_per_second
        free[by] = max(free[by], clock[by]) + seconds
        busy[by] += seconds
        return free[by]

    def ring(by: int) -> list[int]:
        return [(by + step) % ranks for step in range(1, ranks)]

    for name, what in steps:
        if name == "compute":
            clock = [c + s for c, s in zip(clock, what, strict=True)]
        elif name == "start":
            starts.append(what)
            arrives.append(
                {
                    (by, to): send(by, to, 1, 3 * what[by][to])
                    for by in range(ranks)
                    for to in ring(by)
                    if what[by][to]
                }
            )
        elif name == "wait":
            for to in range(ranks):
                there = [m for (_, q), m in arrives[what].items() if q == to]
                clock[to] = max([clock[to], *there])
                sums[to].append(sum(3.0 * starts[what][by][to] * (by + 1) for by in range(ranks)))
        elif name == "reduce" and what:
            # Chunks of nearly equal size go round twice, each time over all links but one.
            chunks = [what // ranks + (i < what % ranks) for i in range(ranks)]
            ends = []
            for by in range(ranks):
                kept = [chunks[(by + k) % ranks] for k in (1, 2)]
                messages = 2 * sum(c > 0 for c in chunks) - sum(c > 0 for c in kept)
                ends.append(send(by, (by + 1) % ranks, messages, 2 * what - sum(kept)))
            clock = [max([c, *ends]) for c in clock]
        elif name == "gather":
            there = {
                (by, to): send(by, to, 1, 2 * what[by])
                for by in range(ranks)
                for to in ring(by)
                if what[by]
            }
            clock = [
                max([c, *(m for (_, q), m in there.items() if q == to)])
                for to, c in enumerate(clock)
            ]
        elif name == "broadcast" and what[1]:
            root = what[0]
            there = {to: send(root, to, 1, what[1]) for to in ring(root)}
            clock = [max(c, there.get(to, 0.0)) for to, c in enumerate(clock)]
        elif name == "barrier":
            clock = [max(clock)] * ranks
        for rank in range(ranks):
            moments[rank].append(clock[rank])
    return moments, sums, busy


@pytest.mark.parametrize(("ranks", "method"), [(2, "collective"), (3, "shared"), (3, "pairs")])
@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_moments_of_arrival(ranks: int, method: str, data: st.DataObject) -> None:
    drawn = data.draw(steps(ranks))
    results = launch(workers.on_wire, ranks, (WIRES, drawn, method), timeout_s=LIMIT_S, threads=1)
    for number, wire in enumerate(WIRES):
        moments, sums, busy = simulate(ranks, wire, drawn)
        for rank in range(ranks):
            found, untouched = results[rank]
            assert found[number][0] == pytest.approx(moments[rank])
            assert found[number][1] == sums[rank]
            assert found[number][2] == pytest.approx(busy[rank])
            assert untouched, "without a wire nothing is held back"


def test_overlap_is_computing_while_it_travels() -> None:
    """Two seconds each way: computing for two hides them, computing for one hides one."""
    sizes = [[0, 1], [1, 0]]
    for seconds, end in ((0.0, 3.0), (1.0, 3.0), (2.0, 3.0), (5.0, 6.0)):
        told = [("start", sizes), ("compute", [seconds] * 2), ("wait", 0)]
        for found, _ in launch(
            workers.on_wire, 2, ([LinkEmulation(2.0, 1e9)], told), timeout_s=LIMIT_S
        ):
            assert found[0][0][-1] == pytest.approx(end)


def test_one_link_of_two_communicators() -> None:
    found = launch(workers.two_communicators_one_link, 2, timeout_s=LIMIT_S, threads=1)
    assert list(found) == [(2.0, 3.0)] * 2


def test_too_many_under_way() -> None:
    with pytest.raises(UnsupportedError, match=f"holds {SLOTS} operations"):
        launch(workers.too_many_on_a_wire, 2, (SLOTS,), timeout_s=LIMIT_S, threads=1)


def test_waiting_is_noted() -> None:
    """Sleeps are never shorter than asked for, so these bounds hold however slow the machine is."""
    for spent in launch(workers.wait_on_wire, 2, (0.02, 3), timeout_s=LIMIT_S, threads=1):
        assert spent["exchange_wait"] + spent["wire_late"] >= 0.05
        assert spent["communicate_wait"] >= spent["exchange_wait"]
        assert spent["wire_busy"] == pytest.approx(0.06)


def test_the_clock_waits() -> None:
    clock = MonotonicClock()
    begin = clock.now()
    assert clock.sleep_until(begin - 1, begin) == begin
    end = clock.sleep_until(begin + 0.003, begin)
    assert clock.now() >= end >= begin + 0.003


def test_processor_time_and_sleep() -> None:
    clock = ProcessorClock()
    begin = clock.now()
    assert clock.sleep_until(begin + 1000.0, begin) == begin + 1000.0
    assert 1000.0 <= clock.now() - begin < 1010.0, "it does not sleep for real"
    now = clock.now()
    assert clock.sleep_until(begin, now) == now
    before, end = clock.now(), time.thread_time() + 0.01
    while time.thread_time() < end:
        pass
    assert clock.now() - before >= 0.01
    before = clock.now()
    time.sleep(0.05)
    assert clock.now() - before < 0.05, "what others do is not its time"


def test_clocks_of_processors_agree_after_a_barrier() -> None:
    """Rank 1 is an hour late: an exchange with it takes that long, and so does a barrier."""
    for moments in launch(workers.on_processor_clocks, 3, timeout_s=LIMIT_S, threads=1):
        assert all(3590.0 < moment < 3610.0 for moment in moments)


@pytest.mark.parametrize(
    ("how", "kind", "limit", "method"),
    [
        ("killed", RankError, LIMIT_S, "shared"),
        ("killed", RankError, LIMIT_S, "collective"),
        ("raises", RankError, LIMIT_S, "shared"),
        ("vanishes", RankError, LIMIT_S, "shared"),
        ("allocates", RankMemoryError, LIMIT_S, "shared"),
        ("too-much", RankMemoryError, LIMIT_S, "collective"),
        ("hangs", RankTimeoutError, 2.0, "shared"),
        ("spins", RankTimeoutError, 2.0, "collective"),
    ],
)
def test_a_fault_on_the_wire_ends_the_group(
    how: str, kind: type, limit: float, method: str
) -> None:
    with pytest.raises(kind, match=r"rank 1 of 3"):
        launch(
            workers.fault_on_wire,
            3,
            (how, 1, method),
            timeout_s=limit,
            memory_bytes=100 * 2**20,
            threads=1,
        )


def test_a_wire_that_takes_too_long_is_a_hang() -> None:
    with pytest.raises(RankTimeoutError, match=r"all_reduce \(operation \d+\)"):
        launch(workers.slow_wire, 2, timeout_s=2.0, threads=1)


@pytest.mark.parametrize(
    ("seconds", "bandwidth", "name"),
    [
        (-1.0, 1.0, "seconds_per_message"),
        (float("nan"), 1.0, "seconds_per_message"),
        (float("inf"), 1.0, "seconds_per_message"),
        (0.0, 0.0, "bytes_per_second"),
        (0.0, float("nan"), "bytes_per_second"),
    ],
)
def test_numbers_out_of_range(seconds: float, bandwidth: float, name: str) -> None:
    with pytest.raises(InvalidInputError, match=name):
        LinkEmulation(seconds, bandwidth)


def test_nothing_travels_on_one_rank() -> None:
    wire = LinkEmulation(5.0, 1.0)
    for comm in (LocalCommunicator(), CountOnly(1, 3)):
        comm.use_wire(wire)
        assert comm.wire == wire
        comm.barrier()


def test_a_slot_is_used_again() -> None:
    memory = share_memory(Timetable.nbytes(2), 0, lambda note: [note])
    clock = workers.FakeClock()
    tables = [
        Timetable(memory, r, 2, EmulatedLink(LinkEmulation(1.0, 1.0)), clock) for r in range(2)
    ]
    for number in (1, 1 + SLOTS):
        assert tables[0].depart(number, {1: (1, 2)}) == 3.0
        assert tables[1].due(number, [0]) == pytest.approx(1.0 + 3.0 * (1 + number // SLOTS))
    with pytest.raises(UnsupportedError, match="rank 0 has begun more"):
        tables[1].due(1, [0])
