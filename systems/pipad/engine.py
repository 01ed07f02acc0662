"""How PiPAD applies the normalised adjacency to a frame.

First-layer aggregation depends on no parameter, so its results are kept across frames and epochs
(inter-frame reuse, 4.4). Other aggregation runs over partitions: one call for all snapshots of a
partition over coalescent features (4.2), or one call per snapshot where merging cannot pay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from dgbench.kernels_cuda.aggregate import aggregate_parts
from dgbench.kernels_cuda.overlap import PartTopology
from dgbench.runtime.meter import Meter
from dgbench.systems.pipad.paper_kernel import SlicedAggregation, transposed
from dgbench.systems.pipad.partitions import Partition, Partitions, split
from dgbench.systems.pipad.snapshots import Snapshot, SnapshotAggregation

# Merging pays where a neighbour's row is shorter than a cache line, because reading all snapshots'
# rows together then saves lines, and where a partition's features are small, because then the
# number of calls is what costs. Elsewhere only index reads are saved, and a snapshot at a
# time keeps the working set small (docs/performance.md).
MERGE_UP_TO: Final = 8
"""Floats per vertex and snapshot."""
CACHE_BYTES: Final = 4 << 20


def merging_pays(snapshots: int, nodes: int, features: int) -> bool:
    """Whether a partition is aggregated in one call rather than a snapshot at a time."""
    return features <= MERGE_UP_TO or 4 * snapshots * nodes * features <= CACHE_BYTES


def _nnz(partition: Partition) -> int:
    parts = partition.parts
    return parts.over.nnz + sum(csr.nnz for csr in parts.exclusive)


class Engine:
    """Aggregation over frames, with every mechanism of section 4 behind a switch.

    Args:
        partitions: topology and scalings.
        switches: the system's techniques by name.
        s_per: snapshots in a partition.
        meter: exact counters go here.
    """

    def __init__(
        self, partitions: Partitions, switches: dict[str, bool], s_per: int, meter: Meter
    ) -> None:
        self.partitions = partitions
        self.sequence = partitions.sequence
        self.on = switches
        self.s_per = s_per
        self.meter = meter
        self._first: Tensor | None = None  # [T, N, F], aggregated raw features of all snapshots
        self._backward: dict[int, PartTopology] = {}
        self._resident: set[int] = set()  # snapshots whose aggregation the device holds

    def prepare(self) -> None:
        """Extract partitions, and with reuse aggregate every snapshot's raw features once."""
        if not self.on["reuse"]:
            return  # partitions are extracted as frames meet them
        kept = torch.empty_like(self.sequence.features, device=self.partitions.device)
        for times in split(range(len(self.sequence)), self._group()):
            kept[times.start : times.stop] = self._aggregate_raw(times)
        self._first = kept

    def raw(self, times: range) -> Tensor:
        """X_t of a frame, float32[W, N, F]."""
        return self.sequence.features[times.start : times.stop].to(self.partitions.device)

    def first(self, times: range) -> Tensor:
        """A-hat_t X_t of a frame, float32[W, N, F]; a view of kept results with reuse on."""
        if self._first is not None:
            self.meter.count("reused_aggregations", len(times))
            self._count_reused(times)
            return self._first[times.start : times.stop]
        groups = [self._aggregate_raw(group) for group in split(times, self._group())]
        return groups[0] if len(groups) == 1 else torch.cat(groups)

    def apply(self, times: range, h: Tensor) -> Tensor:
        """A-hat_t h_t of a frame, differentiable: float32[W, N, H] -> float32[W, N, H]."""
        groups = split(times, self._group())
        if self._merges(h):
            parts = h.split([len(group) for group in groups])
            done = [self._merged(g, x) for g, x in zip(groups, parts, strict=True)]
            return done[0] if len(done) == 1 else torch.cat(done)
        return SnapshotAggregation.apply(h, self._snapshots(groups))

    def _merges(self, h: Tensor) -> bool:
        if not self.on["parallel_aggregation"]:
            return False
        size = min(self.s_per, h.shape[0])
        return not self.on["dimension_aware"] or merging_pays(size, h.shape[1], h.shape[2])

    def _group(self) -> int:
        return self.s_per if self.on["parallel_aggregation"] or self.on["overlap"] else 1

    def _aggregate_raw(self, times: range) -> Tensor:
        features = self.sequence.features[times.start : times.stop]
        x = features.to(self.partitions.device, non_blocking=True)
        self.meter.count("bytes_h2d_counted", x.numel() * 4)
        if self._merges(x):
            return self._merged(times, x)
        return SnapshotAggregation.apply(x, self._snapshots([times]))

    def _merged(self, times: range, x: Tensor) -> Tensor:
        """All snapshots of a partition in one call over coalescent rows (3.3 and 4.2)."""
        part: Partition = self.partitions.partition(times)
        self._count_aggregation(1, _nnz(part), part.words)
        coalesced = x.transpose(0, 1).contiguous()  # [N, S, F]
        scales = part.row_scale, part.col_scale
        if self.on["slice_coalescing"]:
            y = SlicedAggregation.apply(coalesced, part.parts, self._transposed(part), *scales)
        else:
            y = aggregate_parts(part.parts, coalesced, *scales, self_loop=True)
        return y.transpose(0, 1)  # [S, N, F]

    def _transposed(self, part: Partition) -> PartTopology:
        key = id(part.parts)
        if key not in self._backward:
            self._backward[key] = transposed(part.parts)
        return self._backward[key]

    def _snapshots(self, groups: Sequence[range]) -> list[Snapshot]:
        """Every snapshot of the groups with its whole topology, counted as one call each."""
        found = []
        for group in groups:
            for t in group:
                snapshot = self.partitions.snapshot(t)
                self._count_aggregation(1, snapshot[0].nnz, self._words(group, t))
                found.append(snapshot)
        return found

    def _words(self, times: range, t: int) -> int:
        # With overlap-aware transfer the group's topology travels once, at its first snapshot.
        if self.on["overlap"]:
            return self.partitions.partition(times).words if t == times.start else 0
        return self.partitions.snapshot_words(t)

    def _count_aggregation(self, launches: int, nnz: int, words: int) -> None:
        self.meter.count("aggregations", launches)
        self.meter.count("edges_aggregated", nnz)
        self.meter.count("adjacency_bytes_counted", 4 * words)
        self.meter.count("bytes_h2d_counted", 4 * words)

    def _count_reused(self, times: range) -> None:
        # The device keeps the results that the next frame needs, so a steady frame at stride 1
        # brings one new snapshot; everything else is already there (4.4, full buffer).
        n, f = self.sequence.features.shape[1:]
        fresh = set(times) - self._resident
        self._resident = set(times)
        self.meter.count("bytes_h2d_counted", 4 * n * f * len(fresh))
