"""Networks that keep a state per vertex and change it with every interaction."""

from dgbench.models.streaming.build import INTERACTION_MODELS, build_interaction_model
from dgbench.models.streaming.cell import DECAYS, TimeLstm
from dgbench.models.streaming.dygnn import Dygnn, EdgeScores, Refreshed
from dgbench.models.streaming.edges import EdgeBlock, IntervalEdges
from dgbench.models.streaming.heads import DotHead, PerceptronClassHead
from dgbench.models.streaming.jodie import Jodie, JodiePending, JodieState
from dgbench.models.streaming.state import DygnnState, PendingInteractions, VertexColumns

__all__ = [
    "DECAYS",
    "INTERACTION_MODELS",
    "DotHead",
    "Dygnn",
    "DygnnState",
    "EdgeBlock",
    "EdgeScores",
    "IntervalEdges",
    "Jodie",
    "JodiePending",
    "JodieState",
    "PendingInteractions",
    "PerceptronClassHead",
    "Refreshed",
    "TimeLstm",
    "VertexColumns",
    "build_interaction_model",
]
