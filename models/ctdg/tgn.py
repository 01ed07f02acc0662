"""TGN: a memory per vertex, and attention over its temporal neighbours (Rossi et al., 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor, nn

from dgbench.models.ctdg.attention import TemporalAttention
from dgbench.models.ctdg.base import Features, SampledHop, StreamModel
from dgbench.models.ctdg.link import LinkPredictor
from dgbench.models.ctdg.time_encoding import TimeEncoding, elapsed


@dataclass(frozen=True, slots=True, eq=False)
class MemoryRows:
    """Memory of n vertices, and the last message of each that is not yet applied.

    Attributes:
        memory: floating [n, M].
        updated: float64[n], time of the last message taken in.
        mail: floating [n, 2 M + edge_dim]: [own memory | the other's | edge] of the last event.
        mail_time: float64[n], when that was; -inf where nothing happened yet.
    """

    memory: Tensor
    updated: Tensor
    mail: Tensor
    mail_time: Tensor

    def __getitem__(self, rows: Tensor) -> MemoryRows:
        return MemoryRows(*(getattr(self, f.name)[rows] for f in fields(self)))

    def to(self, device: torch.device) -> MemoryRows:
        """The same on a device."""
        return MemoryRows(*(getattr(self, f.name).to(device) for f in fields(self)))


class Tgn(StreamModel):
    """Memory by a GRU over the last message, embeddings by attention over memories.

    A message m = [s_v | s_u | e | phi(t - updated_v)] is made when an event happens and taken in
    the next time a vertex is read, so that the loss reaches the GRU. A batch makes one message per
    vertex, that of its last event there. Features of a vertex are projected and added to its memory
    (as TGL does); a vertex without a message keeps its memory as it is.
    """

    remembers = True

    def __init__(
        self,
        node_dim: int,
        edge_dim: int,
        time_dim: int,
        memory_dim: int,
        hidden_dim: int,
        heads: int,
        hops: int,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.memory_dim, self.mail_dim = memory_dim, 2 * memory_dim + edge_dim
        self.time = TimeEncoding(time_dim)
        self.update = nn.GRUCell(self.mail_dim + time_dim, memory_dim)
        self.project = nn.Linear(node_dim, memory_dim) if node_dim else None
        self.layers = nn.ModuleList(
            TemporalAttention(width, edge_dim, time_dim, hidden_dim, heads, dropout)
            for width in [memory_dim] + [hidden_dim] * (hops - 1)
        )
        self.output_dim = hidden_dim
        self.head = LinkPredictor(hidden_dim)

    def remember(self, rows: MemoryRows) -> Tensor:
        """Memories with their messages taken in, [n, M]."""
        waiting = rows.mail_time.isfinite()
        age = torch.where(waiting, elapsed(rows.mail_time, rows.updated), 0.0)
        message = torch.cat([rows.mail, self.time(age)], dim=1)
        return torch.where(waiting.unsqueeze(1), self.update(message, rows.memory), rows.memory)

    def states(self, memories: Tensor, node_features: Tensor) -> Tensor:
        """Attention inputs of n vertices: memories [n, M] and features [n, node_dim] -> [n, M]."""
        return memories if self.project is None else memories + self.project(node_features)

    def forward(
        self,
        samples: Sequence[Sequence[SampledHop]],
        node_features: Features,
        edge_features: Features | None,
    ) -> Tensor:
        """As of any network; `node_features` gives `states` of vertices."""
        return self.embed(samples[0], node_features, edge_features)
