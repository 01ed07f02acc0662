"""Application of the normalised adjacency to a frame.

First-layer aggregation depends on no parameter, so its results are kept across frames and epochs
(inter-frame reuse, 4.4). Other aggregation runs over partitions: one call for all snapshots of a
partition over coalescent features (4.2), or one call per snapshot where merging cannot pay.

`Engine` is for a CPU that computes where the data lie: nothing is copied, and what a device would
be sent is counted by the formulas. `device_engine.DeviceEngine` sends it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from dgbench.kernels_cuda.aggregate import ORDERED_WIDTH
from dgbench.kernels_cuda.aggregate.prepared import prepare, prepare_parts
from dgbench.kernels_cuda.steps import FrameProduct
from dgbench.runtime.meter import Meter
from dgbench.systems.pipad.buffers import DeviceBuffer, HostStore
from dgbench.systems.pipad.kept import Identity, KeptGroups, Schedule
from dgbench.systems.pipad.kernels import (
    ProductKernel,
    Turn,
    placed_kernel,
    product_turn,
    turn_of,
)
from dgbench.systems.pipad.partitions import Partitions, split
from dgbench.systems.pipad.products import KeptProduct, product_of

# Ours, for a CPU alone (switch `cache_rule`): the paper merges all snapshots of a partition. There
# merging pays where a neighbour's row is shorter than a cache line, because reading all snapshots'
# rows together then saves lines, and where a partition's features are small, because then the
# number of calls is what costs. Elsewhere only index reads are saved, and a snapshot at a
# time keeps the working set small (docs/performance-log.md).
MERGE_UP_TO: Final = 8
"""Floats per vertex and snapshot."""
CACHE_BYTES: Final = 4 << 20


def merging_pays(snapshots: int, nodes: int, features: int) -> bool:
    """Return True if one call for a partition is faster on a CPU than a snapshot at a time."""
    return features <= MERGE_UP_TO or 4 * snapshots * nodes * features <= CACHE_BYTES


class Engine:
    """Aggregation over frames, with every mechanism of section 4 behind a switch.

    `first` begins a frame; `apply` and `raw` belong to the frame begun last.

    Args:
        partitions: topology and scalings.
        switches: the system's techniques by name.
        meter: exact counters go here.
        s_per: snapshots in a partition where nothing was decided.
        following: a frame's snapshots -> those of the frame that is trained on after it.
        uses_raw: whether the model also reads raw features (the skip part of MPNN-LSTM).
        device: where the model computes; where the partitions are by default.

    Attributes:
        resident_limit: bytes of topology that may stay on the device.
        in_order: frames come one after the other as in training, so the next one is known.
        single: one snapshot at a time, as in the preparing epochs (4.3).
        store: first-layer aggregation of all snapshots, or None without reuse.
        buffer: what of it the device holds from frame to frame.
        kernel: what aggregates.
        decided: first snapshot of a frame -> snapshots in its partitions.
        allowed: first snapshot of a frame -> bytes of the buffer that it may leave behind.
    """

    copies = False

    def __init__(
        self,
        partitions: Partitions,
        switches: Mapping[str, bool],
        meter: Meter,
        *,
        s_per: int,
        following: Callable[[range], range | None],
        uses_raw: bool = False,
        device: torch.device | None = None,
    ) -> None:
        self.partitions = partitions
        self.sequence = partitions.sequence
        self.on = switches
        self.s_per = s_per
        self.meter = meter
        self.following = following
        self.uses_raw = uses_raw
        self.device = partitions.device if device is None else device
        self.in_order = False
        self.resident_limit = sys.maxsize
        self.single = False
        self.kernel = self._kernel()
        self.decided: dict[int, int] = {}
        self.allowed: dict[int, int] = {}
        snapshots, nodes, features = self.sequence.features.shape
        self.store: HostStore | None = None
        if switches["reuse"]:
            self.store = HostStore(snapshots, nodes, features, stage=self._stage)
        self.buffer = DeviceBuffer(
            nodes,
            features,
            device=self.device,
            capacity=4 * snapshots * nodes * features if switches["device_buffer"] else 0,
            holds=self.copies,
        )
        self._products: dict[int, KeptProduct] = {}  # by the frame's first snapshot
        self._product_of: dict[Identity, set[int]] = {}  # frames whose product reads a group
        self._product: tuple[int, KeptProduct] | None = None  # of a frame that is not kept
        self._resident = KeptGroups(lambda: self.resident_limit)  # topology on the device
        self.schedule: Schedule | None = None
        partitions.copies = self.kernel.copies
        partitions.watch(self._forget_products, lambda: meter.count("rebuilt_groups"))
        self._here = False  # whether the frame's topology was sent already

    # --- preparation ------------------------------------------------------------------------------

    def aggregate_all(self) -> None:
        """Fill the store: aggregate every snapshot's raw features, one at a time (4.3)."""
        if self.store is None:
            return
        for t in self.store.missing(range(len(self.sequence))):
            self.store.put(t, self._aggregate_raw(range(t, t + 1), [range(t, t + 1)])[0])

    def plan(self, frames: Sequence[range], stride: int) -> None:
        """Say in which order frames will need their groups, so that those stay that come soonest.

        Args:
            frames: snapshots of every frame, in the order of training.
            stride: how far frames slide.
        """
        identity = self.partitions.identity
        self.schedule = Schedule.of(frames, stride, self.groups, identity)
        self.partitions.follow(self.schedule)
        self._resident.schedule = self.schedule

    def settle(self, frames: Sequence[range], widths: Sequence[int]) -> None:
        """Make what the products of steady frames need beside the topology, once and for all.

        Otherwise every partition's first two visits would be slower than the rest, and with frames
        that slide by one a partition is visited once an epoch.

        Args:
            frames: snapshots of every frame.
            widths: floats per vertex of each aggregation of a step.
        """
        self._products.clear()  # those of the preparing epochs
        self._product_of.clear()
        self._product = None
        nodes = self.sequence.features.shape[1]
        todo: dict[tuple[range, bool, bool], bool] = {}
        for times in frames:
            groups = self.groups(times)
            for place, width in enumerate(widths):
                merged = self.merges(len(groups[0]), nodes, width)
                for group in groups if merged else [range(t, t + 1) for t in times]:
                    key = group, merged, len(group) * width <= ORDERED_WIDTH
                    # Raw features want no gradient: the first width where nothing is kept.
                    todo[key] = todo.get(key, False) or self.store is not None or place > 0
        for (group, merged, ordered), backward in todo.items():
            if merged:
                parts = self.partitions.partition(group).parts
            else:
                csr = self.partitions.snapshot(group.start)[0]
            if not self.partitions.keeps(group, whole=not merged):
                continue  # made when it is met, and not kept either
            if self.kernel.settle(self.partitions, group, together=merged):
                continue
            if merged:
                prepare_parts(parts).settle(parts.over, ordered, backward=backward)
            else:
                prepare(csr).settle(csr, ordered, backward=backward)

    def forget(self) -> None:
        """Begin anew with what a device holds, as after a change of plans."""
        self.buffer.forget()

    def retain(self, groups: Iterable[range]) -> None:
        """Forget what is kept of all other groups, as when a partition size was decided on."""
        self.partitions.retain(groups)

    def finish(self) -> None:
        """A step is over: what was sent for its frame is not read any more."""

    def close(self) -> None:
        """Release what was taken."""
        self.buffer.close()
        self._products.clear()
        self._product = None
        self._resident = KeptGroups(lambda: self.resident_limit)

    # --- what the models ask for ------------------------------------------------------------------

    def first(self, times: range) -> Tensor:
        """A-hat_t X_t of a frame, float32[W, N, F]; a view of kept results with reuse on."""
        groups = self.groups(times)
        self._at(times)
        self._here = False
        if self.store is None:
            self._here = True
            return self._aggregate_raw(times, groups)
        for t in self.store.missing(times):
            alone = range(t, t + 1)
            self.store.put(t, self._aggregate_raw(alone, [alone])[0])
        self.meter.count("reused_aggregations", len(times))
        new = sum(len(run) for run in self.buffer.fresh(times))
        sent = new * self.buffer.row_bytes
        self._count_sent(sent + (self._raw_bytes(times) if self.uses_raw else 0))
        self.keep(times)
        return self.store.rows(times)

    def keep(self, times: range, frame: Tensor | None = None) -> None:
        """Leave of a frame's results [W, N, F] what the next frame uses, as far as is allowed."""
        self.buffer.capacity = self.capacity(times)
        self.buffer.keep(times, self.following(times), frame)

    def apply(self, times: range, h: Tensor) -> Tensor:
        """A-hat_t h_t of a frame, differentiable: float32[W, N, H] -> float32[W, N, H]."""
        return self._aggregate(self._arrived(times), h)

    def product(self, times: range, width: int) -> FrameProduct:
        """A-hat of a frame for a compiled step that aggregates `width` floats a vertex; counted as
        one `apply`."""
        groups = self._arrived(times)
        nodes = self.sequence.features.shape[1]
        merged = self.merges(len(groups[0]), nodes, width)
        key = len(groups[0]), merged, width
        found = self._products.get(times.start)
        if found is None and self._product is not None and self._product[0] == times.start:
            found = self._product[1]
        if found is None or found.key != key:
            found = product_of(self.partitions, groups, width, together=merged)
            if all(self.partitions.keeps(group, whole=not merged) for group in groups):
                self._products[times.start] = found
                for group in groups:
                    for one in [group] if merged else [range(t, t + 1) for t in group]:
                        frames = self._product_of.setdefault(self.partitions.identity(one), set())
                        frames.add(times.start)
            else:
                self._product = times.start, found
        self._count_aggregation(found.launches, found.entries)
        return found.product

    def _forget_products(self, identity: Identity) -> None:
        """A group goes, and with it the products that hold its arrays."""
        for start in self._product_of.pop(identity, ()):
            self._products.pop(start, None)

    def _at(self, times: range) -> None:
        """A frame begins."""
        if self.schedule is not None:
            self.schedule.now = times.start

    def turn(self, times: range, width: int, *, wants: bool) -> Turn:
        """A pass over an aggregation of the frame begun last, by the kernels of a step.

        Args:
            times: the frame.
            width: floats per vertex.
            wants: whether a gradient is wanted.
        """
        if isinstance(self.kernel, ProductKernel):
            return product_turn(self.product(times, width), width, wants=wants)
        nodes = self.sequence.features.shape[1]
        shape = (len(times), nodes, width)
        return turn_of(lambda h: self.apply(times, h), shape, self.device, wants=wants)

    def _arrived(self, times: range) -> list[range]:
        """A frame's partitions, whose topology counts as sent once a frame."""
        groups = self.groups(times)
        if not self._here:
            self._here = True
            for group in groups:
                self._count_topology(group)
        return groups

    def raw(self, times: range) -> tuple[Tensor, Tensor]:
        """Inputs of MPNN-LSTM's skip part: X_t [N, F] of a frame's first snapshot, and the last
        column of each later one, [W - 1, N]."""
        x = self.sequence.features[times.start : times.stop]
        return x[0], x[1:, :, -1]

    # --- decisions --------------------------------------------------------------------------------

    def groups(self, times: range) -> list[range]:
        """The partitions of a frame, which are also the units of transfer."""
        return split(times, self.group_size(times))

    def group_size(self, times: range) -> int:
        """Snapshots of a partition of this frame."""
        if self.single or not self.grouped:
            return 1
        return min(len(times), self.decided.get(times.start, self.s_per))

    def stays(self, times: range, nbytes: int, made: Any = True) -> bool:
        """Return True if a group's topology of `nbytes`, or what was `made` of it, stays on the
        device from now on: what is needed soonest does."""
        if self.single or not self.on["resident"]:
            return False
        nodes = self.sequence.features.shape[1]
        # Beside what was sent: offsets of 8 bytes for every piece, two scales for every snapshot.
        held = nbytes + 8 * (nodes + 1) * (len(times) + 1) + 8 * nodes * len(times)
        key = "resident", times
        return self._resident.put(self.partitions.identity(times), key, made, held, made=False)

    def resident(self, times: range) -> Any:
        """Value that `stays` kept of a group, or None."""
        return self._resident.get(self.partitions.identity(times), ("resident", times))

    @property
    def grouped(self) -> bool:
        """True if snapshots are taken together at all, on the link or in an aggregation."""
        return self.on["parallel_aggregation"] or self.on["overlap"]

    def capacity(self, times: range) -> int:
        """Bytes of results that the device may hold after a frame."""
        return self.allowed.get(times.start, self.buffer.capacity)

    def bandwidth(self) -> float | None:
        """Bytes per second that copies reached, None where nothing is copied."""
        return None

    def merges(self, size: int, nodes: int, features: int) -> bool:
        """Return True if a partition of `size` snapshots is aggregated in one call.

        As the paper has it every partition is; `cache_rule` (ours) looks at a CPU's cache.
        """
        if not self._together(size):
            return False
        return not self.on["cache_rule"] or merging_pays(size, nodes, features)

    def _together(self, size: int) -> bool:
        """Return True if a partition holds several snapshots and may be aggregated as one."""
        return size > 1 and not self.single and self.on["parallel_aggregation"]

    # --- aggregation where the data lie -----------------------------------------------------------

    def _kernel(self) -> Any:
        return placed_kernel(self.on, self.partitions.cap)

    def _aggregate_raw(self, times: range, groups: Sequence[range]) -> Tensor:
        """A-hat_t X_t of consecutive snapshots, sent together with their topology."""
        x = self.sequence.features[times.start : times.stop]
        row = 4 * x[0].numel()
        for group in groups:
            self._count_topology(group, extra=row * len(group))
        return self._aggregate(groups, x)

    def _aggregate(self, groups: Sequence[range], h: Tensor) -> Tensor:
        together = self.merges(len(groups[0]), h.shape[1], h.shape[2])
        for group in groups:
            if together:
                parts = self.partitions.partition(group).parts
                entries = parts.over.nnz + sum(csr.nnz for csr in parts.exclusive)
                self._count_aggregation(1, entries)
            else:
                entries = sum(self.partitions.topology(t).nnz for t in group)
                self._count_aggregation(len(group), entries)
        return self.kernel.aggregate(h, self.partitions, groups, together=together)

    def _stage(self, tensor: Tensor) -> Tensor:
        return tensor

    # --- counters ---------------------------------------------------------------------------------

    def topology_words(self, times: range) -> int:
        """Words of topology that a transfer of a group moves."""
        if self.single:
            return sum(self.partitions.snapshot_words(t) for t in times)
        return self.partitions.words(times)

    def _count_aggregation(self, launches: int, nnz: int) -> None:
        self.meter.count("aggregations", launches)
        self.meter.count("edges_aggregated", nnz)

    def _count_topology(self, times: range, extra: int = 0) -> None:
        sent = 0
        if self.resident(times) is None:
            sent = 4 * self.topology_words(times)
            self.meter.count("adjacency_bytes_counted", sent)
            self.stays(times, sent)
        self._count_sent(sent + extra)

    def _count_sent(self, nbytes: int) -> None:
        if nbytes:
            self.meter.count("bytes_h2d_counted", nbytes)
            self.meter.count("transfers")

    def _raw_bytes(self, times: range) -> int:
        """Bytes of `raw` where features do not travel anyway."""
        nodes, features = self.sequence.features.shape[1:]
        nbytes = 4 * nodes * (features + len(times) - 1)
        self.meter.count("raw_bytes_counted", nbytes)
        return nbytes
