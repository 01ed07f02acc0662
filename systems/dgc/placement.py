"""Placement of vertex-steps on workers: the baselines' partitions and chunks (DGC, section 2.2).

Every partition is the same kind of thing, a worker for each vertex-step in the structure encoder
and one in the time encoder, so one engine runs them all and a difference between two of them can
only come from the partition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from dgbench.kernels_cuda.supergraph import Supergraph
from dgbench.runtime.errors import InvalidInputError

Partition = Literal["snapshots", "snapshots-contiguous", "sequences", "both", "chunks"]


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """Workers of V vertex-steps, numbered as in `Supergraph`.

    Attributes:
        partition: `snapshots` (PSS), `snapshots-contiguous`, `sequences` (PTS), `both` (PSS-TS) or
            `chunks` (PGC).
        workers: P.
        structure: int32[V] in [0, P), the worker of a vertex-step in the structure encoder.
        time: int32[V], in the time encoder; the same object where nothing moves between the two.
        unit: int32[V] in [0, units), what the structure encoder takes at once without fusion: a
            chunk, or a snapshot. A unit of a baseline has a part on each of its workers.
        units: number of units, empty ones included.
    """

    partition: str
    workers: int
    structure: Tensor
    time: Tensor
    unit: Tensor
    units: int

    @property
    def moves(self) -> bool:
        """True if vertex-steps change their worker between the two encoders."""
        return self.time is not self.structure

    def loads(self) -> Tensor:
        """int64[2, P]: vertex-steps of each worker in the structure and in the time encoder."""
        counts = [torch.bincount(w, minlength=self.workers) for w in (self.structure, self.time)]
        return torch.stack(counts)


def by_snapshots(graph: Supergraph, workers: int, *, contiguous: bool = False) -> Placement:
    """PSS: as many snapshots for each worker, all of both encoders there.

    Args:
        graph: the vertex-steps.
        workers: P, at least 1; those beyond the number of snapshots get nothing.
        contiguous: worker p gets one run of snapshots, as in ESDG, whose strategy section 2.2.2
            follows: a recurrence then passes through P stages. Off, every P-th: the loads of a
            graph that grows are more even, but a recurrence passes through a stage a snapshot.
    """
    owner = _snapshot_workers(graph, workers, contiguous)
    name = "snapshots-contiguous" if contiguous else "snapshots"
    return Placement(name, workers, owner, owner, graph.step, graph.steps)


def by_sequences(graph: Supergraph, workers: int) -> Placement:
    """PTS: as many sequences for each worker, all of both encoders there.

    Entities that exist are dealt out in turn, so that those of early ids, which often live longest,
    do not all fall to the first worker.
    """
    owner = _sequence_workers(graph, workers)
    return Placement("sequences", workers, owner, owner, graph.step, graph.steps)


def by_both(graph: Supergraph, workers: int) -> Placement:
    """PSS-TS: structure encoder by snapshots (in turn), time encoder by sequences.

    All structure outputs whose two workers differ move in between.
    """
    structure = _snapshot_workers(graph, workers, False)
    time = _sequence_workers(graph, workers)
    if workers == 1:
        time = structure
    return Placement("both", workers, structure, time, graph.step, graph.steps)


def by_chunks(
    graph: Supergraph, chunk: Tensor, count: int, worker_of_chunk: Tensor, workers: int
) -> Placement:
    """PGC: chunks across snapshots and sequences, a worker for each (section 4).

    Args:
        graph: the vertex-steps.
        chunk: int32[V] in [0, count).
        count: C.
        worker_of_chunk: integers [C] in [0, workers).
        workers: P.

    Raises:
        InvalidInputError: another length, dtype or range.
    """
    _check_workers(workers)
    for name, tensor, length, below in (
        ("chunk", chunk, graph.num_vertices, count),
        ("worker_of_chunk", worker_of_chunk, count, workers),
    ):
        if tensor.dim() != 1 or tensor.numel() != length or tensor.is_floating_point():
            raise InvalidInputError(
                f"{name} is {tensor.dtype} {list(tensor.shape)}, expected integers [{length}]"
            )
        if tensor.numel() and (int(tensor.min()) < 0 or int(tensor.max()) >= below):
            raise InvalidInputError(
                f"{name} holds {int(tensor.min())} to {int(tensor.max())}, allowed are 0 to "
                f"{below - 1}"
            )
    chunk = chunk.to(torch.int32)
    owner = worker_of_chunk.to(torch.int32).index_select(0, chunk.long())
    return Placement("chunks", workers, owner, owner, chunk, count)


def _snapshot_workers(graph: Supergraph, workers: int, contiguous: bool) -> Tensor:
    _check_workers(workers)
    if contiguous:
        return (graph.step.long() * workers).div_(max(1, graph.steps), rounding_mode="floor").int()
    return graph.step.remainder(workers)


def _sequence_workers(graph: Supergraph, workers: int) -> Tensor:
    _check_workers(workers)
    lengths = graph.start.diff()
    turn = torch.cumsum(lengths > 0, 0) - 1
    return torch.repeat_interleave(
        turn.remainder(workers).int(), lengths, output_size=graph.num_vertices
    )


def _check_workers(workers: int) -> None:
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise InvalidInputError(f"workers is {workers!r}, allowed are integers from 1")
