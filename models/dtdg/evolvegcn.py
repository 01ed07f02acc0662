"""EvolveGCN-O (Pareja et al., AAAI 2020, section 3.3): a recurrent cell evolves GCN weights."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from dgbench.models.aggregation import Aggregator
from dgbench.models.frame import FrameModel
from dgbench.runtime.errors import unknown_key

CELLS = {"gru": nn.GRUCell, "lstm": nn.LSTMCell}


class EvolvingWeight(nn.Module):
    """A weight matrix [in, out] whose rows are the batch of a recurrent cell of width `out`.

    Attributes:
        initial: [in, out], the weight before the first step of a frame.
        cell: `torch.nn.GRUCell` or `LSTMCell`, out -> out; the weight is input and hidden state.
    """

    def __init__(self, inputs: int, outputs: int, cell: Literal["gru", "lstm"]) -> None:
        super().__init__()
        if cell not in CELLS:
            raise unknown_key("cell", cell, CELLS)
        self.initial = nn.Parameter(torch.empty(inputs, outputs))
        nn.init.xavier_uniform_(self.initial)
        self.cell = CELLS[cell](outputs, outputs)

    def evolve(self, steps: int) -> list[Tensor]:
        """Weights of `steps` snapshots, each [in, out]; the first is one step past `initial`."""
        return self.advance(steps)[0]

    def advance(
        self, steps: int, carry: tuple[Tensor, ...] = ()
    ) -> tuple[list[Tensor], tuple[Tensor, ...]]:
        """As `evolve`, going on from `carry`: what the call before returned, () at the start.

        Returns:
            The weights, and (weight,) for a GRU or (weight, memory) for an LSTM, [in, out] each.
        """
        weights: list[Tensor] = []
        weight = carry[0] if carry else self.initial
        if isinstance(self.cell, nn.LSTMCell):
            memory = carry[1] if carry else torch.zeros_like(weight)
            for _ in range(steps):
                weight, memory = self.cell(weight, (weight, memory))
                weights.append(weight)
            return weights, (weight, memory)
        for _ in range(steps):
            weight = self.cell(weight, weight)
            weights.append(weight)
        return weights, (weight,)


class EvolveGcnO(FrameModel):
    """Two GCN layers without bias, X1 = relu(A-hat X W1_t), X2 = A-hat X1 W2_t; output X2 [N, H].

    Readings: weights restart from `initial` at each frame, as sliding frames would otherwise
    carry gradients between optimiser steps; the activation stands between the layers only; the
    rows of a weight are the batch of its cell, as in the released class, so `in` and `out` may
    differ. `cell="gru"` is PiPAD's and the released class's form, `"lstm"` the original -O form,
    whose memory starts at zero.
    """

    def __init__(
        self, feature_dim: int, hidden_dim: int, cell: Literal["gru", "lstm"] = "gru"
    ) -> None:
        super().__init__()
        self.feature_dim = feature_dim
        self.hidden_dim = hidden_dim
        self.output_dim = hidden_dim
        self.layer_1 = EvolvingWeight(feature_dim, hidden_dim, cell)
        self.layer_2 = EvolvingWeight(hidden_dim, hidden_dim, cell)

    def evolve(self, steps: int) -> tuple[list[Tensor], list[Tensor]]:
        """Weights of both layers for a frame of `steps` snapshots: W1 [F, H] and W2 [H, H] each.

        They depend on the step number only, so a system may make all of them first.
        """
        return self.layer_1.evolve(steps), self.layer_2.evolve(steps)

    def forward_frame(self, aggregator: Aggregator, times: range) -> list[Tensor]:
        outputs: list[Tensor] = []
        for t, w1, w2 in zip(times, *self.evolve(len(times)), strict=True):
            hidden = torch.relu(aggregator.first(t) @ w1)
            outputs.append(aggregator.apply(t, hidden) @ w2)
        return outputs
