"""Training on vertex-steps from its definition: loops over snapshots and entities in float64.

Nothing of dgbench is imported. A vertex-step is an entity in a snapshot in which it exists; the
vertex-steps of an entity, in the order of time, are its sequence. Draws (what is scored, what is
held out) are given and checked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import elu

from tests.witness.draws import Adam, Layers, attention, doubles, graph_attention

Step = tuple[int, int]
"""Entity and snapshot."""


class SequenceWitness(Layers):
    """A network over vertex-steps, one optimiser step an epoch.

    Args:
        task: settings, by the names of a sequence workload.
        edges: (source, destination) of each snapshot, the target's last.
        features: [T, N, F].
        scored: vertex-steps, or pairs of them (None: it does not exist), with label and whether
            it is held out, as they were drawn.
        parameters: of the network, by name.

    Raises:
        AssertionError: what is scored is no draw of the task.
    """

    def __init__(
        self, task: Any, edges: Sequence[Sequence[tuple[int, int]]], features: Tensor,
        scored: Sequence[tuple[Any, int, bool]], parameters: Mapping[str, Tensor],
    ) -> None:  # fmt: skip
        self.task, self.edges, self.features = task, edges, features.double()
        self.p = doubles(parameters)
        self.adam = Adam(self.p, task.lr)
        self.scored = scored
        self.steps = vertex_steps(edges[:-1], features.shape[1], task.presence)
        self.sequences: dict[int, list[int]] = {}
        for entity, snapshot in self.steps:
            self.sequences.setdefault(entity, []).append(snapshot)
        self.check_draw()

    def check_draw(self) -> None:
        """Check that what is scored is a draw from what may be, labelled by the next snapshot."""
        tested = sum(held for _, _, held in self.scored)
        if tested != int(self.task.held_out * len(self.scored)):
            raise AssertionError(f"{tested} of {len(self.scored)} are held out")
        check = self.check_active if self.task.task == "active" else self.check_pairs
        check()

    def check_active(self) -> None:
        """As many vertex-steps with as without an edge in the next snapshot."""
        places = [place for place, _, _ in self.scored]
        if len(set(places)) != len(places) or not set(places) <= set(self.steps):
            raise AssertionError("a vertex-step is scored twice, or does not exist")
        for snapshot in range(len(self.edges) - 1):
            active = {end for edge in self.edges[snapshot + 1] for end in edge}
            mine = [entity for entity, t in self.steps if t == snapshot]
            least = min(sum((v in active) == on for v in mine) for on in (True, False))
            for on in (True, False):
                some = [v for (v, t), _, _ in self.scored if t == snapshot and (v in active) == on]
                if len(some) != least:
                    raise AssertionError(f"{len(some)} of snapshot {snapshot} are scored")
        for (entity, snapshot), label, _ in self.scored:
            active = any(entity in edge for edge in self.edges[snapshot + 1])
            if label != active:
                raise AssertionError(f"{entity} is labelled {label} in snapshot {snapshot}")

    def check_pairs(self) -> None:
        """A share of the edges of each next snapshot, and as many other pairs."""
        at = 0
        for snapshot in range(len(self.edges) - 1):
            following = self.edges[snapshot + 1]
            count = math.ceil(self.task.theta * len(following))
            mine = self.scored[at : at + 2 * count]
            at += 2 * count
            if [label for _, label, _ in mine] != [1] * count + [0] * count:
                raise AssertionError(f"labels of snapshot {snapshot}")
            exist = {entity for entity, t in self.steps if t == snapshot}
            allowed = [
                tuple((v, snapshot) if v in exist else None for v in edge) for edge in following
            ]
            for pair, _, _ in mine[:count]:
                if pair not in allowed:
                    raise AssertionError(f"{pair} is no edge of snapshot {snapshot + 1}")
                allowed.remove(pair)  # type: ignore[arg-type]
            for pair, _, _ in mine:
                if any(end is not None and end[1] != snapshot for end in pair):
                    raise AssertionError(f"{pair} is not of snapshot {snapshot}")
        if at != len(self.scored):
            raise AssertionError("more is scored than there is")

    def propagate(self, snapshot: int, rows: Mapping[int, Tensor]) -> dict[int, Tensor]:
        degree = dict.fromkeys(rows, 1.0)
        for _, dst in self.edges[snapshot]:
            degree[dst] += 1
        out = {}
        for v, row in rows.items():
            near = [v, *(src for src, dst in self.edges[snapshot] if dst == v)]
            if self.task.norm == "mean":
                out[v] = sum(rows[u] for u in near) / degree[v]
            else:
                out[v] = sum(rows[u] / math.sqrt(degree[u] * degree[v]) for u in near)
            out[v] = out[v] + 0 * row
        return out

    def convolved(self, name: str, snapshot: int, rows: Mapping[int, Tensor]) -> dict[int, Tensor]:
        weight, bias = self.p[f"{name}.weight"], self.p[f"{name}.bias"]
        return {v: x @ weight + bias for v, x in self.propagate(snapshot, rows).items()}

    def spatial(self, snapshot: int, rows: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """Output of the spatial half for a snapshot's vertices."""
        if self.task.model == "dysat":
            return self.attended(snapshot, rows)
        if self.task.model == "mpnn_lstm_bare":
            first = {v: torch.relu(x) for v, x in self.convolved("conv_1", snapshot, rows).items()}
            second = self.convolved("conv_2", snapshot, first)
            return {v: torch.cat([first[v], torch.relu(second[v])]) for v in rows}
        parts = []
        for gate in "zrc":
            inner = self.convolved(f"conv_1_{gate}", snapshot, rows)
            inner = {v: torch.relu(x) for v, x in inner.items()}
            parts.append(self.convolved(f"conv_2_{gate}", snapshot, inner))
        return {v: torch.cat([part[v] for part in parts]) for v in rows}

    def attended(self, snapshot: int, rows: Mapping[int, Tensor]) -> dict[int, Tensor]:
        shown = {v: (x @ self.p["weight"]).chunk(self.task.heads) for v, x in rows.items()}
        out = {}
        for v in rows:
            near = [v, *(src for src, dst in self.edges[snapshot] if dst == v)]
            heads = []
            for head in range(self.task.heads):
                ends = (self.p[f"att_{end}"][head] for end in ("source", "target"))
                heads.append(graph_attention([shown[u][head] for u in near], *ends))
            out[v] = elu(torch.cat(heads) + self.p["bias"])
        return out

    def temporal(self, rows: list[Tensor]) -> list[Tensor]:
        if self.task.model == "dysat":
            return self.over_steps(rows)
        hidden = torch.zeros(self.task.hidden_dim, dtype=torch.float64)
        if self.task.model == "mpnn_lstm_bare":
            for layer in ("lstm_1", "lstm_2"):
                h, c, out = hidden, hidden, []
                for x in rows:
                    gates = self.p[f"{layer}.weight_ih_l0"] @ x + self.p[f"{layer}.bias_ih_l0"]
                    gates = gates + self.p[f"{layer}.weight_hh_l0"] @ h
                    i, f, g, o = (gates + self.p[f"{layer}.bias_hh_l0"]).chunk(4)
                    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
                    h = torch.sigmoid(o) * torch.tanh(c)
                    out.append(h)
                rows = out
            return rows
        out = []
        for x in rows:
            of = dict(zip("zrc", x.chunk(3), strict=True))
            z = torch.sigmoid(self.linear("linear_z", torch.cat([of["z"], hidden])))
            r = torch.sigmoid(self.linear("linear_r", torch.cat([of["r"], hidden])))
            c = torch.tanh(self.linear("linear_c", torch.cat([of["c"], r * hidden])))
            hidden = z * hidden + (1 - z) * c
            out.append(hidden)
        return out

    def over_steps(self, rows: list[Tensor]) -> list[Tensor]:
        asked, keys, values = (
            [(self.p[f"{name}.weight"] @ x).chunk(self.task.heads) for x in rows]
            for name in ("query", "key", "value")
        )
        out = []
        for step in range(len(rows)):
            seen = range(step + 1 if self.task.causal else len(rows))
            out.append(attention(asked[step], [keys[s] for s in seen], [values[s] for s in seen]))
        return out

    def outputs(self) -> dict[Step, Tensor]:
        """Output of every vertex-step."""
        spatial: dict[Step, Tensor] = {}
        for snapshot in range(len(self.edges) - 1):
            mine = [entity for entity, t in self.steps if t == snapshot]
            rows = {v: self.features[snapshot, v] for v in mine}
            for v, x in self.spatial(snapshot, rows).items():
                spatial[v, snapshot] = x
        found = {}
        for v, snapshots in self.sequences.items():
            out = self.temporal([spatial[v, t] for t in snapshots])
            found |= {(v, t): h for t, h in zip(snapshots, out, strict=True)}
        return found

    def logits(self, place: Any, hidden: Mapping[Step, Tensor]) -> Tensor:
        """Scores of both classes of a vertex-step or a pair."""
        if self.task.task == "active":
            return self.p["head.linear.weight"] @ hidden[place]
        zero = torch.zeros(self.task.hidden_dim, dtype=torch.float64)
        src, dst = (zero if end is None else hidden[end] for end in place)
        return self.linear("head.source", src) + self.p["head.target.weight"] @ dst

    def loss(self, hidden: Mapping[Step, Tensor]) -> Tensor:
        total, count = torch.zeros((), dtype=torch.float64), 0
        for place, label, held in self.scored:
            if not held:
                logits = self.logits(place, hidden)
                total = total + torch.log(torch.exp(logits).sum()) - logits[label]
                count += 1
        return total / max(1, count)

    def gradients(self) -> dict[str, Tensor]:
        """Gradients of the loss, without a step."""
        self.loss(self.outputs()).backward()
        found = {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in self.p.items()}
        for p in self.p.values():
            p.grad = None
        return found

    def train(self) -> float:
        """A step of Adam; the loss before it."""
        loss = self.loss(self.outputs())
        loss.backward()
        self.adam.step()
        return float(loss.detach())

    def accuracy(self) -> float:
        """Share of right answers on what is held out, or on everything where nothing is."""
        hidden = self.outputs()
        some = [one for one in self.scored if one[2]] or self.scored
        right = [int(self.logits(place, hidden).argmax()) == label for place, label, _ in some]
        return sum(right) / len(right) if right else 0.0


def vertex_steps(
    edges: Sequence[Sequence[tuple[int, int]]], entities: int, presence: str
) -> list[Step]:
    """Vertex-steps by entity and then by snapshot.

    An entity exists where it has an edge (`edges`), from its first such snapshot to its last
    (`span`), or from its first to the end (`tail`).
    """
    found = []
    for entity in range(entities):
        seen = [t for t, pairs in enumerate(edges) if any(entity in pair for pair in pairs)]
        if seen and presence != "edges":
            seen = list(range(seen[0], seen[-1] + 1 if presence == "span" else len(edges)))
        found += [(entity, t) for t in seen]
    return found
