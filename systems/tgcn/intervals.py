"""Distribution of a time interval over devices: grids of pairs, and the rows that they name.

An interval's edges (u, v) and their negatives (u, w) are *pairs*. A pair belongs to the grid of its
two ends' parts (section 4.1). A part's vertices that an interval reads are its *rows*, in the order
of `local_rows`: first those that are only sources, then both, then only targets. So sources,
targets and the ends of edges are ranges of rows, and what travels is one piece of memory.

Counts and last times of a vertex's edges follow from the edges alone; they are worked out here, on
the host, once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dgbench.kernels_cuda.grids import sort_grids
from dgbench.kernels_cuda.interact import LocalRows, local_rows
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.tgcn.grids import Parts


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Pairs of one grid.

    Attributes:
        src: int32[p + q], among the source part's sources: p edges, then q negatives.
        dst: int32[p + q], among the destination part's targets.
        edges: p.
        latest_s, latest_g: int64, the edges that are their source's (destination's) last ones of
            the interval; None where all of a vertex's edges go in.
    """

    src: Tensor
    dst: Tensor
    edges: int
    latest_s: Tensor | None = None
    latest_g: Tensor | None = None

    def tensors(self) -> list[Tensor]:
        """Tensors sent to a device."""
        return [
            one for one in (self.src, self.dst, self.latest_s, self.latest_g) if one is not None
        ]

    def received(self, tensors: list[Tensor]) -> Pairs:
        """These pairs of tensors that have arrived on a device."""
        return Pairs(tensors[0], tensors[1], self.edges, *tensors[2:])


@dataclass(frozen=True, slots=True, eq=False)
class PartRows:
    """The rows of one part in one interval.

    Attributes:
        ids: int32[n], vertices counted from the part's first.
        sources: rows [0, sources) are read as sources.
        targets: rows [targets, n) are read as destinations or negatives; they travel.
        ends: rows [0, ends) have edges; what waits for them is taken in and replaced.
        count_s, count_g: int32[ends], a row's edges as a source and as a destination.
        time_s, time_g: float64[ends], time of the last of them.
    """

    ids: Tensor
    sources: int
    targets: int
    ends: int
    count_s: Tensor
    count_g: Tensor
    time_s: Tensor
    time_g: Tensor

    @property
    def travelling(self) -> int:
        """Rows that travel round the ring."""
        return self.ids.numel() - self.targets

    def tensors(self) -> list[Tensor]:
        """Tensors sent to a device."""
        return [self.ids, self.count_s, self.count_g, self.time_s, self.time_g]

    def received(self, tensors: list[Tensor]) -> PartRows:
        """This share of tensors that have arrived on a device."""
        ids, *rest = tensors
        return PartRows(ids, self.sources, self.targets, self.ends, *rest)


@dataclass(frozen=True, slots=True, eq=False)
class IntervalTask:
    """Pairs in stream order and the rows that they name (a device's piece of an interval).

    Attributes:
        sources, targets: int64, distinct rows of the interval.
        pairs: among those.
    """

    sources: Tensor
    targets: Tensor
    pairs: Pairs


@dataclass(frozen=True, slots=True, eq=False)
class TimeInterval:
    """One time interval of a plan.

    Attributes:
        number: its place in the plan.
        events: int64[n], ordinals of its edges, in time order.
        shares: of each part.
        src, dst, cuts, latest: pairs by grid, see `grid`.
        tasks: its pairs in stream order, where they are not cut into grids.
        edge_order, negative_order: int64[n], the place in time order of each edge (negative) in
            grid order; None where that is the order.
    """

    number: int
    events: Tensor
    shares: tuple[PartRows, ...]
    src: Tensor
    dst: Tensor
    cuts: np.ndarray  # int64[G * G, 3]: begin, end of edges, end of negatives
    latest: tuple[np.ndarray, np.ndarray] | None
    tasks: tuple[IntervalTask, ...] = ()
    edge_order: Tensor | None = None
    negative_order: Tensor | None = None

    @property
    def edges(self) -> int:
        """Edges of the interval."""
        return self.events.numel()

    @property
    def pairs(self) -> int:
        """Edges and negatives together."""
        return self.src.numel()

    @property
    def rows(self) -> int:
        """Rows of all parts."""
        return sum(share.ids.numel() for share in self.shares)

    def grid(self, source: int, destination: int) -> Pairs:
        """Pairs from one part to another."""
        begin, middle, end = self.cuts[source * len(self.shares) + destination].tolist()
        latest = ()
        if self.latest is not None:
            latest = tuple(
                torch.from_numpy(np.flatnonzero(one[begin:middle])) for one in self.latest
            )
        return Pairs(self.src[begin:end], self.dst[begin:end], middle - begin, *latest)

    def grids(self) -> Iterator[tuple[int, int, Pairs]]:
        """All grids that hold pairs: source part, destination part, pairs."""
        for cell in np.flatnonzero(self.cuts[:, 2] > self.cuts[:, 0]).tolist():
            i, j = divmod(cell, len(self.shares))
            yield i, j, self.grid(i, j)

    @property
    def nbytes(self) -> int:
        """Bytes of its arrays in host memory."""
        held = [self.events, self.src, self.dst]
        held += [one for share in self.shares for one in share.tensors()]
        for task in self.tasks:
            held += [task.sources, task.targets, *task.pairs.tensors()]
        return sum(one.numel() * one.element_size() for one in held)


class Planner:
    """Cuts edges into intervals and grids.

    Args:
        parts: of the vertices.
        touched: name only rows that pairs name; False: all rows of every part, as the paper does.
        latest: of a vertex's partners the last one of an interval goes in, not all of them.
        tasks: cut an interval's pairs into so many pieces in stream order, and not into grids.
    """

    def __init__(
        self, parts: Parts, *, touched: bool = True, latest: bool = False, tasks: int = 0
    ) -> None:
        if tasks and parts.count > 1:
            raise InvalidInputError(f"{parts.count} parts in stream order; 1 part is allowed")
        self.parts = parts
        self.touched, self.latest, self.tasks = touched, latest, tasks
        self._bounds = parts.bounds.numpy()
        self._scratch = torch.full((parts.num_vertices,), -1, dtype=torch.int32)

    def plan(
        self, events: Tensor, src: Tensor, dst: Tensor, negatives: Tensor, t: Tensor, cuts: Tensor
    ) -> Iterator[TimeInterval]:
        """The intervals of n edges in time order, each made when it is asked for; those without
        edges are left out.

        Args:
            events: int64[n] ordinals. src, dst, t: of the edges, int64[n] and float64[n].
            negatives: int64[n] negative destinations, or int64[0] for none.
            cuts: int64[T + 1], place of the first edge of each interval.

        Raises:
            InvalidInputError: lengths that differ, vertices or times out of order.
        """
        if negatives.numel() not in (0, src.numel()):
            raise InvalidInputError(
                f"negatives has {negatives.numel()} vertices, needed: {src.numel()}"
            )
        return self._planned(events, src, dst, negatives, t, cuts)

    def _planned(
        self, events: Tensor, src: Tensor, dst: Tensor, negatives: Tensor, t: Tensor, cuts: Tensor
    ) -> Iterator[TimeInterval]:
        src, dst, negatives = (self.parts.row(ids) for ids in (src, dst, negatives))
        grids = [
            sort_grids(src, ends, cuts, self.parts.bounds)
            if ends.numel() and self.parts.count > 1
            else None
            for ends in (dst, negatives)
        ]
        number = 0
        for k, (first, last) in enumerate(itertools.pairwise(cuts.tolist())):
            if last > first:
                places = [self._places(one, k, first, last) for one in grids]
                piece = [one[first:last] for one in (src, dst, negatives, t)]
                yield self._interval(number, events[first:last], *piece, *places)
                number += 1

    def _places(self, grids, k: int, first: int, last: int) -> tuple[np.ndarray | None, np.ndarray]:
        """Of an interval: the order of its edges by grid, and where each grid begins."""
        cells = self.parts.count**2
        if grids is None:
            starts = np.full(cells + 1, last - first)
            starts[0] = 0
            return None, starts
        order = grids.order[first:last].numpy() - first
        return order, grids.offsets[k * cells : (k + 1) * cells + 1].numpy() - first

    def _interval(
        self,
        number: int,
        events: Tensor,
        src: Tensor,
        dst: Tensor,
        negatives: Tensor,
        t: Tensor,
        edge_places: tuple[np.ndarray | None, np.ndarray],
        negative_places: tuple[np.ndarray | None, np.ndarray],
    ) -> TimeInterval:
        rows = local_rows(src, dst, negatives if negatives.numel() else None, self._scratch)
        shares, place, row = self._shares(rows, t)
        if self.tasks:
            tasks = self._stream_tasks(rows, row)
            none = torch.empty(0, dtype=torch.int32)
            return TimeInterval(
                number, events, shares, none, none, np.zeros((1, 3), int), None, tasks
            )
        # Targets are counted from the first that travels.
        shift = np.array([share.targets for share in shares])
        part_of = np.repeat(np.arange(len(shares)), [share.ids.numel() for share in shares])
        target = place - shift[part_of[row]] if len(shares) > 1 else place - shift[0]
        u, v, w = (one.numpy() for one in (rows.src, rows.dst, rows.neg))
        latest = [_last_of(ends) for ends in (u, v)] if self.latest else []
        edges = [place[u], target[v], *latest]
        negative_ends = [place[u], target[w]] if w.size else None
        (src_, dst_, *latest), cuts = _merged(edges, edge_places, negative_ends, negative_places)
        return TimeInterval(
            number,
            events,
            shares,
            torch.from_numpy(src_.astype(np.int32)),
            torch.from_numpy(dst_.astype(np.int32)),
            cuts,
            tuple(latest) if latest else None,  # type: ignore[arg-type]
            (),
            *(
                None if o is None else torch.from_numpy(o)
                for o, _ in (edge_places, negative_places)
            ),
        )

    def _shares(
        self, rows: LocalRows, t: Tensor
    ) -> tuple[tuple[PartRows, ...], np.ndarray, np.ndarray]:
        """Rows by part; of each of `rows` its place in its part, and among all parts' rows."""
        ids, u, v = rows.ids.numpy(), rows.src.numpy(), rows.dst.numpy()
        counts = [np.bincount(end, minlength=rows.ends)[: rows.ends] for end in (u, v)]
        times = []
        for end in (u, v):
            last = np.zeros(rows.ends)
            last[end] = t.numpy()  # in time order, so the last one stays
            times.append(last)
        marks = [0, rows.targets, rows.sources, rows.ends, ids.size]  # the classes of rows
        runs = [  # by class, then by part
            marks[c] + np.searchsorted(ids[marks[c] : marks[c + 1]], self._bounds) for c in range(4)
        ]
        place, row = np.empty(ids.size, np.int64), np.empty(ids.size, np.int64)
        shares, base = [], 0
        for part in range(self.parts.count):
            pieces = [np.arange(run[part], run[part + 1]) for run in runs]
            sizes = [piece.size for piece in pieces]
            here = np.concatenate(pieces)
            inside = ids[here] - self._bounds[part]
            sources, targets, ends = sizes[0] + sizes[1], sizes[0], sum(sizes[:3])
            place[here] = np.arange(here.size)
            row[here] = base + place[here]
            if not self.touched:
                others = np.ones(int(self._bounds[part + 1] - self._bounds[part]), dtype=bool)
                others[inside] = False
                inside = np.concatenate([inside, np.flatnonzero(others)])
                sources, targets = inside.size, 0
            base += inside.size
            kept = here[:ends]
            shares.append(
                PartRows(
                    torch.from_numpy(inside.astype(np.int32)),
                    sources,
                    targets,
                    ends,
                    *(torch.from_numpy(one[kept].astype(np.int32)) for one in counts),
                    *(torch.from_numpy(one[kept]) for one in times),
                )
            )
        return tuple(shares), place, row

    def _stream_tasks(self, rows: LocalRows, row: np.ndarray) -> tuple[IntervalTask, ...]:
        """An interval's pairs in stream order, in pieces of equal size."""
        place = torch.from_numpy(row)
        u, v, w = (place[one] for one in (rows.src, rows.dst, rows.neg))
        found = []
        latest = [torch.from_numpy(_last_of(e.numpy())) for e in (u, v)] if self.latest else []
        steps = [k * u.numel() // self.tasks for k in range(self.tasks + 1)]
        for first, last in itertools.pairwise(steps):
            negatives = w[first:last]
            sources, at_u = torch.unique(u[first:last], return_inverse=True)
            targets, at_v = torch.unique(torch.cat([v[first:last], negatives]), return_inverse=True)
            if negatives.numel():
                at_u = torch.cat([at_u, at_u])
            kept = (one[first:last].nonzero().squeeze(1) for one in latest)
            pairs = Pairs(at_u.to(torch.int32), at_v.to(torch.int32), last - first, *kept)
            found.append(IntervalTask(sources, targets, pairs))
        return tuple(found)


def _last_of(ends: np.ndarray) -> np.ndarray:
    """bool[n], whether each edge is the last one of its end."""
    if not ends.size:
        return np.zeros(0, dtype=bool)
    last = np.empty(int(ends.max()) + 1, dtype=np.int64)
    last[ends] = np.arange(ends.size)
    return last[ends] == np.arange(ends.size)


def _merged(
    edges: list[np.ndarray],
    edge_places: tuple[np.ndarray | None, np.ndarray],
    negative_ends: list[np.ndarray] | None,
    negative_places: tuple[np.ndarray | None, np.ndarray],
) -> tuple[list[np.ndarray], np.ndarray]:
    """Columns of pairs by grid, a grid's edges before its negatives, and the cuts of the grids."""
    order, starts = edge_places
    if order is not None:
        edges = [column[order] for column in edges]
    own = np.diff(starts)
    cuts = np.zeros((own.size, 3), dtype=np.int64)
    if negative_ends is None:
        cuts[:, 0], cuts[:, 1], cuts[:, 2] = starts[:-1], starts[1:], starts[1:]
        return edges, cuts
    order, negative_starts = negative_places
    if order is not None:
        negative_ends = [column[order] for column in negative_ends]
    drawn = np.diff(negative_starts)
    ends = np.cumsum(own + drawn)
    cuts[:, 0], cuts[:, 1], cuts[:, 2] = ends - own - drawn, ends - drawn, ends
    at = np.repeat(cuts[:, 0] - starts[:-1], own) + np.arange(edges[0].size)
    negative_at = np.repeat(cuts[:, 1] - negative_starts[:-1], drawn) + np.arange(
        negative_ends[0].size
    )
    found = []
    for k, column in enumerate(edges):
        whole = np.zeros(edges[0].size + negative_ends[0].size, dtype=column.dtype)
        whole[at] = column
        if k < len(negative_ends):
            whole[negative_at] = negative_ends[k]
        found.append(whole)
    return found, cuts
