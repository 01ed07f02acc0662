"""Training on a stream of events from its definition: loops over events and vertices in float64.

Nothing of dgbench is imported: a workload is read for its settings, a network for its numbers. What
the tested code and this one share is the definition alone:

- A batch is taken in the order of time. With a memory it ends with the time value that fills it.
- The negative of event k is a vertex that bits of (seed, k) choose among the candidates.
- A neighbour is an event strictly before its root's time, or within the window before it.
- A batch reads memories with their waiting messages taken in, takes a step of Adam, and leaves
  each end of its events the message of the last one, made of what the batch read. What is left
  at a time of which more events follow is written when that time is over.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import elu, softplus

from tests.witness.draws import (
    Adam,
    Layers,
    attention,
    average_precision,
    doubles,
    graph_attention,
    negative_candidates,
    precision_range,
    split_mix,
)

Edge = tuple[int, int, float]
"""Vertex at the other end, event and time of a record in a vertex's list."""
Hop = list[list[Edge]]
"""Neighbours of each target."""


@dataclass
class SampleCall:
    """One call of a sampler: its roots, and the neighbours of each target, [snapshot][hop]."""

    roots: list[int]
    times: list[float]
    hops: list[list[Hop]]


@dataclass
class Memory:
    """Memory of a vertex, and the message that waits for it.

    Attributes:
        state: [M]. updated: time of the last message taken in.
        mail: [2 M + E], or None. mail_time: when it was made.
    """

    state: Tensor
    updated: float
    mail: Tensor | None = None
    mail_time: float = -math.inf


@dataclass
class Range:
    """Result of training on, or scoring, a range of events.

    Attributes:
        ap_range: of a witness, the least and the largest that `ap` may be if scores that differ by
            rounding alone may come in either order.
    """

    loss: float
    ap: float = math.nan
    ap_range: tuple[float, float] | None = None


class StreamWitness(Layers):
    """A network that is trained on a stream, event by event.

    Args:
        task: settings, by the names of a stream's workload.
        events: (source, destination, time) of the whole stream, of which `task.events` are kept.
        num_nodes, num_src: vertices, and those of the sources' side of a bipartite stream.
        node_feat, edge_feat: rows of vertices and events, or None.
        parameters: of the network, by name.
    """

    def __init__(
        self, task: Any, events: Sequence[tuple[int, int, float]], num_nodes: int,
        num_src: int | None, node_feat: Tensor | None, edge_feat: Tensor | None,
        parameters: Mapping[str, Tensor],
    ) -> None:  # fmt: skip
        kept = len(events) if task.events is None else min(task.events, len(events))
        self.task, self.events, self.num_nodes = task, list(events[:kept]), num_nodes
        self.node_feat = None if node_feat is None else node_feat.double()
        self.edge_feat = None if edge_feat is None else edge_feat.double()
        self.p = doubles(parameters)
        self.adam = Adam(self.p, task.lr)
        pairs = [(src, dst) for src, dst, _ in events]
        self.candidates = negative_candidates(pairs, kept, num_nodes, num_src)
        self.with_memory = task.model == "tgn"
        self.records: list[list[Edge]] = [[] for _ in range(num_nodes)]
        self.inserted = 0
        self.given: list[SampleCall] = []
        self.calls: list[SampleCall] = []
        self.reset_memory()

    def insert(self, last: int) -> None:
        """Let the graph take in all events before `last`."""
        for k in range(self.inserted, last):
            src, dst, t = self.events[k]
            self.records[src].append((dst, k, t))
            if self.task.undirected:
                self.records[dst].append((src, k, t))
        self.inserted = max(self.inserted, last)

    def before(self, vertex: int, time: float) -> list[Edge]:
        """Records of a vertex strictly before a time (`closed`: or at it), within the window."""
        window, closed = self.task.window, self.task.closed
        begin = -math.inf if window is None else time - window
        mine = [one for one in self.records[vertex] if one[2] >= begin]
        return [one for one in mine if one[2] < time or (closed and one[2] == time)]

    def sample(self, roots: Sequence[int], times: Sequence[float]) -> list[tuple[Any, ...]]:
        """Neighbours of roots: the newest ones, or valid ones that were drawn elsewhere.

        Of each snapshot: hops, vertices of all of them, and by hop how many ask and at which times.
        """
        task, given = self.task, None
        if task.sampling == "uniform":
            if not self.given:
                raise AssertionError("a batch was trained on that nobody sampled for")
            given = self.given.pop(0)
            if (given.roots, given.times) != (list(roots), list(times)):
                raise AssertionError(f"roots {given.roots} at {given.times} are not {roots}")
        by_edge = not (task.model == "dysat" if task.prop_time is None else task.prop_time)
        every = []
        for snapshot in range(task.snapshots):
            shift = snapshot * (task.window or 0.0)
            targets, asked = list(roots), [time - shift for time in times]
            hops, levels = [], []
            for hop, fanout in enumerate(task.fanouts):
                mine: Hop = []
                for target, (vertex, time) in enumerate(zip(targets, asked, strict=True)):
                    seen = self.before(vertex, time)
                    if given is None:
                        mine.append(seen[-fanout:])
                    else:
                        mine.append(valid_draw(given.hops[snapshot][hop][target], seen, fanout))
                hops.append(mine)
                levels.append((len(targets), list(asked)))
                for target, edges in enumerate(mine):
                    targets += [other for other, _, _ in edges]
                    asked += [t if by_edge else levels[-1][1][target] for _, _, t in edges]
            every.append((hops, targets, levels))
        self.calls.append(SampleCall(list(roots), list(times), [hops for hops, _, _ in every]))
        return every

    def cut(self, events: Sequence[int], epoch: int | None) -> list[list[int]]:
        task, size = self.task, self.task.batch
        wanted = size
        if task.chunks > 1 and epoch is not None:
            chunks = split_mix(task.seed, 1, epoch) % task.chunks
            wanted = chunks * (size // task.chunks) or size
        found, begin = [], 0
        while begin < len(events):
            end, full = begin, begin + wanted
            if self.with_memory and task.strict_time:
                while end < min(full, len(events)):  # a whole time value
                    time = self.events[events[end]][2]
                    while end < len(events) and self.events[events[end]][2] == time:
                        end += 1
            else:
                end = min(full, len(events))
            if 2 * (end - full) >= size:  # the last time value is long: equal parts of its rest
                parts = max(1, round((end - full) / size))
                borders = [full + (end - full) * part // parts for part in range(parts + 1)]
                found += [list(events[a:b]) for a, b in zip([begin, *borders], borders)]  # noqa: B905
            else:
                found.append(list(events[begin:end]))
            begin, wanted = end, size
        return found

    def negatives(self, events: Sequence[int]) -> list[int]:
        count = len(self.candidates)
        return [self.candidates[split_mix(self.task.seed, 0, k) % count] for k in events]

    def reset_memory(self) -> None:
        zero = torch.zeros(self.task.memory_dim, dtype=torch.float64)
        begin = self.events[0][2]
        self.memory = {v: Memory(zero, begin) for v in range(self.num_nodes)}
        self.unwritten: list[dict[int, Memory]] = []
        self.unwritten_time = math.nan

    def recalled(self, vertex: int) -> Tensor:
        """Memory of a vertex with the message that waits taken in by a GRU cell."""
        own = self.memory[vertex]
        if own.mail is None:
            return own.state
        x = torch.cat([own.mail, self.time_code("time", own.mail_time - own.updated)])
        p, h = self.p, own.state
        gates_x = p["update.weight_ih"] @ x + p["update.bias_ih"]
        gates_h = p["update.weight_hh"] @ h + p["update.bias_hh"]
        (r_x, z_x, n_x), (r_h, z_h, n_h) = gates_x.chunk(3), gates_h.chunk(3)
        r, z = torch.sigmoid(r_x + r_h), torch.sigmoid(z_x + z_h)
        n = torch.tanh(n_x + r * n_h)
        return (1 - z) * n + z * h

    def left_by(self, events: Sequence[int], fresh: Mapping[int, Tensor]) -> dict[int, Memory]:
        """Memories of a batch's ends after it; a message older than the one that waits is lost."""
        found = {}
        for k in events:
            src, dst, t = self.events[k]
            for own, other in ((src, dst), (dst, src)):
                old = self.memory[own]
                if t < old.mail_time:
                    continue
                mail = [fresh[own].detach(), fresh[other].detach()]
                if self.edge_feat is not None:
                    mail.append(self.edge_feat[k])
                updated = old.updated if old.mail is None else old.mail_time
                found[own] = Memory(mail[0], updated, torch.cat(mail), t)
        return found

    def write(self) -> None:
        for left in self.unwritten:
            self.memory.update(left)
        self.unwritten = []

    def remembered(self) -> dict[str, Tensor]:
        """Rows of all vertices, by the names of `MemoryRows`."""
        rows = list(self.memory.values()) if self.with_memory else []
        if not rows:
            return {}
        width = self.p["update.weight_ih"].shape[1] - self.task.time_dim
        none = torch.zeros(width, dtype=torch.float64)
        return {
            "memory": torch.stack([row.state for row in rows]),
            "updated": torch.tensor([row.updated for row in rows], dtype=torch.float64),
            "mail": torch.stack([none if row.mail is None else row.mail for row in rows]),
            "mail_time": torch.tensor([row.mail_time for row in rows], dtype=torch.float64),
        }

    def parameters(self) -> dict[str, Tensor]:
        return {name: p.detach() for name, p in self.p.items()}

    def time_code(self, name: str, age: float) -> Tensor:
        return torch.cos(self.p[f"{name}.weight"][:, 0] * age + self.p[f"{name}.bias"])

    def layer(
        self, name: str, own: Tensor, time: float, near: list[tuple[Tensor, int, float]], last: bool
    ) -> Tensor:
        """One layer: a target's state and its neighbours' (state, event, time)."""
        kind = self.task.model
        if kind == "graphsage":
            mean = sum((h for h, _, _ in near), torch.zeros_like(own)) / max(1, len(near))
            mixed = self.linear(f"{name}.own", own) + self.linear(f"{name}.others", mean)
            return torch.relu(mixed)
        if kind == "gat":
            return self.graph_attention(name, own, [h for h, _, _ in near], last)
        timed, heads = kind != "dysat", self.task.heads
        rows = []
        for h, event, edge_time in near:
            row = [h]
            if self.edge_feat is not None:
                row.append(self.edge_feat[event])
            if timed:
                row.append(self.time_code(f"{name}.time", time - edge_time))
            rows.append(torch.cat(row))
        out = torch.zeros(self.task.hidden_dim, dtype=torch.float64)
        if rows:
            asking = torch.cat([own, self.time_code(f"{name}.time", 0.0)]) if timed else own
            keys, values = ([self.linear(f"{name}.{part}", row).chunk(heads) for row in rows]
                            for part in ("key", "value"))  # fmt: skip
            out = attention(self.linear(f"{name}.query", asking).chunk(heads), keys, values)
        inner = torch.relu(self.linear(f"{name}.merge.0", torch.cat([out, own])))
        return self.linear(f"{name}.merge.3", inner)

    def graph_attention(self, name: str, own: Tensor, near: list[Tensor], last: bool) -> Tensor:
        heads = []
        for head, weight in enumerate(self.p[f"{name}.weight"]):
            ends = (self.p[f"{name}.{end}"][head, 0] for end in ("source", "target"))
            heads.append(graph_attention([weight @ h for h in (own, *near)], *ends))
        out = torch.cat(heads) + self.p[f"{name}.bias"]
        return out if last else elu(out)

    def embed(
        self, roots: Sequence[int], times: Sequence[float], fresh: dict[int, Tensor]
    ) -> list[Tensor]:
        """Embeddings of roots at times; `fresh` takes memories as they were read."""

        def state(vertex: int) -> Tensor:
            if not self.with_memory:
                none = torch.zeros(0, dtype=torch.float64)
                return none if self.node_feat is None else self.node_feat[vertex]
            if vertex not in fresh:
                fresh[vertex] = self.recalled(vertex)
            if self.node_feat is None:
                return fresh[vertex]
            return fresh[vertex] + self.linear("project", self.node_feat[vertex])

        task, every = self.task, []
        for snapshot, (hops, targets, levels) in enumerate(self.sample(roots, times)):
            h = [state(vertex) for vertex in targets]
            for depth, (hop, (count, when)) in enumerate(
                zip(reversed(hops), reversed(levels), strict=True)
            ):
                name = f"layers.{depth}"
                if task.model == "dysat":
                    name = f"windows.{task.snapshots - 1 - snapshot}.{depth}"
                place, out = count, []
                for target, edges in enumerate(hop):
                    near = [(h[place + i], k, t) for i, (_, k, t) in enumerate(edges)]
                    place += len(edges)
                    last = depth == len(hops) - 1
                    out.append(self.layer(name, h[target], when[target], near, last))
                h = out
            every.append(h)
        if task.model != "dysat":
            return every[0]
        found = []
        for root in range(len(roots)):
            hidden = torch.zeros(task.hidden_dim, dtype=torch.float64)
            for window in reversed(every):  # the oldest first
                x = self.p["combine.weight_ih_l0"] @ window[root] + self.p["combine.bias_ih_l0"]
                back = self.p["combine.weight_hh_l0"] @ hidden + self.p["combine.bias_hh_l0"]
                hidden = torch.tanh(x + back)
            found.append(hidden)
        return found

    def logit(self, source: Tensor, target: Tensor) -> Tensor:
        inner = self.linear("head.source", source) + self.p["head.target.weight"] @ target
        return self.linear("head.score", torch.relu(inner))[0]

    def run(self, events: Sequence[int], epoch: int | None, into: Range) -> list[tuple[Any, Any]]:
        """Go over events batch by batch; trains unless `epoch` is None. Scores of every event."""
        total, scores = 0.0, []
        for batch in self.cut(events, epoch):
            ordered = self.with_memory and self.task.strict_time
            if not ordered or self.unwritten_time != self.events[batch[0]][2]:
                self.write()
            negatives = self.negatives(batch)
            count = len(batch)
            roots = [*(self.events[k][0] for k in batch), *(self.events[k][1] for k in batch)]
            times = [self.events[k][2] for k in batch] * 3
            fresh: dict[int, Tensor] = {}
            h = self.embed([*roots, *negatives], times, fresh)
            loss = torch.zeros((), dtype=torch.float64)
            for i in range(count):
                positive = self.logit(h[i], h[count + i])
                negative = self.logit(h[i], h[2 * count + i])
                scores.append((float(positive.detach()), float(negative.detach())))
                loss = loss + (softplus(-positive) + softplus(negative)) / (2 * count)
            if epoch is not None:
                loss.backward()
                self.adam.step()
            total += float(loss.detach()) * count
            if not self.with_memory:
                continue
            left, last = self.left_by(batch, fresh), batch[-1]
            goes_on = last + 1 < len(self.events) and self.events[last + 1][2] == times[-1]
            self.unwritten.append(left)
            if ordered and goes_on:
                self.unwritten_time = times[-1]
            else:
                self.write()
        into.loss = total / max(1, len(events))
        return scores

    def train(self, events: Sequence[int], epoch: int = 0) -> Range:
        """Train on events; the mean loss before each update."""
        found = Range(0.0)
        self.run(events, epoch, found)
        return found

    def evaluate(self, first: int, last: int, *, remember: bool = False) -> Range:
        """Score events; memories go back unless they are to remember."""
        kept = dict(self.memory), list(self.unwritten), self.unwritten_time
        found = Range(0.0)
        with torch.no_grad():
            scores = self.run(range(first, last), None, found)
        found.ap = average_precision([a for a, _ in scores], [b for _, b in scores])
        found.ap_range = precision_range(scores)
        if not remember:
            self.memory, self.unwritten, self.unwritten_time = kept
        return found


def valid_draw(drawn: list[Edge], seen: list[Edge], fanout: int) -> list[Edge]:
    """A draw without replacement of as many records as there are, `fanout` at most; else an error.

    Raises:
        AssertionError: it holds a record that is none, one too often, or too few.
    """
    if len(drawn) != min(fanout, len(seen)) or Counter(drawn) - Counter(seen):
        raise AssertionError(f"{drawn} is no draw of {fanout} from {seen}")
    if len(seen) <= fanout and [t for _, _, t in drawn] != [t for _, _, t in seen]:
        raise AssertionError(f"all of {seen} are given as {drawn}, not in the order of time")
    return drawn
