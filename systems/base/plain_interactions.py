"""The reference of training on interactions: DyGNN vertex by vertex and edge by edge.

Every formula stands here once more, with plain products of vectors, lists of what waits, and loops
in the order of the events. It reads the parameters of the network, none of its methods.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

from dgbench.models.streaming import Dygnn, TimeLstm
from dgbench.systems.base.interactions import InteractionData, InteractionWorkload

Waiting = list[tuple[Tensor, float]]
"""(embedding of the partner, time) of the interactions of one role."""


@dataclass
class PlainVertex:
    """What is kept of one vertex.

    Attributes:
        c, h: cell and hidden state [H] by role, `s` or `g`.
        embedding: E, [H].
        last: time of the last interaction taken in, by role.
        waiting: interactions of the last interval that it occurred in, by role.
    """

    c: dict[str, Tensor]
    h: dict[str, Tensor]
    embedding: Tensor
    last: dict[str, float | None] = field(default_factory=lambda: {"s": None, "g": None})
    waiting: dict[str, Waiting] = field(default_factory=lambda: {"s": [], "g": []})


class PlainInteractions:
    """A network and its vertices, on intervals; edge by edge where each has one event.

    Args:
        workload, data: of the task; `link`, without propagation.
        model: whose parameters are read and whose gradients are added up.
        first: E of every vertex before anything happened, [N, H].
    """

    def __init__(
        self,
        workload: InteractionWorkload,
        data: InteractionData,
        model: Dygnn,
        first: Tensor,
    ) -> None:
        self.workload, self.data, self.model = workload, data, model
        self._held: list[tuple[int, int, int, float]] = []
        zero = torch.zeros_like(first[0])
        self.vertices = [
            PlainVertex({"s": zero, "g": zero}, {"s": zero, "g": zero}, row) for row in first
        ]

    def refresh(self, vertex: int) -> PlainVertex:
        """A vertex with what waits for it taken in, with its graph."""
        old, model = self.vertices[vertex], self.model
        new = PlainVertex(dict(old.c), dict(old.h), old.embedding, dict(old.last))
        for role, cell in (("s", model.update_s), ("g", model.update_g)):
            waiting = old.waiting[role]
            if not waiting:
                continue
            if self.workload.aggregate == "last":
                waiting = waiting[-1:]
            partner = torch.stack([e for e, _ in waiting]).mean(0)
            pair = [old.embedding, partner] if role == "s" else [partner, old.embedding]
            x = model.interact.weight @ torch.cat(pair) + model.interact.bias
            x = torch.tanh(x) if model.activation == "tanh" else torch.sigmoid(x)
            time, last = waiting[-1][1], old.last[role]
            age = 0.0 if last is None else (time - last) / model.unit
            new.c[role], new.h[role] = update(cell, old.c[role], old.h[role], age, x)
            new.last[role] = time
        if old.waiting["s"] or old.waiting["g"]:
            both = torch.cat([new.h["s"], new.h["g"]])
            new.embedding = model.merge.weight @ both + model.merge.bias
        return new

    def score(self, source: Tensor, target: Tensor) -> Tensor:
        """The logit of a pair of embeddings [H]."""
        head = self.model.head
        key = head.source.weight @ source + head.source.bias
        value = head.target.weight @ target + head.target.bias
        return key @ value / math.sqrt(source.numel())

    def run(self, events: Tensor, *, scale: float | None = None) -> tuple[float, Tensor]:
        """One interval: loss summed over its events, and their scores [B, 2].

        Args:
            events: int64[B] ordinals.
            scale: of the loss whose gradients are added up; None to train nothing.
        """
        stream, found, loss = self.data.events, [], torch.zeros((), dtype=torch.float64)
        fresh: dict[int, PlainVertex] = {}
        edges = [
            (int(stream.src[k]), int(stream.dst[k]), int(self.data.negative[k]), float(stream.t[k]))
            for k in events.tolist()
        ]
        for u, v, n, _ in edges:
            for vertex in (u, v, n):
                if vertex not in fresh:
                    fresh[vertex] = self.refresh(vertex)
            right = self.score(fresh[u].embedding, fresh[v].embedding)
            wrong = self.score(fresh[u].embedding, fresh[n].embedding)
            loss = loss + functional.softplus(-right) + functional.softplus(wrong)
            found.append(torch.stack([right, wrong]).detach())
        if scale is not None:
            (loss * scale).backward()
        self._held += edges
        last = int(events[-1])
        same = last + 1 < len(stream) and bool(stream.t[last] == stream.t[last + 1])
        if self.workload.strict_time and same:
            return float(loss.detach()), torch.stack(found)  # not before their time is over
        edges, self._held = self._held, []
        for vertex in {u for u, _, _, _ in edges} | {v for _, v, _, _ in edges}:
            kept = self.refresh(vertex)
            kept.c = {role: c.detach() for role, c in kept.c.items()}
            kept.h = {role: h.detach() for role, h in kept.h.items()}
            kept.embedding = kept.embedding.detach()
            self.vertices[vertex] = kept
        for u, v, _, t in edges:
            self.vertices[u].waiting["s"].append((self.vertices[v].embedding, t))
            self.vertices[v].waiting["g"].append((self.vertices[u].embedding, t))
        return float(loss.detach()), torch.stack(found)


def update(cell: TimeLstm, c: Tensor, h: Tensor, age: float, x: Tensor) -> tuple[Tensor, Tensor]:
    """The time-aware LSTM on one vertex: C [H], h [H], D, x [H] -> C', h'."""
    rate = torch.log1p(torch.exp(cell.rate))
    if cell.decay == "log":
        weight = 1 / torch.log(math.e + rate * age)
    elif cell.decay == "exp":
        weight = torch.exp(-rate * age)
    else:
        weight = 1 / (1 + rate * age)
    short = torch.tanh(cell.short.weight @ c + cell.short.bias)
    adjusted = (c - short) + weight * short
    gates = cell.gates.weight @ torch.cat([x, h]) + cell.gates.bias
    i, f, g, o = gates.chunk(4)
    new = torch.sigmoid(f) * adjusted + torch.sigmoid(i) * torch.tanh(g)
    return new, torch.sigmoid(o) * torch.tanh(new)
