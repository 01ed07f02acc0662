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
            dropout: share dropped of the attention's weights and inside the perceptron.
        """
        super().__init__()
        self.heads, self.width = heads, hidden_dim // heads
        self.widths = [node_dim, edge_dim, time_dim]
        self.time = TimeEncoding(time_dim) if time_dim else None
        self.query = nn.Linear(node_dim + time_dim, hidden_dim)
        # A bias of the keys would add the same to all scores of a target.
        self.key = nn.Linear(sum(self.widths), hidden_dim, bias=False)
        self.value = nn.Linear(sum(self.widths), hidden_dim)
        self.merge = nn.Sequential(
            nn.Linear(hidden_dim + node_dim, hidden_dim),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden_dim, hidden_dim),
        )
        self.dropout = nn.Dropout(dropout)

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
        rows = targets.shape[0]
        parts = [around.spread(neighbours)]
        if edges is not None:
            parts.append(around.spread(edges))
        asking = targets
        if self.time is not None:
            parts.append(self.time(around.ages()))
            asking = torch.cat([targets, self.time.now(rows)], dim=1)
        asked = self._by_head(self.query(asking), self.key.weight).split(self._present(), dim=2)
        score = sum(q @ part.transpose(1, 2) for q, part in zip(asked, parts, strict=True))
        share = self.dropout(_softmax(score / math.sqrt(self.width), around.mask))
        seen = torch.cat([share @ part for part in parts], dim=2)
        return self.merge(torch.cat([self._values(seen, share), targets], dim=1))

    def _present(self) -> list[int]:
        """Widths of what neighbours are made of, without edges or ages where there are none."""
        node, edge, time = self.widths
        return [node, *([edge] if edge else []), *([time] if time else [])]

    def _by_head(self, query: Tensor, weight: Tensor) -> Tensor:
        """W_k^T q of each head: [R, H] -> [R, heads, Z]."""
        q = query.view(-1, self.heads, self.width).transpose(0, 1)
        return (q @ weight.view(self.heads, self.width, -1)).transpose(0, 1)

    def _values(self, seen: Tensor, share: Tensor) -> Tensor:
        """Weighed sums of values, from those of what they are made of: [R, heads, Z] -> [R, H]."""
        weight = self.value.weight.view(self.heads, self.width, -1)
        out = (seen.transpose(0, 1) @ weight.transpose(1, 2)).transpose(0, 1)
        bias = self.value.bias.view(self.heads, self.width)
        return (out + share.sum(-1, keepdim=True) * bias).flatten(1)


def _softmax(score: Tensor, mask: Tensor | None) -> Tensor:
    """Softmax over the last dimension where the mask holds, zero elsewhere; [R, heads, fanout]."""
    if mask is None:
        return score.softmax(-1)
    taken = mask.unsqueeze(1)
    # The most negative number instead of -inf: a row without neighbours must not become NaN.
    share = score.masked_fill(~taken, torch.finfo(score.dtype).min).softmax(-1)
    return share * taken
