"""A-hat of all snapshots over vertex-steps, and the arithmetic of rows that plans share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.supergraph import Supergraph
from dgbench.kernels_cuda.transpose import transpose_unchecked
from dgbench.runtime.errors import InvalidInputError

if TYPE_CHECKING:
    from dgbench.datasets import SnapshotSequence


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """A-hat of all snapshots over V vertex-steps.

    Attributes:
        csr: V x V; row v holds who v hears, ascending, without loops; float32 values.
        loop: float32[V], the values of the loops.
    """

    csr: Csr
    loop: Tensor


def step_entries(data: SnapshotSequence, graph: Supergraph, norm: str = "sym") -> Entries:
    """A-hat over vertex-steps, from in-edges as loaded.

    Args:
        data: its first `graph.steps` snapshots are those that the graph was made of.
        graph: the vertex-steps.
        norm: see `datasets.transforms.factors`.

    Raises:
        InvalidInputError: a snapshot has an edge at a vertex that the graph does not have there,
            or there are fewer snapshots.
    """
    from dgbench.datasets.transforms import factors

    if len(data) < graph.steps:
        raise InvalidInputError(f"data has {len(data)} snapshots, the graph {graph.steps}")
    count = graph.num_vertices
    find = _Finder(graph)
    rows, lengths, columns, values = [], [], [], []
    for t in range(graph.steps):
        csr = data.topology[t]
        held = csr.indptr.diff()
        some = held.nonzero().squeeze(1)
        rows.append(find(some, t))
        lengths.append(held[some])
        columns.append(find(csr.indices.long(), t))
        if csr.values is not None:
            values.append(csr.values)
    if values and len(values) != graph.steps:
        raise InvalidInputError("some snapshots of data have weights and others have none")
    row, length, column = (torch.cat(parts) for parts in (rows, lengths, columns))
    held = torch.zeros(count, dtype=torch.int64).index_copy_(0, row, length)
    indptr = offsets_of(held)
    # Snapshot by snapshot becomes row by row: a run of entries moves as a whole.
    begin = torch.cumsum(length, 0) - length
    to = torch.repeat_interleave(indptr[row] - begin, length, output_size=column.numel())
    to += torch.arange(column.numel())
    indices = torch.empty(column.numel(), dtype=torch.int32)
    indices[to] = column.to(torch.int32)
    weight = torch.ones(column.numel())
    if values:
        weight[to] = torch.cat(values)
    csr = Csr(indptr, indices, count, weight if values else None)
    row_scale, col_scale = factors(csr, norm)
    weight *= torch.repeat_interleave(row_scale, held, output_size=weight.numel())
    weight *= col_scale[indices]
    return Entries(Csr(indptr, indices, count, weight), row_scale * col_scale)


class _Finder:
    """Ids of vertex-steps by entity and snapshot."""

    def __init__(self, graph: Supergraph) -> None:
        self._graph = graph
        lengths = graph.start.diff()
        self._alive = lengths > 0
        last = (graph.start[1:] - 1).clamp(min=0)
        count = graph.num_vertices
        self._first = torch.zeros_like(lengths)
        if count:
            self._first = graph.step[graph.start[:-1].clamp(max=count - 1)].long()
        span = graph.step[last].long() - self._first + 1 if count else lengths
        self._dense = bool((span[self._alive] == lengths[self._alive]).all())
        self._shift = graph.start[:-1] - self._first
        self._key: Tensor | None = None
        if not self._dense:
            self._key = graph.entity.long() * graph.steps + graph.step

    def __call__(self, entity: Tensor, t: int) -> Tensor:
        """int64 ids. Raises InvalidInputError where there is none."""
        if entity.numel() == 0:
            return entity
        graph = self._graph
        if self._key is None:
            ids = self._shift[entity] + t
            good = self._alive[entity] & (ids >= graph.start[entity])
            good &= ids < graph.start[entity + 1]
        else:
            wanted = entity * graph.steps + t
            ids = torch.searchsorted(self._key, wanted).clamp_(max=self._key.numel() - 1)
            good = self._key[ids] == wanted
        if not bool(good.all()):
            missing = int(entity[~good][0])
            raise InvalidInputError(
                f"snapshot {t} has an edge at vertex {missing}, which the graph lacks there",
                hint="build the graph of the same snapshots",
            )
        return ids


def offsets_of(lengths: Tensor) -> Tensor:
    """[0, running sums]."""
    out = torch.zeros(lengths.numel() + 1, dtype=torch.int64)
    torch.cumsum(lengths, 0, out=out[1:])
    return out


def starts_of(lengths: Tensor) -> Tensor:
    """Sums of the lengths before each."""
    return torch.cumsum(lengths, 0) - lengths


def runs_of(begin: Tensor, length: Tensor) -> Tensor:
    """begin[i], begin[i] + 1, ... of every run, one run behind the other."""
    total = int(length.sum())
    shift = torch.repeat_interleave(begin - starts_of(length), length, output_size=total)
    return shift + torch.arange(total)


def ascending(csr: Csr) -> Csr:
    """The same matrix with ascending columns, in linear time."""
    return transpose_unchecked(transpose_unchecked(csr))
