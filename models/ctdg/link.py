"""Link scorer over the embeddings of an edge's ends."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class LinkPredictor(nn.Module):
    """A logit per pair by a two-layer perceptron on [h_u | h_v] (GNNFlow trains TGL's task).

    The first layer is held as its two halves, so that it is applied once to every embedding.
    """

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.source = nn.Linear(inputs, inputs)
        self.target = nn.Linear(inputs, inputs, bias=False)
        self.score = nn.Linear(inputs, 1)

    def forward(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of edges and of as many pairs that are none.

        Args:
            hidden: [3 B, D]: B sources, their destinations, and B vertices that stand in for these.

        Returns:
            Two times [B].
        """
        source, targets = hidden.tensor_split([hidden.shape[0] // 3])
        logits = self.pairs(source, targets.view(2, -1, source.shape[1]))
        return logits[0], logits[1]

    def pairs(self, source: Tensor, target: Tensor) -> Tensor:
        """Logits [...] of pairs of embeddings [..., D], whose leading dimensions broadcast."""
        return self.score(torch.relu(self.source(source) + self.target(target))).squeeze(-1)

    def loss_sum(self, hidden: Tensor) -> Tensor:
        """Summed cross entropy of the 2 B pairs, a scalar."""
        positive, negative = self(hidden)
        return functional.softplus(-positive).sum() + functional.softplus(negative).sum()
