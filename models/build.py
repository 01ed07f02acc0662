"""Making a model from the fields of a workload, with the same parameters in every system."""

from __future__ import annotations

import torch

from dgbench.models.dtdg.evolvegcn import EvolveGcnO
from dgbench.models.dtdg.gcn_gru import GcnGru
from dgbench.models.dtdg.mpnn_lstm import MpnnLstm
from dgbench.models.frame import FrameModel
from dgbench.models.heads import LinkHead, NodeHead
from dgbench.runtime.errors import InvalidInputError, unknown_key

MODEL_NAMES = ("tgcn_model", "evolvegcn", "mpnn_lstm")
TASKS = ("node", "link")


def build_model(
    model: str,
    *,
    feature_dim: int,
    hidden_dim: int,
    task: str = "node",
    cell: str = "gru",
    frame: int = 16,
    seed: int = 1,
    batch_norm: bool = True,
    dropout: float = 0.0,
) -> FrameModel:
    """A model with its head, float32 on the CPU, parameters drawn from `seed`.

    The global random state is as it was afterwards, and equal arguments give equal parameters.

    Args:
        model: `tgcn_model`, `evolvegcn` or `mpnn_lstm`.
        feature_dim, hidden_dim: floats per vertex in and inside, at least 1.
        task: `node` or `link`; decides `model.head`.
        cell: recurrent form of EvolveGCN, `gru` or `lstm`.
        frame: snapshots in a frame (width of MPNN-LSTM's skip columns).
        seed: seeds the parameters.
        batch_norm, dropout: of MPNN-LSTM.

    Raises:
        UnknownKeyError: for an unknown model, task or cell.
        InvalidInputError: for a size below 1.
    """
    if model not in MODEL_NAMES:
        raise unknown_key("model", model, MODEL_NAMES)
    if task not in TASKS:
        raise unknown_key("task", task, TASKS)
    for name, size in (("feature_dim", feature_dim), ("hidden_dim", hidden_dim), ("frame", frame)):
        if size < 1:
            raise InvalidInputError(f"{name} must be at least 1, got {size}")
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        if model == "tgcn_model":
            net: FrameModel = GcnGru(feature_dim, hidden_dim)
        elif model == "evolvegcn":
            net = EvolveGcnO(feature_dim, hidden_dim, cell)
        else:
            net = MpnnLstm(feature_dim, hidden_dim, frame, batch_norm=batch_norm, dropout=dropout)
        width = net.output_dim
        net.head = NodeHead(width) if task == "node" else LinkHead(width, hidden_dim)
    return net
