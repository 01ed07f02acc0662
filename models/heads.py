"""What turns hidden outputs into predictions and a loss."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class NodeHead(nn.Module):
    """One number per vertex by a linear layer; mean squared error."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, 1)

    def forward(self, hidden: Tensor) -> Tensor:
        """[N, D] -> [N], or a frame [W, N, D] -> [W, N].

        A frame is a batched product: as one product the weight's gradient would be a single float32
        sum over W N rows, which costs it two digits.
        """
        if hidden.dim() == 2:
            return self.linear(hidden).squeeze(1)
        weight = self.linear.weight.t().expand(hidden.shape[0], -1, -1)  # [W, D, 1]
        return torch.bmm(hidden, weight).squeeze(2) + self.linear.bias

    def loss(self, hidden: Tensor, target: Tensor) -> Tensor:
        """Mean squared error against target [N] (or [W, N]), a scalar."""
        return functional.mse_loss(self(hidden), target)


class LinkHead(nn.Module):
    """A logit per ordered pair by a two-layer perceptron on [h_src | h_dst]; cross entropy.

    A plain dot product would let the unscaled skip columns of MPNN-LSTM decide alone, and could
    not tell a pair from its reverse.
    """

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.source = nn.Linear(inputs, hidden)
        self.target = nn.Linear(inputs, hidden, bias=False)
        self.score = nn.Linear(hidden, 1)

    def forward(self, hidden: Tensor, pairs: Tensor) -> Tensor:
        """Hidden [N, D] and pairs int64[2, P] (source, destination) -> logits [P]."""
        joined = self.source(hidden[pairs[0]]) + self.target(hidden[pairs[1]])
        return self.score(torch.relu(joined)).squeeze(1)

    def loss(self, hidden: Tensor, pairs: Tensor, label: Tensor) -> Tensor:
        """Mean binary cross entropy against label [P] of 0 and 1; 0 where there are no pairs."""
        logits = self(hidden, pairs)
        total = functional.binary_cross_entropy_with_logits(logits, label, reduction="sum")
        return total / max(1, label.numel())
