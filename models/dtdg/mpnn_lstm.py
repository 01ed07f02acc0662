"""MPNN-LSTM (Panagopoulos et al., "Transfer Graph Neural Networks for Pandemic Forecasting",
AAAI 2021): a two-layer GCN per snapshot, then two LSTMs over the frame."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from dgbench.models.aggregation import Aggregator
from dgbench.models.frame import FrameModel, GcnLayer


class FrameNorm(nn.Module):
    """Batch normalisation over all W * N rows of a frame, always with the frame's statistics.

    The released class keeps running averages for evaluation as well; here the output of a frame
    is a function of the frame and the parameters alone, in training and in evaluation.

    Attributes:
        exact: normalise in float64. torch's own float32 operator adds up hundreds of thousands of
            rows in one go, and where a column is nearly constant its gradients keep no right digit;
            False takes that operator, to show how far it is off.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.exact = True

    def forward(self, x: Tensor) -> Tensor:
        """[W, N, H] -> [W, N, H]."""
        flat = x.reshape(-1, x.shape[-1])
        if flat.shape[0] < 2:  # one row has no variance; torch refuses it
            return x * 0 + self.bias
        weight, bias = self.weight, self.bias
        if self.exact:
            flat, weight, bias = flat.double(), weight.double(), bias.double()
        out = functional.batch_norm(flat, None, None, weight, bias, training=True)
        return out.to(x.dtype).view(x.shape)


class MpnnLstm(FrameModel):
    """Parameter for parameter the released `MPNNLSTM` class.

    X1 = norm_1(relu(conv_1(A-hat X))), X2 = norm_2(relu(conv_2(A-hat X1))), dropout after each;
    h1 = lstm_1([X1 | X2]) over the frame, 2H -> H; h2 = lstm_2(h1), H -> H; the output of a
    snapshot is [h1 | h2 | skip] with width 2H + F + W - 1.

    The skip part holds the raw features of the frame's first snapshot and the last feature column
    of each later one. The released class gives it for the frame's last snapshot only; for an
    earlier snapshot the columns of its future are zero here, so that no target leaks.
    """

    def __init__(
        self,
        feature_dim: int,
        hidden_dim: int,
        frame: int,
        *,
        batch_norm: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.feature_dim = feature_dim
        self.hidden_dim = hidden_dim
        self.frame = frame
        self.dropout = dropout
        self.output_dim = 2 * hidden_dim + feature_dim + frame - 1
        self.conv_1 = GcnLayer(feature_dim, hidden_dim)
        self.conv_2 = GcnLayer(hidden_dim, hidden_dim)
        self.norm_1 = FrameNorm(hidden_dim) if batch_norm else nn.Identity()
        self.norm_2 = FrameNorm(hidden_dim) if batch_norm else nn.Identity()
        self.lstm_1 = nn.LSTM(2 * hidden_dim, hidden_dim)
        self.lstm_2 = nn.LSTM(hidden_dim, hidden_dim)

    def dense_1(self, aggregated: Tensor) -> Tensor:
        """A-hat X of the whole frame [W, N, F] -> X1 [W, N, H]."""
        return self.after(self.norm_1, self.conv_1(aggregated))

    def dense_2(self, aggregated: Tensor) -> Tensor:
        """A-hat X1 of the whole frame [W, N, H] -> X2 [W, N, H]."""
        return self.after(self.norm_2, self.conv_2(aggregated))

    def after(self, norm: nn.Module, x: Tensor) -> Tensor:
        """Apply activation, the frame's norm and dropout to a layer's product."""
        return functional.dropout(norm(torch.relu(x)), self.dropout, self.training)

    def skip(self, raw: Sequence[Tensor], step: int) -> Tensor:
        """Skip columns of snapshot `step` of the frame, [N, F + W - 1]; `raw` holds X_t [N, F]."""
        later = [x[:, -1:] for x in raw[1 : step + 1]]
        out = torch.cat([raw[0], *later], dim=1)
        return functional.pad(out, (0, len(raw) - 1 - step))

    def combine(self, h1: Tensor, h2: Tensor, raw: Sequence[Tensor], step: int) -> Tensor:
        """Output [N, 2H + F + W - 1] of a snapshot from its two hidden states [N, H]."""
        return torch.cat([h1, h2, self.skip(raw, step)], dim=1)

    def scan_weights(self) -> tuple[tuple[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]:
        """(w_in, w_hid, bias) of both LSTMs for a fused scan; gates in the order i, f, g, o.

        Shapes [2H, 4H], [H, 4H], [4H] for the first and [H, 4H], [H, 4H], [4H] for the second.
        Differentiable.
        """
        return tuple(
            (rnn.weight_ih_l0.t(), rnn.weight_hh_l0.t(), rnn.bias_ih_l0 + rnn.bias_hh_l0)
            for rnn in (self.lstm_1, self.lstm_2)
        )

    def forward_frame(self, aggregator: Aggregator, times: range) -> list[Tensor]:
        x1 = self.dense_1(torch.stack([aggregator.first(t) for t in times]))
        x2 = self.dense_2(
            torch.stack([aggregator.apply(t, x) for t, x in zip(times, x1, strict=True)])
        )
        h1, _ = self.lstm_1(torch.cat([x1, x2], dim=2))
        h2, _ = self.lstm_2(h1)
        raw = [aggregator.raw(t) for t in times]
        return [self.combine(h1[i], h2[i], raw, i) for i in range(len(times))]
