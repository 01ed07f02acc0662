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
from torch import Tensor, nn
from torch.nn import functional

from dgbench.kernels_cuda.evolve import evolve_gru
from dgbench.kernels_cuda.layers import dense_norm, frame_dense
from dgbench.kernels_cuda.scan import gru_scan, lstm_scan
from dgbench.models import EvolveGcnO, FrameModel, GcnGru, MpnnLstm
from dgbench.models.dtdg.evolvegcn import EvolvingWeight
from dgbench.models.dtdg.mpnn_lstm import FrameNorm
from dgbench.models.frame import GcnLayer
from dgbench.systems.pipad.engine import Engine

Outputs = Sequence[Tensor] | Tensor
"""Outputs [N, D], one after the other or as one tensor [W, N, D]."""


def gcn_gru(model: GcnGru, engine: Engine, times: range, every: bool) -> Outputs:
    """T-GCN model (Zhao et al.); outputs [N, H], all W of them where `every` is set."""
    with engine.meter.phase("gnn"):
        x = engine.first(times)  # [W, N, F]
    with engine.meter.phase("rnn"):
        if engine.on["fused_gates"]:
            states, last = gru_scan(x, *model.folded_weights(), all_steps=every)
            return states if every else [last]
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


def evolve_gcn(model: EvolveGcnO, engine: Engine, times: range, every: bool) -> Outputs:
    """EvolveGCN-O; every snapshot has weights of its own, so products are batched, not stacked."""
    with engine.meter.phase("rnn"):
        fused = engine.on["fused_gates"]
        first = _evolve(model.layer_1, len(times), fused)
        second = _evolve(model.layer_2, len(times), fused)
    with engine.meter.phase("gnn"):
        hidden = _dense(engine, engine.first(times), first, relu=True)  # [W, N, H]
        return _dense(engine, engine.apply(times, hidden), second, relu=False)


def _evolve(layer: EvolvingWeight, steps: int, fused: bool) -> Tensor:
    """Weights [W, in, out] of a frame."""
    cell = layer.cell
    if fused and isinstance(cell, nn.GRUCell) and layer.initial.device.type == "cpu":
        weights = cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh
        return evolve_gru(layer.initial, *weights, steps)
    return torch.stack(layer.evolve(steps))


def _dense(engine: Engine, aggregated: Tensor, weights: Tensor, *, relu: bool) -> Tensor:
    """a_t W_t of a frame [W, N, F], cut off below zero where `relu` is set."""
    if not engine.on["weight_reuse"]:
        pairs = zip(aggregated.unbind(0), weights.unbind(0), strict=True)
        return torch.stack([torch.relu(a @ w) if relu else a @ w for a, w in pairs])
    if aggregated.device.type == "cpu":
        return frame_dense(aggregated, weights, relu)
    out = torch.bmm(aggregated, weights)
    return torch.relu(out) if relu else out


def mpnn_lstm(model: MpnnLstm, engine: Engine, times: range, every: bool) -> Outputs:
    """MPNN-LSTM; one stacked product per layer for all snapshots of the frame."""
    with engine.meter.phase("gnn"):
        x1 = _layer(model, model.conv_1, model.norm_1, engine, engine.first(times))
        x2 = _layer(model, model.conv_2, model.norm_2, engine, engine.apply(times, x1))
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
    steps = len(times)
    if not every:
        return [torch.cat([last_1, last_2, _skip(engine.raw(times))], dim=1)]
    raw = list(engine.raw(times))
    return [model.combine(h1[i], h2[i], raw, i) for i in range(steps)]


def _skip(raw: Tensor) -> Tensor:
    """`MpnnLstm.skip` of a frame's last snapshot in one copy; `raw` is [W, N, F]."""
    return torch.cat([raw[0], raw[1:, :, -1].t()], dim=1)


def _layer(
    model: MpnnLstm, conv: GcnLayer, norm: nn.Module, engine: Engine, aggregated: Tensor
) -> Tensor:
    """A layer after its aggregation, for a whole frame [W, N, F]."""
    if not engine.on["weight_reuse"]:
        return model.after(norm, torch.stack([conv(a) for a in aggregated.unbind(0)]))
    rows = aggregated.shape[0] * aggregated.shape[1]
    if isinstance(norm, FrameNorm) and rows > 1 and aggregated.device.type == "cpu":
        out = dense_norm(aggregated, conv.weight, conv.bias, norm.weight, norm.bias)
        return functional.dropout(out, model.dropout, model.training) if model.dropout else out
    return model.after(norm, conv(aggregated))


Forward = Callable[[FrameModel, Engine, range, bool], Outputs]

FORWARD: dict[type[FrameModel], Forward] = {
    GcnGru: gcn_gru,
    EvolveGcnO: evolve_gcn,
    MpnnLstm: mpnn_lstm,
}
