"""A CPU that copies as a device would be sent things: into memory apart, by a thread apart.

It makes bytes, overlap and the life of the memory real where there is no device, so that an
engine that reads too early or releases too early is found on any machine.
"""

from __future__ import annotations

import ctypes
import queue
import threading
import time
import weakref
from collections.abc import Sequence

import torch
from torch import Tensor

from dgbench.runtime.meter import Meter
from dgbench.runtime.transfer.link import Link, Ticket
from dgbench.runtime.transfer.slots import Layout, Slot, SlotPool


class _Engine:
    """What copies, and how long it took. Used by one thread at a time."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self.moved = 0
        self.busy = 0.0

    def copy(self, layout: Layout, buffer: Tensor) -> None:
        """Copy a group into the buffer of its slot."""
        start = time.perf_counter()
        base = buffer.data_ptr()
        for source, offset, nbytes in layout.runs:
            copy_bytes(base + offset, source.data_ptr(), nbytes)
        seconds = time.perf_counter() - start
        self.busy += seconds
        self.moved += layout.nbytes
        self._meter.spend("copy_busy", seconds)


def copy_bytes(target: int, source: int, nbytes: int) -> None:
    """Copy between addresses, without the interpreter's lock.

    One thread does it: torch's own copy would take the threads that compute.
    """
    ctypes.memmove(target, source, nbytes)


class ArenaTicket(Ticket):
    """A group in, or on its way to, a slot of the arena."""

    def __init__(self, layout: Layout, slot: Slot, pool: SlotPool, meter: Meter) -> None:
        super().__init__(layout.nbytes)
        self._layout = layout
        self._slot, self._pool, self._meter = slot, pool, meter
        # Of its own: after a release before the copy the slot may have got other memory by then.
        self._buffer: Tensor | None = slot.buffer
        self._done = threading.Event()
        self._error: Exception | None = None
        self._views: list[Tensor] | None = None

    def fill(self, engine: _Engine) -> None:
        """Copy; what goes wrong is kept for whoever waits."""
        try:
            engine.copy(self._layout, self._buffer)
        except Exception as error:
            self._error = error
        finally:
            self._buffer = None
            self._done.set()

    def wait(self) -> list[Tensor]:
        self._check_held()
        if not self._done.is_set():
            start = time.perf_counter()
            self._done.wait()
            self._meter.spend("copy_wait", time.perf_counter() - start)
        if self._error is not None:
            raise self._error
        if self._views is None:
            self._views = self._slot.views(self._layout)
        return self._views

    def release(self) -> None:
        if self._released:
            return
        self._released = True
        self._views = None
        # A slot released before its copy was done may be taken again at once: copies are made in
        # the order of their sends, so the later one also comes last.
        self._pool.give(self._slot)


class ArenaLink(Link):
    """Copies into slots of an arena, in a thread of its own or (synchronous) in the caller."""

    copies = True

    def __init__(self, meter: Meter, *, asynchronous: bool, slots: int) -> None:
        super().__init__(meter)
        self._asynchronous = asynchronous
        self._pool = SlotPool(slots, _allocate, meter)
        self._engine = _Engine(meter)
        self._jobs: queue.SimpleQueue[ArenaTicket | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._ending: weakref.finalize | None = None

    def send(self, tensors: Sequence[Tensor]) -> ArenaTicket:
        layout = self._layout(tensors)
        slot = self._pool.take(layout.span)
        # The copy goes past torch; this lets a backward pass that still needs the old content fail.
        torch.autograd.graph.increment_version(slot.buffer)
        ticket = ArenaTicket(layout, slot, self._pool, self._meter)
        if self._asynchronous:
            if self._thread is None:
                self._start()
            self._jobs.put(ticket)
            return ticket
        start = time.perf_counter()
        ticket.fill(self._engine)
        self._meter.spend("copy_wait", time.perf_counter() - start)
        return ticket

    def bandwidth(self) -> float | None:
        return self._engine.moved / self._engine.busy if self._engine.moved else None

    def close(self) -> None:
        super().close()
        if self._thread is not None:
            self._ending()
            self._thread.join()
            self._thread = None

    def _start(self) -> None:
        # The thread holds no reference to the link, so a forgotten link ends it, too.
        self._thread = threading.Thread(
            target=_work, args=(self._jobs, self._engine), name="dgbench-copy", daemon=True
        )
        self._thread.start()
        self._ending = weakref.finalize(self, self._jobs.put, None)


def _allocate(nbytes: int) -> Tensor:
    return torch.empty(nbytes, dtype=torch.uint8)


def _work(jobs: queue.SimpleQueue[ArenaTicket | None], engine: _Engine) -> None:
    while (ticket := jobs.get()) is not None:
        ticket.fill(engine)
        del ticket  # or its memory would live until the next one comes
