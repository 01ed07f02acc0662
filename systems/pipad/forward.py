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
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from dgbench.kernels_cuda.layers import dense_norm, frame_dense
from dgbench.kernels_cuda.scan import evolve_gru, gru_scan, lstm_scan
from dgbench.models import EvolveGcnO, FrameModel, GcnGru, MpnnLstm
from dgbench.models.dtdg.evolvegcn import EvolvingWeight
from dgbench.models.dtdg.mpnn_lstm import FrameNorm
from dgbench.models.frame import GcnLayer
from dgbench.runtime.graphs import CapturedStage
from dgbench.systems.pipad.engine import Engine

Outputs = Sequence[Tensor] | Tensor
"""Outputs [N, D], one after the other or as one tensor [W, N, D]."""

Result = Tensor | tuple[Tensor, ...]


class _ModelFunction(nn.Module):
    """A function that reads a model's parameters, as a module of which these are parameters."""

    def __init__(self, model: FrameModel, function: Callable[..., Result]) -> None:
        super().__init__()
        self.model = model
        self.function = function

    def forward(self, *tensors: Tensor) -> Result:
        return self.function(*tensors)


class Stages:
    """The dense parts of a model's step, each captured in CUDA graphs where that is wanted (4.3).

    Args:
        model: its parameters but the head's are inputs of every stage, so that a graph's backward
            pass reaches them.
        enabled: capture; otherwise stages are plain calls.
    """

    def __init__(self, model: FrameModel, enabled: bool) -> None:
        self._enabled = enabled
        self._known: dict[str, CapturedStage] = {}
        self._model = model
        self._parameters = {
            name: p for name, p in model.named_parameters() if not name.startswith("head.")
        }

    def __call__(self, name: str, function: Callable[..., Result], *tensors: Tensor) -> Result:
        """`function(*tensors)`, which may also read the model's parameters.

        Args:
            name: tells stages apart; the same name must mean the same function.
            function: launches the same work for the same shapes.
        """
        if not self._enabled:
            return function(*tensors)
        stage = self._known.get(name)
        if stage is None:
            stage = CapturedStage(
                partial(self._call, function, len(tensors)), enabled=True, name=name
            )
            self._known[name] = stage
        return stage(*tensors, *self._parameters.values())

    def _call(self, function: Callable[..., Result], count: int, *given: Tensor) -> Result:
        """`function` of the first `count` tensors; the others stand for the model's parameters."""
        tensors, parameters = given[:count], given[count:]
        if all(a is b for a, b in zip(parameters, self._parameters.values(), strict=True)):
            return function(*tensors)
        part = _ModelFunction(self._model, function)
        named = dict(zip((f"model.{name}" for name in self._parameters), parameters, strict=True))
        return functional_call(part, named, tensors)

    def reasons(self) -> list[str]:
        """Why stages run without a graph, where capture was wanted and failed."""
        return [f"CUDA graphs: {s.reason}" for s in self._known.values() if s.reason]


def gcn_gru(model: GcnGru, engine: Engine, stages: Stages, times: range, every: bool) -> Outputs:
    """T-GCN model (Zhao et al.); outputs [N, H], all W of them where `every` is set."""
    with engine.meter.phase("gnn"):
        x = engine.first(times)  # [W, N, F]

    def scan(x: Tensor) -> Tensor:
        states, last = gru_scan(x, *model.folded_weights(), all_steps=every)
        return states if every else last

    def steps(x: Tensor) -> tuple[Tensor, ...]:
        if engine.on["weight_reuse"]:
            return tuple(_folded_steps(model, x))
        h = x.new_zeros(x.shape[1], model.hidden_dim)
        outputs = []
        for a in x:
            h = model.cell(a, h)
            outputs.append(h)
        return tuple(outputs)

    with engine.meter.phase("rnn"):
        if engine.on["fused_gates"]:
            found = stages("scan", scan, x)
            return found if every else [found]
        return stages("steps", steps, x)


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


def evolve_gcn(
    model: EvolveGcnO, engine: Engine, stages: Stages, times: range, every: bool
) -> Outputs:
    """EvolveGCN-O; every snapshot has weights of its own, so products are batched, not stacked."""
    reuse, fused, steps = engine.on["weight_reuse"], engine.on["fused_gates"], len(times)

    def evolve() -> tuple[Tensor, Tensor]:
        return _evolve(model.layer_1, steps, fused), _evolve(model.layer_2, steps, fused)

    with engine.meter.phase("rnn"):
        first, second = stages("evolve", evolve)
    with engine.meter.phase("gnn"):
        a = engine.first(times)
        hidden = stages("dense 1", partial(_dense, relu=True, reuse=reuse), a, first)  # [W, N, H]
        a = engine.apply(times, hidden)
        return stages("dense 2", partial(_dense, relu=False, reuse=reuse), a, second)


def _evolve(layer: EvolvingWeight, steps: int, fused: bool) -> Tensor:
    """Weights [W, in, out] of a frame."""
    cell = layer.cell
    compiled = layer.initial.device.type == "cpu" or layer.initial.dtype == torch.float32
    if fused and compiled and isinstance(cell, nn.GRUCell):
        weights = cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh
        return evolve_gru(layer.initial, *weights, steps)
    return torch.stack(layer.evolve(steps))


def _dense(aggregated: Tensor, weights: Tensor, *, relu: bool, reuse: bool) -> Tensor:
    """a_t W_t of a frame [W, N, F], cut off below zero where `relu` is set."""
    if not reuse:
        pairs = zip(aggregated.unbind(0), weights.unbind(0), strict=True)
        return torch.stack([torch.relu(a @ w) if relu else a @ w for a, w in pairs])
    if aggregated.device.type == "cpu":
        return frame_dense(aggregated, weights, relu)
    out = torch.bmm(aggregated, weights)
    return torch.relu(out) if relu else out


def mpnn_lstm(
    model: MpnnLstm, engine: Engine, stages: Stages, times: range, every: bool
) -> Outputs:
    """MPNN-LSTM; one stacked product per layer for all snapshots of the frame."""
    reuse, fused = engine.on["weight_reuse"], engine.on["fused_gates"]

    def scans(x1: Tensor, x2: Tensor) -> tuple[Tensor, ...]:
        joined = torch.cat([x1, x2], dim=2)  # [W, N, 2H]
        if not fused:
            h1 = _lstm(model.lstm_1, joined)
            h2 = _lstm(model.lstm_2, h1)
            return (h1, h2, h1[-1], h2[-1]) if every else (h1[-1], h2[-1])
        weights_1, weights_2 = model.scan_weights()
        h1, last_1, _ = lstm_scan(joined, *weights_1, all_steps=True)
        h2, last_2, _ = lstm_scan(h1, *weights_2, all_steps=every)
        return (h1, h2, last_1, last_2) if every else (last_1, last_2)

    with engine.meter.phase("gnn"):
        layer_1 = partial(_layer, model, model.conv_1, model.norm_1, reuse)
        layer_2 = partial(_layer, model, model.conv_2, model.norm_2, reuse)
        x1 = stages("layer 1", layer_1, engine.first(times))
        x2 = stages("layer 2", layer_2, engine.apply(times, x1))
    with engine.meter.phase("rnn"):
        *states, last_1, last_2 = stages("scans", scans, x1, x2)
        head, later = engine.raw(times)
    if not every:
        return [torch.cat([last_1, last_2, _skip(head, later)], dim=1)]
    h1, h2 = states
    raw = [head, *later.unsqueeze(2)]
    return [model.combine(h1[i], h2[i], raw, i) for i in range(len(times))]


def _lstm(layer: nn.LSTM, x: Tensor) -> Tensor:
    """The layer's outputs without `nn.LSTM.forward`, which lays weights that it has not seen anew.

    A capture's weights are aliases of the parameters and have to stay where these lie.
    """
    weights = [layer.weight_ih_l0, layer.weight_hh_l0, layer.bias_ih_l0, layer.bias_hh_l0]
    zeros = x.new_zeros(1, x.shape[1], layer.hidden_size)
    return torch.lstm(x, (zeros, zeros), weights, True, 1, 0.0, layer.training, False, False)[0]


def _skip(head: Tensor, later: Tensor) -> Tensor:
    """`MpnnLstm.skip` of a frame's last snapshot in one copy, [N, F + W - 1]."""
    return torch.cat([head, later.t()], dim=1)


def _layer(
    model: MpnnLstm, conv: GcnLayer, norm: nn.Module, reuse: bool, aggregated: Tensor
) -> Tensor:
    """A layer after its aggregation, for a whole frame [W, N, F]."""
    if not reuse:
        return model.after(norm, torch.stack([conv(a) for a in aggregated.unbind(0)]))
    rows = aggregated.shape[0] * aggregated.shape[1]
    if isinstance(norm, FrameNorm) and rows > 1 and aggregated.device.type == "cpu":
        out = dense_norm(aggregated, conv.weight, conv.bias, norm.weight, norm.bias)
        return functional.dropout(out, model.dropout, model.training) if model.dropout else out
    return model.after(norm, conv(aggregated))


Forward = Callable[[FrameModel, Engine, Stages, range, bool], Outputs]

FORWARD: dict[type[FrameModel], Forward] = {
    GcnGru: gcn_gru,
    EvolveGcnO: evolve_gcn,
    MpnnLstm: mpnn_lstm,
}
