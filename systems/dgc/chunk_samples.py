"""Chunks to measure: cut from a graph, or drawn at random over a wide range of sizes.

The paper measures 50,000 random chunks of its four graphs. Ours are half chunks of the graphs at
hand, of many sizes, and half random ones, so that a predictor also knows what those graphs lack.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor

from dgbench.kernels_cuda.csr import Csr
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.dgc.chunk_times import LocalChunk
from dgbench.systems.dgc.supergraph import ChunkStatistics, chunk_statistics, make_chunks

if TYPE_CHECKING:
    from dgbench.kernels_cuda.supergraph import Supergraph

LARGEST: Final = 16384
"""Vertex-steps of a random chunk at most."""
DEGREES: Final = (1 / 64, 32.0)
"""Range of a random chunk's edges per vertex-step."""
LONGEST: Final = 512
"""Steps of a random chunk's longest sequence at most."""


class GraphChunks:
    """All chunks of one cut of a graph.

    Args:
        graph: the vertex-steps.
        chunk: int32[V] in [0, count).
        source: the graph's name.
        hears: `graph.incoming()` where it is at hand.

    Attributes:
        statistics: sizes of the chunks.
    """

    def __init__(
        self, graph: Supergraph, chunk: Tensor, count: int, source: str, hears: Csr | None = None
    ) -> None:
        self.graph, self.chunk = graph, chunk
        self.hears = graph.incoming() if hears is None else hears
        self.count, self.source = count, source
        self.statistics: ChunkStatistics = chunk_statistics(graph, chunk, count)
        self._order = torch.argsort(chunk, stable=True)
        self._first = [0, *torch.cumsum(self.statistics.vertices, 0).tolist()]
        degree = self.hears.indptr.diff() + 1
        self._scale = degree.double().pow(-0.5).float()
        self._place = torch.full((graph.num_vertices,), -1, dtype=torch.int64)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> LocalChunk:
        """Chunk `number` as a worker sees it."""
        return self._cut(self.members(number))

    def members(self, number: int) -> Tensor:
        """int64[R], the vertex-steps of a chunk, ascending."""
        return self._order[self._first[number] : self._first[number + 1]]

    def together(self, numbers: Sequence[int]) -> LocalChunk:
        """Several chunks as one, as fusion runs those of a worker."""
        parts = [self.members(number) for number in numbers]
        return self._cut(torch.cat(parts).sort().values if parts else torch.zeros(0).long())

    def _cut(self, members: Tensor) -> LocalChunk:
        rows = members.numel()
        begin = self.hears.indptr[members]
        counts = self.hears.indptr[members + 1] - begin
        indptr = torch.zeros(rows + 1, dtype=torch.int64)
        torch.cumsum(counts, 0, out=indptr[1:])
        entry = torch.arange(int(indptr[-1]))
        entry += torch.repeat_interleave(begin - indptr[:-1], counts)
        columns = self.hears.indices[entry].long()
        place = self._place
        place[members] = torch.arange(rows)
        others = columns[place[columns] < 0].unique()
        place[others] = torch.arange(rows, rows + others.numel())
        local = place[columns]
        place[members] = place[others] = -1
        scale = self._scale
        values = torch.repeat_interleave(scale[members], counts) * scale[columns]
        local, values = _ascending(indptr, local, values)
        csr = Csr(indptr, local.to(torch.int32), rows + others.numel(), values)
        _, lengths = torch.unique_consecutive(self.graph.entity[members], return_counts=True)
        key = int.from_bytes(blake2b(members.numpy().tobytes(), digest_size=8).digest())
        return LocalChunk(csr, scale[members] ** 2, lengths, self.source, key)


def _ascending(indptr: Tensor, columns: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Columns ascending in every row: others' come behind the chunk's own."""
    row = torch.repeat_interleave(torch.arange(indptr.numel() - 1), indptr.diff())
    order = torch.argsort(row * (int(columns.max()) + 1 if columns.numel() else 1) + columns)
    return columns[order], values[order]


def cuts_of(
    graph: Supergraph, caps: Sequence[int], *, source: str, seed: int = 0
) -> list[GraphChunks]:
    """The graph cut by label propagation, once for each cap of vertex-steps."""
    hears = graph.incoming()
    made = [make_chunks(graph, max(1, cap), seed=seed) for cap in caps]
    return [GraphChunks(graph, one.chunk, one.count, source, hears) for one in made]


def mixed(
    cuts: Sequence[GraphChunks], count: int, *, seed: int = 0, largest: int = LARGEST
) -> list[LocalChunk]:
    """`count` different chunks in any order: half random, half of these cuts; fewer of small cuts.

    A graph's tiny components are chunks of several cuts; each is taken once, so that no part of the
    list holds a chunk of another part.
    """
    draw = torch.Generator().manual_seed(seed)
    found: dict[tuple[str, int], LocalChunk] = {}
    share = -(-count // (2 * len(cuts))) if cuts else 0
    for cut in cuts:
        fitting = (cut.statistics.vertices <= largest).nonzero().squeeze(1)
        for place in spread(cut.statistics.vertices[fitting], share, draw).tolist():
            chunk = cut[int(fitting[place])]
            found[chunk.source, chunk.key] = chunk
    for chunk in RandomChunks(seed, largest).take(max(0, count - len(found))):
        found[chunk.source, chunk.key] = chunk
    chunks = list(found.values())
    return [chunks[i] for i in torch.randperm(len(chunks), generator=draw).tolist()][:count]


def spread(sizes: Tensor, count: int, draw: torch.Generator) -> Tensor:
    """int64: up to `count` numbers of `sizes`, spread evenly over the logarithm of the size.

    Most chunks of a cut are tiny; drawn evenly there would be few of those that hold the work.
    """
    band = sizes.clamp(min=1).double().log2().mul(2).round().long()
    crowd = torch.bincount(band)[band] if band.numel() else band
    # The smallest of exponential waits are a draw without replacement by weights 1 / crowd.
    wait = torch.empty(sizes.numel(), dtype=torch.float64).exponential_(generator=draw) * crowd
    return wait.argsort()[:count]


@dataclass(frozen=True, slots=True)
class RandomChunks:
    """Chunks without a graph: sizes drawn evenly over their logarithm.

    Vertex-steps from 1 to `largest`; edges per vertex-step over DEGREES, one chunk in ten without;
    sequences of equal, of geometric and of mixed lengths; any share of edges from other chunks,
    which hold few or many distinct vertex-steps; even and skewed degrees.

    Attributes:
        seed: of the draw. largest: vertex-steps at most.
    """

    seed: int = 0
    largest: int = LARGEST

    def take(self, count: int) -> list[LocalChunk]:
        """`count` chunks; the same for the same seed."""
        if self.largest < 1 or count < 0:
            raise InvalidInputError(
                f"largest is {self.largest} and count {count}, allowed are numbers from 1 and 0"
            )
        draw = torch.Generator().manual_seed(self.seed)
        return [self._one(draw) for _ in range(count)]

    def _one(self, draw: torch.Generator) -> LocalChunk:
        rows = max(1, round(_log_uniform(1, self.largest, draw)))
        degree = 0.0 if _uniform(draw) < 0.1 else _log_uniform(*DEGREES, draw)
        lengths = _lengths(rows, draw)
        edges = round(rows * degree)
        halo = max(1, round(edges * _uniform(draw))) if edges else 0
        skew = 1.0 + 2.0 * _uniform(draw)
        row = (torch.rand(edges, generator=draw) ** skew * rows).long()
        column = (torch.rand(edges, generator=draw) ** skew * rows).long()
        far = torch.rand(edges, generator=draw) < _uniform(draw)
        column[far] = rows + (torch.rand(int(far.sum()), generator=draw) * halo).long()
        keep = row != column
        keys = (row[keep] * (rows + halo) + column[keep]).unique()
        row, column = keys // (rows + halo), keys % (rows + halo)
        outer = column >= rows
        seen, column[outer] = column[outer].unique(return_inverse=True)
        column[outer] += rows
        indptr = torch.zeros(rows + 1, dtype=torch.int64)
        torch.cumsum(torch.bincount(row, minlength=rows), 0, out=indptr[1:])
        csr = Csr(
            indptr,
            column.to(torch.int32),
            rows + seen.numel(),
            torch.rand(keys.numel(), generator=draw),
        )
        loop = torch.rand(rows, generator=draw)
        return LocalChunk(csr, loop, lengths, "random", int(_uniform(draw) * 2**53))


def _uniform(draw: torch.Generator) -> float:
    return float(torch.rand((), generator=draw, dtype=torch.float64))


def _log_uniform(low: float, high: float, draw: torch.Generator) -> float:
    return math.exp(math.log(low) + (math.log(high) - math.log(low)) * _uniform(draw))


def _lengths(rows: int, draw: torch.Generator) -> Tensor:
    """int64[n] that add up to `rows`."""
    mean = _log_uniform(1, max(1, min(rows, LONGEST // 2)), draw)
    kind = _uniform(draw)
    count = math.ceil(2 * rows / mean) + 8
    if kind < 1 / 3:
        drawn = torch.full((count,), max(1, round(mean)))
    elif kind < 2 / 3:
        drawn = torch.empty(count).exponential_(1 / mean, generator=draw).ceil().long()
    else:  # a few long among short ones
        long = torch.rand(count, generator=draw) < 0.1
        drawn = torch.where(long, round(4 * mean), max(1, round(mean / 2))).long()
    drawn = drawn.clamp(1, min(rows, LONGEST))
    ends = torch.cumsum(drawn, 0)
    while int(ends[-1]) < rows:
        drawn = torch.cat([drawn, drawn])
        ends = torch.cumsum(drawn, 0)
    last = int(torch.searchsorted(ends, rows))
    kept = drawn[: last + 1].clone()
    kept[-1] -= ends[last] - rows
    return kept
