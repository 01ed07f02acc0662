"""TGAT: layers of attention over temporal neighbours (Xu et al., ICLR 2020)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from dgbench.models.ctdg.attention import TemporalAttention
from dgbench.models.ctdg.base import Features, SampledHop, StreamModel
from dgbench.models.ctdg.link import LinkPredictor


class Tgat(StreamModel):
    """One `TemporalAttention` per hop; features of vertices go into the farthest."""

    def __init__(
        self,
        node_dim: int,
        edge_dim: int,
        time_dim: int,
        hidden_dim: int,
        heads: int,
        hops: int,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            TemporalAttention(width, edge_dim, time_dim, hidden_dim, heads, dropout)
            for width in [node_dim] + [hidden_dim] * (hops - 1)
        )
        self.output_dim = hidden_dim
        self.head = LinkPredictor(hidden_dim)

    def forward(
        self,
        samples: Sequence[Sequence[SampledHop]],
        node_features: Features,
        edge_features: Features | None,
    ) -> Tensor:
        return self.embed(samples[0], node_features, edge_features)
