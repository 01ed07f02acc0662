"""Partitions of consecutive snapshots: extracted once, kept for every frame that meets them.

Source: PiPAD 4.1, 4.3 and 4.4. Frames slide by one snapshot, so a snapshot meets different
neighbours in different frames and a partition may start anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dgbench.datasets import SnapshotSequence
from dgbench.datasets.transforms import factors
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.overlap import PartTopology
from dgbench.kernels_cuda.slices import csr_words, slice_csr


@dataclass(frozen=True, slots=True)
class Partition:
    """A group of S snapshots ready for aggregation.

    Attributes:
        times: the snapshots it covers.
        parts: overlap and exclusive topology.
        row_scale, col_scale: float32[N, S], the factored normalisation of each snapshot.
        words: 4-byte words of topology that a transfer of this partition moves.
    """

    times: range
    parts: PartTopology
    row_scale: Tensor
    col_scale: Tensor
    words: int


def split(times: range, size: int) -> list[range]:
    """Cut a frame into groups of at most `size` consecutive snapshots."""
    return [times[i : i + size] for i in range(0, len(times), size)]


class Partitions:
    """Extracts partitions on first use and keeps them.

    Args:
        sequence: the snapshots; topology on the CPU.
        norm: `sym` or `mean`.
        device: where the parts are wanted.
        sliced: count words as sliced CSR (PiPAD 4.1) or as plain CSR.
        overlap: whether topology travels as overlap plus exclusive parts or snapshot by snapshot.
        granularity: `edge` or `slice`, the two readings of slice-grained extraction.
    """

    def __init__(
        self,
        sequence: SnapshotSequence,
        *,
        norm: str,
        device: str = "cpu",
        sliced: bool = True,
        overlap: bool = True,
        granularity: str = "edge",
    ) -> None:
        self.sequence = sequence
        self.device = torch.device(device)
        self._sliced = sliced
        self._overlap = overlap
        self._granularity = granularity
        self._norm = norm
        self._factors: dict[int, tuple[Tensor, Tensor]] = {}
        self._kept: dict[range, Partition] = {}
        self._parts: dict[tuple[int, ...], PartTopology] = {}
        self._csrs: dict[int, Csr] = {}
        self._words: dict[int, int] = {}
        self._moved: dict[int, Csr] = {}

    def snapshot(self, t: int) -> tuple[Csr, Tensor, Tensor]:
        """One snapshot: topology, row_scale float32[N] and col_scale float32[N]."""
        csr = self._on_device(self._csr(t))
        row, col = self._factors_of(t)
        return csr, row, col

    def partition(self, times: range) -> Partition:
        """The partition that covers `times`; extracted on first use."""
        if times not in self._kept:
            csrs = [self._on_device(self._csr(t)) for t in times]
            parts = self._extract(csrs)
            if self._overlap:
                words = parts.words(sliced=self._sliced, with_values=csrs[0].values is not None)
            else:
                words = sum(self.snapshot_words(t) for t in times)
            scales = [self._factors_of(t) for t in times]
            self._kept[times] = Partition(
                times=times,
                parts=parts,
                row_scale=torch.stack([row for row, _ in scales], dim=1),  # [N, S]
                col_scale=torch.stack([col for _, col in scales], dim=1),
                words=words,
            )
        return self._kept[times]

    def _extract(self, csrs: list[Csr]) -> PartTopology:
        # A static graph is one object in all snapshots: every group of it has the same parts.
        key = tuple(id(csr) for csr in csrs)
        if key not in self._parts:
            self._parts[key] = PartTopology.build(csrs, granularity=self._granularity)
        return self._parts[key]

    def snapshot_words(self, t: int) -> int:
        """Words that one whole snapshot takes on the link, without values it does not have."""
        csr = self._csr(t)
        if id(csr) not in self._words:
            weighted = csr.values is not None
            self._words[id(csr)] = (
                slice_csr(csr).words(with_values=weighted)
                if self._sliced
                else csr_words(csr, with_values=weighted)
            )
        return self._words[id(csr)]

    def extract(self, times: Sequence[range]) -> None:
        """Extract every given partition now (PiPAD does this in its preparing epochs)."""
        for group in times:
            self.partition(group)

    def _csr(self, t: int) -> Csr:
        # Kept, so that an object's identity stands for its content as long as this lives.
        if t not in self._csrs:
            self._csrs[t] = self.sequence.topology[t]
        return self._csrs[t]

    def _factors_of(self, t: int) -> tuple[Tensor, Tensor]:
        if t not in self._factors:
            row, col = factors(self._csr(t), self._norm)
            self._factors[t] = (row.to(self.device), col.to(self.device))
        return self._factors[t]

    def _on_device(self, csr: Csr) -> Csr:
        if self.device.type == "cpu":
            return csr
        if id(csr) not in self._moved:
            self._moved[id(csr)] = on_device(csr, self.device)
        return self._moved[id(csr)]


def on_device(csr: Csr, device: torch.device) -> Csr:
    """A copy of the matrix on another device."""
    values = None if csr.values is None else csr.values.to(device)
    return Csr(csr.indptr.to(device), csr.indices.to(device), csr.num_cols, values)
