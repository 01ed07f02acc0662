"""Results of the edge samplers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dgbench.kernels_cuda.weighted import DrawStats


@dataclass(frozen=True, slots=True, eq=False)
class LayerSample:
    """Sampled edges of one layer, in the order of roots; by vertex and then time inside a root.

    Attributes:
        offsets: int64[R + 1], where each root's edges begin and end; R pools if layer-wise.
        eids: int64[K].
        sources: int64[K], the vertex whose row the edge was drawn from, nearer to the root.
        neighbours: int64[K], where it leads to.
    """

    offsets: Tensor
    eids: Tensor
    sources: Tensor
    neighbours: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class EdgeSample:
    """Samples of R roots (or pools) over L layers.

    Attributes:
        layers: L of them, the one next to the roots first.
        node_offsets: int64[R + 1].
        nodes: int64[M], every vertex of a root's sample once, the root first.
        pools: int64[R, L], how many edges (or vertices) there were to draw from.
        stats: what the draws cost.
    """

    layers: tuple[LayerSample, ...]
    node_offsets: Tensor
    nodes: Tensor
    pools: Tensor
    stats: DrawStats

    @property
    def eids(self) -> tuple[Tensor, ...]:
        """int64[K] of each layer."""
        return tuple(layer.eids for layer in self.layers)

    def edges(self) -> Tensor:
        """int64, every edge of any root and layer once, ascending: the order of the stream."""
        return torch.unique(torch.cat([self.nodes.new_empty(0), *self.eids]))


@dataclass(frozen=True, slots=True, eq=False)
class SubgraphSample:
    """S subgraphs.

    Attributes:
        offsets: int64[S + 1], where each one's vertices begin and end.
        vertices: int64[M], ascending in each subgraph.
        edge_offsets: int64[S + 1].
        eids: int64[K], edges between vertices of a subgraph: by vertex, then time; empty if the
            sample was asked for without.
        reseeded: slots of frontiers that came to a vertex without edges and got another.
        stats: what the draws cost.
    """

    offsets: Tensor
    vertices: Tensor
    edge_offsets: Tensor
    eids: Tensor
    reseeded: int
    stats: DrawStats

    def edges(self) -> Tensor:
        """int64, every edge of any subgraph once, ascending: the order of the stream."""
        return torch.unique(self.eids)
