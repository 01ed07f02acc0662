"""CD-GCN (Manessi et al., "Dynamic graph convolutional networks", 2020) with two layers, as ESDG
runs it (SC 2021, section 2)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from dgbench.models.frame import GcnLayer
from dgbench.models.timeline import Carry, TimelineModel


class CdGcn(TimelineModel):
    """Skip concatenation, then an LSTM over time, twice.

    With a = A-hat X of a layer: y = relu([a | a W]), then z = LSTM(y) per vertex over the timeline.
    Inputs of F and H hidden floats give spatial widths F + H and 2 H; the paper's F = 2, H = 6 give
    8 and 12. The convolution has no bias; the concatenated input passes the activation too, as the
    paper writes it.

    Attributes:
        conv_1, conv_2: W of each layer.
        lstm_1, lstm_2: `torch.nn.LSTM`, spatial width -> H; states start at zero.
    """

    num_layers = 2

    def __init__(self, feature_dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.feature_dim = feature_dim
        self.hidden_dim = self.output_dim = hidden_dim
        self.input_dims = (feature_dim, hidden_dim)
        self.spatial_dims = (feature_dim + hidden_dim, 2 * hidden_dim)
        self.layer_dims = (hidden_dim, hidden_dim)
        self.conv_1 = GcnLayer(feature_dim, hidden_dim, bias=False)
        self.conv_2 = GcnLayer(hidden_dim, hidden_dim, bias=False)
        self.lstm_1 = nn.LSTM(self.spatial_dims[0], hidden_dim)
        self.lstm_2 = nn.LSTM(self.spatial_dims[1], hidden_dim)

    def spatial(self, layer: int, aggregated: Tensor, link: Any = None) -> Tensor:
        conv = (self.conv_1, self.conv_2)[layer]
        return torch.relu(torch.cat([aggregated, conv.by_step(aggregated)], dim=-1))

    def has_temporal(self, layer: int) -> bool:
        return True

    def temporal(self, layer: int, x: Tensor, carry: Carry) -> tuple[Tensor, Carry]:
        """An LSTM; the carry is (h, c), [rows, H] each."""
        lstm = (self.lstm_1, self.lstm_2)[layer]
        given = tuple(s.unsqueeze(0) for s in carry) or None
        out, (h, c) = lstm(x, given)
        return out, (h[0], c[0])

    def scan_weights(self, layer: int) -> tuple[Tensor, Tensor, Tensor]:
        """w_in [spatial width, 4 H], w_hid [H, 4 H], bias [4 H] of a layer for a fused scan.

        Gates in the order i, f, g, o. Differentiable.
        """
        lstm = (self.lstm_1, self.lstm_2)[layer]
        return lstm.weight_ih_l0.t(), lstm.weight_hh_l0.t(), lstm.bias_ih_l0 + lstm.bias_hh_l0

    def state_dim(self) -> int:
        return 4 * self.hidden_dim
