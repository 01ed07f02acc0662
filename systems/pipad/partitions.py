"""Partitions of consecutive snapshots: extracted once, kept for every frame that meets them.

Source: PiPAD 4.1, 4.3 and 4.4. Frames slide by one snapshot, so a snapshot meets different
neighbours in different frames and a partition may start anywhere.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from dgbench.datasets import SnapshotSequence
from dgbench.datasets.transforms import factors
from dgbench.kernels_cuda.aggregate.prepared import trust_parts
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.csr.check import check_csr
from dgbench.kernels_cuda.overlap import (
    EdgeTrace,
    Granularity,
    GroupCounts,
    PartTopology,
    check_granularity,
    split_unchecked,
)
from dgbench.kernels_cuda.slices import DEFAULT_CAP, slice_count
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.pipad.wire import PackedFrameTopology, pack, unpack

Form = Literal["parts", "wire"]
"""Storage form of an extracted group: ready for aggregation on the CPU, or as it is transferred."""


@dataclass(frozen=True, slots=True)
class SnapshotPartition:
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

    Raises:
        InvalidInputError: a cap below 1. A malformed snapshot is refused where it is first met.
    """

    def __init__(
        self,
        sequence: SnapshotSequence,
        *,
        norm: str,
        device: str = "cpu",
        sliced: bool = True,
        overlap: bool = True,
        granularity: Granularity = "edge",
        cap: int = DEFAULT_CAP,
    ) -> None:
        check_granularity(granularity)
        if cap < 1:
            raise InvalidInputError(f"cap is {cap}, allowed are values from 1")
        self.sequence = sequence
        self.device = torch.device(device)
        self.sliced = sliced
        self.overlap = overlap
        self.granularity = granularity
        self.cap = cap
        self._norm = norm
        self._lock = threading.Lock()
        self._trace: EdgeTrace | None = None
        self._counts: dict[range, GroupCounts] = {}
        self._factors: dict[int, tuple[Tensor, Tensor]] = {}
        self._kept: dict[range, SnapshotPartition] = {}
        # Under the identities of the snapshots: a static graph is one object in all of them.
        self._parts: dict[tuple[int, ...], PartTopology] = {}
        self._wires: dict[tuple[int, ...], PackedFrameTopology] = {}
        self._csrs: dict[int, Csr] = {}
        self._checked: set[int] = set()
        self._words: dict[int, int] = {}
        self._moved: dict[int, Csr] = {}

    def snapshot(self, t: int) -> tuple[Csr, Tensor, Tensor]:
        """One snapshot: topology, row_scale float32[N] and col_scale float32[N]."""
        csr = self._on_device(self.topology(t))
        row, col = self._factors_of(t)
        return csr, row, col

    def partition(self, times: range) -> SnapshotPartition:
        """The partition that covers `times`, on the device; extracted on first use."""
        found = self._kept.get(times)
        if found is None:
            parts = self._parts_on_device(times)
            scales = [self._factors_of(t) for t in times]
            found = SnapshotPartition(
                times=times,
                parts=parts,
                row_scale=torch.stack([row for row, _ in scales], dim=1),  # [N, S]
                col_scale=torch.stack([col for _, col in scales], dim=1),
                words=self._words_of(times, parts),
            )
            self._kept[times] = found
        return found

    def wire(self, times: range) -> PackedFrameTopology:
        """The topology of a group in the form that travels, on the CPU; packed on first use.

        It unpacks to a `PartTopology` of the group, but with `overlap` off a single snapshot
        unpacks to its `Csr`.
        """
        key = self._identity(times)
        found = self._wires.get(key)
        if found is None:
            topology: PartTopology | Csr | None
            if not self.overlap and len(times) == 1:
                topology = self.topology(times.start)
            else:
                topology = self._parts.get(key) if self.device.type == "cpu" else None
            found = pack(topology or self._split(times), sliced=self.sliced, cap=self.cap)
            self._wires[key] = found
        return found

    def wires(self, times: range) -> tuple[PackedFrameTopology, ...]:
        """Transfers of a group: one wire, or with `overlap` off one per snapshot."""
        if self.overlap:
            return (self.wire(times),)
        return tuple(self.wire(range(t, t + 1)) for t in times)

    def words(self, times: range) -> int:
        """Words that a transfer of the group moves: the sum over `wires(times)`."""
        if not self.overlap:
            return sum(self.snapshot_words(t) for t in times)
        if times in self._counts:
            return self._words_from(self._counts[times], len(times))
        if times in self._kept:
            return self._kept[times].words
        return self.wire(times).words

    def snapshot_words(self, t: int) -> int:
        """Words that one whole snapshot takes on the link, without values it does not have."""
        csr = self.topology(t)
        if id(csr) not in self._words:
            entries = csr.nnz if csr.values is None else 2 * csr.nnz
            head = 2 * slice_count(csr, self.cap) + 1 if self.sliced else csr.num_rows + 1
            self._words[id(csr)] = entries + head
        return self._words[id(csr)]

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

    # --- what the analyzer leaves here ------------------------------------------------------------

    def learn(self, trace: EdgeTrace | None, counts: Mapping[range, GroupCounts]) -> None:
        """Take over the analyzer's findings: exact counts, and the trace to extract groups from."""
        self._trace = trace
        self._counts.update(counts)

    def stored_bytes(self, times: range, form: Form) -> int:
        """Bytes that `store` would keep for a group whose counts are known."""
        size, counts = len(times), self._counts[times]
        if form == "wire":
            return 4 * self.words(times)
        offsets = 8 * (size + 1) * (self.sequence.num_nodes + 1)
        entries = counts.entries - (size - 1) * counts.shared
        return offsets + 4 * (entries + 1) + (4 * counts.entries if self._weighted() else 0)

    def store(self, times: range, form: Form) -> bool:
        """Extract a group and keep it as `parts` or `wire`; False where that was done before."""
        if form == "wire":
            groups = [times] if self.overlap else [range(t, t + 1) for t in times]
            fresh = [g for g in groups if self._identity(g) not in self._wires]
            for group in fresh:
                self.wire(group)
            return bool(fresh)
        key = self._identity(times)
        if key in self._parts:
            return False
        self._parts[key] = self._split(times)
        return True

    def retain(self, groups: Iterable[range]) -> None:
        """Forget what is kept of all other groups, as when a partition size was decided on."""
        groups = set(groups)
        single = (range(t, t + 1) for times in groups for t in times)
        keys = {self._identity(times) for times in (*groups, *single)}
        with self._lock:
            self._parts = {key: parts for key, parts in self._parts.items() if key in keys}
            self._wires = {key: wire for key, wire in self._wires.items() if key in keys}
            self._kept = {times: part for times, part in self._kept.items() if times in groups}

    # --- extraction -------------------------------------------------------------------------------

    def _identity(self, times: range) -> tuple[int, ...]:
        return tuple(id(self.topology(t)) for t in times)

    def _split(self, times: range) -> PartTopology:
        """Overlap and exclusive parts of a group on the CPU."""
        csrs = [self.topology(t) for t in times]
        if all(csr is csrs[0] for csr in csrs):
            return trust_parts(repeated(csrs[0], len(csrs)))
        trace = self._trace
        if trace is not None and len(times) <= trace.window:
            shared = self._counts[times].shared if times in self._counts else None
            return trust_parts(trace.split(times.start, len(times), shared))
        return trust_parts(split_unchecked(csrs, self.granularity, self.cap))

    def _parts_on_device(self, times: range) -> PartTopology:
        key = self._identity(times)
        parts = self._parts.get(key)
        if parts is None:
            parts = self._split(times)
            if self.device.type != "cpu":
                wire = pack(parts, sliced=self.sliced, cap=self.cap)
                arrived = unpack(wire.layout, [t.to(self.device) for t in wire.tensors])
                assert isinstance(arrived, PartTopology)  # what was packed is what comes out
                parts = arrived
            self._parts[key] = parts
        return parts

    def _words_of(self, times: range, parts: PartTopology) -> int:
        if not self.overlap or times in self._counts:
            return self.words(times)
        weighted = parts.over.values is not None
        return parts.words(sliced=self.sliced, with_values=weighted, cap=self.cap)

    def _words_from(self, counts: GroupCounts, size: int) -> int:
        """Words of S + 1 pieces: a shared entry is stored once, with a weight per snapshot."""
        entries = counts.entries - (size - 1) * counts.shared
        if self.sliced:
            head = 2 * counts.slices + size + 1
        else:
            head = (size + 1) * (self.sequence.num_nodes + 1)
        return entries + head + (counts.entries if self._weighted() else 0)

    def _weighted(self) -> bool:
        return self.topology(0).values is not None

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


def repeated(csr: Csr, size: int) -> PartTopology:
    """The parts of `size` snapshots that are one and the same matrix: nothing is exclusive."""
    values = None if csr.values is None else csr.values[:, None].expand(-1, size).contiguous()
    # An alias of the columns: what is remembered of a topology hangs on that tensor object.
    over = Csr(csr.indptr, csr.indices.view(-1), csr.num_cols, values)
    weightless = csr.values is None
    empty = Csr(
        torch.zeros_like(csr.indptr),
        csr.indices.new_empty(0),
        csr.num_cols,
        None if weightless else torch.empty(0),
    )
    return PartTopology(over, [empty] * size)


def on_device(csr: Csr, device: torch.device) -> Csr:
    """A copy of the matrix on another device."""
    values = None if csr.values is None else csr.values.to(device)
    return Csr(csr.indptr.to(device), csr.indices.to(device), csr.num_cols, values)
