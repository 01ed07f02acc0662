"""DySAT (Sankar et al., "DySAT: Deep Neural Representation Learning on Dynamic Graphs via
Self-Attention Networks", WSDM 2020) with one block, as DGC trains it (section 7.1)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from dgbench.models.attention import packed_attention, plain_packed_attention
from dgbench.models.sequence import Neighbours, SequenceModel, SequenceRows, Starts
from dgbench.runtime.errors import InvalidInputError


class Dysat(SequenceModel):
    """Graph attention in a snapshot, then self-attention over the steps of a vertex.

    Structural, for head k of width D = H / K: y = x W_k, e_uv = leaky_relu(a_k y_u + b_k y_v) with
    slope 0.2, alpha = softmax over the neighbours of v and v itself, z_v = elu of the heads' sums
    of alpha_uv y_u side by side, plus a bias. What is shown to neighbours is y and a_k y_u.
    Temporal, for every head: Z = softmax(Q K^T / sqrt(D)) V with Q, K, V = z W_q, z W_k, z W_v over
    all steps of the vertex's sequence.

    DGC does not state heads, sizes, position embeddings or a causal mask, and says that a vertex
    needs its counterparts of all snapshots: by default there is one head, neither embeddings nor a
    mask. With `positions` > 0 an embedding of the position in the sequence is added to z, as in the
    original, and `causal` hides later steps.

    Attributes:
        weight: W of all heads, [F, H]; att_source, att_target: a and b, [K, D]; bias: [H].
        query, key, value: H -> H, without bias.
        embedding: [positions, H], or None.
    """

    slope = 0.2

    def __init__(
        self,
        feature_dim: int,
        hidden_dim: int,
        heads: int = 1,
        *,
        positions: int = 0,
        causal: bool = False,
    ) -> None:
        super().__init__()
        if hidden_dim % heads:
            raise InvalidInputError(
                f"hidden_dim is {hidden_dim}, expected a multiple of the {heads} heads"
            )
        self.feature_dim = feature_dim
        self.hidden_dim = self.output_dim = self.spatial_dim = hidden_dim
        self.heads = heads
        self.causal = causal
        self.round_dims = (hidden_dim + heads,)
        width = hidden_dim // heads
        self.weight = nn.Parameter(torch.empty(feature_dim, hidden_dim))
        self.att_source = nn.Parameter(torch.empty(heads, width))
        self.att_target = nn.Parameter(torch.empty(heads, width))
        self.bias = nn.Parameter(torch.zeros(hidden_dim))
        for parameter in (self.weight, self.att_source, self.att_target):
            nn.init.xavier_uniform_(parameter)
        self.query, self.key, self.value = (
            nn.Linear(hidden_dim, hidden_dim, bias=False) for _ in range(3)
        )
        self.embedding = None
        if positions:
            self.embedding = nn.Parameter(torch.empty(positions, hidden_dim))
            nn.init.xavier_uniform_(self.embedding)

    def show(self, k: int, x: Tensor) -> Tensor:
        y = x @ self.weight
        return torch.cat([y, self._score(y, self.att_source)], dim=1)

    def _score(self, y: Tensor, attention: Tensor) -> Tensor:
        """[rows, H] -> [rows, heads]."""
        return (y.view(-1, *attention.shape) * attention).sum(-1)

    def receive(self, k: int, neighbours: Neighbours, shown: Tensor) -> Tensor:
        y, source = shown[:, : self.hidden_dim], shown[:, self.hidden_dim :]
        target = self._score(y[: neighbours.rows].contiguous(), self.att_target)
        values = y.reshape(-1, self.heads, self.hidden_dim // self.heads)
        out = neighbours.attend(values, source, target, self.slope)
        return functional.elu(out.reshape(-1, self.hidden_dim) + self.bias)

    def temporal(
        self, x: Tensor, rows: SequenceRows | None = None, starts: Starts | None = None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """As in the base class; there are no states, and `starts` must be None."""
        q, k, v, sequence = self._asked(x, rows, starts)
        out = plain_packed_attention(q, k, v, sequence, heads=self.heads, causal=self.causal)
        return out, ()

    def temporal_fused(
        self, x: Tensor, rows: SequenceRows | None = None, starts: Starts | None = None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """As `temporal`; where `rows` has an `own`, bool[T, N], other steps give zeros."""
        q, k, v, sequence = self._asked(x, rows, starts)
        own = getattr(rows, "own", None)
        out = packed_attention(q, k, v, sequence, heads=self.heads, causal=self.causal, own=own)
        return out, ()

    def _asked(
        self, x: Tensor, rows: SequenceRows | None, starts: Starts | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Queries, keys, values, and which sequence a step is in."""
        if starts is not None:
            raise InvalidInputError(
                "starts is given, but attention carries no state",
                hint="put the steps that others own into the sequences and drop their outputs",
            )
        if self.embedding is not None:
            x = x + self._embedded(x, rows)
        sequence = rows.sequence if rows is not None else None
        return self.query(x), self.key(x), self.value(x), sequence

    def _embedded(self, x: Tensor, rows: SequenceRows | None) -> Tensor:
        if rows is None:
            position = torch.arange(x.shape[0], device=x.device).unsqueeze(1)
        else:
            position = rows.position
        longest = int(position.max()) + 1 if position.numel() else 0
        if longest > len(self.embedding):
            raise InvalidInputError(
                f"a sequence has {longest} steps, but there are {len(self.embedding)} positions",
                hint="build the model with as many positions as snapshots",
            )
        return self.embedding[position]
