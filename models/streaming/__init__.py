"""Networks that keep a state per vertex and change it with every interaction."""

from dgbench.models.streaming.build import INTERACTION_MODELS, build_interaction_model
from dgbench.models.streaming.cell import DECAYS, TimeLstm
from dgbench.models.streaming.dygnn import Dygnn, Link, Refreshed
from dgbench.models.streaming.edges import IntervalEdges
from dgbench.models.streaming.heads import ClassHead, DotHead
from dgbench.models.streaming.jodie import Jodie, JodiePending, JodieState
from dgbench.models.streaming.state import DygnnState, Pending, Rows

__all__ = [
    "DECAYS",
    "INTERACTION_MODELS",
    "ClassHead",
    "DotHead",
    "Dygnn",
    "DygnnState",
    "IntervalEdges",
    "Jodie",
    "JodiePending",
    "JodieState",
    "Link",
    "Pending",
    "Refreshed",
    "Rows",
    "TimeLstm",
    "build_interaction_model",
]
