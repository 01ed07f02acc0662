"""Every grid once, only direct links, everything home, and volumes as the formula says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgbench.runtime.errors import InvalidInputError, UnknownKeyError
from dgbench.systems.tgcn.links import machine
from dgbench.systems.tgcn.schedule import (
    KINDS,
    PartMove,
    RingSchedule,
    SchedulePhase,
    algorithm6,
    bytes_by_hops,
    check_schedule,
    exchange_seconds,
    expected_bytes,
    host_placement,
    make_schedule,
    traffic,
)

DOSSIER = "10325476 53061742 35607124 76543210 67452301 24716035 42170653 01234567"


def test_algorithm_6_is_what_it_was_checked_to_be() -> None:
    found = algorithm6()
    assert ["".join(map(str, a)) for a in found.assignments] == DOSSIER.split()
    check_schedule(found)
    links = machine()
    assert len(found.phases) == 8
    assert {links.hops(a, b) for a, b in found.pairs()} == {1}
    sent = traffic(found, [10] * 8, read=4, add=0)
    # Whole parts, every time: each GPU sends all |V| vectors.
    assert sent.sum(axis=(0, 2)).tolist() == [8 * 10 * 4] * 8


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6, 8, 9, 16])
@pytest.mark.parametrize("lean", [True, False])
def test_every_grid_is_trained_once_and_all_is_home(kind, size, lean) -> None:
    found = make_schedule(size, kind, lean=lean)
    check_schedule(found)
    if found.kind != "gather":
        trained = {(i, j) for row in found.assignments for i, j in enumerate(row)}
        assert trained == {(i, j) for i in range(size) for j in range(size)}
        assert found.assignments[-1] == tuple(range(size))
        assert found.parts_held == 1
    if kind == "ring":
        assert found.kind == ("shift" if size % 2 and size > 1 else "ring")


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.integers(0, 50), min_size=1, max_size=16),
    kind=st.sampled_from(KINDS),
    read=st.integers(0, 9),
    add=st.integers(0, 9),
)
def test_volume_is_the_formula(rows, kind, read, add) -> None:
    found = make_schedule(len(rows), kind)
    sent = traffic(found, rows, read=read, add=add)
    assert sent.sum() == expected_bytes(found, rows, read=read, add=add)
    assert sent.sum() == (len(rows) - 1) * sum(rows) * (read + add)


def test_nothing_is_lost_that_was_added_or_is_read() -> None:
    """Follow a vector and a sum of every part through a lean round."""
    rng = np.random.default_rng(0)
    for kind in ("ring", "shift"):
        for size in (2, 4, 5, 8):
            vectors = rng.integers(1, 100, size)
            held = [
                {"part": i, "vector": int(vectors[i]), "sum": 0, "own": True} for i in range(size)
            ]
            totals = np.zeros(size, dtype=np.int64)
            schedule = make_schedule(size, kind)
            for phase in schedule.phases:
                taken: dict[int, dict] = {}
                for move in phase.moves:
                    one = held[move.source]
                    assert one["part"] == move.part
                    assert move.sums or one["sum"] == 0
                    taken[move.target] = {
                        "part": move.part,
                        "vector": one["vector"] if move.reads else None,
                        "sum": one["sum"] if move.sums else 0,
                    }
                for target, one in taken.items():
                    if one["vector"] is None:  # home, where it was kept
                        assert one["part"] == target
                        one["vector"] = int(vectors[target])
                    held[target] = one
                for i, parts in enumerate(phase.trains):
                    for j in parts:
                        assert held[i]["vector"] == vectors[j]
                        held[i]["sum"] += 10**i
            for i in range(size):
                totals[i] = held[i]["sum"]
            assert totals.tolist() == [sum(10**i for i in range(size))] * size


def test_the_ring_uses_direct_links_only_and_others_do_not() -> None:
    links = machine()
    rows = [100] * 8
    sent = {kind: traffic(make_schedule(8, kind), rows, read=256, add=512) for kind in KINDS}
    hops = {kind: bytes_by_hops(one, links) for kind, one in sent.items()}
    assert hops["ring"][2] == hops["shift"][2] == 0
    assert hops["gather"][2] == hops["direct"][2] > 0
    assert sum(hops["ring"].values()) == sum(hops["gather"].values())
    ring = exchange_seconds(make_schedule(8), sent["ring"] * 10**6, links.topology())
    for kind in ("gather", "direct"):
        other = exchange_seconds(make_schedule(8, kind), sent[kind] * 10**6, links.topology())
        assert ring < other
    literal = algorithm6()
    slow = exchange_seconds(literal, traffic(literal, rows, read=256, add=512) * 10**6,
                            links.topology())  # fmt: skip
    assert slow == pytest.approx(2 * 8 / 7 * ring, rel=0.06)


def test_a_schedule_for_four_on_part_of_the_machine() -> None:
    found = make_schedule(4)
    assert found.ring == (0, 1, 2, 3)
    assert [m[:3] for m in found.phases[0].moves] == [(0, 1, 0), (1, 0, 1), (2, 3, 2), (3, 2, 3)]


def test_vectors_in_host_memory_cost_pcie_bytes() -> None:
    found = host_placement([10, 10], state=100, read=4, add=8, devices=2)
    assert found == {"h2d": 20 * 100 + 2 * 20 * 4, "d2h": 20 * 100 + 2 * 20 * 8}


def test_faults_are_found() -> None:
    stay = SchedulePhase((), ((0,), (1,)))
    with pytest.raises(InvalidInputError, match="trained 0 times"):
        check_schedule(RingSchedule("ring", 2, (0, 1), (stay,)))
    move = PartMove(0, 1, 1, True, True)
    with pytest.raises(InvalidInputError, match="does not hold"):
        check_schedule(RingSchedule("ring", 2, (0, 1), (SchedulePhase((move,), ((0,), (1,))),)))
    swap = (PartMove(0, 1, 0, True, True), PartMove(1, 0, 1, True, True))
    with pytest.raises(InvalidInputError, match="not their own"):
        check_schedule(RingSchedule("ring", 2, (0, 1), (stay, SchedulePhase(swap, ((1,), (0,))))))
    with pytest.raises(InvalidInputError, match="lacks part"):
        check_schedule(RingSchedule("ring", 2, (0, 1), (SchedulePhase((), ((1,), (0,))),)))
    with pytest.raises(UnknownKeyError):
        make_schedule(4, "tree")
    with pytest.raises(InvalidInputError, match="'size' is 0"):
        make_schedule(0)
    with pytest.raises(InvalidInputError, match="'ring' is"):
        make_schedule(4, ring=(0, 1, 2, 2))
    with pytest.raises(InvalidInputError, match="'rows' has 1"):
        traffic(make_schedule(2), [1], read=1, add=1)
    with pytest.raises(InvalidInputError, match="several parts"):
        _ = make_schedule(2, "gather").assignments
