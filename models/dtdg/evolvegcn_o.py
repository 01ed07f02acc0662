"""EvolveGCN-O over a whole timeline, with an LSTM, as ESDG runs it (SC 2021, section 2)."""

from __future__ import annotations

import math
from typing import Any, Final

from torch import Tensor, nn
from torch.nn import functional

from dgbench.models.dtdg.evolvegcn import EvolvingWeight
from dgbench.models.timeline import Carry, TimelineModel

SLOPE: Final = (1 / 8 + 1 / 3) / 2
"""Slope below zero: torch's `RReLU`, which the authors' release has, where it is evaluated."""


class EvolveGcnTimeline(TimelineModel):
    """Y_t = leaky_relu(A-hat_t X_t W_t) twice, W_t = LSTM(W_{t-1}) along the whole timeline.

    Differs from `EvolveGcnO(cell="lstm")`, which is made for frames, in five readings: the
    *columns* of a weight are the batch of its cell, as in the original paper (Pareja et al., AAAI
    2020, section 3.3), so a cell is as wide as the layer's input; the activation follows both
    layers; weights restart at the beginning of the timeline only; the activation and the first
    weights are those of the authors' release. An LSTM that reads nothing but its own output draws
    all columns of a weight towards each other, so that with ReLU all units of a layer die together.
    Features are never redistributed: every rank computes the chain of weights, and their gradients
    are summed.

    Attributes:
        layer_1, layer_2: evolving weights, held transposed: [H, inputs].
    """

    num_layers = 2

    def __init__(self, feature_dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.feature_dim = feature_dim
        self.hidden_dim = self.output_dim = hidden_dim
        self.input_dims = (feature_dim, hidden_dim)
        self.spatial_dims = self.layer_dims = (hidden_dim, hidden_dim)
        self.layer_1 = EvolvingWeight(hidden_dim, feature_dim, "lstm")
        self.layer_2 = EvolvingWeight(hidden_dim, hidden_dim, "lstm")
        bound = 1 / math.sqrt(hidden_dim)
        for layer in (self.layer_1, self.layer_2):
            nn.init.uniform_(layer.initial, -bound, bound)

    def chain(self, steps: int, carry: Carry) -> tuple[list[Any], Carry]:
        """(W1 [F, H], W2 [H, H]) of each step; the carry is weight and memory of both layers."""
        first, carry_1 = self.layer_1.advance(steps, carry[:2])
        second, carry_2 = self.layer_2.advance(steps, carry[2:])
        links = [(w1.t(), w2.t()) for w1, w2 in zip(first, second, strict=True)]
        return links, (*carry_1, *carry_2)

    def spatial(self, layer: int, aggregated: Tensor, link: Any = None) -> Tensor:
        # In place, so that the backward pass keeps the output alone, as that of ReLU does.
        return functional.leaky_relu(aggregated @ link[layer], SLOPE, inplace=True)
