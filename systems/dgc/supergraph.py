"""From snapshots to chunks and their statistics (DGC, sections 3.1 to 3.4).

The paper propagates labels once. On chains of steps without spatial edges that ends early: a vertex
between two equal neighbours keeps its label on the tie, so chunks stay at a few vertices, far below
their cap. `levels` above 1 contracts the chunks to vertices and propagates again until chunks fill
their cap or nothing moves; `levels=1` is what the paper describes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor

from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.label_propagation import LabelRun, propagate_labels
from dgbench.kernels_cuda.supergraph import (
    Supergraph,
    chunk_edges,
    chunk_sequences,
    contract,
    weight_apart,
)
from dgbench.runtime.errors import InvalidInputError

if TYPE_CHECKING:
    pass

_MANY: Final = 100_000
"""Chunks from which a level looks only at those whose neighbours changed."""


@dataclass(frozen=True, slots=True)
class ExchangeCounts:
    """Traffic of one block of a model along a cut edge, from a counter run of it (section 3.2).

    Attributes:
        spatial: exchanges along an edge of a snapshot, in each direction; 2 for the two GCN layers
            of the T-GCN model.
        spatial_floats: floats of one of them.
        temporal: exchanges along an edge in time; 1 for a recurrence.
        temporal_floats: floats of one of them.
        all_steps: a step hears all others of its entity (attention), not only the one before.
        move_floats: floats of a row that changes workers between the encoders, there and back; 0
            where that is not known. No weight, but what PSS-TS would send.
    """

    spatial: int
    spatial_floats: int
    temporal: int
    temporal_floats: int
    all_steps: bool = False
    move_floats: int = 0

    def weights(self) -> tuple[int, int]:
        """(spatial, temporal) edge weights without a common factor.

        Raises InvalidInputError for negative counts.
        """
        parts = self.spatial, self.spatial_floats, self.temporal, self.temporal_floats
        if min(parts) < 0:
            raise InvalidInputError(f"exchange counts are {parts}, allowed are numbers from 0")
        spatial = self.spatial * self.spatial_floats
        temporal = self.temporal * self.temporal_floats
        factor = math.gcd(spatial, temporal) or 1
        return spatial // factor, temporal // factor


@dataclass(frozen=True, slots=True, eq=False)
class Chunks:
    """Chunks of a supergraph.

    Attributes:
        chunk: int32[V] in [0, count).
        count: C.
        cap: vertex-steps of a chunk at most.
        runs: label propagation of each level, the first on vertex-steps.
        traffic: `chunk_traffic` of these chunks; weights of many levels may have been scaled down
            by a power of two to fit 32 bits.
    """

    chunk: Tensor
    count: int
    cap: int
    runs: tuple[LabelRun, ...]
    traffic: tuple[Csr, Tensor]


@dataclass(frozen=True, slots=True, eq=False)
class ChunkStatistics:
    """int64[C] each, by chunk.

    Attributes:
        vertices: vertex-steps.
        edges: edges that end in the chunk, those from other chunks included: what its structure
            encoder adds up. Where a graph does not say who hears whom, each pair ends at both.
        inner_edges: pairs with both ends in the chunk, counted once.
        sequences: entities with a step in the chunk.
        longest: steps of the longest of its sequences.
    """

    vertices: Tensor
    edges: Tensor
    inner_edges: Tensor
    sequences: Tensor
    longest: Tensor

    @property
    def padded(self) -> Tensor:
        """Rows of its sequences padded to the longest."""
        return self.sequences * self.longest

    def features(
        self, feature_dim: int, layer_dims: Sequence[int], *, lengths: bool = False
    ) -> Tensor:
        """float32[C, 3 + layers (+ 2)]: the inputs of the workload predictor (section 3.4).

        Vertices, edges, features of a vertex and the dimensions of the encoder's layers. The paper
        names the length of sequences as a factor and leaves it out; `lengths` adds the number of
        sequences and the padded rows.
        """
        constants = torch.tensor([feature_dim, *layer_dims], dtype=torch.float32)
        columns = [self.vertices, self.edges]
        extra = [self.sequences, self.padded] if lengths else []
        parts = [torch.stack(columns, 1).float(), constants.expand(len(self.vertices), -1)]
        return torch.cat([*parts, *(column.float()[:, None] for column in extra)], 1)


def chunk_cap(graph: Supergraph, workers: int, per_worker: int = 16) -> int:
    """Vertex-steps of a chunk at most: V / (workers * per_worker), at least 1.

    The paper prints no cap. `per_worker` chunks of full size let loads be evened out to about
    1 / per_worker. Raises InvalidInputError for numbers below 1.
    """
    for name, value in (("workers", workers), ("per_worker", per_worker)):
        if value < 1:
            raise InvalidInputError(f"{name} is {value}, allowed are numbers from 1")
    return max(1, graph.num_vertices // (workers * per_worker))


def make_chunks(
    graph: Supergraph,
    cap: int,
    *,
    levels: int = 8,
    seed: int = 0,
    sweeps: int = 20,
    active_only: bool = True,
    wholes: bool = False,
    threads: int | None = None,
) -> Chunks:
    """Chunks of at most `cap` vertex-steps by label propagation.

    Args:
        graph: the supergraph.
        cap: see `chunk_cap`.
        levels: 1 for the paper's single propagation; more contract and go on while a level makes
            the number of chunks at least 1 % smaller.
        seed, sweeps, active_only, threads: as in `propagate_labels`.
        wholes: entities are vertices from the first level on, so that no chunk cuts in time; one
            that is longer than the cap is a chunk of its own.

    Raises:
        InvalidInputError: a number out of its range.
    """
    if levels < 1:
        raise InvalidInputError(f"levels is {levels}, allowed are numbers from 1")
    settings = {"cap": cap, "sweeps": sweeps, "seed": seed, "threads": threads}
    runs: list[LabelRun] = []
    if wholes:
        there = graph.start.diff() > 0
        number = torch.cumsum(there, 0, dtype=torch.int32) - 1
        chunk, count = number.index_select(0, graph.entity), int(there.sum())
    else:
        run = propagate_labels(graph.csr, graph.edge_weight, active_only=active_only, **settings)
        runs.append(run)
        chunk, count = run.chunks()
    csr, weight, part = graph.csr, graph.edge_weight, chunk
    while len(runs) < levels and count > 1:
        csr, sums = contract(csr, weight, part, count)
        weight = _narrow(sums)
        sizes = torch.bincount(chunk, minlength=count).to(torch.int32)
        # A chunk may wait for room that others leave: where they are few, all are asked each time.
        many = active_only and count > _MANY
        run = propagate_labels(csr, weight, sizes, active_only=many, **settings)
        part, fewer = run.chunks()
        runs.append(run)
        chunk = part[chunk.long()]
        slow = fewer > 0.99 * count
        count = fewer
        if slow:
            break
    return Chunks(chunk, count, cap, tuple(runs), contract(csr, weight, part, count))


def chunk_statistics(graph: Supergraph, chunk: Tensor, count: int) -> ChunkStatistics:
    """Sizes of each chunk; `chunk` is int32[V] in [0, count), refused otherwise."""
    sequences, longest = chunk_sequences(graph, chunk, count)
    edges, inner = chunk_edges(graph, chunk, count)
    vertices = torch.bincount(chunk, minlength=count)
    return ChunkStatistics(vertices, edges, inner, sequences, longest)


def cut_weight(graph: Supergraph, part: Tensor) -> int:
    """Weight of the edges whose ends `part` (integers [V]) puts apart, each edge once."""
    return weight_apart(graph.csr, graph.edge_weight, part.to(torch.int32)) // 2


def _narrow(sums: Tensor) -> Tensor:
    """int64 sums as int32, scaled down by a power of two where one does not fit."""
    most = int(sums.max()) if sums.numel() else 0
    return (sums >> max(0, most.bit_length() - 31)).to(torch.int32)
