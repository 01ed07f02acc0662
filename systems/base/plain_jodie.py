"""The reference of JODIE, vertex by vertex and edge by edge; see `plain_interactions`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from dgbench.systems.base.plain_interactions import ROLES, Edge, PlainInteractions


@dataclass
class PlainJodieVertex:
    """State of one vertex.

    Attributes:
        user, item: [H], embedding by role. code: [H], fixed. seen: [2 H], the last item.
        last: time of the last interaction taken in, by role.
        waiting: (partner's vector, time) by role: an item with its code [2 H], a user [H].
    """

    user: Tensor
    item: Tensor
    code: Tensor
    seen: Tensor
    last: dict[str, float | None]
    waiting: dict[str, list[tuple[Tensor, float]]] = field(
        default_factory=lambda: {"s": [], "g": []}
    )

    @classmethod
    def stored(
        cls, state: Mapping[str, Tensor], waits: Mapping[str, Tensor], neighbours: Any
    ) -> PlainJodieVertex:
        """A vertex from its rows of a trainer's state and of what waits for it, in float64."""
        last = {r: float(state[f"last_{r}"]) for r in ROLES}
        sums = {"s": torch.cat([waits["sum_s"], waits["code_s"]]), "g": waits["sum_g"]}
        return cls(
            *(state[name] for name in ("user", "item", "code", "seen")),
            {r: time if math.isfinite(time) else None for r, time in last.items()},
            {
                r: [(sums[r] / waits[f"count_{r}"], float(waits[f"time_{r}"]))]
                if int(waits[f"count_{r}"]) else []
                for r in ROLES
            },
        )  # fmt: skip

    @property
    def embedding(self) -> Tensor:
        """[2 H]."""
        return torch.cat([self.user, self.item])

    def kept(self) -> dict[str, Tensor]:
        """Its state, by name, float64."""
        return {"user": self.user, "item": self.item, "code": self.code, "seen": self.seen}


class PlainJodie(PlainInteractions):
    """`PlainInteractions` of JODIE."""

    def refresh(self, vertex: int) -> PlainJodieVertex:
        old, model = self.vertices[vertex], self.model
        new = PlainJodieVertex(old.user, old.item, old.code, old.seen, dict(old.last))
        for role, name, cell in (("s", "user", model.user), ("g", "item", model.item)):
            waiting = old.waiting[role]
            if not waiting:
                continue
            other = torch.stack([vector for vector, _ in waiting]).mean(0)
            time, mine = waiting[-1][1], getattr(old, name)
            x = torch.cat([mine, other[: mine.numel()], self._age(time, old.last[role])])
            setattr(new, name, torch.sigmoid(cell.weight @ x + cell.bias))
            new.last[role] = time
            if role == "s":
                new.seen = other
        return new

    def _age(self, time: float, last: float | None) -> Tensor:
        age = 0.0 if last is None else max(0.0, (time - last) / self.model.unit)
        return torch.tensor([math.log1p(age)], dtype=torch.float64)

    def pair(self, fresh: Mapping[int, Any], edge: Edge) -> tuple[Tensor, Tensor, Tensor]:
        u, v, n, t = edge
        drift = 1 + self.model.drift.weight @ self._age(t, fresh[u].last["s"])
        x = torch.cat([fresh[u].user * drift, fresh[u].code, fresh[u].seen])
        predicted = self.model.predict.weight @ x + self.model.predict.bias
        positives, negatives = (
            ((predicted - torch.cat([fresh[w].item, fresh[w].code])) ** 2).sum() for w in (v, n)
        )
        moved = ((fresh[u].user - self.vertices[u].user) ** 2).sum()
        moved = moved + ((fresh[v].item - self.vertices[v].item) ** 2).sum()
        return positives + moved, -positives, -negatives

    @torch.no_grad()
    def commit(self, edges: list[Edge], fresh: dict[int, Any]) -> None:
        for vertex in {end for u, v, _, _ in edges for end in (u, v)}:
            one = fresh[vertex]
            vectors = (one.user, one.item, one.code, one.seen)
            self.vertices[vertex] = PlainJodieVertex(*(x.detach() for x in vectors), one.last)
        for u, v, _, t in edges:
            item = torch.cat([fresh[v].item, fresh[v].code]).detach()
            self.vertices[u].waiting["s"].append((item, t))
            self.vertices[v].waiting["g"].append((fresh[u].user.detach(), t))
