"""Propagation of DyGNN: neighbours of the ends of an edge take in a part of it too.

DyGNN (Ma et al., SIGIR 2020, section 3.3) pushes e(t) to the neighbours of both ends, weighed by
attention over them, by a decay in the age of the edge to a neighbour, and cut off beyond an age.
T-GCN does not mention it. Our form keeps the last `KEPT` neighbours of a vertex. What they are
pushed waits for them as interactions do; W of the push is learned, the rest has no parameters.
"""

from __future__ import annotations

import math
from typing import Any, Final

import torch
from torch import Tensor

from dgbench.models.streaming import Dygnn, DygnnState, IntervalEdges, PendingInteractions
from dgbench.systems.base.interactions import InteractionData

KEPT: Final = 5
"""Neighbours of a vertex that are kept, the most recent ones."""
CUT: Final = 4.0
"""Age beyond which a neighbour is left out, in units of time of the workload."""

NEIGHBOUR_BYTES: Final = KEPT * (4 + 8 + 1)
"""Of the neighbours of one vertex."""

Pushes = tuple[Tensor, Tensor, Tensor]
"""int64[M] vertices, bool[M] whether each takes it in as a source, [M, H] what is pushed."""


class Propagation:
    """Recent neighbours of every vertex, and what an interval pushes to them.

    Attributes:
        neighbour: int32[N, KEPT], -1 where there is none.
        since: float64[N, KEPT], time of the edge to each.
        as_source: bool[N, KEPT], whether the neighbour was the source of that edge.
    """

    def __init__(
        self, model: Dygnn, data: InteractionData, device: torch.device, *, spare: int = 0
    ) -> None:
        """No neighbours; `spare` rows of padding lie behind those of the vertices."""
        shape = (data.events.num_nodes + spare, KEPT)
        self._model = model
        self.neighbour = torch.full(shape, -1, dtype=torch.int32, device=device)
        self.since = torch.zeros(shape, dtype=torch.float64, device=device)
        self.as_source = torch.zeros(shape, dtype=torch.bool, device=device)

    @property
    def nbytes(self) -> int:
        """Bytes of the neighbours."""
        return sum(x.numel() * x.element_size() for x in self._columns())

    def _columns(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.neighbour, self.since, self.as_source

    def reset(self) -> None:
        """Forget all neighbours."""
        self.neighbour.fill_(-1)

    def clone(self) -> tuple[Tensor, ...]:
        """A copy of all neighbours."""
        return tuple(column.clone() for column in self._columns())

    def restore(self, columns: Any) -> None:
        """Back to a copy."""
        for mine, other in zip(self._columns(), columns, strict=True):
            mine.copy_(other)

    @torch.no_grad()
    def find(self, edges: IntervalEdges, now: DygnnState, state: DygnnState) -> Pushes:
        """Messages that the edges of a step push to neighbours that their ends had before it.

        Args:
            edges: of the step.
            now: refreshed rows of the edges.
            state: of all vertices; attention reads a neighbour's embedding as it is kept there.
        """
        src, dst = edges.src[: edges.real], edges.dst[: edges.real]
        e = now.embedding.detach()
        message = self._model.message(e[src], e[dst])  # [B, H]
        rows = torch.cat([src, dst])  # [2 B]
        ids = edges.ids[rows]
        found = self.neighbour[ids].long()  # [2 B, KEPT]
        age = edges.t[: edges.real].repeat(2).unsqueeze(1) - self.since[ids]
        age = age.clamp_(min=0) / self._model.unit
        near = (found >= 0) & (age <= CUT)
        score = (state.embedding[found.clamp(min=0)] * e[rows].unsqueeze(1)).sum(2)
        score = (score / math.sqrt(e.shape[1])).masked_fill(~near, -torch.inf)
        weight = torch.softmax(score, dim=1).nan_to_num(0.0)
        weight = weight * torch.log(math.e + age).reciprocal().to(weight.dtype)
        if near.device.type == "cuda":  # to ask how many are near would wait for the device
            count = src.numel()
            pushed = message.repeat(2, 1).unsqueeze(1) * weight.unsqueeze(2)
            pushed = pushed.masked_fill(~near.unsqueeze(2), 0.0).view(2 * count * KEPT, -1)
            return found.clamp(min=0).flatten(), self.as_source[ids].flatten(), pushed
        edge, place = near.nonzero(as_tuple=True)
        pushed = message[edge % src.numel()] * weight[edge, place].unsqueeze(1)
        return found[edge, place], self.as_source[ids][edge, place], pushed

    @torch.no_grad()
    def apply(self, pushes: Pushes, edges: IntervalEdges, pending: PendingInteractions) -> None:
        """Let pushes wait for their vertices, and take in the step's edges as neighbours."""
        ids, as_source, value = pushes
        for column, mine in ((pending.push_s, as_source), (pending.push_g, ~as_source)):
            if value.device.type == "cuda":  # a mask as an index would wait for the device
                column.index_add_(0, ids, value.masked_fill(~mine.unsqueeze(1), 0.0))
            else:
                column.index_add_(0, ids[mine], value[mine])
        src, dst = edges.src[: edges.real], edges.dst[: edges.real]
        row = torch.stack([src, dst], dim=1).flatten()  # both ends of an edge side by side
        other = edges.ids[torch.stack([dst, src], dim=1).flatten()].int()
        time = edges.t[: edges.real].repeat_interleave(2)
        source = torch.arange(row.numel(), device=row.device) % 2 == 1
        # The last KEPT entries of every vertex, old ones first, in their order. Rows of padding
        # have no edge, and are written as they were.
        touched = edges.ids[: edges.ends]
        count = torch.zeros_like(touched).index_add_(0, row, torch.ones_like(row))
        order = row.sort(stable=True).indices
        begin = count.cumsum(0) - count
        rank = torch.empty_like(row)
        rank[order] = torch.arange(row.numel(), device=row.device) - begin[row[order]]
        # The newest is the last place; what is not kept goes to one behind that is cut off.
        at = KEPT - count[row] + rank
        at = at.masked_fill(at < 0, KEPT)
        shift = count.clamp(max=KEPT)
        places = torch.arange(KEPT + 1, device=row.device) + shift.unsqueeze(1)  # of the old ones
        for column, new in zip(self._columns(), (other, time, source), strict=True):
            old = column[touched].gather(1, places.clamp(max=KEPT - 1))
            old[row, at] = new
            column[touched] = old[:, :KEPT]
