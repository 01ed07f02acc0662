"""The reference of training on interactions: DyGNN vertex by vertex and edge by edge.

Every formula stands here once more, with plain products of vectors, lists of what waits, and loops
in the order of the events. It reads the parameters of the network, none of its methods.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional

from dgbench.models.streaming import TimeLstm
from dgbench.systems.base.interactions import InteractionData, InteractionWorkload

Waiting = list[tuple[Tensor, float]]
"""(embedding of the partner, time) of the interactions of one role."""
ROLES: Final = ("s", "g")
NEIGHBOURS: Final = 5
"""Neighbours of a vertex that an edge is pushed to, the most recent ones."""
OLDEST: Final = 4.0
"""Age of the edge to a neighbour beyond which nothing is pushed to it, in units of time."""
Edge = tuple[int, int, int, float]
"""Source, destination, negative destination, time."""


@dataclass
class PlainVertex:
    """State of one vertex.

    Attributes:
        c, h: cell and hidden state [H] by role, `s` or `g`.
        embedding: E, [H].
        last: time of the last interaction taken in, by role.
        waiting: interactions of the last interval that it occurred in, by role.
        pushed: [H] by role, what edges of its neighbours pushed to it since.
        neighbours: (vertex, time, whether it was the source) of its last edges, newest last.
    """

    c: dict[str, Tensor]
    h: dict[str, Tensor]
    embedding: Tensor
    last: dict[str, float | None] = field(default_factory=lambda: {"s": None, "g": None})
    waiting: dict[str, Waiting] = field(default_factory=lambda: {"s": [], "g": []})
    pushed: dict[str, Tensor] = field(default_factory=dict)
    neighbours: list[tuple[int, float, bool]] = field(default_factory=list)

    @classmethod
    def stored(
        cls,
        state: Mapping[str, Tensor],
        waits: Mapping[str, Tensor],
        neighbours: list[tuple[int, float, bool]],
    ) -> PlainVertex:
        """A vertex from its rows of a trainer's state and of what waits for it, in float64."""
        last = {r: float(state[f"last_{r}"]) for r in ROLES}
        return cls(
            {r: state[f"c{r}"] for r in ROLES},
            {r: state[f"h{r}"] for r in ROLES},
            state["embedding"],
            {r: time if math.isfinite(time) else None for r, time in last.items()},
            {
                r: [(waits[f"sum_{r}"] / waits[f"count_{r}"], float(waits[f"time_{r}"]))]
                if int(waits[f"count_{r}"]) else []
                for r in ROLES
            },
            {r: waits[f"push_{r}"] for r in ROLES if f"push_{r}" in waits},
            neighbours,
        )  # fmt: skip

    def kept(self) -> dict[str, Tensor]:
        """Its state and the means of what waits, by name, float64."""
        found = {"embedding": self.embedding}
        for r in ROLES:
            found |= {f"c{r}": self.c[r], f"h{r}": self.h[r]}
            found[f"mean_{r}"] = _mean(self.waiting[r], self.embedding)
        return found | {f"push_{r}": pushed for r, pushed in self.pushed.items()}


def _mean(waiting: Waiting, like: Tensor) -> Tensor:
    if not waiting:
        return torch.zeros_like(like)
    return torch.stack([one for one, _ in waiting]).mean(0)


class PlainInteractions:
    """A network and its vertices, on intervals; edge by edge where each has one event.

    Args:
        workload, data: of the task.
        model: whose parameters are read and whose gradients are added up.
        first: E of every vertex before anything happened, [N, H]; or what gives the state of a
            vertex where it is asked for first.
    """

    def __init__(
        self,
        workload: InteractionWorkload,
        data: InteractionData,
        model: Any,
        first: Tensor | Callable[[int], Any],
    ) -> None:
        self.workload, self.data, self.model = workload, data, model
        self._held: list[Edge] = []
        self.vertices: Any
        if isinstance(first, Tensor):
            zero = torch.zeros_like(first[0])
            zeros = {"s": zero, "g": zero}
            self.vertices = [PlainVertex(zeros, zeros, row) for row in first]
        else:
            self.vertices = _Vertices(first)

    def refresh(self, vertex: int) -> PlainVertex:
        """A vertex with what waits for it taken in, with its graph."""
        old, model = self.vertices[vertex], self.model
        new = PlainVertex(dict(old.c), dict(old.h), old.embedding, dict(old.last))
        new.neighbours = old.neighbours
        pushed = {r: p for r, p in old.pushed.items() if bool((p != 0).any())}
        for role, cell in (("s", model.update_s), ("g", model.update_g)):
            waiting = old.waiting[role]
            if waiting:
                if self.workload.aggregate == "last":
                    waiting = waiting[-1:]
                partner = _mean(waiting, old.embedding)
                pair = [old.embedding, partner] if role == "s" else [partner, old.embedding]
                time, last = waiting[-1][1], old.last[role]
                age = 0.0 if last is None else max(0.0, (time - last) / model.unit)
                x = self.message(*pair)
                new.c[role], new.h[role] = update(cell, old.c[role], old.h[role], age, x)
                new.last[role] = time
            if role in pushed:
                weight = model.push_s.weight if role == "s" else model.push_g.weight
                new.c[role] = new.c[role] + weight @ pushed[role]
                new.h[role] = torch.tanh(new.c[role])
        if old.waiting["s"] or old.waiting["g"] or pushed:
            both = torch.cat([new.h["s"], new.h["g"]])
            new.embedding = model.merge.weight @ both + model.merge.bias
        return new

    def message(self, source: Tensor, target: Tensor) -> Tensor:
        """Message [H] of an interaction to a vertex, from embeddings [H] of its ends."""
        model = self.model
        x = model.interact.weight @ torch.cat([source, target]) + model.interact.bias
        return torch.tanh(x) if model.activation == "tanh" else torch.sigmoid(x)

    def score(self, source: Tensor, target: Tensor) -> Tensor:
        """The logit of a pair of embeddings [H]."""
        head = self.model.head
        key = head.source.weight @ source + head.source.bias
        value = head.target.weight @ target + head.target.bias
        return key @ value / math.sqrt(source.numel())

    def pair(self, fresh: Mapping[int, Any], edge: Edge) -> tuple[Tensor, Tensor, Tensor]:
        """Loss of an edge, its score and its negative's."""
        u, v, n, _ = edge
        positives = self.score(fresh[u].embedding, fresh[v].embedding)
        negatives = self.score(fresh[u].embedding, fresh[n].embedding)
        return (
            functional.softplus(-positives) + functional.softplus(negatives),
            positives,
            negatives,
        )

    def taught(self, fresh: Mapping[int, Any], edge: Edge) -> Tensor:
        """Cross entropy of the classes of both ends of an edge; of a held-out vertex nothing."""
        loss = torch.zeros((), dtype=torch.float64)
        for vertex in edge[:2]:
            label = int(self.data.classes[vertex])
            if label >= 0 and not bool(self.data.held_out[vertex]):
                loss = loss - torch.log_softmax(self.logits(fresh[vertex]), 0)[label]
        return loss

    def logits(self, vertex: Any) -> Tensor:
        """Scores [classes] of the classes of a refreshed vertex."""
        inner, outer = self.model.head.inner, self.model.head.score
        hidden = torch.relu(inner.weight @ vertex.embedding + inner.bias)
        return outer.weight @ hidden + outer.bias

    def run(self, events: Tensor, *, scale: float | None = None) -> tuple[float, Tensor]:
        """One interval: loss summed over its events, and their scores [B, 2].

        Args:
            events: int64[B] ordinals.
            scale: of the loss whose gradients are added up; None to train nothing.
        """
        stream, found, loss = self.data.events, [], torch.zeros((), dtype=torch.float64)
        link = self.workload.task == "link"
        fresh: dict[int, Any] = {}
        edges: list[Edge] = [
            (int(stream.src[k]), int(stream.dst[k]), int(self.data.negative[k]), float(stream.t[k]))
            for k in events.tolist()
        ]
        for edge in edges:
            for vertex in edge[: 3 if link else 2]:
                if vertex not in fresh:
                    fresh[vertex] = self.refresh(vertex)
            if link:
                one, positives, negatives = self.pair(fresh, edge)
                found.append(torch.stack([positives, negatives]).detach())
            else:
                one = self.taught(fresh, edge)
            loss = loss + one
        if scale is not None and loss.requires_grad:
            (loss * scale).backward()
        self._held += edges
        last = int(events[-1])
        same = last + 1 < len(stream) and bool(stream.t[last] == stream.t[last + 1])
        if not (self.workload.strict_time and same):  # else not before their time is over
            edges, self._held = self._held, []
            with torch.no_grad():
                ends = {end for edge in edges for end in edge[:2]}
                self.commit(edges, {vertex: self.refresh(vertex) for vertex in ends})
        none = torch.zeros(0, 2, dtype=torch.float64)
        return float(loss.detach()), torch.stack(found) if found else none

    @torch.no_grad()
    def commit(self, edges: list[Edge], fresh: dict[int, Any]) -> None:
        """Keep the state of the ends of edges, and let interactions wait for them."""
        pushes = self._pushes(edges, fresh) if self.workload.propagation else []
        for vertex in {end for u, v, _, _ in edges for end in (u, v)}:
            kept = copy.copy(fresh[vertex])
            kept.c = {role: c.detach() for role, c in kept.c.items()}
            kept.h = {role: h.detach() for role, h in kept.h.items()}
            kept.embedding = kept.embedding.detach()
            zero = torch.zeros_like(kept.embedding)
            kept.pushed = dict.fromkeys(ROLES if self.workload.propagation else (), zero)
            self.vertices[vertex] = kept
        for u, v, _, t in edges:
            self.vertices[u].waiting["s"].append((fresh[v].embedding.detach(), t))
            self.vertices[v].waiting["g"].append((fresh[u].embedding.detach(), t))
        for vertex, role, value in pushes:
            mine = self.vertices[vertex].pushed
            mine[role] = mine[role] + value if role in mine else value
        if self.workload.propagation:
            for u, v, _, t in edges:
                for one, other, source in ((u, v, False), (v, u, True)):
                    mine = self.vertices[one]
                    mine.neighbours = [*mine.neighbours, (other, t, source)][-NEIGHBOURS:]

    def _pushes(self, edges: list[Edge], fresh: dict[int, Any]) -> list[tuple[int, str, Tensor]]:
        """(vertex, role, vector [H]) that edges push to the neighbours of their ends."""
        found = []
        for u, v, _, t in edges:
            brought = self.message(fresh[u].embedding, fresh[v].embedding)
            for end in (u, v):
                near = [
                    (vertex, max(0.0, t - since) / self.model.unit, source)
                    for vertex, since, source in self.vertices[end].neighbours
                ]
                near = [one for one in near if one[1] <= OLDEST]
                if not near:
                    continue
                e = fresh[end].embedding
                scores = [float(self.vertices[w].embedding @ e) / math.sqrt(e.numel())
                          for w, _, _ in near]  # fmt: skip
                top = max(scores)
                total = sum(math.exp(score - top) for score in scores)
                for (vertex, age, source), score in zip(near, scores, strict=True):
                    weight = math.exp(score - top) / total / math.log(math.e + age)
                    found.append((vertex, "s" if source else "g", weight * brought))
        return found


class _Vertices(dict):
    """Vertices that are made when they are asked for first."""

    def __init__(self, make: Callable[[int], Any]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, vertex: int) -> Any:
        self[vertex] = self._make(vertex)
        return self[vertex]


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
