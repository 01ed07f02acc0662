"""The supergraph of a sequence of snapshots, and chunks of it (DGC, sections 3.1 and 3.2).

Its vertices are vertex-steps, an entity in one snapshot. They are numbered by entity and then by
step: temporal neighbours are the ids before and after, an entity's steps lie together, and rows
come out sorted. (Equation 1 numbers by step and then by entity; a name of a label does not matter
except where a tie falls to the smallest.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import torch
from torch import Tensor

from dgbench.kernels_cuda._checks import check_ids, check_vector
from dgbench.kernels_cuda.build_info import extension
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.csr.check import check_csr
from dgbench.kernels_cuda.transpose import transpose_unchecked
from dgbench.runtime.errors import InvalidInputError, UnsupportedError, unknown_key

Presence = Literal["edges", "span", "tail"]
PRESENCE: Final[dict[str, int]] = {"edges": 0, "span": 1, "tail": 2}
INCOMING: Final = 1
"""Bit of `Supergraph.direction`: the edge leads from the column to the row, in their snapshot."""
OUTGOING: Final = 2
"""Bit of `Supergraph.direction`: the edge leads from the row to the column."""
_LARGEST: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, eq=False)
class Supergraph:
    """V vertex-steps of N entities over T snapshots, all edges in both directions.

    Attributes:
        csr: V x V, columns ascending, without self loops and repeated entries.
        edge_weight: int32[nnz].
        start: int64[N + 1]; entity v has the ids start[v] .. start[v + 1] - 1, in order of steps.
        step: int32[V], the snapshot of each vertex-step.
        entity: int32[V].
        steps: T.
        temporal_edges: pairs of consecutive steps of an entity, each counted once.
        direction: uint8[nnz] of INCOMING and OUTGOING, 0 for an edge in time; None: both ways
            everywhere.
    """

    csr: Csr
    edge_weight: Tensor
    start: Tensor
    step: Tensor
    entity: Tensor
    steps: int
    temporal_edges: int
    direction: Tensor | None = None

    @property
    def num_vertices(self) -> int:
        """V."""
        return self.csr.num_rows

    def directions(self) -> Tensor:
        """`direction`, made where it is None."""
        if self.direction is not None:
            return self.direction
        rows = torch.repeat_interleave(
            self.entity, self.csr.indptr.diff(), output_size=self.csr.nnz
        )
        spatial = rows != self.entity[self.csr.indices.long()]
        return spatial.to(torch.uint8) * (INCOMING | OUTGOING)

    def incoming(self) -> Csr:
        """V x V: row v holds the sources of the edges into v in its snapshot, ascending."""
        keep = (self.directions() & INCOMING).bool()
        upto = torch.zeros(self.csr.nnz + 1, dtype=torch.int64)
        torch.cumsum(keep, 0, out=upto[1:])
        return Csr(upto[self.csr.indptr], self.csr.indices[keep], self.num_vertices)


def build_supergraph(
    csrs: Sequence[Csr],
    *,
    spatial: int = 1,
    temporal: int = 1,
    per_length: bool = False,
    presence: Presence = "span",
    threads: int | None = None,
) -> Supergraph:
    """Join T snapshots over N entities into one graph.

    Args:
        csrs: T matrices of N x N on the CPU, columns strictly ascending; the same object may
            repeat. Self loops are left out: no partition can cut them. Values are not read.
        spatial: weight of one direction of an edge in a snapshot. An edge stored both ways weighs
            twice that: what two vertices send each other is sent twice if they are apart.
        temporal: weight of the edge between consecutive steps of an entity.
        per_length: weigh it L - 1 times as much in a sequence of L steps: attention reads all
            steps, so up to L rows cross a cut; a stand-in for edges between all pairs.
        presence: an entity is there in snapshots where it has an edge (`edges`), from its first
            such to its last (`span`), or from the first to the end (`tail`). The paper does not
            say; its counts of vertices need one of the latter two.
        threads: OpenMP threads, torch's number if None. The result does not depend on it.

    Raises:
        InvalidInputError: no snapshots, malformed or different shapes, weights out of range.
        UnknownKeyError: another `presence`.
        UnsupportedError: 2^31 vertex-steps or more.
    """
    if presence not in PRESENCE:
        raise unknown_key("presence", presence, PRESENCE)
    threads = torch.get_num_threads() if threads is None else threads
    count = _check_snapshots(csrs)
    for name, value in (("spatial", spatial), ("temporal", temporal)):
        if not 0 <= value <= _LARGEST // 2:
            raise InvalidInputError(f"{name} is {value}, allowed are 0 to {_LARGEST // 2}")
    native = extension(csrs[0].indptr.device)
    turned = {id(csr): transpose_unchecked(csr) for csr in {id(c): c for c in csrs}.values()}
    into = [csr.indptr for csr in csrs], [csr.indices for csr in csrs]
    outof = [turned[id(csr)].indptr for csr in csrs], [turned[id(csr)].indices for csr in csrs]
    words = -(-len(csrs) // 64)
    bits = torch.empty(count * words, dtype=torch.uint64)
    lengths = torch.empty(count, dtype=torch.int64)
    native.mark_presence(*into, bits, words, lengths, PRESENCE[presence], threads)
    start = torch.zeros(count + 1, dtype=torch.int64)
    torch.cumsum(lengths, 0, out=start[1:])
    vertices = int(start[-1])
    if vertices > _LARGEST:
        raise UnsupportedError(
            f"{vertices} vertex-steps; ids of the supergraph end at {_LARGEST}",
            hint="take fewer snapshots or presence='edges'",
        )
    longest = int(lengths.max()) if count else 0
    if per_length and temporal * max(0, longest - 1) > _LARGEST:
        raise InvalidInputError(
            f"temporal is {temporal} and a sequence has {longest} steps; with per_length the "
            f"product may be {_LARGEST} at most"
        )
    offsets = torch.empty(vertices + 1, dtype=torch.int64)
    native.count_supergraph(*into, *outof, bits, words, start, offsets, threads)
    entries = int(offsets[-1])
    columns = torch.empty(entries, dtype=torch.int32)
    weight = torch.empty(entries, dtype=torch.int32)
    direction = torch.empty(entries, dtype=torch.uint8)
    step = torch.empty(vertices, dtype=torch.int32)
    entity = torch.empty(vertices, dtype=torch.int32)
    native.fill_supergraph(
        *into,
        *outof,
        bits,
        words,
        start,
        offsets,
        columns,
        weight,
        direction,
        step,
        entity,
        spatial,
        temporal,
        per_length,
        threads,
    )
    consecutive = vertices - int((lengths > 0).sum())
    csr = Csr(offsets, columns, vertices)
    return Supergraph(csr, weight, start, step, entity, len(csrs), consecutive, direction)


def chunk_sequences(graph: Supergraph, chunk: Tensor, chunks: int) -> tuple[Tensor, Tensor]:
    """(sequences, longest), int64[C] each.

    A sequence is all steps that one entity has in a chunk (section 4.3 packs them), also where
    another chunk holds steps between them; `longest` is the largest number of steps of one.

    Raises:
        InvalidInputError: `chunk` is not int32[V] in [0, C).
    """
    _check_chunk(graph, chunk, chunks)
    sequences, longest = (torch.empty(chunks, dtype=torch.int64) for _ in range(2))
    extension(chunk.device).chunk_sequences(graph.start, chunk, sequences, longest)
    return sequences, longest


def chunk_edges(graph: Supergraph, chunk: Tensor, chunks: int) -> tuple[Tensor, Tensor]:
    """(edges, inner), int64[C] each.

    Edges that end in a chunk, those from other chunks included, each way of a pair for itself; and
    pairs with both ends inside, each once.

    Raises:
        InvalidInputError: `chunk` is not int32[V] in [0, C).
    """
    _check_chunk(graph, chunk, chunks)
    edges, inner = (torch.empty(chunks, dtype=torch.int64) for _ in range(2))
    csr = graph.csr
    extension(chunk.device).chunk_edges(
        csr.indptr, csr.indices, graph.directions(), chunk, edges, inner
    )
    return edges, inner


def weight_apart(csr: Csr, edge_weight: Tensor, part: Tensor) -> int:
    """Weight of the entries of a square matrix whose row and column `part`, int32[V], puts apart.

    Raises:
        InvalidInputError: weights or parts of another dtype or length.
    """
    check_vector(edge_weight, "edge_weight", torch.int32, csr.nnz)
    check_vector(part, "part", torch.int32, csr.num_rows)
    return extension(part.device).weight_apart(csr.indptr, csr.indices, edge_weight, part)


def chunk_traffic(graph: Supergraph, chunk: Tensor, chunks: int) -> tuple[Csr, Tensor]:
    """h(a, a') of equation 3: the weight of all edges between two chunks.

    Returns:
        A C x C matrix, symmetric, columns ascending, without its diagonal; and int64[nnz], the
        weight of each entry. Edges inside chunks are in neither.

    Raises:
        InvalidInputError: `chunk` is not int32[V] in [0, C).
    """
    return contract(graph.csr, graph.edge_weight, chunk, chunks)


def contract(csr: Csr, edge_weight: Tensor, chunk: Tensor, chunks: int) -> tuple[Csr, Tensor]:
    """`chunk_traffic` of any square matrix with int32[nnz] weights: a vertex for each chunk.

    Raises:
        InvalidInputError: a malformed or rectangular matrix, weights of another dtype or length, or
            `chunk` is not int32[V] in [0, C).
    """
    check_csr(csr, "csr")
    if csr.num_rows != csr.num_cols:
        raise InvalidInputError(f"csr is {csr.num_rows} x {csr.num_cols}, expected a square matrix")
    check_vector(edge_weight, "edge_weight", torch.int32, csr.nnz)
    check_vector(chunk, "chunk", torch.int32, csr.num_rows)
    check_ids(chunk, "chunk", chunks)
    order, first = order_by_chunk(chunk, chunks)
    offsets = torch.empty(chunks + 1, dtype=torch.int64)
    columns = torch.empty(csr.nnz, dtype=torch.int32)
    weight = torch.empty(csr.nnz, dtype=torch.int64)
    used = extension(chunk.device).chunk_traffic(
        csr.indptr, csr.indices, edge_weight, chunk, order, first, offsets, columns, weight
    )
    return Csr(offsets, columns[:used].clone(), chunks), weight[:used].clone()


def order_by_chunk(chunk: Tensor, chunks: int) -> tuple[Tensor, Tensor]:
    """Vertices by chunk, int64[V], ascending inside each; and offsets int64[C + 1] of the chunks.

    Raises:
        InvalidInputError: `chunk` is not int32[V] in [0, C).
    """
    check_vector(chunk, "chunk", torch.int32, chunk.numel())
    check_ids(chunk, "chunk", chunks)
    order = torch.empty(chunk.numel(), dtype=torch.int64)
    first = torch.empty(chunks + 1, dtype=torch.int64)
    extension(chunk.device).order_by_chunk(chunk.contiguous(), first, order)
    return order, first


def assign_greedy(
    order: Tensor,
    workload: Tensor,
    traffic: tuple[Csr, Tensor],
    workers: int,
    target: float,
    epsilon: float,
    guarded: bool,
) -> Tensor:
    """The loop of Algorithm 1 (section 3.5): chunks in `order` to the worker of the best score.

    The score is (target - load) * (h + epsilon), h the traffic with the chunks a worker has. The
    first worker wins a tie; `guarded`: the smallest load does, and where no worker is below the
    target the smallest load is taken whatever the score.

    Args:
        order: int64[C], a permutation.
        workload: float64[C].
        traffic: C x C and int64[nnz], from `chunk_traffic`.
        workers: M, at least 1.
        target: the load that a worker should get.

    Returns:
        int32[C], the worker of each chunk.

    Raises:
        InvalidInputError: arrays of another dtype or length, or no worker.
    """
    csr, weight = traffic
    check_csr(csr, "traffic")
    chunks = csr.num_rows
    if csr.num_cols != chunks:
        raise InvalidInputError(f"traffic is {chunks} x {csr.num_cols}, expected a square matrix")
    check_vector(order, "order", torch.int64, chunks)
    check_ids(order, "order", chunks)
    check_vector(workload, "workload", torch.float64, chunks)
    check_vector(weight, "traffic weight", torch.int64, csr.nnz)
    if workers < 1:
        raise InvalidInputError(f"workers is {workers}, allowed are numbers from 1")
    worker = torch.empty(chunks, dtype=torch.int32)
    extension(order.device).assign_greedy(
        order, workload, csr.indptr, csr.indices, weight, workers, target, epsilon, guarded, worker
    )
    return worker


def _check_snapshots(csrs: Sequence[Csr]) -> int:
    if not csrs:
        raise InvalidInputError("csrs is empty, expected at least one snapshot")
    count = csrs[0].num_rows
    seen: set[int] = set()
    for t, csr in enumerate(csrs):
        if (csr.num_rows, csr.num_cols) != (count, count):
            raise InvalidInputError(
                f"csrs[{t}] is {csr.num_rows} x {csr.num_cols}, expected {count} x {count}"
            )
        if id(csr) not in seen:
            check_csr(csr, f"csrs[{t}]", ascending=True)
            seen.add(id(csr))
    return count


def _check_chunk(graph: Supergraph, chunk: Tensor, chunks: int) -> None:
    check_vector(chunk, "chunk", torch.int32, graph.num_vertices)
    check_ids(chunk, "chunk", chunks)
