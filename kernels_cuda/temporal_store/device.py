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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import torch
from torch import Tensor

from dgbench.kernels_cuda._checks import check_ids
from dgbench.kernels_cuda.build_info import extension, stream_of
from dgbench.kernels_cuda.temporal_sample import POLICIES, SEARCHES
from dgbench.kernels_cuda.temporal_sample.hops import Hop, Layout, Targets, cut_all, lay_out
from dgbench.kernels_cuda.temporal_sample.samples import Sample
from dgbench.kernels_cuda.temporal_store.op import RECORD_BYTES
from dgbench.runtime.errors import InvalidInputError, UnsupportedError, unknown_key

if TYPE_CHECKING:
    from dgbench.kernels_cuda.temporal_store.op import TemporalStore

Placement = Literal["cuda", "hybrid", "uva", "unified", "guided"]
PLACEMENTS: Final = ("cuda", "hybrid", "uva", "unified", "guided")
"""Position is the number the compiled mirror knows a placement by."""
_LAYOUTS: Final = tuple(RECORD_BYTES)
MAX_FANOUT: Final = 1 << 17
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


class DeviceStore:
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
        self.store, self.placement, self.cap_bytes = store, placement, cap_bytes
        self.device = torch.device(device)
        made = getattr(extension(self.device), "TemporalMirror", None)
        if made is None:
            raise UnsupportedError(f"a store on '{self.device}' needs no mirror; sample from it")
        cap = free_bytes(self.device) if placement == "unified" else cap_bytes
        self._mirror: Any = made(PLACEMENTS.index(placement), cap or 0, self._number())
        self._staging = torch.empty(0, dtype=torch.int64)
        self._ballast: Tensor | None = None
        if oversubscribe:
            self._ballast = hold_ballast(cap_bytes + WORKING_BYTES, self.device)
        self.sent = self.update()

    def update(self) -> Sent:
        """Bring what changed in the store since the last update to the device.

        Returns:
            What was moved. With `uva` that is nothing, with `hybrid` and `guided` no records.

        Raises:
            MemoryError: it does not fit any more; nothing is held then, and sampling is refused
                until an update succeeds.
        """
        handle = self.store.handle
        found = self._mirror.update(
            *handle.pools(), _LAYOUTS.index(self.store.layout), self.store.origin,
            handle.num_deleted_vertices, handle.generation, self.store.late == "sort",
            *self._stream(), threads=torch.get_num_threads(),
        )  # fmt: skip
        self.sent = Sent(**found)
        return self.sent

    def sample_hops(
        self,
        nodes: Tensor,
        times: Tensor,
        fanouts: Sequence[int],
        *,
        policy: str = "recent",
        window: float | None = None,
        snapshots: int = 1,
        prop_time: bool = False,
        closed: bool = False,
        replace: bool = False,
        seed: int = 0,
        draw: int = 0,
        positions: Tensor | None = None,
        search: str = "binary",
    ) -> list[list[Sample]]:
        """`temporal_sample.sample_hops` on the device, with the same results.

        Hops follow each other without the host: how many targets a hop has stays on the device,
        and all counts come home together at the end. The arrays of a result share their memory,
        which has capacity for the most neighbours there may be; copy what is kept for long.

        Args:
            nodes, times, positions: on the CPU or on the device.
            Others as there; fan-outs at most `MAX_FANOUT`.

        Returns:
            [snapshot][hop], arrays on the device.

        Raises:
            InvalidInputError: as there.
        """
        uniform, linear = _check(fanouts, policy, search, seed, draw, snapshots, window)
        self._check_roots(nodes, times, positions)
        length = float("inf") if window is None else float(window)
        how = uniform, linear, replace, seed, draw, length, closed, prop_time
        layout = lay_out(nodes.numel(), tuple(fanouts), snapshots, uniform)
        if layout is None:
            return self._hop_by_hop(nodes, times, positions, fanouts, snapshots, *how)
        return self._all_hops(nodes, times, positions, layout, snapshots, *how)

    def _all_hops(
        self,
        nodes: Tensor,
        times: Tensor,
        positions: Tensor | None,
        layout: Layout,
        snapshots: int,
        *how: Any,
    ) -> list[list[Sample]]:
        """One compiled call: roots go there and counts come home through page-locked memory."""
        nodes, times = nodes.cpu().contiguous(), times.cpu().contiguous()
        positions = None if positions is None else positions.cpu().contiguous()
        if self._staging.numel() < layout.staged:
            pinned = self.device.type == "cuda"
            self._staging = torch.empty(2 * layout.staged, dtype=torch.int64, pin_memory=pinned)
        memory = torch.empty(layout.words, dtype=torch.int64, device=self.device)
        scratch = torch.empty(layout.scratch, dtype=torch.int64, device=self.device)
        totals = self._mirror.sample(
            nodes, times, positions, self._staging[: layout.staged], memory, scratch,
            layout.fanouts, layout.capacities, layout.starts, snapshots, *how, *self._stream(),
        )  # fmt: skip
        if not totals:
            self._refuse(nodes, times)
        return layout.cut(memory, totals)

    def _hop_by_hop(
        self,
        nodes: Tensor,
        times: Tensor,
        positions: Tensor | None,
        fanouts: Sequence[int],
        snapshots: int,
        uniform: bool,
        linear: bool,
        replace: bool,
        seed: int,
        draw: int,
        length: float,
        closed: bool,
        prop_time: bool,
    ) -> list[list[Sample]]:
        """A call for each hop, whose neighbours are counted first where the most is much."""
        self._refuse(nodes, times)
        if positions is None:
            positions = torch.arange(nodes.numel(), device=nodes.device)
        nodes, times, where = (a.to(self.device).contiguous() for a in (nodes, times, positions))
        every: list[list[Hop]] = []
        for snapshot in range(snapshots):
            live = torch.full((1,), nodes.numel(), dtype=torch.int64, device=self.device)
            at = Targets(live, nodes, times - snapshot * length if snapshot else times, where)
            every.append([])
            for number, fanout in enumerate(fanouts):
                hop = Hop.of(at, fanout, uniform)
                self._mirror.locate(
                    at.live, at.nodes, at.positions, at.times, length, closed, fanout, uniform,
                    linear, replace, seed, draw, number, snapshot, *hop.located, *self._stream(),
                )  # fmt: skip
                hop.allocate_neighbours(last=number + 1 == len(fanouts))
                following = hop.following
                self._mirror.emit(
                    at.live, at.nodes, at.positions, at.times, fanout, uniform, linear,
                    *hop.located, hop.offsets, *hop.found,
                    *(following.all if following else (None,) * 4), prop_time, *self._stream(),
                )  # fmt: skip
                every[-1].append(hop)
                at = following or at
        return cut_all(every)

    @property
    def device_bytes(self) -> int:
        """Bytes of the device's memory that the graph takes."""
        return self._mirror.device_bytes

    @property
    def pinned_bytes(self) -> int:
        """Bytes of the host's memory that are page-locked for the device."""
        return self._mirror.pinned_bytes

    @property
    def managed_bytes(self) -> int:
        """Bytes of managed memory."""
        return self._mirror.managed_bytes

    @property
    def ballast_bytes(self) -> int:
        """Bytes of the device's memory that are held so that others cannot have them."""
        return 0 if self._ballast is None else self._ballast.nbytes

    def close(self) -> None:
        """Give all memory back; `update` brings the graph again."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self._mirror.clear()
        self._ballast = None

    def _number(self) -> int:
        """The device's number; of a name without one that of the current device."""
        if self.device.type != "cuda":
            return 0
        return torch.cuda.current_device() if self.device.index is None else self.device.index

    def _stream(self) -> tuple[int]:
        return stream_of(self.device) or (0,)

    def _check_roots(self, nodes: Tensor, times: Tensor, positions: Tensor | None) -> None:
        """Raises InvalidInputError for another dtype or length."""
        for name, array, dtype in (
            ("nodes", nodes, torch.int64),
            ("times", times, torch.float64),
            ("positions", positions, torch.int64),
        ):
            if array is None:
                continue
            if array.dtype != dtype or array.shape != (nodes.numel(),):
                raise InvalidInputError(
                    f"{name} is {array.dtype}{list(array.shape)}, expected {dtype}[{nodes.numel()}]"
                )

    def _refuse(self, nodes: Tensor, times: Tensor) -> None:
        """Raises InvalidInputError for a vertex that is not there, or NaN."""
        check_ids(nodes, "nodes", self.store.num_vertices)
        if bool(times.isnan().any()):
            raise InvalidInputError("times holds nan, allowed are numbers and infinities")


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


def _check(
    fanouts: Sequence[int],
    policy: str,
    search: str,
    seed: int,
    draw: int,
    snapshots: int,
    window: float | None,
) -> tuple[bool, bool]:
    """Check the settings of a sample; return (draws at random, searches linearly).

    Raises:
        InvalidInputError: a setting out of its range.
    """
    for name, word, allowed in (("policy", policy, POLICIES), ("search", search, SEARCHES)):
        if word not in allowed:
            raise InvalidInputError(f"{name} is {word!r}, allowed are {' and '.join(allowed)}")
    if snapshots > 1 and window is None:
        raise InvalidInputError(f"snapshots is {snapshots} and window None, give their length")
    if window is not None and not window >= 0:
        raise InvalidInputError(f"window is {window}, allowed are lengths from 0, or None")
    for name, value, low, high in (
        ("snapshots", snapshots, 1, 256),
        ("len(fanouts)", len(fanouts), 1, 256),
        *(("fanout", fanout, 1, MAX_FANOUT) for fanout in fanouts),
        ("seed", seed, 0, 2**64 - 1),
        ("draw", draw, 0, 2**32 - 1),
    ):
        if not low <= value <= high:
            raise InvalidInputError(f"{name} is {value}, allowed are {low} to {high}")
    return policy == "uniform", search == "linear"
