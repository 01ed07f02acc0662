"""Workload: dataset, model, task and settings. Two systems are compared on one Workload."""

from __future__ import annotations

from typing import Literal

import msgspec


class Workload(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A discrete-time training task that any DTDG system can be asked to run.

    Attributes:
        dataset: name of a `DatasetCard`.
        source: `real`, `twin`, or `auto` (real where it can be had, else the twin).
        scale: size factor of a twin; 1 is the published size.
        snapshots: number of snapshots to keep, the last ones, where a growing graph is fullest;
            None keeps all.
        edge_life: number of raw snapshots an edge lives (ESDG 5.1); 1 is raw.
        model: `tgcn_model` (T-GCN model, Zhao et al.), `evolvegcn` or `mpnn_lstm`.
        feature_dim, hidden_dim: floats per vertex in and inside the model.
        norm: GCN normalisation, `sym` (D^-1/2) or `mean` (D^-1); self loops are always added.
        cell: recurrent form of EvolveGCN, `gru` or `lstm`.
        task: `node` (mean squared error on the next snapshot's target) or `link`
            (binary cross entropy on next snapshot's edges against random pairs).
        loss_on: `last` snapshot of the frame, or `every` snapshot of it.
        frame, stride: snapshots in a frame, and how far frames slide.
        lr: learning rate of Adam.
        seed: seeds parameters, features and negatives.
    """

    dataset: str
    model: Literal["tgcn_model", "evolvegcn", "mpnn_lstm"]
    source: Literal["auto", "real", "twin"] = "auto"
    scale: float = 1.0
    snapshots: int | None = None
    edge_life: int = 1
    feature_dim: int = 16
    hidden_dim: int = 32
    norm: Literal["sym", "mean"] = "sym"
    cell: Literal["gru", "lstm"] = "gru"
    task: Literal["node", "link"] = "node"
    loss_on: Literal["last", "every"] = "last"
    frame: int = 16
    stride: int = 1
    lr: float = 1e-3
    seed: int = 1
