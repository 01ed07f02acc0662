"""The reference of training on streams: sorted arrays, a slow sampler, plain gathers."""

from __future__ import annotations

from torch import Tensor

from dgbench.kernels_cuda.temporal_sample import Sample
from dgbench.systems.base.plain_sampler import PlainGraph, plain_hops
from dgbench.systems.base.stream_data import StreamData, StreamWorkload


class PlainStream:
    """A `GraphAccess` whose every step can be read off: what exact systems are compared with.

    Args:
        workload: says how to sample; its seed is that of the samples.
        data: the events and their features.
    """

    def __init__(self, workload: StreamWorkload, data: StreamData) -> None:
        self.workload, self.data = workload, data
        self.graph = PlainGraph(data.events.num_nodes, undirected=workload.undirected)

    def insert(self, first: int, last: int) -> None:
        """Add events first .. last - 1 and sort everything again."""
        new = self.data.events.select(first, last)
        self.graph.insert(new.src, new.dst, new.t, new.eid)

    def sample(
        self, nodes: Tensor, times: Tensor, *, draw: int, positions: Tensor | None = None
    ) -> list[list[Sample]]:
        """As of every `GraphAccess`, root after root."""
        w = self.workload
        return plain_hops(
            self.graph, nodes, times, w.fanouts, snapshots=w.snapshots, window=w.window,
            prop_time=w.root_times, positions=positions, policy=w.sampling, closed=w.closed,
            seed=w.seed, draw=draw,
        )  # fmt: skip

    def node_features(self, ids: Tensor) -> Tensor:
        """float32[n, node_dim]."""
        return self.data.node_feat.index_select(0, ids)

    def edge_features(self, eids: Tensor) -> Tensor:
        """float32[n, edge_dim]."""
        return self.data.edge_feat.index_select(0, eids)
