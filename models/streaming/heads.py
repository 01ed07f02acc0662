"""Heads over vertex embeddings: scores of pairs, classes of vertices."""

from __future__ import annotations

from torch import Tensor, nn


class DotHead(nn.Module):
    """The logit of a pair: a product of what is read of its source and of its target.

    Both are projected once per vertex, so that an edge costs one product of two rows. The bias of
    the source's projection lets a target's frequency show.
    """

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.source = nn.Linear(hidden, hidden)
        self.target = nn.Linear(hidden, hidden)
        self.scale = hidden**-0.5

    def keys(self, embedding: Tensor) -> Tensor:
        """[n, H] -> [n, H]: sources as `edge_dots` reads them."""
        return self.source(embedding) * self.scale

    def values(self, embedding: Tensor) -> Tensor:
        """[n, H] -> [n, H]: targets as `edge_dots` reads them."""
        return self.target(embedding)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Logits [n] of n pairs of embeddings [n, H]."""
        return (self.keys(source) * self.values(target)).sum(1)


class PerceptronClassHead(nn.Module):
    """Logits of a vertex's class by a perceptron of two layers."""

    def __init__(self, hidden: int, classes: int) -> None:
        super().__init__()
        self.inner = nn.Linear(hidden, hidden)
        self.score = nn.Linear(hidden, classes)

    def forward(self, embedding: Tensor) -> Tensor:
        """[n, H] -> [n, classes]."""
        return self.score(self.inner(embedding).relu())
