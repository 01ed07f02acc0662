"""From a workload to its network over interactions."""

from __future__ import annotations

from typing import Any, Final

from dgbench.models.initial import drawn_by
from dgbench.models.streaming.dygnn import Dygnn
from dgbench.models.streaming.jodie import Jodie
from dgbench.runtime.errors import unknown_key

INTERACTION_MODELS: Final = ("dygnn", "jodie")


def build_interaction_model(workload: Any, *, classes: int = 0, unit: float = 1.0) -> Dygnn | Jodie:
    """The network of a workload with its head; the same parameters for the same seed.

    Args:
        workload: an `InteractionWorkload`; of it are read `model`, `seed`, `hidden_dim`,
            `activation`, `decay` and `propagation`.
        classes: of vertices in the `classify` task, else 0.
        unit: of time, of the data.

    Raises:
        UnknownKeyError: `model` is none of `INTERACTION_MODELS`.
    """
    w = workload
    if w.model not in INTERACTION_MODELS:
        raise unknown_key("model", w.model, INTERACTION_MODELS)
    with drawn_by(w.seed):
        if w.model == "jodie":
            return Jodie(w.hidden_dim, classes=classes, unit=unit)
        return Dygnn(
            w.hidden_dim,
            classes=classes,
            activation=w.activation,
            decay=w.decay,
            propagation=w.propagation,
            unit=unit,
        )
