"""The networks, written once and used by every system and every baseline."""

from dgbench.models.aggregation import Aggregator
from dgbench.models.attention import attend_rows, packed_attention
from dgbench.models.build import (
    FRAME_MODELS,
    MODEL_NAMES,
    SEQUENCE_MODELS,
    TIMELINE_MODELS,
    build_model,
)
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
from dgbench.models.pairs import sample_pairs
from dgbench.models.sequence import Neighbours, SequenceModel, Starts
from dgbench.models.timeline import TimelineModel, TimelineState

__all__ = [
    "FRAME_MODELS",
    "MODEL_NAMES",
    "SEQUENCE_MODELS",
    "TIMELINE_MODELS",
    "Aggregator",
    "CdGcn",
    "ClassHead",
    "Dysat",
    "EvolveGcnO",
    "EvolveGcnTimeline",
    "FrameModel",
    "GcnGru",
    "LinkHead",
    "MpnnLstm",
    "MpnnLstmBare",
    "Neighbours",
    "NodeHead",
    "PairHead",
    "SequenceModel",
    "Starts",
    "TgcnTwoLayer",
    "TimelineModel",
    "TimelineState",
    "TmGcn",
    "attend_rows",
    "build_model",
    "packed_attention",
    "sample_pairs",
]
