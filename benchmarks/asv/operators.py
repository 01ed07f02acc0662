"""History of the operators: exact counts first, times beside them.

Counts are the same on every machine, so any change of one is a change of behaviour; times are for
the machine that keeps the history.
"""

from __future__ import annotations

import torch

from dgbench.kernels_cuda.aggregate import aggregate_parts, spmm
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.overlap import PartTopology
from dgbench.kernels_cuda.scan import gru_scan
from dgbench.kernels_cuda.slices import slice_csr
from dgbench.kernels_cuda.snapshots import edge_snapshots
from dgbench.kernels_cuda.variants.memory_model import gespmm_loads, partition_loads

NODES, EDGES, SNAPSHOTS = 4096, 40_000, 8


def snapshots() -> list[Csr]:
    """Eight power-law snapshots that keep about 90 % from one to the next, always the same."""
    draw = torch.Generator().manual_seed(1)
    u = torch.rand(2, EDGES, generator=draw)
    ends = ((u**2) * NODES).long().clamp(max=NODES - 1)
    births = torch.randint(0, SNAPSHOTS * 5, (EDGES,), generator=draw) // 5
    births[: EDGES * 9 // 10] = 0
    return edge_snapshots(ends[0], ends[1], births, SNAPSHOTS, NODES, edge_life=SNAPSHOTS)


class Aggregation:
    """Aggregation of a partition over feature length."""

    params = (2, 6, 16, 32)
    param_names = ("features",)

    def setup(self, features: int) -> None:
        torch.set_num_threads(1)
        self.csrs = snapshots()
        self.parts = PartTopology.build(self.csrs)
        draw = torch.Generator().manual_seed(2)
        self.x = torch.randn(NODES, SNAPSHOTS, features, generator=draw)
        self.scale = torch.ones(NODES, SNAPSHOTS)

    def time_partition(self, features: int) -> None:
        aggregate_parts(self.parts, self.x, self.scale, self.scale, self_loop=True)

    def time_snapshot(self, features: int) -> None:
        spmm(self.csrs[0], self.x[:, 0].contiguous())

    def track_transactions(self, features: int) -> int:
        return partition_loads(self.parts, features).transactions

    def track_gespmm_transactions(self, features: int) -> int:
        return sum(gespmm_loads(csr, features).transactions for csr in self.csrs)


class Formats:
    """Words of the formats and of a partition."""

    def setup(self) -> None:
        self.csrs = snapshots()

    def track_sliced_words(self) -> int:
        return sum(slice_csr(csr).words() for csr in self.csrs)

    def track_partition_words(self) -> int:
        return PartTopology.build(self.csrs).words()

    def time_extract(self) -> None:
        PartTopology.build(self.csrs)


class Recurrence:
    """The fused GRU over a frame."""

    def setup(self) -> None:
        torch.set_num_threads(1)
        draw = torch.Generator().manual_seed(3)
        self.x = torch.randn(16, 2000, 16, generator=draw)
        self.weights = [torch.randn(s, generator=draw) * 0.1 for s in ((16, 96), (32, 96), (96,))]

    def time_forward(self) -> None:
        with torch.no_grad():
            gru_scan(self.x, *self.weights)
