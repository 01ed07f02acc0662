"""What turns hidden outputs into predictions and a loss."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class _FrameProduct(torch.autograd.Function):
    """h w for a frame h [W, N, D] and a column w [1, D]; gives [W, N].

    The gradient of w is summed snapshot by snapshot: one float32 sum over W N rows costs it two
    digits. torch's own batched product is exact in the same way, and its backward pass takes five
    times as long, as it treats the single column as a matrix.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(hidden, weight)
        return torch.mv(hidden.reshape(-1, hidden.shape[2]), weight[0]).view(hidden.shape[:2])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        hidden, weight = ctx.saved_tensors
        rows = torch.outer(grad.reshape(-1), weight[0]).view(hidden.shape)
        return rows, torch.bmm(grad.unsqueeze(1), hidden).sum(0)


class NodeHead(nn.Module):
    """One number per vertex by a linear layer; mean squared error."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, 1)

    def forward(self, hidden: Tensor) -> Tensor:
        """[N, D] -> [N], or a frame [W, N, D] -> [W, N]."""
        if hidden.dim() == 2:
            return self.linear(hidden).squeeze(1)
        return _FrameProduct.apply(hidden, self.linear.weight) + self.linear.bias

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
