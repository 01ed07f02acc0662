"""The networks, written once and used by every system and every baseline."""

from dgbench.models.aggregation import Aggregator
from dgbench.models.build import MODEL_NAMES, build_model
from dgbench.models.dtdg.evolvegcn import EvolveGcnO
from dgbench.models.dtdg.gcn_gru import GcnGru
from dgbench.models.dtdg.mpnn_lstm import MpnnLstm
from dgbench.models.frame import FrameModel
from dgbench.models.heads import LinkHead, NodeHead

__all__ = [
    "MODEL_NAMES",
    "Aggregator",
    "EvolveGcnO",
    "FrameModel",
    "GcnGru",
    "LinkHead",
    "MpnnLstm",
    "NodeHead",
    "build_model",
]
