"""Edges by time interval, source part and destination part (T-GCN, section 4.1): a counting sort.

Edges come in time order, so that a time interval is a range of places in the stream. The parts are
ranges of vertices. A grid (k, i, j) holds the edges of interval k from part i to part j; inside a
grid edges keep their order. Two passes over the edges, O(E), whatever the degrees of vertices.

Edges that do not fit in memory are sorted a piece at a time: `count_grids` for every piece, then
`place_grids` for every piece with cursors that start at the summed counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dgbench.kernels_cuda._checks import check_ids, check_vector
from dgbench.kernels_cuda.build_info import extension
from dgbench.runtime.errors import InvalidInputError

_CPU = torch.device("cpu")
PARTS_MOST = 4096


@dataclass(frozen=True, slots=True, eq=False)
class SortedGrids:
    """E edges in grid order; T intervals, G parts.

    Attributes:
        offsets: int64[T * G * G + 1]; grid (k, i, j) begins at offsets[(k * G + i) * G + j].
        order: int64[E], place of each edge in the stream that was sorted.
        local_src, local_dst: int32[E], vertices counted from the beginning of their parts, or None.
    """

    offsets: Tensor
    order: Tensor
    local_src: Tensor | None
    local_dst: Tensor | None


def count_grids(
    src: Tensor,
    dst: Tensor,
    intervals: Tensor,
    bounds: Tensor,
    *,
    into: Tensor | None = None,
    threads: int | None = None,
) -> Tensor:
    """Edges of each grid, int64[T, G, G]; nothing is written but the counts.

    Args:
        src, dst: int64[E] in [0, N), in time order.
        intervals: int64[T + 1], place of the first edge of each interval; from 0 to E, not falling.
        bounds: int64[G + 1], first vertex of each part; from 0 to N, not falling.
        into: int64[T, G, G] that is added to; new zeros if None.
        threads: OpenMP threads, torch's number if None. The result does not depend on it.

    Raises:
        InvalidInputError: wrong dtypes, lengths or ranges.
    """
    steps, parts = _check(src, dst, intervals, bounds)
    counts = torch.zeros(steps, parts, parts, dtype=torch.int64) if into is None else into
    _check_cells(counts, "into", steps, parts)
    _call("count_grids", src, dst, intervals, bounds, counts.view(-1), _threads(threads))
    return counts


def sort_grids(
    src: Tensor,
    dst: Tensor,
    intervals: Tensor,
    bounds: Tensor,
    *,
    local: bool = False,
    threads: int | None = None,
) -> SortedGrids:
    """Sort edges into grids; arguments as for `count_grids`.

    Args:
        local: write `local_src` and `local_dst`, too.

    Raises:
        InvalidInputError: wrong dtypes, lengths or ranges.
    """
    steps, parts = _check(src, dst, intervals, bounds)
    edges = src.numel()
    offsets = torch.empty(steps * parts * parts + 1, dtype=torch.int64)
    order = torch.empty(edges, dtype=torch.int64)
    ends = [torch.empty(edges, dtype=torch.int32) if local else None for _ in range(2)]
    _call(
        "sort_grids", src, dst, intervals, bounds, offsets, order, *ends, _threads(threads)
    )  # fmt: skip
    return SortedGrids(offsets, order, *ends)


def place_grids(
    src: Tensor,
    dst: Tensor,
    intervals: Tensor,
    bounds: Tensor,
    into: SortedGrids,
    cursors: Tensor,
    *,
    base: int,
    threads: int | None = None,
) -> None:
    """Write a piece of a stream into the grids of the whole and move the cursors on.

    Args:
        src, dst, bounds: of the piece, as for `count_grids`.
        intervals: int64[T + 1], places within the piece; intervals outside of it are empty.
        into: arrays of the whole.
        cursors: int64[T, G, G], where each grid goes on; begins as `into.offsets` without its end.
        base: place of the piece's first edge in the stream.

    Raises:
        InvalidInputError: wrong dtypes, lengths or ranges, or grids that are full.
    """
    steps, parts = _check(src, dst, intervals, bounds)
    _check_cells(cursors, "cursors", steps, parts)
    check_vector(into.order, "into.order", torch.int64)
    check_vector(into.offsets, "into.offsets", torch.int64, cursors.numel() + 1)
    capacity = into.order.numel()
    for name in ("local_src", "local_dst"):
        if getattr(into, name) is not None:
            check_vector(getattr(into, name), f"into.{name}", torch.int32, capacity)
    _call(
        "place_grids", src, dst, intervals, bounds, base, into.offsets, cursors.view(-1),
        into.order, into.local_src, into.local_dst, _threads(threads),
    )  # fmt: skip


def _check(src: Tensor, dst: Tensor, intervals: Tensor, bounds: Tensor) -> tuple[int, int]:
    """T and G of arguments that are good."""
    edges = src.numel() if isinstance(src, Tensor) else None
    check_vector(src, "src", torch.int64)
    check_vector(dst, "dst", torch.int64, edges)
    check_vector(intervals, "intervals", torch.int64)
    check_vector(bounds, "bounds", torch.int64)
    for name, array in (("src", src), ("dst", dst), ("intervals", intervals), ("bounds", bounds)):
        if not array.is_contiguous():
            raise InvalidInputError(f"{name} is not contiguous", hint=f"{name}.contiguous()")
    _check_rising(intervals, "intervals", src.numel())
    _check_rising(bounds, "bounds", None)
    if bounds.numel() - 1 > PARTS_MOST:
        raise InvalidInputError(f"bounds makes {bounds.numel() - 1} parts, allowed: {PARTS_MOST}")
    return intervals.numel() - 1, bounds.numel() - 1


def _call(name: str, src: Tensor, dst: Tensor, intervals: Tensor, bounds: Tensor, *rest) -> None:
    """Run a compiled pass, which looks at every id anyway; say which are wrong if it refuses."""
    try:
        getattr(extension(_CPU), name)(src, dst, intervals, bounds, *rest)
    except ValueError as error:
        for what, ids in (("src", src), ("dst", dst)):
            check_ids(ids, what, int(bounds[-1]))
        raise InvalidInputError(str(error), hint="each piece is counted and placed once") from None


def _check_rising(array: Tensor, name: str, last: int | None) -> None:
    good = array.numel() >= 2 and int(array[0]) == 0 and not bool((array[1:] < array[:-1]).any())
    if not good or (last is not None and int(array[-1]) != last):
        end = "" if last is None else f" and end at {last}"
        raise InvalidInputError(
            f"{name} is {array[:4].tolist()}...; it must begin at 0, never fall{end}, with two "
            "entries at least"
        )


def _check_cells(array: Tensor, name: str, steps: int, parts: int) -> None:
    if array.dtype != torch.int64 or tuple(array.shape) != (steps, parts, parts):
        raise InvalidInputError(
            f"{name} is {array.dtype}{list(array.shape)}, expected int64[{steps}, {parts}, {parts}]"
        )
    if not array.is_contiguous() or array.device.type != "cpu":
        raise InvalidInputError(f"{name} must be contiguous and on the CPU")


def _threads(threads: int | None) -> int:
    return torch.get_num_threads() if threads is None else threads
