"""Interface of a system to the stream trainer: a growing graph and its features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor

from dgbench.models.ctdg import SampledHop

if TYPE_CHECKING:
    from dgbench.systems.base.stream_data import StreamWorkload


class GraphAccess(Protocol):
    """A growing graph and its features, as a system keeps them.

    It is made from a `StreamWorkload`, which says how it samples, and from `StreamData`.
    """

    def insert(self, first: int, last: int) -> None:
        """Take in events first .. last - 1 of the data; calls come in the order of time."""

    def sample(
        self, nodes: Tensor, times: Tensor, *, draw: int, positions: Tensor | None = None
    ) -> Sequence[Sequence[SampledHop]]:
        """Temporal neighbourhoods of roots, [snapshot][hop], of the events taken in so far.

        Args:
            nodes, times: int64[R], float64[R].
            draw: number of the call in [0, 2**32); the same number gives the same neighbours.
            positions: int64[R], places of the roots in the whole batch; 0 .. R - 1 by default.
        """

    def node_features(self, ids: Tensor) -> Tensor:
        """float32[n, node_dim] of vertices int64[n]; asked only where `node_dim` is not 0."""

    def edge_features(self, eids: Tensor) -> Tensor:
        """float32[n, edge_dim] of edges int64[n]; asked only where `edge_dim` is not 0."""


def sampling_of(task: StreamWorkload) -> dict[str, Any]:
    """Draws of a workload, as arguments of every sampler of hops but its fan-outs."""
    return {
        "policy": task.sampling,
        "window": task.window,
        "snapshots": task.snapshots,
        "prop_time": task.root_times,
        "closed": task.closed,
        "seed": task.seed,
    }
