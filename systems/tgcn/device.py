"""One device's part of an interval: it refreshes its rows, trains grids, and learns.

The rows of the part are owned here and never leave. Of the destinations that pass through it reads
embeddings, and adds gradients and sums of partners to them; when they are home again, the gradients
of all grids go through Merge, Update and Interact at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from dgbench.kernels_cuda.interact import edge_dots, group_edges, partner_sums
from dgbench.models.streaming import Dygnn, DygnnState, PendingInteractions
from dgbench.runtime.meter import Meter
from dgbench.systems.base.interaction_trainer import VertexLabels
from dgbench.systems.tgcn.intervals import Pairs, PartRows
from dgbench.systems.tgcn.regions import Visitor


@dataclass(slots=True)
class IntervalScores:
    """Losses and scores of one device for one interval.

    Attributes:
        loss: summed, float, without a graph.
        positives, negatives: scores of edges and negatives, by source and destination part.
        correct, asked: of held-out ends.
    """

    loss: Tensor
    positives: dict[tuple[int, int], Tensor]
    negatives: dict[tuple[int, int], Tensor]
    correct: Tensor
    asked: Tensor


def train_pairs(
    model: Dygnn,
    pairs: Pairs,
    keys: Tensor,
    sources: Tensor,
    visitor: Visitor,
    total: Tensor,
    *,
    scale: float | None,
    link: bool,
    last: bool,
    meter: Meter,
) -> tuple[Tensor, Tensor, Tensor]:
    """Score the pairs of one grid and add up what follows from them.

    Args:
        pairs: on the device.
        keys: [n, H] of the sources, a leaf: its gradient is added to.
        sources: [n, H], their embeddings.
        visitor: the destinations; gradients and sums are added to.
        total: [n, H], sums over the sources' partners, added to.
        scale: of the loss; None to train nothing.
        link: score pairs; else only add up partners.
        last: only a vertex's last partner goes in.

    Returns:
        The summed loss, and the scores of edges and of negatives.
    """
    src, dst = pairs.src.long(), pairs.dst.long()
    edges, negatives = slice(0, pairs.edges), slice(pairs.edges, None)
    u, v = src[edges], dst[edges]
    by_u, by_v = group_edges(u, keys.shape[0]), group_edges(v, visitor.embedding.shape[0])
    positive_scores = negative_scores = keys.new_zeros(0)
    loss = keys.new_zeros(())
    if link:
        with torch.set_grad_enabled(scale is not None):
            with meter.phase("score"):
                embedding = visitor.embedding.detach().requires_grad_(scale is not None)
                values = model.head.values(embedding)
                positives = edge_dots(u, v, keys, values, by_src=by_u, by_dst=by_v)
                other = edge_dots(src[negatives], dst[negatives], keys, values)
                loss = functional.softplus(-positives).sum() + functional.softplus(other).sum()
            if scale is not None:
                with meter.phase("backward"):
                    (loss * scale).backward()
                    visitor.gradient.add_(embedding.grad)
        positive_scores, negative_scores, loss = positives.detach(), other.detach(), loss.detach()
    with meter.phase("interact"), torch.no_grad():
        one = pairs.latest_s, pairs.latest_g
        if not last:
            sums = partner_sums(u, v, sources, visitor.embedding, by_src=by_u, by_dst=by_v)
            total.add_(sums.sum_s)
            visitor.total.add_(sums.sum_g)
        else:
            total[u[one[0]]] = visitor.embedding[v[one[0]]]
            visitor.total[v[one[1]]] = sources[u[one[1]]]
    return loss, positive_scores, negative_scores


class Owner:
    """The refreshed rows of one part during an interval.

    Args:
        model: shared by all devices of a process.
        share: the rows, on the device.
        old, waiting: their state and what waits for them.
        learn: whether there will be a backward pass.
        link: whether sources will be scored.
    """

    def __init__(
        self,
        model: Dygnn,
        share: PartRows,
        old: DygnnState,
        waiting: PendingInteractions,
        *,
        learn: bool,
        link: bool,
    ) -> None:
        self.model, self.share = model, share
        with torch.set_grad_enabled(learn):
            self.now = model.refresh(old, waiting)
            sources = self.now.embedding[: share.sources]
            self._keys = model.head.keys(sources) if link else sources
        self.keys = self._keys.detach().requires_grad_(learn and link)
        self.embedding = self.now.embedding.detach()
        self.sources = self.embedding[: share.sources]
        self.targets = self.embedding[share.targets :]
        self.total = torch.zeros_like(self.sources)

    def backward(self, gradient: Tensor, loss: Tensor | None = None) -> None:
        """Take gradients to the parameters.

        Args:
            gradient: [r, H], of the targets' embeddings.
            loss: of the rows themselves, scaled; None for none.
        """
        outputs: list[Tensor] = []
        gradients: list[Tensor | None] = []
        if self.keys.grad is not None:
            outputs.append(self._keys)
            gradients.append(self.keys.grad)
        if self.now.embedding.requires_grad and self.keys.requires_grad:
            outputs.append(self.now.embedding[self.share.targets :])
            gradients.append(gradient)
        if loss is not None and loss.requires_grad:
            outputs.append(loss)
            gradients.append(None)
        if outputs:
            torch.autograd.backward(outputs, gradients)

    def backward_rows(self, gradient: Tensor, loss: Tensor | None = None) -> None:
        """Take the gradients [n, H] of all rows' embeddings to the parameters; see `backward`."""
        outputs: list[Tensor] = []
        gradients: list[Tensor | None] = []
        if self.now.embedding.requires_grad:
            outputs.append(self.now.embedding)
            gradients.append(gradient)
        if loss is not None and loss.requires_grad:
            outputs.append(loss)
            gradients.append(None)
        if outputs:
            torch.autograd.backward(outputs, gradients)

    def classified(self, labels: VertexLabels, ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Summed loss (with its graph), held-out ends that are right, and all of them.

        Args:
            labels: by row. ids: int64, rows of the ends of edges among them.
        """
        share = self.share
        logits = self.model.head(self.now.embedding[: share.ends])
        weight = (share.count_s + share.count_g).to(logits.dtype)
        each = functional.cross_entropy(
            logits, labels.taught[ids], ignore_index=-1, reduction="none"
        )
        asked = weight * labels.asked[ids]
        hit = logits.detach().argmax(1) == labels.classes[ids]
        return (each * weight).sum(), (asked * hit).sum(), asked.sum()

    def left(self, total_g: Tensor, *, last: bool) -> tuple[Any, PendingInteractions]:
        """State and what waits of the ends of edges, after the round.

        Args:
            total_g: [r, H], sums over the targets' partners.
            last: one partner of each role went in.
        """
        share = self.share
        ends, sources = share.ends, min(share.sources, share.ends)
        sum_s, sum_g = (self.embedding.new_zeros(ends, self.embedding.shape[1]) for _ in range(2))
        sum_s[:sources] = self.total[:sources]
        sum_g[share.targets :] = total_g[: ends - share.targets]
        counts = share.count_s, share.count_g
        if last:
            counts = tuple(count.clamp(max=1) for count in counts)
        waits = PendingInteractions(sum_s, sum_g, *counts, share.time_s, share.time_g)
        return self.now[:ends].detach(), waits
