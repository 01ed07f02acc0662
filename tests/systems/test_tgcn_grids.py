"""The cut of time and vertices, grids of a stream, whole or in pieces; links, rings and schedules:
the best ring against all rings, every grid once, all of it home, volumes as the formula says."""

from __future__ import annotations

import itertools
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dgbench.runtime.errors import InvalidInputError, UnknownKeyError
from dgbench.systems.tgcn.grids import (
    VERTEX_CUTS,
    Grids,
    build_streamed,
    by_places,
    by_times,
    count_streamed,
    cut_time,
    cut_vertices,
    inner_times,
)
from dgbench.systems.tgcn.links import Links, hop_matrix, machine, parse
from dgbench.systems.tgcn.ring import LITERAL, best_ring, pairs, quality
from dgbench.systems.tgcn.schedule import (
    KINDS,
    PartMove,
    RingSchedule,
    SchedulePhase,
    check_schedule,
    expected_bytes,
    make_schedule,
    traffic,
)

SEEDS, CUTS = st.integers(0, 10**6), st.sampled_from(VERTEX_CUTS)
TIME_CUTS = st.sampled_from(["width", "edges"])


def stream(seed: int, vertices: int, edges: int) -> tuple[Tensor, Tensor, Tensor]:
    rng = np.random.default_rng(seed)
    src, dst = (torch.from_numpy(rng.integers(0, vertices, edges)) for _ in range(2))
    return src, dst, torch.from_numpy(np.sort(rng.integers(0, 9, edges)).astype(np.float64))


def test_edges_are_balanced_as_far_as_whole_vertices_allow() -> None:
    src = torch.tensor([0] * 6 + [1] * 2 + [2] * 2 + [3] * 2)
    assert cut_vertices(4, 2, cut="edges", src=src).bounds.tolist() == [0, 1, 4]
    assert cut_vertices(4, 2).bounds.tolist() == [0, 2, 4]
    dealt = cut_vertices(5, 2, cut="dealt")
    assert dealt.bounds.tolist() == [0, 3, 5]
    assert dealt.rows.tolist() == [0, 3, 1, 4, 2]


def test_time_is_cut_by_width_or_by_edges() -> None:
    t = torch.tensor([0.0, 0, 1, 2, 3, 8])
    assert cut_time(t, 4).tolist() == [0, 3, 5, 5, 6]
    assert cut_time(t, 3, cut="edges").tolist() == [0, 2, 4, 6]
    assert cut_time(torch.full((3,), 7.0), 2).tolist() == [0, 0, 3]
    assert cut_time(t[:0], 2).tolist() == [0, 0, 0]


@settings(max_examples=40, deadline=None)
@given(
    SEEDS,
    st.integers(1, 12),
    st.integers(0, 50),
    st.integers(1, 5),
    st.integers(1, 4),
    TIME_CUTS,
    CUTS,
)
def test_grids_hold_each_edge_once_in_time_order(
    seed, vertices, edges, intervals, parts, time_cut, vertex_cut
) -> None:
    src, dst, t = stream(seed, vertices, edges)
    grids = Grids.build(
        src, dst, t, vertices, intervals=intervals, parts=parts, time_cut=time_cut,
        vertex_cut=vertex_cut,
    )  # fmt: skip
    assert sorted(grids.order.tolist()) == list(range(edges))
    assert int(grids.counts.sum()) == edges
    names = grids.parts.vertices()
    for k in range(intervals):
        inside = set(range(int(grids.intervals[k]), int(grids.intervals[k + 1])))
        for i, j in product(range(parts), repeat=2):
            grid = grids.grid(k, i, j)
            assert grid.eids.numel() == int(grids.counts[k, i, j])
            assert set(grid.eids.tolist()) <= inside
            assert bool((grid.eids.diff() > 0).all())
            for local, ids, part in ((grid.src, src, i), (grid.dst, dst, j)):
                rows = local.long() + grids.parts.bounds[part]
                assert torch.equal(names[rows], ids[grid.eids])


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.integers(1, 60), TIME_CUTS, CUTS)
def test_pieces_make_the_same_grids(seed, chunk, time_cut, vertex_cut) -> None:
    src, dst, t = stream(seed, 11, 50)
    whole = Grids.build(
        src, dst, t, 11, intervals=4, parts=3, time_cut=time_cut, vertex_cut=vertex_cut
    )

    def pieces():
        return zip(src.split(chunk), dst.split(chunk), t.split(chunk), strict=True)

    cut = (
        by_times(inner_times(float(t[0]), float(t[-1]), 4))
        if time_cut == "width"
        else by_places(whole.intervals)
    )
    found = build_streamed(pieces, cut, whole.parts)
    for name in ("intervals", "offsets", "order", "local_src", "local_dst"):
        assert torch.equal(getattr(found, name), getattr(whole, name)), name
    assert torch.equal(count_streamed(pieces, cut, whole.parts), whole.counts)
    if time_cut == "width":
        mixed = torch.randperm(50, generator=torch.Generator().manual_seed(seed))

        def unordered():
            return [(src[m], dst[m], t[m]) for m in mixed.split(chunk)]

        assert torch.equal(count_streamed(unordered, cut, whole.parts), whole.counts)


def test_bad_arguments_are_named() -> None:
    src, dst, t = stream(1, 6, 10)
    grids = Grids.build(src, dst, t, 6, intervals=2, parts=2, local=False)
    assert grids.nbytes == 8 * (3 + 9 + 10)
    turns, cuts = iter([1, 2]), {"intervals": 2, "parts": 2, "vertex_cut": "dealt"}

    def pieces():  # other ones the second time
        return [(src, dst, t)][: next(turns) % 2]

    for error, name, call in (
        (InvalidInputError, "t", lambda: cut_time(t.flip(0) + torch.arange(10).flip(0), 2)),
        (InvalidInputError, "intervals", lambda: cut_time(t, 0)),
        (UnknownKeyError, "", lambda: cut_time(t, 2, cut="length")),
        (UnknownKeyError, "", lambda: cut_vertices(4, 2, cut="metis")),
        (InvalidInputError, "src", lambda: cut_vertices(4, 2, cut="edges")),
        (InvalidInputError, "parts", lambda: cut_vertices(4, 0)),
        (InvalidInputError, "src", lambda: Grids.build(src + 6, dst, t, 6, **cuts)),
        (InvalidInputError, "local", lambda: grids.grid(0, 0, 0)),
        (InvalidInputError, "",
         lambda: build_streamed(pieces, by_places(grids.intervals), grids.parts)),
    ):  # fmt: skip
        with pytest.raises(error, match=name or None):
            call()
    nothing = count_streamed(list, by_times(inner_times(0, 1, 3)), grids.parts)
    assert nothing.shape == (3, 2, 2)


# --- links, rings and schedules -------------------------------------------------------------------


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
    schedule = make_schedule(len(LITERAL), ring=LITERAL, lean=False)
    assert ["".join(map(str, a)) for a in schedule.assignments] == DOSSIER.split()
    check_schedule(schedule)
    links = machine()
    assert len(schedule.phases) == 8
    assert {links.hops(a, b) for a, b in schedule.pairs()} == {1}
    sent = traffic(schedule, [10] * 8, read=4, add=0)
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


def test_bad_arguments_of_schedules_are_named() -> None:
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
