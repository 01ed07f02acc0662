"""MPNN-LSTM (Panagopoulos et al., 2021) as DGC trains it (section 7.1): without the frame's norm,
dropout and skip columns of the released class, which `mpnn_lstm.MpnnLstm` has."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dgbench.kernels_cuda.scan import packed_lstm_scan
from dgbench.models.frame import GcnLayer
from dgbench.models.sequence import (
    Neighbours,
    SequenceModel,
    SequenceRows,
    Starts,
    begins_of,
    masked_state,
)


class MpnnLstmBare(SequenceModel):
    """Two GCN layers, then two LSTMs.

    X1 = relu(A-hat X W1 + b1), X2 = relu(A-hat X1 W2 + b2), h1 = lstm_1([X1 | X2]), 2 H -> H,
    h2 = lstm_2(h1), H -> H. The output of a vertex-step is h2; a sequence that is cut hands on
    h1, c1, h2, c2.

    Attributes:
        conv_1, conv_2: W and b of each layer.
        lstm_1, lstm_2: `torch.nn.LSTM`, whose parameters both forms read.
    """

    def __init__(self, feature_dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.feature_dim = feature_dim
        self.hidden_dim = self.output_dim = hidden_dim
        self.round_dims = (feature_dim, hidden_dim)
        self.spatial_dim = 2 * hidden_dim
        self.state_dims = (hidden_dim,) * 4
        self.conv_1 = GcnLayer(feature_dim, hidden_dim)
        self.conv_2 = GcnLayer(hidden_dim, hidden_dim)
        self.lstm_1 = nn.LSTM(2 * hidden_dim, hidden_dim)
        self.lstm_2 = nn.LSTM(hidden_dim, hidden_dim)

    def receive(self, k: int, neighbours: Neighbours, shown: Tensor) -> Tensor:
        aggregated = neighbours.propagate(shown)
        if k == 0:
            return torch.relu(self.conv_1(aggregated))
        return torch.cat([shown[: neighbours.rows], torch.relu(self.conv_2(aggregated))], dim=-1)

    def temporal(
        self, x: Tensor, rows: SequenceRows | None = None, starts: Starts | None = None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        begins = begins_of(x, rows, starts)
        states: list[Tensor] = []
        for layer, (w_in, w_hid, bias) in enumerate(self.scan_weights()):
            given = starts.states[2 * layer : 2 * layer + 2] if starts is not None else (None, None)
            h = c = x.new_zeros(x.shape[1], self.hidden_dim)
            hs, cs = [], []
            for step, begin in zip(x, begins, strict=True):
                h, c = masked_state(begin, h, given[0]), masked_state(begin, c, given[1])
                i, f, g, o = (step @ w_in + h @ w_hid + bias).chunk(4, dim=1)
                c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
                h = torch.sigmoid(o) * torch.tanh(c)
                hs.append(h)
                cs.append(c)
            x = torch.stack(hs)
            states += [x, torch.stack(cs)]
        return x, tuple(states)

    def temporal_fused(
        self, x: Tensor, rows: SequenceRows | None = None, starts: Starts | None = None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        begins = begins_of(x, rows, starts)
        states: list[Tensor] = []
        for layer, weights in enumerate(self.scan_weights()):
            given = starts.states[2 * layer : 2 * layer + 2] if starts is not None else ()
            x, c = packed_lstm_scan(x, *weights, begins, *given)
            states += [x, c]
        return x, tuple(states)

    def scan_weights(self) -> tuple[tuple[Tensor, Tensor, Tensor], ...]:
        """(w_in, w_hid, bias) of both LSTMs, gates i, f, g, o. Differentiable."""
        return tuple(
            (rnn.weight_ih_l0.t(), rnn.weight_hh_l0.t(), rnn.bias_ih_l0 + rnn.bias_hh_l0)
            for rnn in (self.lstm_1, self.lstm_2)
        )
