"""Training on interactions from its definition: DyGNN and JODIE, vertex by vertex, in float64.

Nothing of dgbench is imported. What the tested code and this one share is the definition alone:

- Events of one time are scored from the state before that time and change it together when it is
  over; an optimiser step is taken on a group of them, which ends with the time value that fills it.
- What happens to a vertex waits, by role, and is taken in when the vertex is next read, with a
  gradient. It is kept when the vertex occurs again.
- Ages count in the mean time between two interactions of a vertex in the part trained on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from tests.witness.draws import (
    Adam,
    Layers,
    average_precision,
    doubles,
    negative_candidates,
    split_mix,
)

ROLES = ("s", "g")
NEVER = -math.inf


@dataclass
class Vertex:
    """State of a vertex.

    Attributes:
        vectors: by name. last: time of the last interaction taken in, by role.
        waiting: (partner's vector, time) of interactions not taken in, by role.
        pushed: by role, what neighbours pushed since. near: (vertex, time, whether it was the
            source), the newest last.
    """

    vectors: dict[str, Tensor]
    last: dict[str, float] = field(default_factory=lambda: dict.fromkeys(ROLES, NEVER))
    waiting: dict[str, list[tuple[Tensor, float]]] = field(
        default_factory=lambda: {role: [] for role in ROLES})  # fmt: skip
    pushed: dict[str, Tensor] = field(default_factory=dict)
    near: list[tuple[int, float, bool]] = field(default_factory=list)


@dataclass
class Outcome:
    """Result of training on, or scoring, a range of events."""

    loss: float
    ap: float = math.nan
    accuracy: float = math.nan


class InteractionWitness(Layers):
    """A network with a state per vertex, trained event by event.

    Args:
        task: settings, by the names of an interaction workload.
        events: (source, destination, time) of the whole stream, of which `task.events` are kept.
        num_nodes, num_src: vertices, and those of the sources' side of a bipartite stream.
        parameters: of the network, by name.
        first: vectors of all vertices before anything happened, by name.
    """

    def __init__(
        self, task: Any, events: Sequence[tuple[int, int, float]], num_nodes: int,
        num_src: int | None, parameters: Mapping[str, Tensor], first: Mapping[str, Tensor],
    ) -> None:  # fmt: skip
        kept = len(events) if task.events is None else min(task.events, len(events))
        self.task, self.events, self.num_nodes = task, list(events[:kept]), num_nodes
        self.p = doubles(parameters)
        self.adam = Adam(self.p, task.lr)
        self.first = {name: rows.double() for name, rows in first.items()}
        self.train_end, self.validate_end = (self.cut_at(share) for share in (0.8, 0.9))
        active = {end for src, dst, _ in self.events[: self.train_end] for end in (src, dst)}
        span = self.events[self.train_end - 1][2] - self.events[0][2]
        self.unit = span * len(active) / (2 * self.train_end) or 1.0
        pairs = [(src, dst) for src, dst, _ in events]
        candidates = negative_candidates(pairs, kept, num_nodes, num_src)
        self.negative = [
            candidates[split_mix(task.seed, 11, k) % len(candidates)] for k in range(kept)
        ]
        self.held_out = [split_mix(task.seed, 12, v) / 2**63 < 0.1 for v in range(num_nodes)]
        self.classes = self.activity()
        self.reset()

    def cut_at(self, share: float) -> int:
        """Events before the time value at a share of them."""
        place = round(share * len(self.events))
        if place >= len(self.events):
            return len(self.events)
        return sum(t < self.events[place][2] for _, _, t in self.events)

    def activity(self) -> list[int]:
        """Quartile of a vertex's number of events among those that have any; -1 for none."""
        often = [0] * self.num_nodes
        for src, dst, _ in self.events:
            often[src] += 1
            often[dst] += 1
        ranked = torch.tensor([float(count) for count in often if count], dtype=torch.float64)
        borders = [float(torch.quantile(ranked, share)) for share in (0.25, 0.5, 0.75)]
        return [sum(count > border for border in borders) if count else -1 for count in often]

    def values(self, events: Sequence[int]) -> list[list[int]]:
        """Events by their time."""
        found: list[list[int]] = []
        for k in events:
            if found and self.events[found[-1][0]][2] == self.events[k][2]:
                found[-1].append(k)
            else:
                found.append([k])
        return found

    def groups(self, first: int, last: int, *, intervals: bool = False) -> list[list[list[int]]]:
        """Events of each optimiser step, by what is scored from one state."""
        size = self.task.batch
        if intervals and self.task.intervals is not None:
            size = max(1, -(-self.train_end // self.task.intervals))
        if not self.task.strict_time:
            pieces = [list(range(a, min(a + size, last))) for a in range(first, last, size)]
            return [[piece] if intervals else [[k] for k in piece] for piece in pieces]
        pieces = [[]]
        for value in self.values(range(first, last)):
            if len(pieces[-1]) >= size:
                pieces.append([])
            pieces[-1] += value
        if intervals:
            return [[piece] for piece in pieces if piece]
        found = []
        for piece in filter(None, pieces):
            *before, value = self.values(piece)
            if len(piece) <= 1.5 * size:
                found.append([*before, value])
                continue
            if before:  # its last time value alone fills several
                found.append(before)
            parts = max(1, round(len(value) / size))
            borders = [len(value) * part // parts for part in range(parts + 1)]
            found += [[value[a:b]] for a, b in zip(borders, borders[1:])]  # noqa: B905, RUF007
        return found

    def reset(self) -> None:
        self.vertices = []
        for v in range(self.num_nodes):
            one = Vertex({name: rows[v] for name, rows in self.first.items()})
            if self.task.propagation:
                zero = torch.zeros(self.task.hidden_dim, dtype=torch.float64)
                one.pushed = dict.fromkeys(ROLES, zero)
            self.vertices.append(one)
        self.held: list[int] = []

    def age(self, now: float, last: float) -> float:
        """Time since, in units; 0 before the first."""
        return 0.0 if last == NEVER else max(0.0, (now - last) / self.unit)

    def taken(self, waiting: list[tuple[Tensor, float]]) -> tuple[Tensor, float]:
        """Partner and time that several interactions amount to."""
        some = waiting[-1:] if self.task.aggregate == "last" else waiting
        return sum(vector for vector, _ in some) / len(some), waiting[-1][1]

    def refresh(self, v: int) -> Vertex:
        old = self.vertices[v]
        new = replace(old, vectors=dict(old.vectors), last=dict(old.last))
        return self.jodie(old, new) if self.task.model == "jodie" else self.dygnn(old, new)

    def dygnn(self, old: Vertex, new: Vertex) -> Vertex:
        e, moved = old.vectors["embedding"], False
        for role in ROLES:
            c, h = old.vectors[f"c{role}"], old.vectors[f"h{role}"]
            if old.waiting[role]:
                partner, time = self.taken(old.waiting[role])
                x = self.message(e, partner) if role == "s" else self.message(partner, e)
                cell = f"update_{role}"
                rate = softplus(self.p[f"{cell}.rate"])
                aged = rate * self.age(time, old.last[role])
                kept = {
                    "log": 1 / torch.log(math.e + aged),
                    "exp": torch.exp(-aged),
                    "inverse": 1 / (1 + aged),
                }[self.task.decay]
                short = torch.tanh(self.linear(f"{cell}.short", c))
                i, f, g, o = self.linear(f"{cell}.gates", torch.cat([x, h])).chunk(4)
                c = torch.sigmoid(f) * (c - short + kept * short)
                c = c + torch.sigmoid(i) * torch.tanh(g)
                h = torch.sigmoid(o) * torch.tanh(c)
                new.last[role], moved = time, True
            if role in old.pushed and bool(old.pushed[role].any()):
                c = c + self.p[f"push_{role}.weight"] @ old.pushed[role]
                h, moved = torch.tanh(c), True
            new.vectors[f"c{role}"], new.vectors[f"h{role}"] = c, h
        if moved:
            both = torch.cat([new.vectors["hs"], new.vectors["hg"]])
            new.vectors["embedding"] = self.linear("merge", both)
        return new

    def message(self, source: Tensor, target: Tensor) -> Tensor:
        x = self.linear("interact", torch.cat([source, target]))
        return torch.tanh(x) if self.task.activation == "tanh" else torch.sigmoid(x)

    def jodie(self, old: Vertex, new: Vertex) -> Vertex:
        for role, name in (("s", "user"), ("g", "item")):
            if not old.waiting[role]:
                continue
            partner, time = self.taken(old.waiting[role])
            mine = old.vectors[name]
            age = torch.tensor([math.log(1 + self.age(time, old.last[role]))], dtype=torch.float64)
            x = torch.cat([mine, partner[: mine.numel()], age])
            new.vectors[name] = torch.sigmoid(self.linear(name, x))
            new.last[role] = time
            if role == "s":
                new.vectors["seen"] = partner
        return new

    def scored(self, k: int, fresh: Mapping[int, Vertex]) -> tuple[Tensor, float, float]:
        """Loss of an event, its score and its negative's."""
        src, dst, t = self.events[k]
        neg = self.negative[k]
        if self.task.model == "jodie":
            user = fresh[src].vectors
            age = math.log(1 + self.age(t, fresh[src].last["s"]))
            drifted = user["user"] * (1 + self.p["drift.weight"][:, 0] * age)
            x = torch.cat([drifted, user["code"], user["seen"]])
            predicted = self.linear("predict", x)
            far = []
            for w in (dst, neg):
                item = torch.cat([fresh[w].vectors["item"], fresh[w].vectors["code"]])
                far.append(((predicted - item) ** 2).sum())
            loss = far[0]
            for v, name in ((src, "user"), (dst, "item")):
                moved = fresh[v].vectors[name] - self.vertices[v].vectors[name]
                loss = loss + (moved**2).sum()
            return loss, -float(far[0].detach()), -float(far[1].detach())
        key = self.linear("head.source", fresh[src].vectors["embedding"])
        positive, negative = (
            key @ self.linear("head.target", fresh[w].vectors["embedding"])
            / math.sqrt(key.numel())
            for w in (dst, neg)
        )  # fmt: skip
        loss = softplus(-positive) + softplus(negative)
        return loss, float(positive.detach()), float(negative.detach())

    def classified(self, k: int, fresh: Mapping[int, Vertex]) -> tuple[Tensor, int, int]:
        loss, right, asked = torch.zeros((), dtype=torch.float64), 0, 0
        for v in self.events[k][:2]:
            vectors, label = fresh[v].vectors, self.classes[v]
            e = vectors.get("embedding")
            if e is None:
                e = torch.cat([vectors["user"], vectors["item"]])
            logits = self.linear("head.score", torch.relu(self.linear("head.inner", e)))
            if self.held_out[v]:
                asked += 1
                right += int(int(logits.argmax()) == label)
            else:
                loss = loss - logits[label] + torch.log(torch.exp(logits).sum())
        return loss, right, asked

    def step(self, events: Sequence[int], found: list[Any]) -> Tensor:
        if self.held and self.events[self.held[0]][2] != self.events[events[0]][2]:
            self.commit(self.held)
            self.held = []
        link = self.task.task == "link"
        fresh: dict[int, Vertex] = {}
        loss = torch.zeros((), dtype=torch.float64)
        for k in events:
            named = [*self.events[k][:2], *([self.negative[k]] if link else [])]
            for v in named:
                if v not in fresh:
                    fresh[v] = self.refresh(v)
            one, *rest = self.scored(k, fresh) if link else self.classified(k, fresh)
            loss = loss + one
            found.append(rest)
        last = events[-1]
        follows = last + 1 < len(self.events) and self.events[last + 1][2] == self.events[last][2]
        self.held += events
        if not (self.task.strict_time and follows):
            self.commit(self.held)
            self.held = []
        return loss

    @torch.no_grad()
    def commit(self, events: Sequence[int]) -> None:
        """Keep the ends of events as they were read, and let the events wait for them."""
        fresh = {v: self.refresh(v) for k in events for v in self.events[k][:2]}
        pushes = self.pushes(events, fresh) if self.task.propagation else []
        for v, one in fresh.items():
            vectors = {name: vector.detach() for name, vector in one.vectors.items()}
            pushed = {role: torch.zeros_like(vector) for role, vector in one.pushed.items()}
            self.vertices[v] = Vertex(vectors, one.last, pushed=pushed, near=one.near)
        for k in events:
            src, dst, t = self.events[k]
            to_src, to_dst = (self.shown(fresh[v], role) for v, role in ((dst, "g"), (src, "s")))
            self.vertices[src].waiting["s"].append((to_src, t))
            self.vertices[dst].waiting["g"].append((to_dst, t))
        for v, role, value in pushes:
            self.vertices[v].pushed[role] = self.vertices[v].pushed[role] + value
        if self.task.propagation:
            for k in events:
                src, dst, t = self.events[k]
                for own, other, source in ((src, dst, False), (dst, src, True)):
                    kept = [*self.vertices[own].near, (other, t, source)]
                    self.vertices[own].near = kept[-5:]

    def shown(self, one: Vertex, role: str) -> Tensor:
        if self.task.model != "jodie":
            return one.vectors["embedding"].detach()
        if role == "s":
            return one.vectors["user"].detach()
        return torch.cat([one.vectors["item"], one.vectors["code"]]).detach()

    def pushes(
        self, events: Sequence[int], fresh: Mapping[int, Vertex]
    ) -> list[tuple[int, str, Tensor]]:
        """Pushes of events to the last neighbours of their ends, by attention and age."""
        found = []
        for k in events:
            src, dst, t = self.events[k]
            brought = self.message(*(fresh[v].vectors["embedding"] for v in (src, dst)))
            for end in (src, dst):
                near = [
                    (w, self.age(t, since), source)
                    for w, since, source in self.vertices[end].near
                    if self.age(t, since) <= 4
                ]
                e = fresh[end].vectors["embedding"]
                weights = [
                    math.exp(float(self.vertices[w].vectors["embedding"] @ e) / e.numel() ** 0.5)
                    for w, _, _ in near
                ]
                for (w, age, source), weight in zip(near, weights, strict=True):
                    share = weight / sum(weights) / math.log(math.e + age)
                    found.append((w, "s" if source else "g", share * brought))
        return found

    def train(self, groups: Sequence[Sequence[Sequence[int]]]) -> Outcome:
        """Train on groups of steps; the mean loss of an event before the updates."""
        total, count = 0.0, 0
        for group in groups:
            size = sum(len(step) for step in group)
            for step in group:
                loss = self.step(step, [])
                total += float(loss.detach())
                if loss.requires_grad:
                    (loss / size).backward()
            self.adam.step()
            count += size
        return Outcome(total / max(1, count))

    def evaluate(
        self, groups: Sequence[Sequence[Sequence[int]]], *, remember: bool = False
    ) -> Outcome:
        """Score events; the state goes back unless it is to remember."""
        before = deepcopy((self.vertices, self.held))
        found: list[Any] = []
        total, count = 0.0, 0
        with torch.no_grad():
            for group in groups:
                for step in group:
                    total += float(self.step(step, found))
                    count += len(step)
        if not remember:
            self.vertices, self.held = before
        loss = total / max(1, count)
        if self.task.task != "link":
            right, asked = (sum(one[i] for one in found) for i in (0, 1))
            return Outcome(loss, accuracy=right / asked if asked else math.nan)
        # Scores are ranked in single precision.
        single = torch.tensor(found, dtype=torch.float64).float().tolist()
        above = [1.0 if a > b else 0.5 if a == b else 0.0 for a, b in single]
        ap = average_precision([a for a, _ in single], [b for _, b in single])
        return Outcome(loss, ap, sum(above) / len(above) if above else math.nan)

    def remembered(self) -> dict[str, Tensor]:
        """State of all vertices and means of what waits for them, by name."""
        found = {
            name: torch.stack([one.vectors[name].detach() for one in self.vertices])
            for name in self.first
        }
        for role in ROLES:
            last = [one.last[role] for one in self.vertices]
            found[f"last_{role}"] = torch.tensor(last, dtype=torch.float64)
            waiting = [one.waiting[role] for one in self.vertices]
            found[f"waits_{role}"] = torch.tensor([float(bool(some)) for some in waiting])
            width = max((some[0][0].numel() for some in waiting if some), default=0)
            none = torch.zeros(width, dtype=torch.float64)
            found[f"mean_{role}"] = torch.stack(
                [self.taken(some)[0] if some else none for some in waiting]
            )
            found[f"time_{role}"] = torch.tensor(
                [some[-1][1] if some else 0.0 for some in waiting], dtype=torch.float64
            )
            if self.task.propagation:
                found[f"push_{role}"] = torch.stack([one.pushed[role] for one in self.vertices])
        return found
