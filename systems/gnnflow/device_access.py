"""GNNFlow's graph, sampled by a GPU where the placement puts it (section 4.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dgbench.kernels_cuda.temporal_sample import Sample
from dgbench.kernels_cuda.temporal_sample.hops import bring_home
from dgbench.kernels_cuda.temporal_store.device import DeviceStore, Placement
from dgbench.systems.base.stream_access import sampling_of
from dgbench.systems.gnnflow.access import StoreAccess

if TYPE_CHECKING:
    from dgbench.systems.base.stream import StreamData, StreamWorkload


class DeviceAccess(StoreAccess):
    """`StoreAccess` whose samples are drawn on a device; they are the same bits.

    Args:
        placement: where the graph lies; the paper's is `hybrid`.
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
        placement: Placement = "hybrid",
        cap_bytes: int | None = None,
        sampler: torch.device | str = "cuda",
        **options: Any,
    ) -> None:
        super().__init__(workload, data, switches, **options)
        self._where = (placement, cap_bytes)
        self._sampler = torch.device(sampler)
        self.mirror = self._mirrored()

    def insert(self, first: int, last: int) -> None:
        """As there; the device then has what changed."""
        super().insert(first, last)
        if self.mirror.store is self.store:
            self.mirror.update()
        else:  # built anew
            self.mirror.close()
            self.mirror = self._mirrored()
        self.meter.count("graph_bytes_sent", self.mirror.sent.bytes)

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

    def _mirrored(self) -> DeviceStore:
        return DeviceStore(self.store, *self._where, device=self._sampler)
