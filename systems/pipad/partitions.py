"""Partitions of consecutive snapshots: extracted once, kept for every frame that meets them.

Source: PiPAD 4.1, 4.3 and 4.4. Frames slide by one snapshot, so a snapshot meets different
neighbours in different frames and a partition may start anywhere.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar

import torch
from torch import Tensor

from dgbench.datasets import SnapshotSequence
from dgbench.datasets.transforms import factors
from dgbench.kernels_cuda.aggregate.prepared import trust, trust_parts
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.csr.check import check_csr
from dgbench.kernels_cuda.overlap import (
    MAX_SNAPSHOTS,
    EdgeTrace,
    Granularity,
    GroupCounts,
    PartTopology,
    check_granularity,
    split_unchecked,
)
from dgbench.kernels_cuda.slices import DEFAULT_CAP, slice_count
from dgbench.runtime.errors import InvalidInputError
from dgbench.runtime.memory import available_memory
from dgbench.systems.pipad.kept import Identity, KeptGroups, Schedule
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


Kept: TypeAlias = SnapshotPartition | PackedFrameTopology | PartTopology | tuple[Tensor, Tensor]
T = TypeVar("T")


def split(times: range, size: int) -> list[range]:
    """Cut a frame into groups of at most `size` consecutive snapshots."""
    return [times[i : i + size] for i in range(0, len(times), size)]


class Partitions:
    """Extracts partitions on first use and keeps them; may be asked from several threads.

    What is kept has a budget in bytes: extracted groups with what products make of them and their
    scales, packed ones, also in the form that a link sends from, and the trace. Beyond it those
    stay that are needed soonest (`kept`), the others are extracted whenever they are asked for, and
    of these only the last, `MAX_SNAPSHOTS` snapshots together, stay for the frame that reads them.

    Args:
        sequence: the snapshots; topology on the CPU, columns strictly ascending in each row.
        norm: `sym` or `mean`.
        device: where the parts are wanted.
        sliced: words and wires as sliced CSR (PiPAD 4.1), otherwise as plain CSR.
        overlap: whether topology travels as overlap plus exclusive parts or snapshot by snapshot.
        granularity: `edge` or `slice`, the two readings of slice-grained extraction.
        cap: entries of a slice at most; the paper's value is 32.

    Attributes:
        keep_bytes: the budget on the host, and on the device where `device` is one; None: a quarter
            of the memory that is free when it is first asked.
        copies: times its own size that a topology takes beside itself once products were made of
            it: its lists by length, its transpose, and that one's.

    Raises:
        InvalidInputError: a cap below 1. A malformed snapshot is refused where it is first met.
    """

    keep_bytes: int | None = None
    copies = 0

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
        self.norm = norm
        self._lock = threading.Lock()
        self._recent: OrderedDict[range, SnapshotPartition] = OrderedDict()
        self._trace: EdgeTrace | None = None
        self._counts: dict[range, GroupCounts] = {}
        self._host = KeptGroups(self._host_limit)
        on_host = self.device.type == "cpu"
        self._there = self._host if on_host else KeptGroups(self._device_limit)
        self._device_bytes: int | None = None
        self._csrs: dict[int, Csr] = {}
        self._checked: set[int] = set()
        self._words: dict[int, int] = {}
        self._wire_words: dict[range, int] = {}

    def snapshot(self, t: int) -> tuple[Csr, Tensor, Tensor]:
        """One snapshot: topology, row_scale float32[N] and col_scale float32[N]."""
        identity = self.identity(range(t, t + 1))
        csr = self._there.get(identity, "snapshot")
        if csr is None:
            csr = self.topology(t)
            if self.device.type == "cpu":
                # An alias of the columns: what is remembered of a topology hangs on that tensor
                # object, and goes with it. The topology itself is the dataset's.
                csr = trust(Csr(csr.indptr, csr.indices.view(-1), csr.num_cols, csr.values))
                nbytes = self.copies * _csr_bytes(csr)
            else:
                csr = on_device(csr, self.device)
                nbytes = (1 + self.copies) * _csr_bytes(csr)
            self._there.put(identity, "snapshot", csr, nbytes)
        row, col = self._factors_of(t)
        return csr, row, col

    def partition(self, times: range) -> SnapshotPartition:
        """The partition that covers `times`, on the device; extracted on first use."""
        identity = self.identity(times)
        found = self._there.get(identity, ("partition", times)) or self._recent.get(times)
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
            kept = self._there.get(identity, "parts") is parts and self._there.put(
                identity, ("partition", times), found, _nbytes(found), made=False
            )
            if not kept:
                self._recent[times] = found
                while sum(map(len, self._recent)) > max(MAX_SNAPSHOTS, len(times)):
                    self._recent.popitem(last=False)
        return found

    def derived(
        self,
        kind: str,
        times: range,
        make: Callable[[], T],
        size: Callable[[T], int],
        *,
        whole: bool = False,
    ) -> T:
        """Form that a kernel makes of a partition or (`whole`) of a snapshot, such as slices of its
        transpose; kept where the budget has room for `size` bytes of it."""
        key, identity = (kind, whole), self.identity(times)
        found = self._there.get(identity, key)
        if found is None:
            found = make()
            self._there.put(identity, key, found, size(found), made=False)
        return found

    def keeps(self, times: range, *, whole: bool = False) -> bool:
        """Return True if a partition (or, `whole`, every snapshot of it) is made once for all."""
        if not whole:
            return self._there.get(self.identity(times), ("partition", times)) is not None
        single = [self.identity(range(t, t + 1)) for t in times]
        return all(
            self._there.get(one, key) is not None
            for one in single
            for key in ("factors", "snapshot")
        )

    def wire(self, times: range) -> PackedFrameTopology:
        """The topology of a group in the form that travels, on the CPU; packed on first use.

        It unpacks to a `PartTopology` of the group, but with `overlap` off a single snapshot
        unpacks to its `Csr`.
        """
        key = self.identity(times)
        found = self._host.get(key, "wire")
        if found is None:
            topology: PartTopology | Csr | None
            if not self.overlap and len(times) == 1:
                topology = self.topology(times.start)
            else:
                topology = self._host.get(key, "parts") if self.device.type == "cpu" else None
            found = pack(topology or self._split(times), sliced=self.sliced, cap=self.cap)
            self._wire_words[times] = found.words
            self._host.put(key, "wire", found, found.nbytes)
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
        if found := self._there.get(self.identity(times), ("partition", times)):
            return found.words
        return self._wire_words.get(times) or self.wire(times).words

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

    # --- the budget -------------------------------------------------------------------------------

    @property
    def kept_bytes(self) -> int:
        """Bytes of the host's budget that are used."""
        return self._host.nbytes

    @property
    def device_bytes(self) -> int:
        """Bytes of the device's budget that are used; the host's where they are one."""
        return self._there.nbytes

    def follow(self, schedule: Schedule | None) -> None:
        """From now on keep what is needed soonest by this order; None: what came first."""
        self._host.schedule = self._there.schedule = schedule

    def watch(self, on_evict: Callable[[Identity], None], on_rebuilt: Callable[[], None]) -> None:
        """Say whom to tell of groups that go, and of each that is extracted again."""
        for kept in (self._host, self._there):
            kept.on_evict, kept.on_rebuilt = on_evict, on_rebuilt

    def admit(self, nbytes: int) -> bool:
        """Take bytes out of the host's budget for something that stays; False where they do not
        fit."""
        return self._host.admit(nbytes)

    def staged(self, times: range, key: Any) -> Any:
        """Value that `stage` kept of a group, or None."""
        return self._host.get(self.identity(times), ("staged", key))

    def stage(self, times: range, key: Any, value: Any, nbytes: int) -> bool:
        """Keep a group in the form that a link sends from, such as in pinned memory; False where
        the budget has no room."""
        return self._host.put(self.identity(times), ("staged", key), value, nbytes, made=False)

    def drop_staged(self) -> None:
        """Forget all that `stage` kept."""
        self._host.drop(lambda _, key: isinstance(key, tuple) and key[0] == "staged")

    @property
    def budget(self) -> int:
        """Bytes that may be kept on the host."""
        return self._host_limit()

    def _host_limit(self) -> int:
        if self.keep_bytes is None:
            self.keep_bytes = available_memory() // 4
        return self.keep_bytes

    def _device_limit(self) -> int:
        if self.keep_bytes is not None:
            return self.keep_bytes
        if self._device_bytes is None:
            self._device_bytes = torch.cuda.mem_get_info(self.device)[0] // 4
        return self._device_bytes

    # --- what the analyzer leaves here ------------------------------------------------------------

    def learn(self, trace: EdgeTrace | None, counts: Mapping[range, GroupCounts]) -> None:
        """Take over the analyzer's findings: exact counts, and the trace to extract groups from,
        whose bytes were admitted."""
        self._trace = trace
        self._counts.update(counts)

    def stored_bytes(self, times: range, form: Form) -> int:
        """Bytes of a group whose counts are known in a form, without what products make of it."""
        size, counts = len(times), self._counts[times]
        if form == "wire":
            return 4 * self.words(times)
        offsets = 8 * (size + 1) * (self.sequence.num_nodes + 1)
        entries = counts.entries - (size - 1) * counts.shared
        return offsets + 4 * (entries + 1) + (4 * counts.entries if self._weighted() else 0)

    def store(self, times: range, form: Form) -> bool:
        """Extract a group and keep it as `parts` or `wire`; False where that was done before, or
        where the budget has no room for it."""
        needed = self.stored_bytes(times, form) * (1 + (self.copies if form == "parts" else 0))
        if self.kept_bytes + needed > self.budget:
            return False

        def kept(group: range) -> bool:
            place = self._host if form == "wire" else self._there
            return place.get(self.identity(group), form) is not None

        if form == "wire":
            groups = [times] if self.overlap else [range(t, t + 1) for t in times]
            fresh = [group for group in groups if not kept(group)]
            for group in fresh:
                self.wire(group)
            return bool(fresh) and all(kept(group) for group in fresh)
        if kept(times):
            return False
        self._parts_on_device(times)
        return kept(times)

    def retain(self, groups: Iterable[range]) -> None:
        """Forget what is kept of all other groups, as when a partition size was decided on."""
        groups = set(groups)
        single = (range(t, t + 1) for times in groups for t in times)
        keys = {self.identity(times) for times in (*groups, *single)}

        def unwanted(identity: Identity, key: Any) -> bool:
            if isinstance(key, tuple) and key[0] == "partition":
                return key[1] not in groups
            return identity not in keys

        for kept in (self._host, self._there):
            kept.drop(unwanted)
        self._recent.clear()

    def drop_wires(self, times: range) -> None:
        """Forget the packed form of a group, of which whoever sends it has a copy."""
        groups = [times] if self.overlap else [range(t, t + 1) for t in times]
        dropped = {self.identity(group) for group in groups}
        self._host.drop(
            lambda identity, key: key == "wire" and identity in dropped, again=self.overlap
        )

    # --- extraction -------------------------------------------------------------------------------

    def identity(self, times: range) -> Identity:
        """Key of the snapshots of a group; groups of one static matrix have the same."""
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
        key = self.identity(times)
        parts = self._there.get(key, "parts")
        if parts is None:
            parts = self._split(times)
            if self.device.type != "cpu":
                wire = pack(parts, sliced=self.sliced, cap=self.cap)
                arrived = unpack(wire.layout, [t.to(self.device) for t in wire.tensors])
                assert isinstance(arrived, PartTopology)  # what was packed is what comes out
                parts = arrived
            self._there.put(key, "parts", parts, (1 + self.copies) * _nbytes(parts))
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
        identity = self.identity(range(t, t + 1))
        found = self._there.get(identity, "factors")
        if found is None:
            row, col = factors(self.topology(t), self.norm)
            found = row.to(self.device), col.to(self.device)
            self._there.put(identity, "factors", found, _nbytes(found), made=False)
        return found


def _nbytes(kept: Kept) -> int:
    """Bytes of the arrays of what is kept; of a partition those beside its parts."""
    if isinstance(kept, SnapshotPartition):
        return kept.row_scale.nbytes + kept.col_scale.nbytes
    if isinstance(kept, PackedFrameTopology):
        return kept.nbytes
    if isinstance(kept, tuple):
        return sum(one.nbytes for one in kept)
    # One place of scratch lies behind the columns of a group.
    return 4 + sum(_csr_bytes(csr) for csr in (kept.over, *kept.exclusive))


def _csr_bytes(csr: Csr) -> int:
    arrays = (csr.indptr, csr.indices, csr.values)
    return sum(array.nbytes for array in arrays if array is not None)


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
