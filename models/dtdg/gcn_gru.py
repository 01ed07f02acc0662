"""The T-GCN model (Zhao et al., "T-GCN: A Temporal Graph Convolutional Network for Traffic
Prediction", eq. 2-6): a GRU whose input products are GCN layers.

Not to be confused with the training system of the same name.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dgbench.models.aggregation import Aggregator
from dgbench.models.frame import FrameModel, GcnLayer


class GcnGru(FrameModel):
    """Three one-layer GCNs inside a GRU, parameter for parameter the released `TGCN` cell.

    With a = A-hat X and h the state before the snapshot, [x | y] concatenation of columns:
        z  = sigmoid(linear_z([conv_z(a) | h]))
        r  = sigmoid(linear_r([conv_r(a) | h]))
        c  = tanh(linear_h([conv_h(a) | h * r]))
        h' = z * h + (1 - z) * c
    The output of a snapshot is h', [N, H].
    """

    def __init__(self, feature_dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.feature_dim = feature_dim
        self.hidden_dim = hidden_dim
        self.output_dim = hidden_dim
        for gate in "zrh":
            setattr(self, f"conv_{gate}", GcnLayer(feature_dim, hidden_dim))
            setattr(self, f"linear_{gate}", nn.Linear(2 * hidden_dim, hidden_dim))

    def cell(self, aggregated: Tensor, h: Tensor) -> Tensor:
        """One step: aggregated features [N, F] and state [N, H] -> next state [N, H]."""
        z = torch.sigmoid(self.linear_z(torch.cat([self.conv_z(aggregated), h], dim=1)))
        r = torch.sigmoid(self.linear_r(torch.cat([self.conv_r(aggregated), h], dim=1)))
        c = torch.tanh(self.linear_h(torch.cat([self.conv_h(aggregated), h * r], dim=1)))
        return z * h + (1 - z) * c

    def forward_frame(self, aggregator: Aggregator, times: range) -> list[Tensor]:
        outputs: list[Tensor] = []
        h = None
        for t in times:
            a = aggregator.first(t)
            if h is None:
                h = a.new_zeros(a.shape[0], self.hidden_dim)
            h = self.cell(a, h)
            outputs.append(h)
        return outputs

    def folded_weights(self) -> tuple[Tensor, Tensor, Tensor]:
        """The cell as a plain GRU over aggregated features, for a fused scan.

        linear([a W + b | h]) = a (W L_in) + h L_hid + (b L_in + l), so the two products on the
        input side are one. Differentiable: gradients reach all parameters of the cell.

        Returns:
            w_in [F, 3H], w_hid [H, 3H], bias [3H]; gates in the order z, r, c.
        """
        h = self.hidden_dim
        w_in, w_hid, bias = [], [], []
        for gate in "zrh":
            conv, linear = getattr(self, f"conv_{gate}"), getattr(self, f"linear_{gate}")
            top = linear.weight[:, :h].t()  # [H, H], acts on the convolution
            w_in.append(conv.weight @ top)
            w_hid.append(linear.weight[:, h:].t())
            bias.append(conv.bias @ top + linear.bias)
        return torch.cat(w_in, dim=1), torch.cat(w_hid, dim=1), torch.cat(bias)
