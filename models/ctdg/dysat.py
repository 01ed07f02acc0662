"""DySAT on a stream of events, as TGL extends it (GNNFlow, section 6, takes TGL's)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from dgbench.models.ctdg.attention import TemporalAttention
from dgbench.models.ctdg.base import Features, SampledHop, StreamModel
from dgbench.models.ctdg.link import LinkPredictor


class StreamDysat(StreamModel):
    """Attention inside each window of time before a root, then an RNN over its windows.

    Windows stand for DySAT's snapshots (Sankar et al., WSDM 2020), so ages of edges are not
    encoded, and the RNN over them, oldest first, for its attention in time. As in TGL and GNNFlow
    every window has attention of its own.

    Attributes:
        windows: layers of each window, the oldest first.
    """

    def __init__(
        self,
        node_dim: int,
        edge_dim: int,
        hidden_dim: int,
        heads: int,
        hops: int,
        snapshots: int,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.windows = nn.ModuleList(
            nn.ModuleList(
                TemporalAttention(width, edge_dim, 0, hidden_dim, heads, dropout)
                for width in [node_dim] + [hidden_dim] * (hops - 1)
            )
            for _ in range(snapshots)
        )
        self.combine = nn.RNN(hidden_dim, hidden_dim)
        self.output_dim = hidden_dim
        self.head = LinkPredictor(hidden_dim)

    def forward(
        self,
        samples: Sequence[Sequence[SampledHop]],
        node_features: Features,
        edge_features: Features | None,
    ) -> Tensor:
        seen = [
            self.embed(hops, node_features, edge_features, layers)
            for hops, layers in zip(reversed(samples), self.windows, strict=True)
        ]
        return self.combine(torch.stack(seen))[0][-1]
