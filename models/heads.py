"""Heads that turn hidden outputs into predictions and a loss."""

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


class ClassHead(nn.Module):
    """Softmax over C classes of every vertex, logits Z U (ESDG, section 2); no bias."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, classes, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """[..., D] -> logits [..., C]."""
        return self.linear(hidden)

    def loss_sum(self, hidden: Tensor, label: Tensor) -> Tensor:
        """Summed cross entropy against label int64 [N] (or [W, N]); vertices of label -1 are out.

        Ranks that hold parts of the vertices or snapshots add their sums and counts.
        """
        logits = self(hidden).flatten(0, -2)
        return functional.cross_entropy(logits, label.flatten(), ignore_index=-1, reduction="sum")

    def loss(self, hidden: Tensor, label: Tensor) -> Tensor:
        """Mean cross entropy over the labelled vertices; 0 where there are none."""
        return self.loss_sum(hidden, label) / max(1, int((label != -1).sum()))


class PairHead(nn.Module):
    """ESDG's link prediction: one fully connected layer on [Z_u | Z_v], two classes (section 2).

    The layer is held as its two halves, so that it is applied once per vertex, not once per pair.
    """

    def __init__(self, inputs: int, classes: int = 2) -> None:
        super().__init__()
        self.source = nn.Linear(inputs, classes)
        self.target = nn.Linear(inputs, classes, bias=False)

    def forward(self, hidden: Tensor, pairs: Tensor) -> Tensor:
        """Hidden [N, D] and pairs int64[2, P] (source, destination) -> logits [P, classes]."""
        return self.source(hidden)[pairs[0]] + self.target(hidden)[pairs[1]]

    def loss_sum(self, hidden: Tensor, pairs: Tensor, label: Tensor) -> Tensor:
        """Summed cross entropy against label [P], class numbers of any dtype."""
        logits = self(hidden, pairs)
        return functional.cross_entropy(logits, label.long(), reduction="sum")

    def loss(self, hidden: Tensor, pairs: Tensor, label: Tensor) -> Tensor:
        """Mean cross entropy over the pairs; 0 where there are none."""
        return self.loss_sum(hidden, pairs, label) / max(1, label.numel())
