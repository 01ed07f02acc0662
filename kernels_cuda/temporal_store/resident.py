"""A temporal graph that lives on a device and is changed there, without a wait of the host.

Blocks are as long as the same policy makes them on the host (`TemporalStore`), and samples are
those of the host's store, bit for bit. Events may come from the device. What is wrong with a batch
the device finds: such a batch and all after it are left out until the host hears of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from dgbench.kernels_cuda._checks import check_vector
from dgbench.kernels_cuda.build_info import extension
from dgbench.kernels_cuda.temporal_sample.samples import Sample
from dgbench.kernels_cuda.temporal_store.device_sampling import DeviceSampler
from dgbench.kernels_cuda.temporal_store.types import (
    EXACT,
    GROWN,
    RECORD_BYTES,
    SIZINGS,
    BlockPolicy,
    LayoutName,
    StoreMemory,
)
from dgbench.runtime.errors import InvalidInputError, UnsupportedError, unknown_key

MOST_VERTICES: Final = 2**32 - 2
_LAYOUTS: Final = tuple(RECORD_BYTES)
_FENCE, _BLOCK, _VERTEX = 24, 48, 64  # bytes (temporal_store/layout.hpp)


@dataclass(frozen=True, slots=True)
class _Refused:
    """A batch that was refused: `why` by number, batches taken before it, the first event that is
    wrong, and what is wrong with it (temporal_store/cuda_resident.h)."""

    why: int
    batch: int
    event: int
    value: int
    t: float
    last: float

    def words(self, store: ResidentStore) -> str:
        """Why, in the words of the host's store."""
        at, most = f"[{self.event}]", 2**63 - 1 if store.layout == "wide" else 2**32 - 2
        vertices = f"the store has vertices 0 to {store.num_vertices - 1}"
        return {
            1: f"src{at} is {self.value}, {vertices}",
            2: f"dst{at} is {self.value}, {vertices}",
            3: f"t{at} is {self.t:f}, times are finite",
            4: f"eid{at} is {self.value}, this layout holds 0 to {most}",
            5: f"t{at} is {self.t:f}, layout compact holds {store.origin:f} plus whole numbers "
            "below 2^32",
            6: f"vertex {self.value} would have more than 2^32 - 2 records",
            7: f"t{at} is {self.t:f}, older than the last record of vertex {self.value} at "
            f"{self.last:f}",
            8: "there is no room for the batch; reserve it before inserts are recorded",
        }[self.why] + f" (batch {self.batch})"


class ResidentStore(DeviceSampler):
    """Records of a temporal graph by vertex and in time order, in a device's memory.

    Edges are never deleted, and late ones are refused. Inserts and samples go on one stream.

    Args:
        num_vertices, policy, layout, undirected, origin: as for `TemporalStore`.
        room: events that there is room for at first; 0 for none.
        cap_bytes: most bytes of the device's memory that the graph may take; None for no limit.
        device: a CUDA device.

    Raises:
        InvalidInputError, UnknownKeyError: an argument out of range or not known.
        UnsupportedError: no compiled operators for the device, or a static policy.
        MemoryError: the vertices do not fit.
    """

    def __init__(
        self,
        num_vertices: int,
        *,
        policy: BlockPolicy = GROWN,
        layout: LayoutName = "packed",
        undirected: bool = False,
        origin: float = 0.0,
        room: int = 0,
        cap_bytes: int | None = None,
        device: torch.device | str = "cuda",
    ) -> None:
        super().__init__(device)
        if layout not in RECORD_BYTES:
            raise unknown_key("layout", layout, RECORD_BYTES)
        if policy.name == "static":
            raise UnsupportedError("a static store takes no insert", hint="use another policy")
        if not 0 <= num_vertices <= MOST_VERTICES:
            raise InvalidInputError(
                f"num_vertices is {num_vertices}, allowed are 0 to {MOST_VERTICES}"
            )
        if cap_bytes is not None and cap_bytes < 1:
            raise InvalidInputError(f"cap_bytes is {cap_bytes}, allowed are numbers from 1")
        self.policy, self.undirected = policy, undirected
        self.layout: LayoutName = layout
        self.origin = float(origin)
        made = getattr(extension(self.device), "ResidentGraph", None)
        if made is None:
            raise UnsupportedError(f"a store on '{self.device}' is TemporalStore")
        self._num_vertices = num_vertices
        self._graph = made(
            num_vertices, SIZINGS[policy.name], policy.size, _LAYOUTS.index(layout), undirected,
            self.origin, cap_bytes or 0, self._number(),
        )  # fmt: skip
        self.clear()
        if room:
            self.reserve(room)

    @property
    def num_vertices(self) -> int:
        """N."""
        return self._num_vertices

    @property
    def num_events(self) -> int:
        """Edges that were taken since the store was empty. Waits for the device."""
        return self.check()["events"]

    @property
    def growths(self) -> int:
        """Inserts and reservations that had to allocate, which the host waits for."""
        return self._graph.growths

    @property
    def device_bytes(self) -> int:
        """Bytes of the device's memory that the graph takes, without scratch of inserts."""
        return self._graph.device_bytes

    def insert(self, src: Tensor, dst: Tensor, t: Tensor, eid: Tensor | None = None) -> None:
        """Append a batch of edges, all of it or nothing; samples after it on the stream see it.

        Nothing here waits for the device where there is room (`reserve`), unless the batch is in
        pageable memory of the host. Such a call can be part of a CUDA graph.

        Args:
            src, dst: int64[E], vertices of the store, on the device or on the CPU as all others.
            t: float64[E], finite and not before the last record of either vertex; on the CPU also
                int64[E].
            eid: int64[E], 0 or more; by default the number of the edge in order of insertion.

        Raises:
            InvalidInputError: another dtype, length or device. Other errors are raised by `check`.
            MemoryError: it does not fit; nothing was inserted.
        """
        where = src.device if isinstance(src, Tensor) else None
        check_vector(src, "src", torch.int64, device=where)
        count = src.numel()
        check_vector(dst, "dst", torch.int64, count, device=where)
        on_host = where.type == "cpu" and self.device.type != "cpu"
        if isinstance(t, Tensor) and t.dtype == torch.int64 and t.device.type == "cpu":
            if count and int(t.abs().max()) > EXACT:
                raise InvalidInputError("t holds integers beyond 2^53, which float64 cannot hold")
            t = t.double()
        check_vector(t, "t", torch.float64, count, device=where)
        given = [src, dst, t]
        if eid is not None:
            check_vector(eid, "eid", torch.int64, count, device=where)
            given.append(eid)
        if on_host:
            given = [array.to(self.device, non_blocking=True) for array in given]
        elif where.type != self.device.type:
            raise InvalidInputError(f"src lies on {where}, the store on {self.device}")
        given = [array.contiguous() for array in given]
        self._graph.insert(*given, *([None] if eid is None else []), *self._stream())

    def reserve(self, events: int, batch: int | None = None) -> None:
        """Make room for so many events more, in batches of at most `batch` (all at once if None).

        Until they have come no insert allocates. Blocks may be short, so that room is held for up
        to 2 records (4 where blocks grow) for each that comes.

        Raises:
            InvalidInputError: a negative number, or a batch above 2^31 - 1.
            MemoryError: it does not fit.
        """
        batch = events if batch is None else batch
        if events < 0 or not 0 <= batch < 2**31:
            raise InvalidInputError(
                f"events is {events} and batch {batch}, allowed are numbers from 0, batches below "
                "2^31"
            )
        self._graph.reserve(events, batch, *self._stream())

    def clear(self) -> None:
        """Forget all events; memory is kept."""
        self._graph.clear(*self._stream())

    def check(self) -> dict[str, Any]:
        """Wait for the device, and hear of batches that were refused.

        Returns:
            Numbers of `events`, `records`, and `slots`, `fences` and `blocks` in use.

        Raises:
            InvalidInputError: a batch was refused: for an argument out of range, an edge that is
                older than the last record of its vertex, or more than 2^32 - 2 records of one
                vertex. It and all batches after it were left out; the next one is looked at again.
        """
        return self._heard(self._graph.state(*self._stream()))

    def sample_hops(self, *roots: Any, **how: Any) -> list[list[Sample]]:
        """As `DeviceSampler.sample_hops`; raises what `check` would, without another wait."""
        found = super().sample_hops(*roots, **how)
        self._heard(self._graph.heard())
        return found

    def memory(self) -> StoreMemory:
        """Records, slots, blocks and bytes in use; `device_bytes` holds more. Waits for the device.

        Slots that grown blocks have left are counted: they are not used again.
        """
        told = self.check()
        return StoreMemory(
            records=told["records"],
            slots=told["slots"],
            blocks=told["blocks"],
            vertices=self.num_vertices,
            held={
                "records": told["slots"] * RECORD_BYTES[self.layout],
                "fences": told["fences"] * _FENCE,
                "blocks": told["blocks"] * _BLOCK,
                "vertices": self.num_vertices * _VERTEX,
                "scratch": self._graph.scratch_bytes,
            },
        )

    def close(self) -> None:
        """Give all memory back; `clear` makes an empty store of it again."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self._graph.release()

    def _heard(self, told: dict[str, Any]) -> dict[str, Any]:
        """Raises InvalidInputError where a batch was refused, and lets the next ones in."""
        if told["refused"] is None:
            return told
        refused = _Refused(*told["refused"])
        self._graph.forgive(*self._stream())
        hint = "sort the batch by time" if refused.why == 7 else ""
        raise InvalidInputError(refused.words(self), hint=hint)
