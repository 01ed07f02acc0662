"""From a workload to its network over a stream."""

from __future__ import annotations

from typing import Any, Final

from dgbench.models.ctdg.base import StreamModel
from dgbench.models.ctdg.dysat import StreamDysat
from dgbench.models.ctdg.static import GatLayer, SageLayer, StaticModel
from dgbench.models.ctdg.tgat import Tgat
from dgbench.models.ctdg.tgn import Tgn
from dgbench.models.initial import drawn_by
from dgbench.runtime.errors import unknown_key

STREAM_MODELS: Final = ("tgn", "tgat", "dysat", "graphsage", "gat")


def build_stream_model(workload: Any) -> StreamModel:
    """The network of a workload with its head; the same parameters for the same seed.

    Args:
        workload: a `StreamWorkload`: of it are read `model`, `seed`, `fanouts` (one layer each),
            `snapshots`, `node_dim`, `edge_dim`, `time_dim`, `memory_dim`, `hidden_dim`, `heads`,
            `dropout`.

    Raises:
        UnknownKeyError: `model` is none of `STREAM_MODELS`.
    """
    w = workload
    if w.model not in STREAM_MODELS:
        raise unknown_key("model", w.model, STREAM_MODELS)
    hops = len(w.fanouts)
    with drawn_by(w.seed):
        if w.model == "tgn":
            return Tgn(
                w.node_dim, w.edge_dim, w.time_dim, w.memory_dim, w.hidden_dim, w.heads, hops,
                w.dropout,
            )  # fmt: skip
        if w.model == "tgat":
            return Tgat(w.node_dim, w.edge_dim, w.time_dim, w.hidden_dim, w.heads, hops, w.dropout)
        if w.model == "dysat":
            return StreamDysat(
                w.node_dim, w.edge_dim, w.hidden_dim, w.heads, hops, w.snapshots, w.dropout
            )
        widths = [w.node_dim] + [w.hidden_dim] * (hops - 1)
        if w.model == "graphsage":
            layers = [SageLayer(width, w.hidden_dim) for width in widths]
        else:
            layers = [
                GatLayer(width, w.hidden_dim, w.heads, last=i == hops - 1)
                for i, width in enumerate(widths)
            ]
        return StaticModel(layers, w.hidden_dim)
