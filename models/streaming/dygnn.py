"""DyGNN: two time-aware LSTMs per vertex, one for each role in an interaction (T-GCN, section 2.1).

An interaction (u, v, t) makes e(t) = act(W_s E_u + W_g E_v + b) (Interact), moves u's source state
and v's destination state (Update), and both embeddings anew (Merge). The paper trains it on
intervals of time in whose inside the order is relaxed; our rule, which is the sequential one
wherever a vertex occurs once per interval:

- What happens to a vertex in an interval waits (`PendingInteractions`): partners' embeddings,
  summed by role.
- It is taken in when the vertex is next read (`refresh`), with gradients, so that a loss teaches
  the update before it. Reading alone changes nothing: the state is written when the vertex occurs
  again.
- Several interactions of one vertex, role and interval go in as their mean (or the last of them),
  at the time of the last.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from dgbench.kernels_cuda.interact import edge_dots, partner_sums
from dgbench.models.streaming.cell import TimeLstm, spread
from dgbench.models.streaming.edges import IntervalEdges
from dgbench.models.streaming.heads import DotHead, PerceptronClassHead
from dgbench.models.streaming.state import DygnnState, PendingInteractions
from dgbench.models.streaming.taken import taken_rows
from dgbench.runtime.errors import unknown_key

ACTIVATIONS = {"tanh": torch.tanh, "sigmoid": torch.sigmoid}


@dataclass(slots=True, eq=False)
class Refreshed(DygnnState):
    """State of some vertices with what waited taken in: `DygnnState` that has a graph."""


@dataclass(slots=True, eq=False)
class EdgeScores:
    """Scores of B edges and of as many negatives, with their loss.

    Attributes:
        positives, negatives: [B] scores of the edges and of the pairs that are none; the
            higher, the likelier.
        loss: scalar, summed over the edges.
    """

    positives: Tensor
    negatives: Tensor
    loss: Tensor


class Dygnn(nn.Module):
    """The network; its state is kept by whoever trains it.

    Attributes:
        hidden_dim: H.
        head: `DotHead` for links, or `PerceptronClassHead`.
        unit: time that counts as 1 where ages decay.
    """

    def __init__(
        self,
        hidden_dim: int,
        *,
        classes: int = 0,
        activation: str = "tanh",
        decay: str = "log",
        propagation: bool = False,
        unit: float = 1.0,
    ) -> None:
        """Parameters from torch's generator.

        Args:
            hidden_dim: H.
            classes: of vertices; 0 for the link task.
            activation: of Interact, `tanh` or `sigmoid`.
            decay: `log`, `exp` or `inverse`.
            propagation: neighbours of the ends of an edge take in a part of it too.
            unit: > 0, of time.
        """
        super().__init__()
        if activation not in ACTIVATIONS:
            raise unknown_key("activation", activation, ACTIVATIONS)
        self.hidden_dim, self.unit, self.propagation = hidden_dim, unit, propagation
        self.activation = activation
        self.interact = spread(nn.Linear(2 * hidden_dim, hidden_dim))
        self.update_s = TimeLstm(hidden_dim, hidden_dim, decay)
        self.update_g = TimeLstm(hidden_dim, hidden_dim, decay)
        # Hidden states are gated twice and small.
        self.merge = spread(nn.Linear(2 * hidden_dim, hidden_dim), gain=2.0)
        self.push_s = nn.Linear(hidden_dim, hidden_dim, bias=False) if propagation else None
        self.push_g = nn.Linear(hidden_dim, hidden_dim, bias=False) if propagation else None
        self.head: DotHead | PerceptronClassHead = (
            PerceptronClassHead(hidden_dim, classes) if classes else DotHead(hidden_dim)
        )

    def new_state(
        self,
        num_vertices: int,
        vertices: Tensor | None = None,
        *,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> tuple[DygnnState, PendingInteractions]:
        """State of N vertices to which nothing happened yet; only of `vertices`, ascending, if
        given."""
        like = {"dtype": dtype, "device": device}
        state = DygnnState.fresh(num_vertices, self.hidden_dim, vertices, seed=seed, **like)
        pending = PendingInteractions.none(
            len(state), self.hidden_dim, propagation=self.propagation, **like
        )
        return state, pending

    def message(self, source: Tensor, target: Tensor) -> Tensor:
        """Interact: e of embeddings of sources and destinations, two times [n, H] -> [n, H]."""
        mixed = self.interact(torch.cat([source, target], dim=1))
        return ACTIVATIONS[self.activation](mixed)

    def refresh(
        self, rows: DygnnState, pending: PendingInteractions, *, dense: bool = False
    ) -> Refreshed:
        """State of vertices with what waits for them taken in; vertices do not see each other.

        Args:
            rows, pending: of n vertices, detached.
            dense: compute all rows and keep those for which something waits, so that the host does
                not wait for a device to count them.

        Returns:
            n rows with gradients to the parameters. Roles and vertices without anything that waits
            are as they were.
        """
        new = rows.columns()
        e = rows.embedding
        masks = [pending.count_s > 0, pending.count_g > 0]
        # Neighbours push after a vertex's own interaction, so what they pushed comes last.
        masks += [(p != 0).any(1) for p in (pending.push_s, pending.push_g) if p is not None]
        *taken, at_all = taken_rows([*masks, torch.stack(masks).any(0)], dense=dense)
        for k, (role, cell) in enumerate((("s", self.update_s), ("g", self.update_g))):
            count, last = getattr(pending, f"count_{role}"), new[f"last_{role}"]
            at = taken[k]
            if at.any:
                partner = at.of(getattr(pending, f"sum_{role}")) / at.divisor(count)
                mine = at.of(e)
                x = self.message(*((mine, partner) if role == "s" else (partner, mine)))
                time = at.of(getattr(pending, f"time_{role}"))
                age = ((time - at.of(last)) / self.unit).clamp_(min=0)
                age = torch.where(age.isfinite(), age, 0.0)  # 0 for the first
                c, h = cell(at.of(new[f"c{role}"]), at.of(new[f"h{role}"]), age, x)
                new[f"c{role}"] = at.put(new[f"c{role}"], c)
                new[f"h{role}"] = at.put(new[f"h{role}"], h)
                new[f"last_{role}"] = at.put(last, time)
            push = getattr(pending, f"push_{role}")
            if push is not None:
                at = taken[k + 2]
                c = at.of(new[f"c{role}"]) + getattr(self, f"push_{role}")(at.of(push))
                new[f"c{role}"] = at.put(new[f"c{role}"], c)
                new[f"h{role}"] = at.put(new[f"h{role}"], torch.tanh(c))
        if at_all.any:
            both = torch.cat([at_all.of(new["hs"]), at_all.of(new["hg"])], dim=1)
            new["embedding"] = at_all.put(e, self.merge(both))
        return Refreshed(**new)

    def link(self, now: Refreshed, old: DygnnState, edges: IntervalEdges) -> EdgeScores:
        """Score every edge and its negative, and the summed cross entropy of both.

        Args:
            now: the U rows, refreshed.
            old: as they were; not read (JODIE's loss is on how far they moved).
            edges: over these rows.
        """
        keys = self.head.keys(now.embedding[: edges.sources])
        values = self.head.values(now.embedding[edges.targets :])
        positives = edge_dots(edges.src, edges.target, keys, values, by_src=edges.by_src,
                          by_dst=edges.by_dst)  # fmt: skip
        negatives = edge_dots(
            edges.src, edges.neg - edges.targets, keys, values, by_src=edges.by_src
        )
        positives, negatives = positives[: edges.real], negatives[: edges.real]
        loss = functional.softplus(-positives).sum() + functional.softplus(negatives).sum()
        return EdgeScores(positives, negatives, loss)

    def pairs(self, sources: DygnnState, targets: DygnnState, time: float) -> Tensor:
        """Scores [n, m] of all pairs of refreshed rows; `time` is not read (JODIE's ages are)."""
        keys, values = self.head.keys(sources.embedding), self.head.values(targets.embedding)
        return keys @ values.t()

    def classify(self, now: Refreshed) -> Tensor:
        """Logits [n, classes] of refreshed rows; needs `classes`."""
        return self.head(now.embedding)

    def pend(
        self, now: Refreshed, edges: IntervalEdges, aggregate: str = "mean"
    ) -> PendingInteractions:
        """Pending interactions of the edges' ends, rows [0, ends): sums over partners as they are
        now.

        Args:
            now: the U rows, refreshed.
            edges: over these rows.
            aggregate: `mean` of a role's interactions, or the `last` of them.
        """
        e = now.embedding.detach()
        sums = partner_sums(
            edges.src, edges.target, e[: edges.sources], e[edges.targets :],
            last=aggregate == "last", by_src=edges.by_src, by_dst=edges.by_dst,
        )  # fmt: skip
        found = PendingInteractions.none(
            edges.ends, self.hidden_dim, propagation=self.propagation, dtype=e.dtype,
            device=e.device,
        )  # fmt: skip
        targets = edges.ends - edges.targets
        found.sum_s[: edges.sources], found.count_s[: edges.sources] = sums.sum_s, sums.count_s
        found.time_s[: edges.sources] = edges.last_times(edges.by_src)
        found.sum_g[edges.targets :] = sums.sum_g[:targets]
        found.count_g[edges.targets :] = sums.count_g[:targets]
        found.time_g[edges.targets :] = edges.last_times(edges.by_dst)[:targets]
        return found
