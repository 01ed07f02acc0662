"""Making a model from the fields of a workload, with the same parameters in every system."""

from __future__ import annotations

from dgbench.models.dtdg.cd_gcn import CdGcn
from dgbench.models.dtdg.dysat import Dysat
from dgbench.models.dtdg.evolvegcn import EvolveGcnO
from dgbench.models.dtdg.evolvegcn_o import EvolveGcnTimeline
from dgbench.models.dtdg.gcn_gru import GcnGru
from dgbench.models.dtdg.mpnn_lstm import MpnnLstm
from dgbench.models.dtdg.mpnn_lstm_bare import MpnnLstmBare
from dgbench.models.dtdg.tgcn_2layer import TgcnTwoLayer
from dgbench.models.dtdg.tm_gcn import TmGcn
from dgbench.models.frame import FrameModel
from dgbench.models.heads import ClassHead, LinkHead, NodeHead, PairHead
from dgbench.models.initial import drawn_by
from dgbench.models.sequence import SequenceModel
from dgbench.models.timeline import TimelineModel
from dgbench.runtime.errors import InvalidInputError, unknown_key

FRAME_MODELS = ("tgcn_model", "evolvegcn", "mpnn_lstm")
TIMELINE_MODELS = ("cd_gcn", "tm_gcn", "evolvegcn_o")
"""Models that read a whole timeline in blocks (`TimelineModel`)."""
SEQUENCE_MODELS = ("tgcn_2layer", "dysat", "mpnn_lstm_bare")
"""Models cut into exchanges over vertex-steps and sequences (`SequenceModel`), as DGC trains."""
MODEL_NAMES = FRAME_MODELS + TIMELINE_MODELS + SEQUENCE_MODELS
TASKS = ("node", "link", "class")


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
    window: int = 1,
    classes: int = 2,
    heads: int = 1,
    positions: int = 0,
    causal: bool = False,
) -> FrameModel:
    """A model with its head, float32 on the CPU, parameters drawn from `seed`.

    The global random state is as it was afterwards, and equal arguments give equal parameters.

    Args:
        model: `tgcn_model`, `evolvegcn` or `mpnn_lstm`, or one that reads a whole timeline:
            `cd_gcn`, `tm_gcn` or `evolvegcn_o`, or one cut for chunks: `tgcn_2layer`, `dysat` or
            `mpnn_lstm_bare`.
        feature_dim, hidden_dim: floats per vertex in and inside, at least 1.
        task: `node` (a number per vertex), `link` (pairs of vertices) or `class` (a class per
            vertex); decides `model.head`. Timeline and sequence models score pairs by
            ESDG's single layer.
        cell: recurrent form of EvolveGCN, `gru` or `lstm`.
        frame: snapshots in a frame (width of MPNN-LSTM's skip columns).
        seed: seeds the parameters.
        batch_norm, dropout: of MPNN-LSTM.
        window: of TM-GCN's M-transform.
        classes: classes of the task `class`.
        heads, positions, causal: of DySAT: heads of both attentions, position embeddings (0: none),
            and whether a step sees no later one.

    Raises:
        UnknownKeyError: for an unknown model, task or cell.
        InvalidInputError: for a size below 1.
    """
    if model not in MODEL_NAMES:
        raise unknown_key("model", model, MODEL_NAMES)
    if task not in TASKS:
        raise unknown_key("task", task, TASKS)
    sizes = {
        "feature_dim": feature_dim,
        "hidden_dim": hidden_dim,
        "frame": frame,
        "window": window,
        "classes": classes,
        "heads": heads,
    }
    for name, size in sizes.items():
        if size < 1:
            raise InvalidInputError(f"{name} must be at least 1, got {size}")
    if positions < 0:
        raise InvalidInputError(f"positions must be at least 0, got {positions}")
    with drawn_by(seed):
        if model == "tgcn_model":
            net: FrameModel = GcnGru(feature_dim, hidden_dim)
        elif model == "evolvegcn":
            net = EvolveGcnO(feature_dim, hidden_dim, cell)
        elif model == "mpnn_lstm":
            net = MpnnLstm(feature_dim, hidden_dim, frame, batch_norm=batch_norm, dropout=dropout)
        elif model == "cd_gcn":
            net = CdGcn(feature_dim, hidden_dim)
        elif model == "tm_gcn":
            net = TmGcn(feature_dim, hidden_dim, window)
        elif model == "evolvegcn_o":
            net = EvolveGcnTimeline(feature_dim, hidden_dim)
        elif model == "tgcn_2layer":
            net = TgcnTwoLayer(feature_dim, hidden_dim)
        elif model == "mpnn_lstm_bare":
            net = MpnnLstmBare(feature_dim, hidden_dim)
        else:
            net = Dysat(feature_dim, hidden_dim, heads, positions=positions, causal=causal)
        width = net.output_dim
        if task == "node":
            net.head = NodeHead(width)
        elif task == "class":
            net.head = ClassHead(width, classes)
        elif isinstance(net, (TimelineModel, SequenceModel)):
            net.head = PairHead(width)
        else:
            net.head = LinkHead(width, hidden_dim)
    return net
