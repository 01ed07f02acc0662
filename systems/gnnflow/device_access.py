"""GNNFlow's graph, sampled by a GPU where the placement puts it (section 4.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from dgbench.kernels_cuda.temporal_sample import Sample
from dgbench.kernels_cuda.temporal_sample.hops import bring_home
from dgbench.kernels_cuda.temporal_store.device import PLACEMENTS, DeviceStore
from dgbench.kernels_cuda.temporal_store.resident import ResidentStore
from dgbench.runtime.errors import unknown_key
from dgbench.systems.base.stream_access import sampling_of
from dgbench.systems.gnnflow.access import AccessSettings, StoreAccess

if TYPE_CHECKING:
    from dgbench.systems.base.stream import StreamData, StreamWorkload


RESIDENT: Final = "resident"
"""The placement without a store on the host: events are sent, and the GPU inserts them."""
EVENT_BYTES: Final = 32


class DeviceAccess(StoreAccess):
    """`StoreAccess` whose samples are drawn on a device; they are the same bits.

    Args:
        placement: where the graph lies, one of `PLACEMENTS` or `RESIDENT`; None for that of the
            settings. The paper's is `hybrid`.
        cap_bytes: most bytes of the device's memory that the graph may take.
        sampler: the device that samples.
        Others as there.

    Raises:
        UnsupportedError: no compiled operators for the device.
        MemoryError: the graph does not fit, also when it has grown.
    """

    def __init__(
        self,
        workload: StreamWorkload,
        data: StreamData,
        switches: Mapping[str, bool],
        *,
        placement: str | None = None,
        cap_bytes: int | None = None,
        sampler: torch.device | str = "cuda",
        settings: AccessSettings | None = None,
        **options: Any,
    ) -> None:
        settings = settings or AccessSettings()
        self.placement = placement or settings.placement
        if self.placement not in (*PLACEMENTS, RESIDENT):
            raise unknown_key("placement", self.placement, (*PLACEMENTS, RESIDENT))
        self._cap_bytes, self._sampler = cap_bytes, torch.device(sampler)
        super().__init__(workload, data, switches, settings=settings, **options)
        if self.placement == RESIDENT and self._sampler.type == "cuda":
            self._columns = tuple(column.pin_memory() for column in self._columns)
        self.mirror = self._mirrored()

    def insert(self, first: int, last: int) -> None:
        """As there; the device then has what changed."""
        super().insert(first, last)
        if self.placement == RESIDENT:
            sent = EVENT_BYTES * (last - (first if self.on["in_place"] else 0))
        elif self.mirror.store is self.store:
            sent = self.mirror.update().bytes
        else:  # built anew
            self.mirror.close()
            self.mirror = self._mirrored()
            sent = self.mirror.sent.bytes
        self.meter.count("graph_bytes_sent", sent)

    def sample(
        self, nodes: Tensor, times: Tensor, *, draw: int, positions: Tensor | None = None
    ) -> list[list[Sample]]:
        """As there; samples stay on the device where the model is, and else come to the host."""
        task = self.workload
        found = self.mirror.sample_hops(
            nodes,
            times,
            task.fanouts,
            **sampling_of(task),
            draw=draw,
            positions=positions,
            search="binary" if self.on["fences"] else "linear",
        )
        return found if self._sampler.type == self.device.type else bring_home(found)

    def _empty(self) -> Any:
        if self.placement != RESIDENT:
            return super()._empty()
        if (store := getattr(self, "store", None)) is not None:
            store.clear()
            return store
        return ResidentStore(
            self.data.events.num_nodes,
            cap_bytes=self._cap_bytes,
            device=self._sampler,
            **self._shape(),
        )

    def _mirrored(self) -> Any:
        if self.placement == RESIDENT:
            return self.store
        return DeviceStore(self.store, self.placement, self._cap_bytes, device=self._sampler)
