"""A CPU that copies as a device would be sent things: into memory apart, by a thread apart.

It makes bytes, overlap and the life of the memory real where there is no device, so that an
engine that reads too early or releases too early is found on any machine.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dgbench.kernels_cuda.build_info import extension
from dgbench.runtime.meter import Meter
from dgbench.runtime.transfer.link import PendingTransfer, TransferLink
from dgbench.runtime.transfer.slots import Slot, SlotLayout, SlotPool


def copy_bytes(target: int, source: int, nbytes: int) -> None:
    """Copy between addresses in the caller, without the interpreter's lock.

    torch's own copy would take all the threads that compute.
    """
    ctypes.memmove(target, source, nbytes)


_FORKED: list[Any] = []
"""Objects of threads that a fork of the process does not have; ending them would wait for ever."""


class CallerEngine:
    """Copies at once, in the thread that asks for it."""

    def __init__(self) -> None:
        self._bytes = 0
        self._busy = 0.0
        self._failed: dict[int, Exception] = {}
        self._done = 0

    def start(self, layout: SlotLayout, buffer: Tensor) -> int:
        """Copy a group into a buffer; returns the job's number."""
        start = time.perf_counter()
        base = buffer.data_ptr()
        self._done += 1
        try:
            for source, offset, nbytes in layout.runs:
                copy_bytes(base + offset, source.data_ptr(), nbytes)
                self._bytes += nbytes
        except Exception as error:
            self._failed[self._done] = error
        self._busy += time.perf_counter() - start
        return self._done

    def finish(self, job: int) -> float:
        """Raise what went wrong with the job; returns the seconds waited for it, none."""
        if job in self._failed:
            raise self._failed[job]
        return 0.0

    def progress(self) -> tuple[int, float]:
        """Bytes copied so far, and the seconds that took."""
        return self._bytes, self._busy

    def close(self) -> None:
        """Nothing is under way."""


class ThreadEngine:
    """Copies in a thread of its own that never takes the interpreter's lock, in order."""

    def __init__(self) -> None:
        self.thread: Any = extension(torch.device("cpu")).CopyThread()
        self._process = os.getpid()
        # What is under way, so that its memory stays: released tickets and dropped sources, too.
        self._memory: deque[tuple[int, SlotLayout, Tensor]] = deque()

    def start(self, layout: SlotLayout, buffer: Tensor) -> int:
        """Queue the copy of a group into a buffer; returns the job's number."""
        self._forget(self.thread.progress()[0])
        base = buffer.data_ptr()
        runs = [(base + offset, source.data_ptr(), n) for source, offset, n in layout.runs]
        job = self.thread.submit(runs)
        self._memory.append((job, layout, buffer))
        return job

    def finish(self, job: int) -> float:
        """Wait for the job; returns the seconds it took, raises what went wrong."""
        return self.thread.wait(job)

    def progress(self) -> tuple[int, float]:
        """Bytes copied so far, and the seconds that took."""
        return self.thread.progress()[1:]

    def close(self) -> None:
        """Copy what is queued and end the thread."""
        if os.getpid() != self._process:
            # A fork has the object and not its thread, which nobody may wait for, ever.
            _FORKED.append(self.thread)
            return
        self.thread.close()
        self._memory.clear()

    def _forget(self, done: int) -> None:
        while self._memory and self._memory[0][0] <= done:
            self._memory.popleft()


class ArenaTicket(PendingTransfer):
    """A group in, or on its way to, a slot of the arena."""

    def __init__(self, link: ArenaLink, layout: SlotLayout, slot: Slot, job: int) -> None:
        super().__init__(layout.nbytes)
        self._account, self._engine, self._pool = link.account, link.engine, link.pool
        self._layout, self._slot, self._job = layout, slot, job
        self._views: list[Tensor] | None = None

    def wait(self) -> list[Tensor]:
        self._check_held()
        if self._views is None:
            waited = self._engine.finish(self._job)
            self._account.update(waited)
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


class _Account:
    """Brings an engine's busy time into the meter."""

    def __init__(self, engine: CallerEngine | ThreadEngine, meter: Meter) -> None:
        self._engine, self._meter = engine, meter
        self._known = 0.0  # of the engine's seconds, those that the meter has
        self._lock = threading.Lock()

    def update(self, waited: float = 0.0) -> None:
        """Note what the engine did since the last time, and that a caller waited."""
        with self._lock:
            _, busy = self._engine.progress()
            fresh, self._known = busy - self._known, busy
        if fresh > 0:
            self._meter.spend("copy_busy", fresh)
        if waited > 0:
            self._meter.spend("copy_wait", waited)


class ArenaLink(TransferLink):
    """Copies into slots of an arena, in a thread of its own or (synchronous) in the caller."""

    copies = True

    def __init__(self, meter: Meter, *, asynchronous: bool, slots: int) -> None:
        super().__init__(meter)
        self._asynchronous = asynchronous
        self.pool = SlotPool(slots, _allocate, meter)
        self.engine = ThreadEngine() if asynchronous else CallerEngine()
        self.account = _Account(self.engine, meter)
        # Also where a link is forgotten: the memory must outlive the copies into it.
        self._end = weakref.finalize(self, self.engine.close)

    def send(self, tensors: Sequence[Tensor]) -> ArenaTicket:
        layout = self._layout(tensors)
        slot = self.pool.take(layout.span)
        # The copy goes past torch; this lets a backward pass that still needs the old content fail.
        torch.autograd.graph.increment_version(slot.buffer)
        start = time.perf_counter()
        try:
            job = self.engine.start(layout, slot.buffer)
        except BaseException:
            self.pool.give(slot)
            raise
        if not self._asynchronous:
            self.account.update(time.perf_counter() - start)
        return ArenaTicket(self, layout, slot, job)

    def bandwidth(self) -> float | None:
        nbytes, busy = self.engine.progress()
        return nbytes / busy if nbytes and busy else None

    def close(self) -> None:
        super().close()
        self._end()
        self.account.update()


def _allocate(nbytes: int) -> Tensor:
    return torch.empty(nbytes, dtype=torch.uint8)
