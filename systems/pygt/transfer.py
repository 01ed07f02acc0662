"""Transfer of a snapshot to the device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from dgbench.runtime.meter import Meter
from dgbench.runtime.transfer import PendingTransfer, Staged, TransferLink
from dgbench.systems.pygt.convolution import TwoWayCsr


@dataclass(frozen=True)
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

    @cached_property
    def group(self) -> Staged:
        """The tensors as they are sent, one after the other."""
        return Staged.of(self.tensors())

    def tensors(self) -> list[Tensor]:
        """All tensors of the packet, contiguous and on the host before it is sent."""
        plain = (self.x, self.aggregated, self.edge_index, self.edge_weight)
        found = [tensor for tensor in plain if tensor is not None]
        return found + list(self.adjacency.tensors() if self.adjacency else ())

    @cached_property
    def adjacency_bytes(self) -> int:
        """Bytes of the topology among them: edges and weights, or both formats of the matrix."""
        found = [tensor for tensor in (self.edge_index, self.edge_weight) if tensor is not None]
        found += self.adjacency.tensors() if self.adjacency else ()
        return sum(tensor.numel() * tensor.element_size() for tensor in found)

    def holding(self, tensors: Sequence[Tensor]) -> Packet:
        """The packet with other tensors, in the order of `tensors()`."""
        coming = iter(tensors)
        fields = ("x", "aggregated", "edge_index", "edge_weight")
        plain = {name: None if getattr(self, name) is None else next(coming) for name in fields}
        return Packet(**plain, adjacency=self.adjacency and TwoWayCsr(*coming))


class Mover:
    """Brings packets to the device over a link, one snapshot at a time.

    Args:
        link: with a slot for each snapshot of a frame, as the backward pass of a frame reads what
            all of them brought.
        meter: times the phase `transfer` where the link copies.
        ahead: send a snapshot before the one before it is computed on (PiPAD's PyGT-A).
    """

    def __init__(self, link: TransferLink, meter: Meter, *, ahead: bool) -> None:
        self._link = link
        self._meter = meter
        self._ahead = ahead
        self._held: list[PendingTransfer] = []

    def stage(self, tensor: Tensor) -> Tensor:
        """The form in which a tensor is best kept on the host."""
        return self._link.stage(tensor)

    def stream(self, packets: Iterable[Packet]) -> Iterator[Packet]:
        """The packets, in order, on the device, until the next call of `stream`."""
        self._release()
        if not self._link.copies:
            for packet in packets:
                self._count(packet)
                self._link.send(packet.group)  # counts
                yield packet
            return
        before: tuple[Packet, PendingTransfer] | None = None
        for packet in packets:
            coming = packet, self._send(packet)
            if not self._ahead:
                yield self._arrived(*coming)
                continue
            if before is not None:
                yield self._arrived(*before)
            before = coming
        if before is not None:
            yield self._arrived(*before)

    def close(self) -> None:
        """Release what is held and close the link."""
        self._release()
        self._link.close()

    def _count(self, packet: Packet) -> None:
        self._meter.count("adjacency_bytes_counted", packet.adjacency_bytes)

    def _send(self, packet: Packet) -> PendingTransfer:
        self._count(packet)
        with self._meter.phase("transfer"):
            ticket = self._link.send(packet.group)
        self._held.append(ticket)
        return ticket

    def _arrived(self, packet: Packet, ticket: PendingTransfer) -> Packet:
        with self._meter.phase("transfer"):
            return packet.holding(ticket.wait())

    def _release(self) -> None:
        while self._held:
            self._held.pop().release()
