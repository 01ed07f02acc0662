"""DyGNN as a plugin."""

from __future__ import annotations

from dgbench.systems.base.interaction_baseline import PADDING, SEQUENTIAL, BaselineSystem
from dgbench.systems.base.system import Technique

PROPAGATION = Technique(
    "propagation",
    "An edge is pushed to recent neighbours of its ends, too; T-GCN does not mention it.",
    exact=False,
    source="DyGNN (SIGIR 2020), section 3.3",
)


class DygnnSystem(BaselineSystem):
    """Edge by edge in t-batches, on all edges."""

    name = "dygnn"
    title = "DyGNN"
    model = "dygnn"
    about = (
        "Two time-aware LSTMs per vertex, one for each role in an interaction, trained edge by "
        "edge in batches in which no vertex occurs twice."
    )
    provenance = "re-implemented (DyGNN, SIGIR 2020)"
    techniques = (PADDING, SEQUENTIAL, PROPAGATION)
