"""What a snapshot sends to the device, and how it gets there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dgbench.runtime.meter import Meter
from dgbench.systems.pygt.convolution import TwoWayCsr


@dataclass(frozen=True, slots=True)
class Packet:
    """One snapshot's input; what a variant does not send is None.

    Attributes:
        x: raw features [N, F], or the columns of them that are read.
        aggregated: A-hat X from the store of the inter-frame reuse, [N, F].
        edge_index: int64[2, E] (source, destination).
        edge_weight: float32[E].
        adjacency: normalised CSR and CSC.
    """

    x: Tensor | None = None
    aggregated: Tensor | None = None
    edge_index: Tensor | None = None
    edge_weight: Tensor | None = None
    adjacency: TwoWayCsr | None = None

    def tensors(self) -> list[Tensor]:
        """All tensors of the packet."""
        plain = (self.x, self.aggregated, self.edge_index, self.edge_weight)
        found = [tensor for tensor in plain if tensor is not None]
        return found + list(self.adjacency.tensors() if self.adjacency else ())

    def moved(self, move: Callable[[Tensor], Tensor]) -> Packet:
        """The packet with `move` applied to each of its tensors."""
        adjacency = self.adjacency and TwoWayCsr(*(move(x) for x in self.adjacency.tensors()))
        plain = {
            name: None if (value := getattr(self, name)) is None else move(value)
            for name in ("x", "aggregated", "edge_index", "edge_weight")
        }
        return replace(self, adjacency=adjacency, **plain)

    @property
    def nbytes(self) -> int:
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors())


class Mover:
    """Brings packets to the device, one snapshot at a time, and counts their bytes.

    Synchronous: each tensor is copied from pageable memory when it is needed. Asynchronous
    (PiPAD's PyGT-A): from pinned memory on a stream of its own, one snapshot ahead. On the CPU
    nothing moves; the bytes are counted as if it had (`bytes_h2d_counted`).
    """

    def __init__(self, device: torch.device, meter: Meter, *, asynchronous: bool) -> None:
        self._device = device
        self._meter = meter
        self._stream = None
        if asynchronous and device.type == "cuda":
            self._stream = torch.cuda.Stream(device)

    @property
    def pins(self) -> bool:
        """Whether host tensors should be pinned."""
        return self._stream is not None

    def stream(self, packets: Iterable[Packet]) -> Iterator[Packet]:
        """The packets, in order, on the device."""
        if self._stream is None:
            for packet in packets:
                yield self._copy(packet, wait=True)
            return
        compute = torch.cuda.current_stream(self._device)
        ahead: Packet | None = None
        for packet in packets:
            with torch.cuda.stream(self._stream):
                coming = self._copy(packet, wait=False)
                arrived = self._stream.record_event()
            if ahead is not None:
                yield ahead
            compute.wait_event(arrived)
            for tensor in coming.tensors():
                tensor.record_stream(compute)  # else the allocator may reuse it too early
            ahead = coming
        if ahead is not None:
            yield ahead

    def _copy(self, packet: Packet, *, wait: bool) -> Packet:
        self._meter.count("bytes_h2d_counted", packet.nbytes)
        if self._device.type == "cpu":
            return packet
        with self._meter.phase("transfer"):
            return packet.moved(lambda x: x.to(self._device, non_blocking=not wait))
