"""Stand-ins for the released cells, written on PyG's GCNConv, for where the package is absent.

They have the released attribute names, so that the adapters need not know which they hold, and
do the same work: three convolutions per T-GCN step, normalisation in every call.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm


class FixedWeightConv(nn.Module):
    """GCN layer that is handed its weight [in, out] in every call; no bias."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.in_channels, self.out_channels = in_channels, out_channels

    def forward(
        self, weight: Tensor, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None
    ) -> Tensor:
        edges, scale = gcn_norm(edge_index, edge_weight, x.shape[0])
        rows = x @ weight
        message = rows.index_select(0, edges[0]) * scale[:, None]
        return torch.zeros_like(rows).index_add(0, edges[1], message)


class TGCN(nn.Module):
    """Zhao et al.'s cell: a GRU on three graph convolutions."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.out_channels = out_channels
        for gate in "zrh":
            setattr(self, f"conv_{gate}", GCNConv(in_channels, out_channels))
            setattr(self, f"linear_{gate}", nn.Linear(2 * out_channels, out_channels))

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_weight: Tensor | None = None,
        state: Tensor | None = None,
    ) -> Tensor:
        if state is None:
            state = x.new_zeros(x.shape[0], self.out_channels)

        def gate(name: str, hidden: Tensor) -> Tensor:
            convolved = getattr(self, f"conv_{name}")(x, edge_index, edge_weight)
            return getattr(self, f"linear_{name}")(torch.cat([convolved, hidden], dim=1))

        update = torch.sigmoid(gate("z", state))
        reset = torch.sigmoid(gate("r", state))
        candidate = torch.tanh(gate("h", state * reset))
        return update * state + (1 - update) * candidate


class MPNNLSTM(nn.Module):
    """Panagopoulos et al.'s model over a window as one block-diagonal graph."""

    def __init__(
        self, in_channels: int, hidden_size: int, num_nodes: int, window: int, dropout: float
    ) -> None:
        super().__init__()
        self.in_channels, self.num_nodes, self.window = in_channels, num_nodes, window
        self.dropout = dropout
        self._convolution_1 = GCNConv(in_channels, hidden_size)
        self._convolution_2 = GCNConv(hidden_size, hidden_size)
        self._batch_norm_1 = nn.BatchNorm1d(hidden_size)
        self._batch_norm_2 = nn.BatchNorm1d(hidden_size)
        self._recurrent_1 = nn.LSTM(2 * hidden_size, hidden_size)
        self._recurrent_2 = nn.LSTM(hidden_size, hidden_size)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None) -> Tensor:
        raw = x.view(self.window, self.num_nodes, self.in_channels)
        skip = [raw[0], *(raw[step][:, -1:] for step in range(1, self.window))]
        layers = []
        for conv, norm in (
            (self._convolution_1, self._batch_norm_1),
            (self._convolution_2, self._batch_norm_2),
        ):
            x = norm(torch.relu(conv(x, edge_index, edge_weight)))
            x = nn.functional.dropout(x, self.dropout, self.training)
            layers.append(x)
        over_time = torch.cat(layers, dim=1).view(self.window, self.num_nodes, -1)
        over_time, (first, _) = self._recurrent_1(over_time)
        _, (second, _) = self._recurrent_2(over_time)
        return torch.cat([first[0], second[0], *skip], dim=1)
