"""Small streams for the tests of what trains on them."""

from __future__ import annotations

import torch

from dgbench.datasets import EventStream, Origin
from dgbench.systems.base.stream import StreamData, StreamWorkload, stream_data

SIZES = {"node_dim": 3, "edge_dim": 2, "hidden_dim": 4, "time_dim": 4, "memory_dim": 4}


def tiny_events(
    events: int = 60, nodes: int = 8, *, bipartite: bool = False, seed: int = 1
) -> EventStream:
    """Random events with ties in time, repeated pairs and, unless bipartite, self edges."""
    draw = torch.Generator().manual_seed(seed)
    half = nodes // 2
    low, high = (half, nodes) if bipartite else (0, nodes)
    return EventStream.build(
        torch.randint(0, half if bipartite else nodes, (events,), generator=draw),
        torch.randint(low, high, (events,), generator=draw),
        torch.randint(0, max(1, events), (events,), generator=draw).sort().values.double() + 100,
        num_nodes=nodes,
        num_src=half if bipartite else None,
        origin=Origin("tiny"),
    )


def tiny_task(model: str = "tgn", **fields: object) -> StreamWorkload:
    """A workload of tiny widths; uniform and two hops but for TGN."""
    how: dict[str, object] = {"fanouts": (3,)}
    if model != "tgn":
        how = {"fanouts": (3, 2), "sampling": "uniform"}
    if model == "dysat":
        how |= {"window": 15.0, "snapshots": 2}
    return StreamWorkload(
        **{"dataset": "tiny", "model": model, "batch": 10, "lr": 1e-2, **SIZES, **how, **fields}  # type: ignore[arg-type]
    )


def tiny_stream(task: StreamWorkload, **shape: object) -> StreamData:
    """Its data."""
    return stream_data(tiny_events(**shape), task)  # type: ignore[arg-type]
