"""Small interactions for the tests of what trains on them."""

from __future__ import annotations

from typing import Any

from stream_tiny import tiny_events

from dgbench.datasets import EventStream
from dgbench.systems.base.interactions import InteractionData, InteractionWorkload, interaction_data


def tiny_interactions(**shape: Any) -> EventStream:
    """Tiny events of which the last vertex has none."""
    return tiny_events(**shape, lone=1)


def tiny_task(**fields: object) -> InteractionWorkload:
    """A workload of tiny widths."""
    return InteractionWorkload(
        **{"dataset": "tiny", "hidden_dim": 5, "batch": 10, "lr": 1e-2, **fields}
    )


def tiny_data(task: InteractionWorkload, **shape: Any) -> InteractionData:
    """Its data."""
    return interaction_data(tiny_interactions(**shape), task)
