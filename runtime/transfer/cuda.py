"""The link to a CUDA device: pinned staging, a stream of its own, events between the two."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from dgbench.runtime.meter import Meter
from dgbench.runtime.transfer.link import PendingTransfer, TransferLink
from dgbench.runtime.transfer.slots import Slot, SlotLayout, SlotPool, Staged


class CudaDevice:
    """CUDA operations that a link uses. Tests put a simulated device in its place."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def new_stream(self) -> torch.cuda.Stream:
        """A stream beside the others."""
        return torch.cuda.Stream(self.device)

    def current_stream(self) -> torch.cuda.Stream:
        """The stream that the caller's kernels go to."""
        return torch.cuda.current_stream(self.device)

    def new_event(self) -> torch.cuda.Event:
        """An event that takes the time."""
        return torch.cuda.Event(enable_timing=True)

    def allocate(self, nbytes: int, stream: torch.cuda.Stream) -> Tensor:
        """uint8[nbytes] on the device, free for use on `stream`."""
        with torch.cuda.stream(stream):
            return torch.empty(nbytes, dtype=torch.uint8, device=self.device)

    def copy(
        self, target: Tensor, source: Tensor, stream: torch.cuda.Stream, *, blocking: bool
    ) -> None:
        """Copy uint8 on `stream`; if blocking, return when it is done."""
        with torch.cuda.stream(stream):
            target.copy_(source, non_blocking=not blocking)

    def used_on(self, buffer: Tensor, stream: torch.cuda.Stream) -> None:
        """Tell the allocator that `stream` reads the buffer, too."""
        buffer.record_stream(stream)

    def pin(self, tensor: Tensor) -> Tensor:
        """The tensor in page-locked memory."""
        return tensor if tensor.is_pinned() else tensor.pin_memory()


class _Span(NamedTuple):
    """Something on the device between two events."""

    begin: torch.cuda.Event
    end: torch.cuda.Event
    nbytes: int
    names: tuple[str, ...]  # of the meter's spent times


class _EventClock:
    """Turns pairs of events into spent times once the device has passed them."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._open: deque[_Span] = deque()
        self.moved = 0
        self.busy = 0.0

    def add(self, span: _Span) -> None:
        """Note a span whose events are recorded."""
        self._open.append(span)

    def harvest(self, *, wait: bool = False) -> None:
        """Account for the spans that are over; with `wait` for all of them."""
        for _ in range(len(self._open)):
            span = self._open[0]
            if not span.end.query():
                if not wait:
                    return
                span.end.synchronize()
            self._open.popleft()
            seconds = span.begin.elapsed_time(span.end) / 1e3
            for name in span.names:
                self._meter.spend(name, seconds)
            if "copy_busy" in span.names:
                self.moved += span.nbytes
                self.busy += seconds


class CudaTicket(PendingTransfer):
    """A group in, or on its way to, a slot on the device."""

    def __init__(
        self, link: CudaLink, layout: SlotLayout, slot: Slot, arrived: torch.cuda.Event
    ) -> None:
        super().__init__(layout.nbytes)
        self._link, self._layout, self._slot, self._arrived = link, layout, slot, arrived
        self._views: list[Tensor] | None = None

    def wait(self) -> list[Tensor]:
        self._check_held()
        self._link.order(self._arrived, self._slot)
        if self._views is None:
            self._views = self._slot.views(self._layout)
        return self._views

    def release(self) -> None:
        if self._released:
            return
        self._released = True
        self._views = None
        self._link.give(self._slot)


class CudaLink(TransferLink):
    """Copies into slots on the device.

    Asynchronous: on a stream of its own. The compute stream waits for the event behind a copy, the
    copy stream for the event behind the last use of the slot; the host waits for neither.
    Synchronous: on the caller's stream from memory as it is, one tensor after the other, and the
    host waits for each, as a plain `.to(device)` does.

    Tensors of a ticket are to be used and released under one current stream.
    """

    copies = True

    def __init__(
        self,
        device: torch.device,
        meter: Meter,
        *,
        asynchronous: bool,
        slots: int,
        hardware: CudaDevice | None = None,
    ) -> None:
        super().__init__(meter)
        self._cuda = CudaDevice(device) if hardware is None else hardware
        self._own = self._cuda.new_stream() if asynchronous else None
        self._pool = SlotPool(slots, self._allocate, meter)
        self._clock = _EventClock(meter)

    def stage(self, tensor: Tensor) -> Tensor:
        return tensor.contiguous() if self._own is None else self._cuda.pin(tensor.contiguous())

    def stage_all(self, tensors: Sequence[Tensor]) -> Staged:
        return Staged.block(tensors, self.stage)

    def send(self, tensors: Sequence[Tensor]) -> CudaTicket:
        self._clock.harvest()
        layout = self._layout(tensors)
        slot = self._pool.take(layout.span)
        stream = self._stream()
        try:
            if slot.free is not None:
                stream.wait_event(slot.free)
            begin, arrived = self._cuda.new_event(), self._cuda.new_event()
            begin.record(stream)
            for source, offset, nbytes in layout.runs:
                target = slot.buffer[offset : offset + nbytes]
                self._cuda.copy(target, source, stream, blocking=self._own is None)
            arrived.record(stream)
        except BaseException:
            self.give(slot)
            raise
        # On the caller's stream nothing else can run meanwhile: all of the copy is waiting.
        stalls = self._own is None and self._meter.timing
        names = ("copy_busy", "copy_wait") if stalls else ("copy_busy",)
        self._clock.add(_Span(begin, arrived, layout.nbytes, names))
        return CudaTicket(self, layout, slot, arrived)

    def order(self, arrived: torch.cuda.Event, slot: Slot) -> None:
        """Let the current stream's next work come after `arrived`, and reckon with its reading."""
        current = self._cuda.current_stream()
        timed = self._meter.timing and self._own is not None
        if timed:
            begin, end = self._cuda.new_event(), self._cuda.new_event()
            begin.record(current)
        current.wait_event(arrived)
        if timed:
            end.record(current)
            self._clock.add(_Span(begin, end, 0, ("copy_wait",)))
        if slot.reader != current:
            # The memory came from the copy stream; dropped (on growth, at the end), the allocator
            # must not give it away while this stream still reads it.
            self._cuda.used_on(slot.buffer, current)
            slot.reader = current

    def give(self, slot: Slot) -> None:
        """Take a slot back; the next copy into it comes after the current stream's work so far."""
        slot.free = self._cuda.new_event()
        slot.free.record(self._cuda.current_stream())
        self._pool.give(slot)
        self._clock.harvest()

    def bandwidth(self) -> float | None:
        self._clock.harvest(wait=self._clock.moved == 0)
        return self._clock.moved / self._clock.busy if self._clock.moved else None

    def close(self) -> None:
        if not self._closed:
            self._clock.harvest(wait=True)
        super().close()

    def _stream(self) -> torch.cuda.Stream:
        return self._cuda.current_stream() if self._own is None else self._own

    def _allocate(self, nbytes: int) -> Tensor:
        return self._cuda.allocate(nbytes, self._stream())
