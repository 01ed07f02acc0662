"""The three-dimensional cut: time interval x source part x destination part (section 4.1).

Time is cut into intervals of equal width, as the paper does, or of equally many edges. Vertices
are cut into contiguous ranges of their ids: of equal width, as the paper does, or with equally
many edges by source. Both leave most grids empty where ids mean something: in a bipartite graph
all sources come before all destinations, and where ids follow arrival the first part holds the
hubs. So there is a third cut, `dealt`, which is ours: vertices are dealt out in turns and
renumbered, so that a part is a range of *rows*. The owner of a grid's source part trains it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

import torch
from torch import Tensor

from dgbench.kernels_cuda.grids import SortedGrids, count_grids, place_grids, sort_grids
from dgbench.runtime.errors import InvalidInputError, unknown_key
from dgbench.systems.base.time_borders import border_before

TIME_CUTS: Final = ("width", "edges")
VERTEX_CUTS: Final = ("equal", "edges", "dealt")

Piece = tuple[Tensor, Tensor, Tensor]
"""src, dst int64 and t float64 of consecutive edges."""


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """G ranges of vertices, each owned by one device.

    Attributes:
        bounds: int64[G + 1], first row of each part; from 0 to N.
        rows: int64[N], the row of each vertex where vertices are renumbered; None: their ids.
    """

    bounds: Tensor
    rows: Tensor | None = None

    @property
    def count(self) -> int:
        """G."""
        return self.bounds.numel() - 1

    @property
    def num_vertices(self) -> int:
        """N."""
        return int(self.bounds[-1])

    @property
    def sizes(self) -> list[int]:
        """Vertices of each part."""
        return self.bounds.diff().tolist()

    def slice(self, part: int) -> slice:
        """Rows of a part."""
        return slice(int(self.bounds[part]), int(self.bounds[part + 1]))

    def row(self, vertices: Tensor) -> Tensor:
        """Rows int64[...] of vertices int64[...]."""
        return vertices if self.rows is None else self.rows[vertices]

    def vertices(self) -> Tensor:
        """The vertex of each row, int64[N]."""
        if self.rows is None:
            return torch.arange(self.num_vertices)
        found = torch.empty_like(self.rows)
        found[self.rows] = torch.arange(self.num_vertices)
        return found

    def of(self, vertices: Tensor) -> Tensor:
        """Parts int64[...] of vertices int64[...]."""
        return torch.bucketize(self.row(vertices), self.bounds[1:-1], right=True)


def cut_vertices(
    num_vertices: int, parts: int, *, cut: str = "equal", src: Tensor | None = None
) -> Parts:
    """Cut N vertices into G parts.

    Args:
        num_vertices: N; parts may be empty where there are fewer vertices than parts.
        cut: `equal` width, `edges`: equally many edges by source as far as whole vertices allow,
            or `dealt`: vertex v goes to part v mod G.
        src: int64[E], the sources that `edges` balances.

    Raises:
        UnknownKeyError: another cut. InvalidInputError: no part, or `edges` without sources.
    """
    if cut not in VERTEX_CUTS:
        raise unknown_key("vertex_cut", cut, VERTEX_CUTS)
    if parts < 1 or num_vertices < 0:
        raise InvalidInputError(
            f"'parts' is {parts} and 'num_vertices' {num_vertices}; needed: at least 1 and 0"
        )
    steps = torch.arange(parts + 1)
    if cut == "equal":
        return Parts(steps * num_vertices // parts)
    if cut == "edges":
        if src is None:
            raise InvalidInputError("'src' is None; the cut 'edges' needs the sources of all edges")
        return Parts(_balanced(torch.bincount(src, minlength=num_vertices), parts))
    vertices = torch.arange(num_vertices)
    bounds = torch.zeros(parts + 1, dtype=torch.int64)
    torch.cumsum((num_vertices + parts - 1 - steps[:-1]) // parts, 0, out=bounds[1:])
    return Parts(bounds, bounds[vertices % parts] + vertices // parts)


def _balanced(weight: Tensor, parts: int) -> Tensor:
    """Bounds int64[parts + 1] where the running sum of `weight` is nearest to equal shares."""
    total = torch.zeros(weight.numel() + 1, dtype=torch.int64)
    torch.cumsum(weight, 0, out=total[1:])
    goal = torch.arange(1, parts) * int(total[-1]) // parts
    after = torch.searchsorted(total, goal).clamp(max=weight.numel())
    before = (after - 1).clamp(min=0)
    inner = torch.where(goal - total[before] < total[after] - goal, before, after)
    return torch.cat([torch.tensor([0]), inner, torch.tensor([weight.numel()])])


def cut_time(t: Tensor, intervals: int, *, cut: str = "width", strict: bool = False) -> Tensor:
    """Where time intervals begin in a stream, int64[T + 1], from 0 to E.

    Args:
        t: float64[E], not falling.
        intervals: T.
        cut: `width`: T intervals of equal length of time, each with its begin and without its end
            (the last with both; of a stream with one time all edges are in the last). `edges`:
            equally many edges; edges of one time may then part, unless strict.
        strict: intervals of `edges` begin where time values begin; some may then be empty.

    Raises:
        UnknownKeyError: another cut. InvalidInputError: no interval, or times that fall.
    """
    _check_time_cut(cut, intervals)
    edges = t.numel()
    if edges and bool((t[1:] < t[:-1]).any()):
        raise InvalidInputError("'t' falls somewhere; edges must be in time order")
    steps = torch.arange(intervals + 1)
    if cut == "edges" or not edges:
        places = steps * edges // intervals
        return border_before(t, places) if strict else places
    inner = torch.searchsorted(t, inner_times(float(t[0]), float(t[-1]), intervals))
    return torch.cat([torch.tensor([0]), inner, torch.tensor([edges])])


def inner_times(first: float, last: float, intervals: int) -> Tensor:
    """The T - 1 times, float64, at which an interval ends and the next begins."""
    return first + (last - first) * torch.arange(1, intervals, dtype=torch.float64) / intervals


def _check_time_cut(cut: str, intervals: int) -> None:
    if cut not in TIME_CUTS:
        raise unknown_key("time_cut", cut, TIME_CUTS)
    if intervals < 1:
        raise InvalidInputError(f"'intervals' is {intervals}, needed: at least 1")


class EdgeGrid(NamedTuple):
    """The edges of one grid, in time order.

    Attributes:
        eids: int64[e], places in the stream. src, dst: int32[e], rows counted from the beginning
            of the source part and of the destination part.
    """

    eids: Tensor
    src: Tensor
    dst: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Grids:
    """E edges in grid order: T intervals, G x G parts. Make one with `build` or `build_streamed`.

    Attributes:
        parts: the cut of the vertices.
        intervals: int64[T + 1], place of each interval's first edge in the stream (and, as
            intervals are the outermost dimension, in grid order).
        offsets: int64[T * G * G + 1], first place of grid (k, i, j) at [(k * G + i) * G + j].
        order: int64[E], place in the stream of each edge in grid order.
        local_src, local_dst: int32[E] in grid order, or None; see `EdgeGrid`.
    """

    parts: Parts
    intervals: Tensor
    offsets: Tensor
    order: Tensor
    local_src: Tensor | None
    local_dst: Tensor | None

    @classmethod
    def build(
        cls,
        src: Tensor,
        dst: Tensor,
        t: Tensor,
        num_vertices: int,
        *,
        intervals: int | Tensor,
        parts: int | Parts,
        time_cut: str = "width",
        vertex_cut: str = "equal",
        local: bool = True,
        threads: int | None = None,
    ) -> Grids:
        """Cut a stream of edges.

        Args:
            src, dst: int64[E], vertices in [0, N). t: float64[E], not falling.
            num_vertices: N.
            intervals: T, or int64[T + 1] places that are given (`time_cut` is then not looked at).
            parts: G, or parts that are given (`vertex_cut` is then not looked at).
            time_cut, vertex_cut: see `cut_time` and `cut_vertices`.
            local: also write the vertices as rows of their parts, what a device is sent.

        Raises:
            UnknownKeyError: another cut. InvalidInputError: wrong dtypes, lengths or ranges.
        """
        if isinstance(parts, int):
            parts = cut_vertices(num_vertices, parts, cut=vertex_cut, src=src)
        if isinstance(intervals, int):
            intervals = cut_time(t, intervals, cut=time_cut)
        found = sort_grids(
            *_rows(parts, src, dst), intervals, parts.bounds, local=local, threads=threads
        )
        return cls(
            parts, intervals, found.offsets, found.order, found.local_src, found.local_dst
        )  # fmt: skip

    @property
    def num_intervals(self) -> int:
        """T."""
        return self.intervals.numel() - 1

    @property
    def num_parts(self) -> int:
        """G."""
        return self.parts.count

    @property
    def counts(self) -> Tensor:
        """Edges of each grid, int64[T, G, G]."""
        return self.offsets.diff().view(self.num_intervals, self.num_parts, self.num_parts)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        arrays = (self.intervals, self.offsets, self.order, self.local_src, self.local_dst)
        return sum(a.numel() * a.element_size() for a in arrays if a is not None)

    def slice(self, interval: int, source: int, destination: int) -> slice:
        """Places of a grid in grid order."""
        at = (interval * self.num_parts + source) * self.num_parts + destination
        return slice(int(self.offsets[at]), int(self.offsets[at + 1]))

    def grid(self, interval: int, source: int, destination: int) -> EdgeGrid:
        """The edges of a grid, views of the arrays here.

        Raises:
            InvalidInputError: local rows were not written.
        """
        if self.local_src is None or self.local_dst is None:
            raise InvalidInputError("these grids have no local rows", hint="build with local=True")
        at = self.slice(interval, source, destination)
        return EdgeGrid(self.order[at], self.local_src[at], self.local_dst[at])


def build_streamed(
    pieces: Callable[[], Iterable[Piece]],
    intervals: Callable[[Tensor, int], Tensor],
    parts: Parts,
    *,
    local: bool = True,
    threads: int | None = None,
) -> Grids:
    """Cut a stream that is walked twice, a piece at a time; only the grids are held.

    Args:
        pieces: gives the edges, in time order, whenever called.
        intervals: where intervals begin in a piece; see `by_times` and `by_places`.
        parts: of the vertices.

    Raises:
        InvalidInputError: as `Grids.build`, or the second walk is not the first.
    """
    counts = count_streamed(pieces, intervals, parts, threads=threads)
    offsets = torch.zeros(counts.numel() + 1, dtype=torch.int64)
    torch.cumsum(counts.view(-1), 0, out=offsets[1:])
    edges = int(offsets[-1])
    ends = [torch.empty(edges, dtype=torch.int32) if local else None for _ in range(2)]
    whole = SortedGrids(offsets, torch.empty(edges, dtype=torch.int64), *ends)
    cursors = offsets[:-1].clone().view_as(counts)
    base = 0
    for src, dst, t in pieces():
        starts = intervals(t, base)
        place_grids(
            *_rows(parts, src, dst), starts, parts.bounds, whole, cursors, base=base,
            threads=threads,
        )  # fmt: skip
        base += src.numel()
    if base != edges:
        raise InvalidInputError(f"'pieces' gave {edges} edges and then {base}")
    starts = offsets[:: parts.count**2].clone()
    return Grids(parts, starts, whole.offsets, whole.order, whole.local_src, whole.local_dst)


def count_streamed(
    pieces: Callable[[], Iterable[Piece]],
    intervals: Callable[[Tensor, int], Tensor],
    parts: Parts,
    *,
    threads: int | None = None,
) -> Tensor:
    """Edges of each grid, int64[T, G, G], of a stream that is walked once; nothing is held.

    Pieces whose times fall are put in order, piece by piece, which changes no count. Arguments as
    for `build_streamed`.
    """
    counts: Tensor | None = None
    base = 0
    for src, dst, t in pieces():
        if bool((t[1:] < t[:-1]).any()):
            order = torch.sort(t, stable=True).indices
            src, dst, t = src[order], dst[order], t[order]
        starts = intervals(t, base)
        counts = count_grids(
            *_rows(parts, src, dst), starts, parts.bounds, into=counts, threads=threads
        )
        base += src.numel()
    if counts is None:
        steps = intervals(torch.empty(0, dtype=torch.float64), 0).numel() - 1
        return torch.zeros(steps, parts.count, parts.count, dtype=torch.int64)
    return counts


def by_times(inner: Tensor) -> Callable[[Tensor, int], Tensor]:
    """Intervals that begin at given times, float64[T - 1] (`inner_times`)."""

    def starts(t: Tensor, base: int) -> Tensor:
        ends = torch.tensor([0]), torch.tensor([t.numel()])
        return torch.cat([ends[0], torch.searchsorted(t, inner), ends[1]])

    return starts


def by_places(places: Tensor) -> Callable[[Tensor, int], Tensor]:
    """Intervals that begin at given places of the stream, int64[T + 1]."""

    def starts(t: Tensor, base: int) -> Tensor:
        return (places - base).clamp(0, t.numel())

    return starts


def _rows(parts: Parts, src: Tensor, dst: Tensor) -> tuple[Tensor, Tensor]:
    if parts.rows is None:
        return src, dst
    for name, ids in (("src", src), ("dst", dst)):
        if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < parts.num_vertices:
            raise InvalidInputError(
                f"'{name}' holds ids outside 0 .. {parts.num_vertices - 1}, the vertices of 'parts'"
            )
    return parts.rows[src], parts.rows[dst]
