"""The emulated wire against its formula, on clocks that are told the time."""

from __future__ import annotations

from typing import Any

import pytest
import ranks_workers as workers
from hypothesis import given, settings
from hypothesis import strategies as st

from dgbench.runtime.collectives import LinkEmulation
from dgbench.runtime.errors import InvalidInputError
from dgbench.runtime.ranks import launch

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
@settings(max_examples=2, deadline=None)
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


def test_clocks_of_processors_agree_after_a_barrier() -> None:
    """Rank 1 is an hour late: an exchange with it takes that long, and so does a barrier."""
    for moments in launch(workers.on_processor_clocks, 3, timeout_s=LIMIT_S, threads=1):
        assert all(3590.0 < moment < 3610.0 for moment in moments)


def test_numbers_out_of_range() -> None:
    for wrong in ((-1.0, 1.0), (float("nan"), 1.0), (0.0, 0.0)):
        with pytest.raises(InvalidInputError):
            LinkEmulation(*wrong)
