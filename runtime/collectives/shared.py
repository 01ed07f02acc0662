"""Rows between ranks of one machine through memory that they share.

A byte through Gloo's loopback is copied into the kernel and out again, in two processes that call
it for every few kilobytes. Here a sender copies a part into its own piece of memory, the receiver
copies it out of there, and a short note in a pipe says that it lies there and later that it was
taken. Waiting is waiting for the pipe, which costs no processor; the kernel orders a note behind
the bytes it speaks of on every architecture. Memory and pipes have no names, so that ranks which
are killed leave nothing.
"""

from __future__ import annotations

import mmap
import os
import select
import struct
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from dgbench.runtime.errors import UnsupportedError

_NOTE: Final = struct.Struct("=qqqq")  # kind, or bytes of a part; sender; operation; offset
_TAKEN: Final = -1
_HELD_BACK: Final = 16
"""Notes of small parts taken that wait for a part to go with; one write tells both."""

_SMALL: Final = 2**16
"""Bytes up to which a part is small; that a larger one was taken is told at once."""

_PAGE: Final = 4096

Tell = Callable[[Any], list[Any]]
"""An all-gather of objects over the group."""


def machine_key() -> str | None:
    """Key shared by ranks that can open each other's files; None where that is impossible.

    Containers with networks of their own are hosts of their own, whatever else they share.
    """
    if not hasattr(os, "memfd_create"):
        return None
    boot = Path("/proc/sys/kernel/random/boot_id")
    try:
        spaces = [os.readlink(f"/proc/self/ns/{name}") for name in ("pid", "net")]
        return f"{boot.read_text()} {spaces} {os.getuid()}"
    except OSError:
        return None


def share_memory(nbytes: int, rank: int, tell: Tell) -> mmap.mmap:
    """Zeroed memory that all ranks of a group on one machine see.

    Args:
        nbytes: how much.
        rank: of the caller; rank 0 makes it.
        tell: an all-gather of objects.

    Raises:
        UnsupportedError: ranks of several machines, or not on Linux.
    """
    machine, made = machine_key(), -1
    if rank == 0 and machine is not None:
        made = os.memfd_create("dgbench")
        os.ftruncate(made, nbytes)
    memory = None
    try:
        notes = tell((machine, os.getpid(), made))
        if _together(notes):
            memory = _map(notes[0][1], notes[0][2], nbytes)
        if not all(tell(memory is not None)) or memory is None:
            raise UnsupportedError(
                "memory can be shared by the ranks of one Linux machine only",
                hint="ranks of several machines have a real wire",
            )
    finally:
        if made >= 0:
            os.close(made)
    return memory


def _together(notes: list[tuple[Any, ...]]) -> bool:
    machines = {note[0] for note in notes}
    return len(machines) == 1 and None not in machines


def _map(pid: int, file: int, nbytes: int) -> mmap.mmap | None:
    try:
        own = os.open(f"/proc/{pid}/fd/{file}", os.O_RDWR)
    except OSError:
        return None
    try:
        return mmap.mmap(own, nbytes)
    except (OSError, ValueError):
        return None
    finally:
        os.close(own)


class Mailbox:
    """Per-rank outboxes in shared memory: a rank writes its own, and reads its parts from the
    others'.

    Memory is taken as it is needed and used again when everybody has taken a part and said so: of
    large parts at once, of small ones with their own next part. So it is little more than was ever
    under way.

    Args:
        rank, size: of the caller and its group.
        outboxes: memory of every rank. inbox: of this rank's pipe, to be read. bells: of the pipes
            of all ranks, to be written to; this rank's own is not used.
        timeout_s: after which waiting for a rank fails.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        outboxes: list[mmap.mmap],
        inbox: int,
        bells: list[int],
        timeout_s: float,
    ) -> None:
        self._rank, self._size, self._timeout_s = rank, size, timeout_s
        self._boxes = [torch.frombuffer(box, dtype=torch.uint8) for box in outboxes]
        self._inbox, self._bells = inbox, bells
        self._poll = select.poll()
        self._poll.register(inbox, select.POLLIN)
        self._rest = b""
        self._taken: list[list[int]] = [[] for _ in range(size)]  # by sender: operations
        self._there: dict[tuple[int, int], tuple[int, int]] = {}  # (sender, operation) -> place
        self._lent: dict[int, tuple[int, int, set[int]]] = {}  # operation -> place, who reads it

    @classmethod
    def open(cls, rank: int, size: int, tell: Tell, timeout_s: float) -> Mailbox | None:
        """Open the boxes of a group; all ranks call it. None, everywhere, where one cannot."""
        machine = machine_key()
        # Much more than is used: pages come into being when they are written to.
        nbytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        made, read, write = -1, -1, -1
        boxes: list[mmap.mmap] = []
        bells: list[int] = []
        good = False
        try:
            if machine is not None:
                made = os.memfd_create("dgbench")
                os.ftruncate(made, nbytes)
                read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
            notes = tell((machine, os.getpid(), made, write, nbytes))
            if _together(notes):
                mapped = [_map(pid, file, length) for _, pid, file, _, length in notes]
                boxes = [box for box in mapped if box is not None]
                bells = [_bell(pid, file) for _, pid, _, file, _ in notes]
            mine = bool(boxes) and len(boxes) == len(bells) and all(bell >= 0 for bell in bells)
            good = all(tell(mine))
        finally:
            # The pipe ends when all other ranks have, so it is not kept open from here.
            for file in (made, write, *(bells[rank : rank + 1] if good else [*bells, read])):
                if file >= 0:
                    os.close(file)
        return cls(rank, size, boxes, read, bells, timeout_s) if good else None

    def post(self, number: int, parts: Mapping[int, Tensor], *, same: bool = False) -> None:
        """Lay out parts for others and tell them; returns without waiting for anybody to take them.

        Args:
            number: of the operation.
            parts: receiver -> uint8[n]; who gets nothing is not told.
            same: all parts are one tensor, which is laid out once.
        """
        parts = {to: part for to, part in parts.items() if part.numel()}
        if not parts:
            return
        self._drain()
        sizes = [part.numel() for part in parts.values()]
        start = self._place(sizes[0] if same else sum(sizes))
        stop, told, box = start, {}, self._boxes[self._rank]
        for to, part in parts.items():
            if not same or stop == start:
                told[to] = stop
                box[stop : stop + part.numel()].copy_(part)
                stop += part.numel()
            else:
                told[to] = start
        self._lent[number] = (start, stop, set(parts))
        for to, offset in told.items():
            self._ring(to, _NOTE.pack(parts[to].numel(), self._rank, number, offset))

    def take(self, number: int, sender: int, into: Tensor) -> None:
        """Wait for a part and copy it to `into`, uint8[n].

        Raises:
            RuntimeError: the rank is gone, late, or sends another number of bytes.
        """
        if not into.numel():
            return
        deadline = None
        while (sender, number) not in self._there:
            self._drain()
            if (sender, number) in self._there:
                break
            now = time.monotonic()
            deadline = deadline or now + self._timeout_s
            if now >= deadline:
                raise RuntimeError(f"rank {sender} did not send within {self._timeout_s:g} s")
            self._poll.poll(1e3 * (deadline - now))
        offset, length = self._there.pop((sender, number))
        if length != into.numel():
            raise RuntimeError(f"rank {sender} sends {length} bytes, expected {into.numel()}")
        into.copy_(self._boxes[sender][offset : offset + length])
        self._taken[sender].append(number)
        if length > _SMALL or len(self._taken[sender]) >= _HELD_BACK:
            self._ring(sender)

    @property
    def lent_bytes(self) -> int:
        """Bytes laid out that somebody has not taken yet, as far as this rank has heard."""
        return sum(stop - start for start, stop, _ in self._lent.values())

    def tell(self) -> None:
        """Tell others now what was taken from them, which otherwise waits for the next parts."""
        for sender, numbers in enumerate(self._taken):
            if numbers:
                self._ring(sender)

    def close(self) -> None:
        """Give memory and pipes back; nothing may be under way."""
        self._boxes = []
        for to, bell in enumerate(self._bells):
            if to != self._rank:
                os.close(bell)
        os.close(self._inbox)
        self._bells = []

    def _place(self, nbytes: int) -> int:
        """The lowest gap of so many bytes, so that memory that was used is used again."""
        start = 0
        for first, stop, _ in sorted(self._lent.values(), key=lambda lent: lent[0]):
            if first - start >= nbytes:
                break
            start = max(start, -(-stop // _PAGE) * _PAGE)
        if start + nbytes > self._boxes[self._rank].numel():
            raise MemoryError(f"{nbytes} bytes are to be sent, and others have not taken what was")
        return start

    def _ring(self, to: int, note: bytes = b"") -> None:
        """Tell a rank what was taken from it, and what lies here for it."""
        taken, self._taken[to] = self._taken[to], []
        notes = b"".join(_NOTE.pack(_TAKEN, self._rank, number, 0) for number in taken) + note
        while True:
            try:
                os.write(self._bells[to], notes)  # less than PIPE_BUF: written whole or not at all
                return
            except BlockingIOError:
                # Its pipe is full. It reads when it waits for somebody, as this rank does now.
                self._drain()
                time.sleep(1e-4)
            except BrokenPipeError:
                if not note:
                    return  # it left without asking whether its part was taken
                raise RuntimeError(f"rank {to} is gone") from None

    def _drain(self) -> None:
        """Read the notes that there are."""
        try:
            read = os.read(self._inbox, 2**16)
        except BlockingIOError:
            return
        if not read:
            raise RuntimeError("all other ranks are gone")
        read = self._rest + read
        whole = len(read) - len(read) % _NOTE.size
        self._rest = read[whole:]
        for kind, rank, number, offset in _NOTE.iter_unpack(read[:whole]):
            if kind == _TAKEN:
                readers = self._lent[number][2]
                readers.discard(rank)
                if not readers:
                    del self._lent[number]
            else:
                self._there[rank, number] = (offset, kind)


def _bell(pid: int, file: int) -> int:
    try:
        return os.open(f"/proc/{pid}/fd/{file}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return -1
