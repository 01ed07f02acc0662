"""Edges sorted into grids, against a stable sort by key."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_checks import refuses
from torch import Tensor

from dgbench.kernels_cuda.grids import SortedGrids, count_grids, place_grids, sort_grids
from dgbench.runtime.errors import InvalidInputError


def ints(*numbers: int) -> Tensor:
    return torch.tensor(numbers, dtype=torch.int64)


def rising(rng: np.random.Generator, pieces: int, last: int) -> Tensor:
    inner = np.sort(rng.integers(0, last + 1, pieces - 1))
    return ints(0, *inner.tolist(), last)


def case(seed: int, vertices: int, edges: int, steps: int, parts: int):
    """Vertices with hubs, duplicate and self edges; intervals and parts that may be empty."""
    rng = np.random.default_rng(seed)
    ends = np.minimum(rng.geometric(0.3, (2, edges)) - 1, vertices - 1)
    src, dst = (torch.from_numpy(end.astype(np.int64)) for end in ends)
    return src, dst, rising(rng, steps, edges), rising(rng, parts, vertices)


def plain(src: Tensor, dst: Tensor, intervals: Tensor, bounds: Tensor) -> tuple[Tensor, Tensor]:
    """Order and counts, by a stable sort of step and parts."""
    steps, parts = intervals.numel() - 1, bounds.numel() - 1
    key = torch.bucketize(torch.arange(src.numel()), intervals[1:-1], right=True)
    for ids in (src, dst):
        key = key * parts + torch.bucketize(ids, bounds[1:-1], right=True)
    counts = key.bincount(minlength=steps * parts * parts).view(steps, parts, parts)
    return torch.sort(key, stable=True).indices, counts


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6), vertices=st.integers(1, 20), edges=st.integers(0, 60),
    steps=st.integers(1, 5), parts=st.integers(1, 5),
)  # fmt: skip
def test_it_is_the_stable_sort(seed, vertices, edges, steps, parts) -> None:
    src, dst, intervals, bounds = case(seed, vertices, edges, steps, parts)
    order, counts = plain(src, dst, intervals, bounds)
    found = sort_grids(src, dst, intervals, bounds, local=True)
    assert torch.equal(found.order, order)
    assert torch.equal(found.offsets.diff().view_as(counts), counts)
    assert torch.equal(count_grids(src, dst, intervals, bounds), counts)
    owner = torch.bucketize(src[order], bounds[1:-1], right=True)
    assert torch.equal(found.local_src.long() + bounds[owner], src[order])
    owner = torch.bucketize(dst[order], bounds[1:-1], right=True)
    assert torch.equal(found.local_dst.long() + bounds[owner], dst[order])


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), cuts=st.lists(st.integers(0, 60), max_size=4))
def test_pieces_give_what_the_whole_gives(seed, cuts) -> None:
    src, dst, intervals, bounds = case(seed, 12, 60, 4, 3)
    whole = sort_grids(src, dst, intervals, bounds, local=True)
    counts = torch.zeros(4, 3, 3, dtype=torch.int64)
    ends = [0, *sorted(cuts), 60]
    pieces = [slice(a, b) for a, b in pairwise(ends)]
    starts = [(intervals - p.start).clamp(0, p.stop - p.start) for p in pieces]
    for piece, start in zip(pieces, starts, strict=True):
        count_grids(src[piece], dst[piece], start, bounds, into=counts)
    offsets = torch.cat([ints(0), counts.view(-1).cumsum(0)])
    found = SortedGrids(
        offsets, torch.empty(60, dtype=torch.int64), torch.empty(60, dtype=torch.int32),
        torch.empty(60, dtype=torch.int32),
    )  # fmt: skip
    cursors = offsets[:-1].clone().view(4, 3, 3)
    for piece, start in zip(pieces, starts, strict=True):
        place_grids(src[piece], dst[piece], start, bounds, found, cursors, base=piece.start)
    assert torch.equal(cursors.view(-1), offsets[1:])
    for name in ("offsets", "order", "local_src", "local_dst"):
        assert torch.equal(getattr(found, name), getattr(whole, name)), name


def test_bad_arguments_are_named() -> None:
    none = ints()
    empty = sort_grids(none, none, ints(0, 0, 0), ints(0, 0), local=True)
    assert empty.offsets.tolist() == [0, 0, 0]
    right = {"src": ints(0, 3), "dst": ints(1, 1), "intervals": ints(0, 2), "bounds": ints(0, 2, 4)}
    for call in (sort_grids, count_grids):
        refuses(
            call, right, ("src", ints(0, 9)), ("dst", ints(-1, 1)), ("dst", ints(1)),
            ("src", torch.zeros(2)), ("intervals", ints(0, 1)), ("intervals", ints(0, 2, 1, 2)),
            ("bounds", ints(1, 4)), ("bounds", ints(0)), ("bounds", torch.arange(5000)),
            ("src", torch.arange(4)[::2]),
        )  # fmt: skip
    refuses(count_grids, right, ("into", torch.zeros(2, 2, 2, dtype=torch.int64)))
    whole = sort_grids(**right)
    cursors = whole.offsets[:-1].clone().view(1, 2, 2)
    place_grids(**right, into=whole, cursors=cursors, base=0)
    with pytest.raises(InvalidInputError):  # a piece that comes twice
        place_grids(**right, into=whole, cursors=cursors, base=0)
