"""JODIE: an embedding per vertex and role, projected to the time at which it is asked for.

Kumar et al., KDD 2019: user and item take each other in by a recurrent network each, a user's
embedding drifts with the time since, and the embedding of the next item is predicted from it. The
source of an edge has the role of the user, its destination that of the item, also where a graph is
not bipartite. Readings: the static one-hot vectors, N long, are fixed random codes of H floats,
drawn by seed, nearly orthogonal as one-hot vectors are and of a size that does not grow with N;
features of interactions are their ages.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dgbench.kernels_cuda.interact import partner_sums
from dgbench.models.streaming.dygnn import EdgeScores
from dgbench.models.streaming.edges import IntervalEdges
from dgbench.models.streaming.heads import PerceptronClassHead
from dgbench.models.streaming.state import VertexColumns
from dgbench.models.streaming.taken import taken_rows

SMOOTH = 1.0
"""Weight of the distance that an embedding moves at an interaction (both lambdas of the paper)."""


@dataclass(slots=True, eq=False)
class JodieState(VertexColumns):
    """State of N vertices as it stood before what waits for them.

    Attributes:
        user, item: floating [N, H], dynamic embedding by role.
        code: floating [N, H], static, of length about 1; never changed.
        seen: floating [N, 2 H], embedding and code of the item a user interacted with last, as
            they were then; zero before the first.
        last_s, last_g: float64[N], time of the last interaction taken in by role; -inf before.
    """

    user: Tensor
    item: Tensor
    code: Tensor
    seen: Tensor
    last_s: Tensor
    last_g: Tensor

    @property
    def embedding(self) -> Tensor:
        """[N, 2 H]: both roles side by side."""
        return torch.cat([self.user, self.item], dim=1)


@dataclass(slots=True, eq=False)
class JodiePending(VertexColumns):
    """Interactions of the last interval of N vertices, not yet taken in.

    Attributes:
        sum_s: floating [N, H], sum of the items' embeddings over a vertex's edges as a source.
        code_s: floating [N, H], sum of these items' codes.
        sum_g: floating [N, H], sum of the users' embeddings over its edges as a destination.
        count_s, count_g: int32[N].
        time_s, time_g: float64[N], time of the last of them.
    """

    sum_s: Tensor
    code_s: Tensor
    sum_g: Tensor
    count_s: Tensor
    count_g: Tensor
    time_s: Tensor
    time_g: Tensor


class Jodie(nn.Module):
    """The network; its state is kept by whoever trains it.

    Attributes:
        hidden_dim: H.
        head: `PerceptronClassHead` on both roles' embeddings, or None.
        unit: time that counts as 1.
    """

    def __init__(self, hidden_dim: int, *, classes: int = 0, unit: float = 1.0) -> None:
        """Parameters from torch's generator.

        Args:
            hidden_dim: H.
            classes: of vertices; 0 for the link task.
            unit: > 0, of time.
        """
        super().__init__()
        self.hidden_dim, self.unit = hidden_dim, unit
        self.user = nn.Linear(2 * hidden_dim + 1, hidden_dim)
        self.item = nn.Linear(2 * hidden_dim + 1, hidden_dim)
        self.drift = nn.Linear(1, hidden_dim, bias=False)
        self.predict = nn.Linear(4 * hidden_dim, 2 * hidden_dim)
        self.head = PerceptronClassHead(2 * hidden_dim, classes) if classes else None
        nn.init.normal_(self.drift.weight, std=1e-2)

    def new_state(
        self,
        num_vertices: int,
        *,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> tuple[JodieState, JodiePending]:
        """State of N vertices to which nothing happened yet."""
        draw = torch.Generator().manual_seed(seed + 15_485_863)
        shape = (num_vertices, self.hidden_dim)
        code = torch.empty(shape).normal_(generator=draw) * self.hidden_dim**-0.5

        def of(dtype: torch.dtype, fill: float, *dims: int) -> Tensor:
            return torch.full(dims, fill, dtype=dtype, device=device)

        def vectors() -> Tensor:
            return of(dtype, 0, *shape)

        never = -torch.inf
        return (
            JodieState(
                vectors(), vectors(), code.to(device, dtype),
                torch.cat([vectors(), vectors()], dim=1),
                of(torch.float64, never, num_vertices), of(torch.float64, never, num_vertices),
            ),
            JodiePending(
                vectors(), vectors(), vectors(),
                of(torch.int32, 0, num_vertices), of(torch.int32, 0, num_vertices),
                of(torch.float64, 0, num_vertices), of(torch.float64, 0, num_vertices),
            ),
        )  # fmt: skip

    def _age(self, time: Tensor, last: Tensor, like: Tensor) -> Tensor:
        """[n, 1]: logarithm of 1 + time since, in units; 0 for the first."""
        age = ((time - last) / self.unit).clamp_(min=0)
        age = torch.where(age.isfinite(), age, 0.0)
        return torch.log1p(age).to(like.dtype).unsqueeze(1)

    def refresh(
        self, rows: JodieState, pending: JodiePending, *, dense: bool = False
    ) -> JodieState:
        """State with what waits taken in: u' = sigmoid(W1 u + W2 i + W4 D), and i' likewise.

        Args:
            rows, pending: of n vertices, detached.
            dense: as of `Dygnn.refresh`.

        Returns:
            n rows with gradients to the parameters.
        """
        new = rows.columns()
        roles = ("s", "user", self.user), ("g", "item", self.item)
        taken = taken_rows([pending.count_s, pending.count_g], dense=dense)
        for (role, name, cell), at in zip(roles, taken, strict=True):
            if not at.any:
                continue
            mine, number = at.of(new[name]), at.divisor(getattr(pending, f"count_{role}"))
            other = at.of(getattr(pending, f"sum_{role}")) / number
            last, time = new[f"last_{role}"], at.of(getattr(pending, f"time_{role}"))
            x = torch.cat([mine, other, self._age(time, at.of(last), mine)], dim=1)
            new[name] = at.put(new[name], torch.sigmoid(cell(x)))
            new[f"last_{role}"] = at.put(last, time)
            if role == "s":
                code = at.of(pending.code_s) / number
                new["seen"] = at.put(new["seen"], torch.cat([other, code], dim=1))
        return JodieState(**new)

    def link(self, now: JodieState, old: JodieState, edges: IntervalEdges) -> EdgeScores:
        """Distances of the predicted next item to the true one and to the negative, and the loss.

        The loss of an edge is the squared distance of the prediction and its item, and how far its
        ends moved at the interaction before. Scores are negative squared distances.

        Args:
            now, old: the U rows, refreshed and as they were.
            edges: over these rows.
        """
        src, dst = edges.src, edges.dst
        age = self._age(edges.t, now.last_s[src], now.user)
        predicted = self._next_item(now.user[src], now.code[src], now.seen[src], age)
        items = torch.cat([now.item, now.code], dim=1)
        positives = (predicted - items[dst]).square().sum(1)[: edges.real]
        with torch.no_grad():
            negatives = (predicted - items[edges.neg]).square().sum(1)[: edges.real]
        moved_s = (now.user - old.user).square().sum(1)[src]
        moved_g = (now.item - old.item).square().sum(1)[dst]
        loss = positives.sum() + SMOOTH * (moved_s + moved_g)[: edges.real].sum()
        return EdgeScores(-positives, -negatives, loss)

    def _next_item(self, user: Tensor, code: Tensor, seen: Tensor, age: Tensor) -> Tensor:
        """[n, 2 H]: predicted embedding and code of the next item."""
        drifted = user * (1 + self.drift(age))
        return self.predict(torch.cat([drifted, code, seen], dim=1))

    def pairs(self, sources: JodieState, targets: JodieState, time: float) -> Tensor:
        """Scores [n, m] of all pairs of refreshed rows at a time: negative squared distances."""
        age = self._age(torch.full_like(sources.last_s, time), sources.last_s, sources.user)
        predicted = self._next_item(sources.user, sources.code, sources.seen, age)
        items = torch.cat([targets.item, targets.code], dim=1)
        # By products the distances of near items would lose their digits.
        mode = "donot_use_mm_for_euclid_dist"
        return -torch.cdist(predicted, items, compute_mode=mode).square()

    def classify(self, now: JodieState) -> Tensor:
        """Logits [n, classes] of refreshed rows; needs `classes`."""
        return self.head(now.embedding)

    def pend(self, now: JodieState, edges: IntervalEdges, aggregate: str = "mean") -> JodiePending:
        """Pending interactions of the edges' ends, rows [0, ends): sums over partners as they are
        now.

        Args:
            now: the U rows, refreshed.
            edges: over these rows.
            aggregate: `mean` of a role's interactions, or the `last` of them.
        """
        user, item = now.user.detach(), torch.cat([now.item.detach(), now.code], dim=1)
        # Both sides of one call are equally wide, so the users' sums carry zeros along.
        padded = torch.cat([user, torch.zeros_like(user)], dim=1)
        sums = partner_sums(
            edges.src, edges.target, padded[: edges.sources], item[edges.targets :],
            last=aggregate == "last", by_src=edges.by_src, by_dst=edges.by_dst,
        )  # fmt: skip
        targets, size = edges.ends - edges.targets, self.hidden_dim
        sum_s = item.new_zeros(edges.ends, 2 * size)
        sum_g = item.new_zeros(edges.ends, size)
        count_s = torch.zeros(edges.ends, dtype=torch.int32, device=item.device)
        count_g, time_s = torch.zeros_like(count_s), edges.t.new_zeros(edges.ends)
        time_g = torch.zeros_like(time_s)
        sum_s[: edges.sources], count_s[: edges.sources] = sums.sum_s, sums.count_s
        time_s[: edges.sources] = edges.last_times(edges.by_src)
        sum_g[edges.targets :] = sums.sum_g[:targets, :size]
        count_g[edges.targets :] = sums.count_g[:targets]
        time_g[edges.targets :] = edges.last_times(edges.by_dst)[:targets]
        return JodiePending(
            sum_s[:, :size], sum_s[:, size:], sum_g, count_s, count_g, time_s, time_g
        )
