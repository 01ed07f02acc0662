"""The T-GCN model (Zhao et al.) with a two-layer GCN in each gate, as DGC trains it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from dgbench.kernels_cuda.scan import packed_gru_scan
from dgbench.models.frame import GcnLayer
from dgbench.models.sequence import (
    Neighbours,
    SequenceModel,
    SequenceRows,
    Starts,
    begins_of,
    masked_state,
)


class _ThreeProducts(torch.autograd.Function):
    """[a_z W_z | a_r W_r | a_c W_c] + b for a [R, 3 H], without copies of the thirds.

    Torch would join three results and, backward, three gradients; that costs as much as the
    products.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor, weights: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(a, weights)
        out = torch.empty_like(a)
        width = weights.shape[2]
        for k, weight in enumerate(weights):
            part = slice(k * width, (k + 1) * width)
            torch.addmm(bias[part], a[:, part], weight, out=out[:, part])
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        a, weights = ctx.saved_tensors
        width = weights.shape[2]
        to_a = torch.empty_like(a) if ctx.needs_input_grad[0] else None
        to_weights = torch.empty_like(weights)
        for k, weight in enumerate(weights):
            part = slice(k * width, (k + 1) * width)
            torch.mm(a[:, part].t(), grad[:, part], out=to_weights[k])
            if to_a is not None:
                torch.mm(grad[:, part], weight.t(), out=to_a[:, part])
        return to_a, to_weights, grad.sum(0)


class TgcnTwoLayer(SequenceModel):
    """A GRU whose three gates read a two-layer GCN each.

    For gate q of z, r, c: s_q = A-hat relu(A-hat X U_q + d_q) V_q + e_q;
        z = sigmoid(linear_z([s_z | h])), r = sigmoid(linear_r([s_r | h])),
        c = tanh(linear_c([s_c | r * h])), h' = z * h + (1 - z) * c.
    The three run side by side: the second round shows 3 H floats. Both layers have a bias.

    Attributes:
        conv_1_z, conv_1_r, conv_1_c: U_q and d_q.
        conv_2_z, conv_2_r, conv_2_c: V_q and e_q.
        linear_z, linear_r, linear_c: 2 H -> H.
    """

    def __init__(self, feature_dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.feature_dim = feature_dim
        self.hidden_dim = self.output_dim = hidden_dim
        self.round_dims = (feature_dim, 3 * hidden_dim)
        self.spatial_dim = 3 * hidden_dim
        self.state_dims = (hidden_dim,)
        for gate in "zrc":
            setattr(self, f"conv_1_{gate}", GcnLayer(feature_dim, hidden_dim))
            setattr(self, f"conv_2_{gate}", GcnLayer(hidden_dim, hidden_dim))
            setattr(self, f"linear_{gate}", nn.Linear(2 * hidden_dim, hidden_dim))

    def receive(self, k: int, neighbours: Neighbours, shown: Tensor) -> Tensor:
        aggregated = neighbours.propagate(shown)
        layers = [getattr(self, f"conv_{k + 1}_{q}") for q in "zrc"]
        bias = torch.cat([layer.bias for layer in layers])
        weights = [layer.weight for layer in layers]
        if k == 0:
            return torch.relu(torch.addmm(bias, aggregated, torch.cat(weights, dim=1)))
        return _ThreeProducts.apply(aggregated, torch.stack(weights), bias)

    def temporal(
        self, x: Tensor, rows: SequenceRows | None = None, starts: Starts | None = None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        begins = begins_of(x, rows, starts)
        given = starts.states[0] if starts is not None else None
        h = x.new_zeros(x.shape[1], self.hidden_dim)
        out = []
        for step, begin in zip(x, begins, strict=True):
            h = masked_state(begin, h, given)
            for_z, for_r, for_c = step.split(self.hidden_dim, dim=-1)
            z = torch.sigmoid(self.linear_z(torch.cat([for_z, h], dim=1)))
            r = torch.sigmoid(self.linear_r(torch.cat([for_r, h], dim=1)))
            c = torch.tanh(self.linear_c(torch.cat([for_c, r * h], dim=1)))
            h = z * h + (1 - z) * c
            out.append(h)
        h_all = torch.stack(out)
        return h_all, (h_all,)

    def temporal_fused(
        self, x: Tensor, rows: SequenceRows | None = None, starts: Starts | None = None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        given = starts.states[0] if starts is not None else None
        h_all = packed_gru_scan(x, *self.scan_weights(), begins_of(x, rows, starts), given)
        return h_all, (h_all,)

    def scan_weights(self) -> tuple[Tensor, Tensor, Tensor]:
        """The GRU over the spatial outputs: w_in [3 H, 3 H], w_hid [H, 3 H], bias [3 H].

        Gates z, r, c; each reads its own third, so w_in is block diagonal. Differentiable.
        """
        layers, h = (self.linear_z, self.linear_r, self.linear_c), self.hidden_dim
        w_in = torch.block_diag(*(layer.weight[:, :h].t() for layer in layers))
        w_hid = torch.cat([layer.weight[:, h:].t() for layer in layers], dim=1)
        return w_in, w_hid, torch.cat([layer.bias for layer in layers])
