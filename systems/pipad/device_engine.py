"""The engine of a device, or of a CPU's arena that stands for one: inputs really travel.

Topology comes as the words that the formulas count and is used as it arrived; results of the first
layer come from the host's store as far as the device's buffer does not hold them (4.3, 4.4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from dgbench.runtime.meter import Meter
from dgbench.runtime.transfer import TransferLink
from dgbench.systems.pipad.delivery import FramePrefetcher, Unit
from dgbench.systems.pipad.engine import Engine
from dgbench.systems.pipad.kernels import arrived_kernel
from dgbench.systems.pipad.partitions import Partitions
from dgbench.systems.pipad.received import Received
from dgbench.systems.pipad.wire import PackedFrameTopology, PackedLayout, pack, unpack

EXTRA_SLOTS = 5
"""Units of a link beside one per snapshot of a frame: what is new in it, the next frame's first,
and those with which the store is filled."""


class DeviceEngine(Engine):
    """`Engine` over a link that copies. Arguments as for `Engine`, and:

    Attributes:
        courier: brings the units of frames.

    Args:
        partitions: on the CPU, where they are packed from.
        link: with `EXTRA_SLOTS` slots more than a frame has snapshots.
        device: where the model computes.
        norm: `sym` or `mean`; scales are formed on the device.
        layers: whether the model aggregates after its first layer.
    """

    copies = True

    def __init__(
        self,
        partitions: Partitions,
        switches: Mapping[str, bool],
        meter: Meter,
        *,
        link: TransferLink,
        device: torch.device,
        norm: str,
        s_per: int,
        following: Callable[[range], range | None],
        uses_raw: bool,
        layers: bool,
    ) -> None:
        self.link = link
        super().__init__(
            partitions,
            switches,
            meter,
            s_per=s_per,
            following=following,
            uses_raw=uses_raw,
            device=device,
        )
        self._norm = norm
        self._layers = layers
        ahead = switches["pipeline"]
        self.courier = FramePrefetcher(link, self.units, ahead=ahead, on_send=self.count_unit)
        self._features: Tensor | None = None
        self._columns: Tensor | None = None

    # --- preparation ------------------------------------------------------------------------------

    def settle(self, frames: Sequence[range], widths: Sequence[int]) -> None:
        """Nothing: topology is used as it arrives, forward and backward."""

    def aggregate_all(self) -> None:
        if self.store is not None:
            self._fill(self.store.missing(range(len(self.sequence))))

    def forget(self) -> None:
        self.courier.forget()
        super().forget()

    def retain(self, groups: Iterable[range]) -> None:
        self.partitions.drop_staged()
        super().retain(groups)

    def finish(self) -> None:
        self.courier.finish()

    def close(self) -> None:
        self.courier.forget()
        super().close()
        self.partitions.drop_staged()
        self.link.close()

    # --- what the models ask for ------------------------------------------------------------------

    def first(self, times: range) -> Tensor:
        self._at(times)
        self.courier.begin(times)
        if self.store is None:
            return self._first_by_group(times)
        self.meter.count("reused_aggregations", len(times))
        arrived = self.courier.take(0)[: len(self.buffer.fresh(times))]
        frame = self.buffer.frame(times, arrived)
        self.keep(times, frame)
        self._look_ahead(times)
        return frame

    def apply(self, times: range, h: Tensor) -> Tensor:
        groups = self.groups(times)
        together = self.merges(len(groups[0]), h.shape[1], h.shape[2])

        def arriving() -> Iterator[Received]:
            for k in range(len(groups)):
                yield self._counted(self._group(times, k)[0], together)

        return self.kernel.aggregate(h, [len(g) for g in groups], arriving, together=together)

    def raw(self, times: range) -> tuple[Tensor, Tensor]:
        if self.store is not None:
            return tuple(self.courier.take(0)[-2:])
        rows = [self._group(times, k)[1] for k in range(len(self.groups(times)))]
        x = rows[0] if len(rows) == 1 else torch.cat(rows)
        return x[0], x[1:, :, -1]

    def merges(self, size: int, nodes: int, features: int) -> bool:
        # Snapshots that travelled whole share nothing that one call could read once. A device has
        # another cache than the CPU that `cache_rule` is for: it merges as the paper does.
        return self.partitions.overlap and self._together(size)

    def bandwidth(self) -> float | None:
        return self.link.bandwidth()

    # --- aggregation of what arrived --------------------------------------------------------------

    def _first_by_group(self, times: range) -> Tensor:
        groups = self.groups(times)
        y = torch.empty(len(times), *self.sequence.features.shape[1:], device=self.device)
        parts = y.split([len(group) for group in groups])
        for k, out in enumerate(parts):
            received, x = self._group(times, k)
            together = self.merges(len(groups[0]), x.shape[1], x.shape[2])
            out.copy_(self._of_received(received, x, together))
        return y

    def _group(self, times: range, k: int) -> tuple[Received, Tensor | None]:
        """Partition k of the frame, on the device; the next one is sent."""
        found = self.courier.take(k if self.store is None else k + 1)
        self._look_ahead(times)
        return found

    def _of_received(self, received: Received, x: Tensor, together: bool) -> Tensor:
        """A-hat_t x_t of a group, [S, N, F]."""
        one = self._counted(received, together)
        return self.kernel.aggregate(x, [len(received.times)], lambda: [one], together=together)

    def _counted(self, received: Received, together: bool) -> Received:
        if together:
            self._count_aggregation(1, received.nnz)
        else:
            self._count_aggregation(len(received.times), received.whole_nnz)
        return received

    def _kernel(self) -> Any:
        return arrived_kernel(self.on, self.partitions.cap)

    def _look_ahead(self, times: range) -> None:
        self.courier.look_ahead(self.following(times) if self.in_order else None)

    # --- what travels -----------------------------------------------------------------------------

    def recordable(self, frames: Sequence[range]) -> int:
        """Number of the first frames whose topology may stay in host memory all together,
        where graphs of their steps read it; from now on it stays.

        Half of the budget is theirs.
        """
        if not (self._layers or self.store is None):
            return len(frames)  # no topology travels
        total, fixed, found = 0, set(), len(frames)
        for number, times in enumerate(frames):
            groups = {self.partitions.identity(group): group for group in self.groups(times)}
            fresh = {one: group for one, group in groups.items() if one not in fixed}
            total += sum(4 * self.topology_words(group) for group in fresh.values())
            if total > self.partitions.budget // 2:
                found = number
                break
            fixed |= fresh.keys()
        if self.schedule is not None:
            self.schedule.fixed = frozenset(fixed)
        return found

    def units(self, times: range) -> list[Unit]:
        """Units that a frame has to be sent, as the buffer is now: what is new, its partitions."""
        groups = self.groups(times)
        if self.store is None:
            return [self._unit(group, features=True) for group in groups]
        if missing := self.store.missing(times):
            self._fill(missing)
        new = [self.store.rows(run) for run in self.buffer.fresh(times)]
        if self.uses_raw:
            self._raw_bytes(times)
            new += [self._all_features()[times.start], self._last_columns(times)]
        units = [Unit(new, _as_it_is)]
        if self._layers:
            units += [self._unit(group) for group in groups]
        return units

    def _unit(self, group: range, *, features: bool = False) -> Unit:
        rows = [self._all_features()[group.start : group.stop]] if features else []
        if (received := self.resident(group)) is not None:
            return Unit(rows, partial(self._open_resident, received))
        wires, staged = self._topology(group)
        layouts = [wire.layout for wire in wires]
        nbytes = sum(wire.nbytes for wire in wires)
        tensors = [*staged, *rows] if rows else staged
        sizes = [len(wire.tensors) for wire in wires]
        return Unit(tensors, partial(self._open, group, layouts, sizes), nbytes)

    def _open(
        self, group: range, layouts: list[PackedLayout], sizes: list[int], tensors: list[Tensor]
    ) -> tuple[Received, Tensor | None]:
        count = sum(sizes)
        x = tensors[count] if len(tensors) > count else None
        nbytes = sum(t.nbytes for t in tensors[:count])
        stays = self.stays(group, nbytes)
        arrays = [t.clone() for t in tensors[:count]] if stays else tensors[:count]
        found, start = [], 0
        for layout, size in zip(layouts, sizes, strict=True):
            found.append(unpack(layout, arrays[start : start + size]))
            start += size
        received = Received.of(group, found, self._norm)
        if stays:
            self.stays(group, nbytes, received)
        return received, x

    def _open_resident(
        self, received: Received, tensors: list[Tensor]
    ) -> tuple[Received, Tensor | None]:
        return received, tensors[0] if tensors else None

    def _topology(self, group: range) -> tuple[Sequence[PackedFrameTopology], Sequence[Tensor]]:
        """The wires of a group and their tensors in the form that the link sends."""
        found = self.partitions.staged(group, self.single)
        if found is None:
            whole = [self._whole(t) for t in group] if self.single else self.partitions.wires(group)
            staged = self.link.stage_all([tensor for wire in whole for tensor in wire.tensors])
            rest = iter(staged)
            wires = [replace(one, tensors=tuple(islice(rest, len(one.tensors)))) for one in whole]
            if not self.single:
                self.partitions.drop_wires(group)  # the copy takes its place
            found = wires, staged
            self.partitions.stage(group, self.single, found, _staged_bytes(wires))
        return found

    def _whole(self, t: int) -> PackedFrameTopology:
        csr = self.partitions.topology(t)
        return pack(csr, sliced=self.partitions.sliced, cap=self.partitions.cap)

    def _fill(self, missing: Sequence[int]) -> None:
        """Aggregate snapshots one at a time and bring the results to the host (4.3, 4.4)."""
        single, self.single = self.single, True
        courier = FramePrefetcher(
            self.link,
            lambda times: [self._unit(times, features=True)],
            ahead=self.on["pipeline"],
            on_send=self.count_unit,
        )
        for t, after in zip(missing, [*missing[1:], None], strict=True):
            courier.begin(range(t, t + 1))
            received, x = courier.take(0)
            courier.look_ahead(None if after is None else range(after, after + 1))
            self.store.put(t, self._of_received(received, x, False)[0])
        courier.forget()
        self.single = single

    def _all_features(self) -> Tensor:
        if self._features is None:
            self._features = self.link.stage(self.sequence.features)
        return self._features

    def _last_columns(self, times: range) -> Tensor:
        """The last feature of every snapshot but the first, [W - 1, N]."""
        if self._columns is None:
            self._columns = self.link.stage(self.sequence.features[:, :, -1])
        return self._columns[times.start + 1 : times.stop]

    def _stage(self, tensor: Tensor) -> Tensor:
        return self.link.stage(tensor)

    def count_unit(self, unit: Unit) -> None:
        """Count the topology of a unit that is sent."""
        if unit.adjacency_bytes:
            self.meter.count("adjacency_bytes_counted", unit.adjacency_bytes)


def _staged_bytes(wires: Sequence[PackedFrameTopology]) -> int:
    return sum(wire.nbytes for wire in wires)


def _as_it_is(tensors: list[Tensor]) -> list[Tensor]:
    return tensors
