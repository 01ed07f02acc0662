"""Small streams for the tests of what trains on them."""

from __future__ import annotations

from functools import cache

import torch

from dgbench.datasets import EventStream, Origin
from dgbench.systems.base.stream import StreamData, StreamWorkload, stream_data

SIZES = {"node_dim": 3, "edge_dim": 2, "hidden_dim": 4, "time_dim": 4, "memory_dim": 4}


def tiny_events(
    events: int = 60, nodes: int = 8, *, bipartite: bool = False, seed: int = 1, lone: int = 0
) -> EventStream:
    """Random events with ties in time, repeated pairs and, unless bipartite, self edges; the last
    `lone` vertices have none."""
    draw = torch.Generator().manual_seed(seed)
    half = nodes // 2
    low, high = (half, nodes) if bipartite else (0, nodes)
    return EventStream.build(
        torch.randint(0, half if bipartite else nodes, (events,), generator=draw),
        torch.randint(low, high, (events,), generator=draw),
        torch.randint(0, max(1, events), (events,), generator=draw).sort().values.double() + 100,
        num_nodes=nodes + lone,
        num_src=half if bipartite else None,
        origin=Origin("tiny"),
    )


@cache
def witnessed_events(kind: str) -> EventStream:
    """61 events with repeated pairs, self loops and ties, on a graph or a bipartite one.

    Of `days` times are whole days of some events each, two longer than a batch; of `distinct` no
    two are equal, so that the last is a batch of its own; `gaps` leaves windows without events.
    """
    draw = torch.Generator().manual_seed(5)
    count, bipartite = 61, kind == "bipartite"
    src = torch.randint(0, 4 if bipartite else 8, (count,), generator=draw)
    dst = torch.randint(4 if bipartite else 0, 9, (count,), generator=draw)
    src[20:23], dst[20:23] = src[20].clone(), dst[20].clone()  # the same pair again
    if not bipartite:
        dst[[7, 30]] = src[[7, 30]]  # self loops
    t = torch.randint(0, 40, (count,), generator=draw).sort().values.double()
    if kind == "days":
        sizes = torch.tensor([6, 23, 4, 20, 8])
        t = torch.tensor([0, 1, 3, 4, 8]).repeat_interleave(sizes).double()
    if kind == "distinct":
        t = torch.arange(count).double() * 1.5
    if kind == "gaps":
        t = t + (torch.arange(count) >= 30) * 100
    return EventStream.build(
        src, dst, 1000 + t, num_nodes=9, num_src=4 if bipartite else None, origin=Origin("tiny")
    )


def listed(events: EventStream) -> list[tuple[int, int, float]]:
    """(source, destination, time) of each event."""
    return list(zip(events.src.tolist(), events.dst.tolist(), events.t.tolist(), strict=True))


def tiny_task(model: str = "tgn", **fields: object) -> StreamWorkload:
    """A workload of tiny widths; uniform and two hops but for TGN."""
    how: dict[str, object] = {"fanouts": (3,)}
    if model != "tgn":
        how = {"fanouts": (3, 2), "sampling": "uniform"}
    if model == "dysat":
        how |= {"window": 15.0, "snapshots": 2}
    return StreamWorkload(
        **{"dataset": "tiny", "model": model, "batch": 10, "lr": 1e-2, **SIZES, **how, **fields}
    )


def tiny_stream(task: StreamWorkload, **shape: object) -> StreamData:
    """Its data."""
    return stream_data(tiny_events(**shape), task)
