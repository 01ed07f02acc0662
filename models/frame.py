"""The shape that all discrete-time models share."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from dgbench.models.aggregation import Aggregator


class GcnLayer(nn.Module):
    """The dense half of a GCN layer: a W + b for already aggregated rows a.

    Attributes:
        weight: [in, out], Glorot uniform.
        bias: [out], zeros at first, or None.
    """

    def __init__(self, inputs: int, outputs: int, *, bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs))
        nn.init.xavier_uniform_(self.weight)
        self.bias = nn.Parameter(torch.zeros(outputs)) if bias else None

    def forward(self, aggregated: Tensor) -> Tensor:
        """[..., in] -> [..., out]."""
        out = aggregated @ self.weight
        return out if self.bias is None else out + self.bias

    def by_step(self, aggregated: Tensor) -> Tensor:
        """The same for rows of one step, [rows, in], or of several, [steps, rows, in].

        The weight's gradient is summed step by step: one float32 product over the rows of all
        steps loses digits where there are millions of them.
        """
        if aggregated.dim() != 3:
            return self(aggregated)
        out = torch.bmm(aggregated, self.weight.expand(len(aggregated), -1, -1))
        return out if self.bias is None else out + self.bias


class FrameModel(nn.Module, ABC):
    """A model that reads a frame of snapshots and gives one hidden output per snapshot.

    Attributes:
        feature_dim, hidden_dim: floats per vertex in and inside.
        output_dim: floats per vertex of an output.
        head: what turns outputs into predictions and a loss; set by `build_model`.
    """

    feature_dim: int
    hidden_dim: int
    output_dim: int
    head: nn.Module

    @abstractmethod
    def forward_frame(self, aggregator: Aggregator, times: range) -> list[Tensor]:
        """Hidden outputs of the snapshots `times`, each [N, output_dim], in order of time.

        The recurrent state starts at zero at the first snapshot of every frame.
        """
