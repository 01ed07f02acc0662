"""Partitions of consecutive snapshots: extracted once, kept for every frame that meets them.

Source: PiPAD 4.1, 4.3 and 4.4. Frames slide by one snapshot, so a snapshot meets different
neighbours in different frames and a partition may start anywhere.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dgbench.datasets import SnapshotSequence
from dgbench.datasets.transforms import factors
from dgbench.kernels_cuda._prepared import trust_parts
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.csr_check import check_csr
from dgbench.kernels_cuda.overlap import PartTopology, split_unchecked
from dgbench.kernels_cuda.slices import DEFAULT_CAP, csr_words, slice_count
from dgbench.systems.pipad.wire import Wire, pack


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
    """Extracts partitions on first use and keeps them; may be asked from several threads.

    Args:
        sequence: the snapshots; topology on the CPU, columns strictly ascending in each row.
        norm: `sym` or `mean`.
        device: where the parts are wanted.
        sliced: words and wires as sliced CSR (PiPAD 4.1), otherwise as plain CSR.
        overlap: whether topology travels as overlap plus exclusive parts or snapshot by snapshot.
        granularity: `edge` or `slice`, the two readings of slice-grained extraction.
        cap: entries of a slice at most; the paper's value is 32.
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
        cap: int = DEFAULT_CAP,
    ) -> None:
        self.sequence = sequence
        self.device = torch.device(device)
        self.sliced = sliced
        self.overlap = overlap
        self.granularity = granularity
        self.cap = cap
        self._norm = norm
        self._lock = threading.RLock()
        self._factors: dict[int, tuple[Tensor, Tensor]] = {}
        self._kept: dict[range, Partition] = {}
        self._wires: dict[tuple[int, ...], Wire] = {}
        self._parts: dict[tuple[int, ...], PartTopology] = {}
        self._csrs: dict[int, Csr] = {}
        self._checked: set[int] = set()
        self._words: dict[int, int] = {}
        self._moved: dict[int, Csr] = {}

    def snapshot(self, t: int) -> tuple[Csr, Tensor, Tensor]:
        """One snapshot: topology, row_scale float32[N] and col_scale float32[N]."""
        csr = self._on_device(self.topology(t))
        row, col = self._factors_of(t)
        return csr, row, col

    def partition(self, times: range) -> Partition:
        """The partition that covers `times`, on the device; extracted on first use."""
        found = self._kept.get(times)
        if found is None:
            parts = self._extract(times)
            scales = [self._factors_of(t) for t in times]
            found = Partition(
                times=times,
                parts=parts,
                row_scale=torch.stack([row for row, _ in scales], dim=1),  # [N, S]
                col_scale=torch.stack([col for _, col in scales], dim=1),
                words=self._words_of(times, parts),
            )
            self._kept[times] = found
        return found

    def wire(self, times: range) -> Wire:
        """The topology of a group in the form that travels, on the CPU; packed on first use.

        With `overlap` on, or for more than one snapshot, the wire unpacks to a `PartTopology` of
        the group; with `overlap` off a single snapshot unpacks to its `Csr`.
        """
        key = (*(id(self.topology(t)) for t in times), int(self._travels_whole(times)))
        found = self._wires.get(key)
        if found is None:
            if self._travels_whole(times):
                found = pack(self.topology(times.start), sliced=self.sliced, cap=self.cap)
            else:
                found = pack(self._split(times), sliced=self.sliced, cap=self.cap)
            self._wires[key] = found
        return found

    def wires(self, times: range) -> tuple[Wire, ...]:
        """What a transfer of a group sends: one wire, or with `overlap` off one per snapshot."""
        if self.overlap:
            return (self.wire(times),)
        return tuple(self.wire(range(t, t + 1)) for t in times)

    def words(self, times: range) -> int:
        """Words that a transfer of the group moves; the sum over `wires(times)`."""
        if not self.overlap:
            return sum(self.snapshot_words(t) for t in times)
        return self.partition(times).words

    def snapshot_words(self, t: int) -> int:
        """Words that one whole snapshot takes on the link, without values it does not have."""
        csr = self.topology(t)
        if id(csr) not in self._words:
            weighted = csr.values is not None
            if self.sliced:
                slices = slice_count(csr, self.cap)
                words = (2 if weighted else 1) * csr.nnz + 2 * slices + 1
            else:
                words = csr_words(csr, with_values=weighted)
            self._words[id(csr)] = words
        return self._words[id(csr)]

    def extract(self, times: Sequence[range]) -> None:
        """Extract every given partition now (PiPAD does this in its preparing epochs)."""
        for group in times:
            self.partition(group)

    def topology(self, t: int) -> Csr:
        """Snapshot t on the CPU, checked once."""
        csr = self._csrs.get(t)
        if csr is None:
            with self._lock:
                # Kept, so that an object's identity stands for its content as long as this lives.
                csr = self._csrs.setdefault(t, self.sequence.topology[t])
                if id(csr) not in self._checked:
                    check_csr(csr, f"snapshot {t}", ascending=True)
                    self._checked.add(id(csr))
        return csr

    def _travels_whole(self, times: range) -> bool:
        return not self.overlap and len(times) == 1

    def _split(self, times: range) -> PartTopology:
        """Overlap and exclusive parts on the CPU, not kept."""
        csrs = [self.topology(t) for t in times]
        return trust_parts(split_unchecked(csrs, self.granularity, self.cap))

    def _extract(self, times: range) -> PartTopology:
        # A static graph is one object in all snapshots: every group of it has the same parts.
        csrs = [self.topology(t) for t in times]
        key = tuple(id(csr) for csr in csrs)
        if key not in self._parts:
            moved = [self._on_device(csr) for csr in csrs]
            self._parts[key] = trust_parts(split_unchecked(moved, self.granularity, self.cap))
        return self._parts[key]

    def _words_of(self, times: range, parts: PartTopology) -> int:
        if not self.overlap:
            return sum(self.snapshot_words(t) for t in times)
        weighted = parts.over.values is not None
        return parts.words(sliced=self.sliced, with_values=weighted, cap=self.cap)

    def _factors_of(self, t: int) -> tuple[Tensor, Tensor]:
        if t not in self._factors:
            row, col = factors(self.topology(t), self._norm)
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
