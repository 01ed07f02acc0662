"""Attention of a vertex to its sampled neighbours, by what they are, by their edges and ages.

Neighbours are never projected. With W_k = [W_h | W_e | W_t] a score is

    q . W_k [h_u | e | phi] = (W_h^T q) . h_u + (W_e^T q) . e + (W_t^T q) . phi,

and the weighed sum of values is W_v applied to the weighed sum of [h_u | e | phi]. A target of ten
neighbours is projected twice instead of its neighbours twenty times, and nothing is concatenated.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from dgbench.models.ctdg.attend import attend
from dgbench.models.ctdg.base import Neighbourhood
from dgbench.models.ctdg.time_encoding import TimeEncoding


class TemporalAttention(nn.Module):
    """One layer of TGAT (Xu et al. 2020, section 3.2), of TGN's embedding, and of DySAT on streams.

    q = W_q [h_v | phi(0)], keys and values W [h_u | e_uv | phi(t - t_u)], softmax over the sampled
    neighbours of q k / sqrt(D), D columns of a head; then a two-layer perceptron on [out | h_v].
    A target without neighbours has zeros for `out`.
    """

    def __init__(
        self,
        node_dim: int,
        edge_dim: int,
        time_dim: int,
        hidden_dim: int,
        heads: int,
        dropout: float = 0.0,
    ) -> None:
        """Make the layer.

        Args:
            node_dim: floats of targets and neighbours.
            edge_dim, time_dim: floats of an edge and of an age, 0 for none.
            hidden_dim: floats of the result, a multiple of `heads`.
            heads: of the attention.
            dropout: share dropped inside the perceptron.
        """
        super().__init__()
        self.heads, self.width = heads, hidden_dim // heads
        width = node_dim + edge_dim + time_dim
        self.time = TimeEncoding(time_dim) if time_dim else None
        self.query = nn.Linear(node_dim + time_dim, hidden_dim)
        # A bias of the keys would add the same to all scores of a target.
        self.key = nn.Linear(width, hidden_dim, bias=False)
        self.value = nn.Linear(width, hidden_dim)
        self.merge = nn.Sequential(
            nn.Linear(hidden_dim + node_dim, hidden_dim),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden_dim, hidden_dim),
        )

    def forward(
        self, around: Neighbourhood, targets: Tensor, neighbours: Tensor, edges: Tensor | None
    ) -> Tensor:
        """Hidden state of the targets.

        Args:
            around: where neighbours belong, R targets and K neighbours.
            targets: [R, node_dim].
            neighbours: [K, node_dim].
            edges: [K, edge_dim], or None with `edge_dim` 0.

        Returns:
            [R, hidden_dim].
        """
        asking, encoding = targets, (None, None)
        if self.time is not None:
            asking = torch.cat([targets, self.time.now(targets.shape[0])], dim=1)
            encoding = (self.time.weight, self.time.bias)
        query = self._by_head(self.query(asking) / math.sqrt(self.width), self.key.weight)
        seen = attend(around, query, neighbours, edges, *encoding)
        # Shares add up to one wherever there is a neighbour, and so do the biases of values.
        some = (around.counts > 0).to(seen.dtype).unsqueeze(1)
        values = self._values(seen) + some * self.value.bias
        return self.merge(torch.cat([values, targets], dim=1))

    def _by_head(self, query: Tensor, weight: Tensor) -> Tensor:
        """W_k^T q of each head: [R, H] -> [R, heads, Z]."""
        q = query.view(-1, self.heads, self.width).transpose(0, 1)
        return (q @ weight.view(self.heads, self.width, -1)).transpose(0, 1)

    def _values(self, seen: Tensor) -> Tensor:
        """Sums of values, from those of what values are made of: [R, heads, Z] -> [R, H]."""
        weight = self.value.weight.view(self.heads, self.width, -1)
        return (seen.transpose(0, 1) @ weight.transpose(1, 2)).transpose(0, 1).flatten(1)
