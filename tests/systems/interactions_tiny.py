"""Small interactions for the tests of what trains on them."""

from __future__ import annotations

import torch

from dgbench.datasets import EventStream, Origin
from dgbench.systems.base.interactions import InteractionData, InteractionWorkload, interaction_data


def tiny_interactions(
    events: int = 60, nodes: int = 8, *, bipartite: bool = False, seed: int = 1
) -> EventStream:
    """Random events with ties in time, repeated pairs, an isolated vertex and self edges."""
    draw = torch.Generator().manual_seed(seed)
    half = nodes // 2
    low, high = (half, nodes) if bipartite else (0, nodes)
    return EventStream.build(
        torch.randint(0, half if bipartite else nodes, (events,), generator=draw),
        torch.randint(low, high, (events,), generator=draw),
        torch.randint(0, max(1, events), (events,), generator=draw).sort().values.double() + 100,
        num_nodes=nodes + 1,
        num_src=half if bipartite else None,
        origin=Origin("tiny"),
    )


def tiny_task(**fields: object) -> InteractionWorkload:
    """A workload of tiny widths."""
    return InteractionWorkload(
        **{"dataset": "tiny", "hidden_dim": 5, "batch": 10, "lr": 1e-2, **fields}  # type: ignore[arg-type]
    )


def tiny_data(task: InteractionWorkload, **shape: object) -> InteractionData:
    """Its data."""
    return interaction_data(tiny_interactions(**shape), task)  # type: ignore[arg-type]
