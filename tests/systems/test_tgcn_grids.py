"""The cut of time and vertices, grids of a stream, and grids of a stream in pieces."""

from __future__ import annotations

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
