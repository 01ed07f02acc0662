"""Links, rings and schedules of T-GCN: the best ring against all rings, every grid once, everything
home, and volumes as the formula says."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgbench.runtime.errors import InvalidInputError, UnknownKeyError
from dgbench.systems.tgcn.links import Links, hop_matrix, machine, parse
from dgbench.systems.tgcn.ring import best_ring, pairs, quality
from dgbench.systems.tgcn.schedule import (
    KINDS,
    PartMove,
    RingSchedule,
    SchedulePhase,
    algorithm6,
    check_schedule,
    expected_bytes,
    make_schedule,
    traffic,
)

DOSSIER = "10325476 53061742 35607124 76543210 67452301 24716035 42170653 01234567"

PRINTED = """
        GPU0    GPU1    GPU2    mlx5_0  CPU Affinity
GPU0     X      NV1     SYS     PIX     0-19,40-59
GPU1    NV1      X      NV2     PIX     0-19,40-59
GPU2    SYS     NV2      X      PHB     20-39,60-79
mlx5_0  PIX     PIX     PHB      X
"""


def test_the_published_matrix_is_what_the_paper_describes() -> None:
    assert parse(PRINTED).matrix == (("X", "NV1", "SYS"), ("NV1", "X", "NV2"), ("SYS", "NV2", "X"))
    links = machine()
    for i in range(8):
        wide = sorted(links.bricks(i, j) for j in range(8) if links.bricks(i, j))
        assert wide == [1, 1, 2, 2]
        group = range(4) if i < 4 else range(4, 8)
        assert all(links.hops(i, j) == (i != j) for j in group)
    hops = hop_matrix(links)
    assert (hops == hops.T).all()
    assert sorted(np.unique(hops).tolist()) == [0, 1, 2]
    assert int((hops == 2).sum()) == 24


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.integers(2, 6))
def test_no_ring_is_better_than_the_best(seed, size) -> None:
    rng = np.random.default_rng(seed)
    entries = [["X"] * size for _ in range(size)]
    for i in range(size):
        for j in range(i):
            entries[i][j] = entries[j][i] = str(rng.choice(["NV1", "NV2", "SYS", "PIX"]))
    links = Links("random", tuple(map(tuple, entries)))
    rings = [(0, *rest) for rest in itertools.permutations(range(1, size))]
    assert quality(links, best_ring(links)) == min(quality(links, r) for r in rings)


def test_beyond_ten_devices_the_ring_is_searched_for() -> None:
    """A ring of doubled links is hidden among single ones."""
    hidden = [0, *(1 + np.random.default_rng(3).permutation(11)).tolist()]
    entries = [["X" if i == j else "NV1" for j in range(12)] for i in range(12)]
    for a, b in zip(hidden, [*hidden[1:], 0], strict=True):
        entries[a][b] = entries[b][a] = "NV2"
    links = Links("hidden", tuple(map(tuple, entries)))
    assert quality(links, best_ring(links)).not_doubled == 0
    assert best_ring(machine("pcie", 16)) == tuple(range(16))


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
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 8, 16])
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
    st.lists(st.integers(0, 50), min_size=1, max_size=16),
    st.sampled_from(KINDS),
    st.integers(0, 9),
    st.integers(0, 9),
)
def test_volume_is_the_formula(rows, kind, read, add) -> None:
    found = make_schedule(len(rows), kind)
    sent = traffic(found, rows, read=read, add=add)
    assert sent.sum() == expected_bytes(found, rows, read=read, add=add)
    assert sent.sum() == (len(rows) - 1) * sum(rows) * (read + add)


def test_faults_of_schedules_are_found() -> None:
    stay = SchedulePhase((), ((0,), (1,)))
    move = PartMove(0, 1, 1, True, True)
    swap = (PartMove(0, 1, 0, True, True), PartMove(1, 0, 1, True, True))
    for phases in (
        (stay,),  # grids are not trained
        (SchedulePhase((move,), ((0,), (1,))),),  # sends what it does not hold
        (stay, SchedulePhase(swap, ((1,), (0,)))),  # ends away from home
        (SchedulePhase((), ((1,), (0,))),),  # trains what it does not hold
    ):
        with pytest.raises(InvalidInputError):
            check_schedule(RingSchedule("ring", 2, (0, 1), phases))


def test_bad_arguments_are_named() -> None:
    for call in (lambda: machine("dgx-9"), lambda: make_schedule(4, "tree")):
        with pytest.raises(UnknownKeyError):
            call()
    for name, call in (
        ("devices", lambda: machine(size=9)), ("size", lambda: machine("pcie", 0)),
        ("", lambda: parse("no devices found")), ("", lambda: pairs((0, 1, 2))),
        ("ring", lambda: quality(machine(), (0, 1))),
        ("names", lambda: machine().relabelled([0] * 8)),
        ("devices", lambda: machine().chosen([1, 1])), ("size", lambda: make_schedule(0)),
        ("ring", lambda: make_schedule(4, ring=(0, 1, 2, 2))),
        ("rows", lambda: traffic(make_schedule(2), [1], read=1, add=1)),
        ("", lambda: make_schedule(2, "gather").assignments),
    ):  # fmt: skip
        with pytest.raises(InvalidInputError, match=name or None):
            call()
