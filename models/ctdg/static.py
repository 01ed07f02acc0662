"""GraphSAGE and GAT on sampled neighbours: static networks, which see neither times nor edges."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from dgbench.models.ctdg.base import Features, Neighbourhood, SampledHop, Spread, StreamModel
from dgbench.models.ctdg.link import LinkPredictor


class SageLayer(nn.Module):
    """ReLU(W [h_v | mean h_u]) (Hamilton et al., NeurIPS 2017, algorithm 1 with means)."""

    def __init__(self, node_dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.own = nn.Linear(node_dim, hidden_dim)
        self.others = nn.Linear(node_dim, hidden_dim, bias=False)

    def forward(
        self, around: Neighbourhood, targets: Tensor, neighbours: Tensor, edges: Tensor | None
    ) -> Tensor:
        """[R, D], [K, D] -> [R, H]; the mean of no neighbour is zero."""
        counts = around.counts.clamp(min=1).to(targets.dtype).unsqueeze(1)
        mean = Spread.apply(around, neighbours).sum(1) / counts
        return torch.relu(self.own(targets) + self.others(mean))


class GatLayer(nn.Module):
    """Softmax(leaky_relu(a [W h_v | W h_u])) over v and its neighbours (Velickovic et al., 2018).

    a W is one vector per head, and the weighed sum is taken before W: neighbours are not projected.
    """

    def __init__(self, node_dim: int, hidden_dim: int, heads: int, last: bool) -> None:
        super().__init__()
        self.heads, self.last = heads, last
        width = hidden_dim // heads
        self.weight = nn.Parameter(torch.empty(heads, width, node_dim))
        self.source = nn.Parameter(torch.empty(heads, 1, width))
        self.target = nn.Parameter(torch.empty(heads, 1, width))
        self.bias = nn.Parameter(torch.zeros(hidden_dim))
        for parameter in (self.weight, self.source, self.target):
            nn.init.xavier_uniform_(parameter.data.view(-1, parameter.shape[2]))

    def forward(
        self, around: Neighbourhood, targets: Tensor, neighbours: Tensor, edges: Tensor | None
    ) -> Tensor:
        """[R, D], [K, D] -> [R, H]."""
        seen = torch.cat([targets.unsqueeze(1), Spread.apply(around, neighbours)], dim=1)
        source = seen @ (self.source @ self.weight).squeeze(1).t()  # [R, 1 + fanout, heads]
        target = targets @ (self.target @ self.weight).squeeze(1).t()
        score = functional.leaky_relu(source + target.unsqueeze(1), 0.2)
        if around.mask is not None:
            score[:, 1:].masked_fill_(~around.mask.unsqueeze(2), torch.finfo(score.dtype).min)
        mixed = score.softmax(1).transpose(1, 2) @ seen  # [R, heads, D]
        out = (mixed.transpose(0, 1) @ self.weight.transpose(1, 2)).transpose(0, 1).flatten(1)
        out = out + self.bias
        return out if self.last else functional.elu(out)


class StaticModel(StreamModel):
    """Layers of `SageLayer` or `GatLayer`, the farthest hop first."""

    def __init__(self, layers: Sequence[nn.Module], hidden_dim: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.output_dim = hidden_dim
        self.head = LinkPredictor(hidden_dim)

    def forward(
        self,
        samples: Sequence[Sequence[SampledHop]],
        node_features: Features,
        edge_features: Features | None,
    ) -> Tensor:
        return self.embed(samples[0], node_features, None)
