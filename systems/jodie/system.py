"""JODIE as a plugin."""

from __future__ import annotations

from dgbench.systems.base.interaction_baseline import PADDING, SEQUENTIAL, BaselineSystem


class JodieSystem(BaselineSystem):
    """Edge by edge in t-batches, on all edges."""

    name = "jodie"
    title = "JODIE"
    model = "jodie"
    about = (
        "A recurrent network for users and one for items, embeddings that drift with the time "
        "since, and a prediction of the next item."
    )
    provenance = "re-implemented (JODIE, KDD 2019), one-hot vectors replaced by random codes"
    techniques = (PADDING, SEQUENTIAL)
