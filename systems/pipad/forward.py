"""The three models in PiPAD's order: all graph work of a frame first, then the recurrence.

Same parameters and same mathematics as `forward_frame` of the shared models, which the tests hold
these functions to. What may be re-ordered, and why it is the same:

- T-GCN model: all three gates aggregate the same features, so aggregation happens once, before
  the weights, and the convolution and the gate's linear layer fold into one product.
- EvolveGCN: weights depend on the step number only, so all of a frame are made first.
- MPNN-LSTM: the state of the LSTMs is the only link between snapshots.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from dgbench.kernels_cuda.scan import gru_scan, lstm_scan
from dgbench.models import EvolveGcnO, FrameModel, GcnGru, MpnnLstm
from dgbench.models.frame import GcnLayer
from dgbench.systems.pipad.engine import Engine


def gcn_gru(model: GcnGru, engine: Engine, times: range, every: bool) -> Sequence[Tensor]:
    """T-GCN model (Zhao et al.); outputs [N, H], all W of them where `every` is set."""
    with engine.meter.phase("gnn"):
        x = engine.first(times)  # [W, N, F]
    with engine.meter.phase("rnn"):
        if engine.on["fused_gates"]:
            states, last = gru_scan(x, *model.folded_weights(), all_steps=every)
            return states.unbind(0) if every else [last]
        if engine.on["weight_reuse"]:
            return _folded_steps(model, x)
        h = x.new_zeros(x.shape[1], model.hidden_dim)
        outputs = []
        for a in x:
            h = model.cell(a, h)
            outputs.append(h)
        return outputs


def _folded_steps(model: GcnGru, x: Tensor) -> list[Tensor]:
    """One product for the input side of all snapshots and gates, then a plain loop over time."""
    w_in, w_hid, bias = model.folded_weights()
    h_dim = model.hidden_dim
    pre = x @ w_in + bias  # [W, N, 3H], gates z, r, c
    h = x.new_zeros(x.shape[1], h_dim)
    outputs = []
    for p in pre:
        zr = torch.sigmoid(p[:, : 2 * h_dim] + h @ w_hid[:, : 2 * h_dim])
        z, r = zr[:, :h_dim], zr[:, h_dim:]
        c = torch.tanh(p[:, 2 * h_dim :] + (r * h) @ w_hid[:, 2 * h_dim :])
        h = z * h + (1 - z) * c
        outputs.append(h)
    return outputs


def evolve_gcn(model: EvolveGcnO, engine: Engine, times: range, every: bool) -> Sequence[Tensor]:
    """EvolveGCN-O; every snapshot has weights of its own, so products are batched, not stacked."""
    with engine.meter.phase("rnn"):
        first, second = model.evolve(len(times))
    with engine.meter.phase("gnn"):
        x = engine.first(times)  # [W, N, F]
        if engine.on["weight_reuse"]:
            hidden = torch.relu(torch.bmm(x, torch.stack(first)))  # [W, N, H]
            return torch.bmm(engine.apply(times, hidden), torch.stack(second)).unbind(0)
        hidden = torch.stack([torch.relu(a @ w) for a, w in zip(x, first, strict=True)])
        return [a @ w for a, w in zip(engine.apply(times, hidden), second, strict=True)]


def mpnn_lstm(model: MpnnLstm, engine: Engine, times: range, every: bool) -> Sequence[Tensor]:
    """MPNN-LSTM; one stacked product per layer for all snapshots of the frame."""
    with engine.meter.phase("gnn"):
        x1 = model.after(model.norm_1, _product(model.conv_1, engine, engine.first(times)))
        x2 = model.after(model.norm_2, _product(model.conv_2, engine, engine.apply(times, x1)))
        joined = torch.cat([x1, x2], dim=2)  # [W, N, 2H]
    with engine.meter.phase("rnn"):
        if engine.on["fused_gates"]:
            weights_1, weights_2 = model.scan_weights()
            h1, last_1, _ = lstm_scan(joined, *weights_1, all_steps=True)
            h2, last_2, _ = lstm_scan(h1, *weights_2, all_steps=every)
        else:
            h1, _ = model.lstm_1(joined)
            h2, _ = model.lstm_2(h1)
            last_1, last_2 = h1[-1], h2[-1]
    raw = list(engine.raw(times))
    steps = len(times)
    if not every:
        return [model.combine(last_1, last_2, raw, steps - 1)]
    return [model.combine(h1[i], h2[i], raw, i) for i in range(steps)]


def _product(conv: GcnLayer, engine: Engine, aggregated: Tensor) -> Tensor:
    """a W + b of a whole frame [W, N, F]: stacked, or one product per snapshot."""
    if engine.on["weight_reuse"]:
        return conv(aggregated)
    return torch.stack([conv(a) for a in aggregated])


Forward = Callable[[FrameModel, Engine, range, bool], Sequence[Tensor]]

FORWARD: dict[type[FrameModel], Forward] = {
    GcnGru: gcn_gru,
    EvolveGcnO: evolve_gcn,
    MpnnLstm: mpnn_lstm,
}
