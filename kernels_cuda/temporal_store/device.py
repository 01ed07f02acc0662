"""A temporal store as a device reads it, and sampling from it there (GNNFlow, section 4.2).

The host writes the graph (`temporal_store`), the device samples from it. Where the pools lie is the
*placement*, the subject of the paper's Figure 13:

- `cuda`: everything in the device's memory.
- `hybrid`: vertices and blocks there, records in page-locked memory of the host, read over the bus.
  The store's own memory is page-locked, so that records are never sent.
- `uva`: everything in the host's memory.
- `unified`: everything in managed memory, whose pages move to whoever reads them.
- `guided`: ours; `hybrid` with the time of every eighth record on the device, so that a search for
  a time crosses the bus once instead of at every step.

Samples equal those of the CPU bit for bit: both go by `temporal_sample/functors.hpp`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import torch
from torch import Tensor

from dgbench.kernels_cuda.build_info import extension
from dgbench.kernels_cuda.temporal_store.device_sampling import MAX_FANOUT, DeviceSampler
from dgbench.kernels_cuda.temporal_store.op import RECORD_BYTES
from dgbench.runtime.errors import InvalidInputError, UnsupportedError, unknown_key

__all__ = [
    "MAX_FANOUT",
    "PLACEMENTS",
    "DeviceStore",
    "Placement",
    "Sent",
    "free_bytes",
    "hold_ballast",
]

if TYPE_CHECKING:
    from dgbench.kernels_cuda.temporal_store.op import TemporalStore

Placement = Literal["cuda", "hybrid", "uva", "unified", "guided"]
PLACEMENTS: Final = ("cuda", "hybrid", "uva", "unified", "guided")
"""Position is the number the compiled mirror knows a placement by."""
_LAYOUTS: Final = tuple(RECORD_BYTES)
WORKING_BYTES: Final = 256 << 20
"""Bytes of device memory beside the limit that a ballast leaves free, for the samples."""


@dataclass(frozen=True, slots=True)
class Sent:
    """Bytes and counts of one update of the device's copy.

    Attributes:
        bytes: of the pools, to the device or into managed memory.
        patches: pieces of pools; those that went whole count none.
        vertices: vertices that had changed.
        whole: pools that went whole.
    """

    bytes: int
    patches: int
    vertices: int
    whole: int


class DeviceStore(DeviceSampler):
    """A view of a store for one device. Call `update` after every change of the store.

    Args:
        store: the host's. It must live as long as this does.
        placement: one of `PLACEMENTS`.
        cap_bytes: most bytes of the device's memory that the graph may take; None for no limit.
            For `unified`, whose pages nobody counts, it says how much `oversubscribe` leaves free.
        device: a CUDA device.
        oversubscribe: for `unified`, hold other memory of the device as ballast, so that only
            `cap_bytes` and `WORKING_BYTES` are free and pages have to make room for each other.
            That slows down everybody on the device, up to where it hangs. Off or on, a graph in
            managed memory takes no more than was free on the device before.

    Raises:
        UnknownKeyError: a placement that does not exist.
        InvalidInputError: a limit below 1, or `oversubscribe` without a limit or for another
            placement.
        UnsupportedError: no compiled operators for the device.
        MemoryError: the graph does not fit.
    """

    def __init__(
        self,
        store: TemporalStore,
        placement: Placement = "hybrid",
        cap_bytes: int | None = None,
        *,
        device: torch.device | str = "cuda",
        oversubscribe: bool = False,
    ) -> None:
        if placement not in PLACEMENTS:
            raise unknown_key("placement", placement, PLACEMENTS)
        if cap_bytes is not None and cap_bytes < 1:
            raise InvalidInputError(f"cap_bytes is {cap_bytes}, allowed are numbers from 1")
        if oversubscribe and (placement != "unified" or cap_bytes is None):
            raise InvalidInputError(
                f"oversubscribe is True with placement {placement!r} and cap_bytes {cap_bytes}; it "
                "is for 'unified' with a limit"
            )
        super().__init__(device)
        self.store, self.placement, self.cap_bytes = store, placement, cap_bytes
        made = getattr(extension(self.device), "TemporalMirror", None)
        if made is None:
            raise UnsupportedError(f"a store on '{self.device}' needs no mirror; sample from it")
        cap = free_bytes(self.device) if placement == "unified" else cap_bytes
        self._graph = made(PLACEMENTS.index(placement), cap or 0, self._number())
        self._ballast: Tensor | None = None
        if oversubscribe:
            self._ballast = hold_ballast(cap_bytes + WORKING_BYTES, self.device)
        self.sent = self.update()

    @property
    def num_vertices(self) -> int:
        """N."""
        return self.store.num_vertices

    def update(self) -> Sent:
        """Bring what changed in the store since the last update to the device.

        Returns:
            What was moved. With `uva` that is nothing, with `hybrid` and `guided` no records.

        Raises:
            MemoryError: it does not fit any more; nothing is held then, and sampling is refused
                until an update succeeds.
        """
        handle = self.store.handle
        found = self._graph.update(
            *handle.pools(), _LAYOUTS.index(self.store.layout), self.store.origin,
            handle.num_deleted_vertices, handle.generation, self.store.late == "sort",
            *self._stream(), threads=torch.get_num_threads(),
        )  # fmt: skip
        self.sent = Sent(**found)
        return self.sent

    @property
    def device_bytes(self) -> int:
        """Bytes of the device's memory that the graph takes."""
        return self._graph.device_bytes

    @property
    def pinned_bytes(self) -> int:
        """Bytes of the host's memory that are page-locked for the device."""
        return self._graph.pinned_bytes

    @property
    def managed_bytes(self) -> int:
        """Bytes of managed memory."""
        return self._graph.managed_bytes

    @property
    def ballast_bytes(self) -> int:
        """Bytes of the device's memory that are held so that others cannot have them."""
        return 0 if self._ballast is None else self._ballast.nbytes

    def close(self) -> None:
        """Give all memory back; `update` brings the graph again."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self._graph.clear()
        self._ballast = None


def free_bytes(device: torch.device) -> int | None:
    """Bytes of the device's memory that nobody has; None where there is no telling."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else None


def hold_ballast(leave_bytes: int, device: torch.device) -> Tensor | None:
    """Take memory of the device until only so many bytes are free; None where fewer are."""
    if device.type != "cuda":
        return None
    torch.cuda.empty_cache()
    free = free_bytes(device)
    if free <= leave_bytes:
        return None
    return torch.empty(free - leave_bytes, dtype=torch.uint8, device=device)
