"""The memory of every vertex that TGN keeps, in one process, and what a batch leaves there."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor

from dgbench.models.ctdg import MemoryRows

SMALL: Final = 1 << 20
"""Bytes of all rows up to which a copy costs less than noting what is written."""


class MemoryMark:
    """A moment of a memory to go back to: the rows that were written since, as they were then."""

    def __init__(self, num_vertices: int) -> None:
        self._kept = torch.zeros(num_vertices, dtype=torch.bool)
        self.pieces: list[tuple[Tensor, MemoryRows]] = []

    def keep(self, ids: Tensor, rows: MemoryRows) -> None:
        """Keep the `rows` of vertices int64[n] that are about to be written for the first time."""
        fresh = ids[~self._kept[ids]]
        if fresh.numel():
            self._kept[fresh] = True
            self.pieces.append((fresh, rows[fresh]))


class VertexMemory:
    """Memories and waiting messages of N vertices.

    Trainers read it at the start of a batch and write it at the end. A system that deals memories
    out to owners replaces it by anything with `read`, `write`, `state`, `mark` and `restore`.
    """

    def __init__(
        self,
        num_vertices: int,
        memory_dim: int,
        mail_dim: int,
        *,
        begin: float = 0.0,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        """All zero.

        Args:
            num_vertices: N.
            memory_dim, mail_dim: floats of a memory and of a message.
            begin: time from which the age of the first message is counted.
            dtype: of both. device: where they lie, and ids and rows are given and had.
        """
        self._begin = begin
        self._marks: weakref.WeakSet[MemoryMark] = weakref.WeakSet()
        self._rows = MemoryRows(
            torch.zeros(num_vertices, memory_dim, dtype=dtype, device=device),
            torch.zeros(num_vertices, dtype=torch.float64, device=device),
            torch.zeros(num_vertices, mail_dim, dtype=dtype, device=device),
            torch.zeros(num_vertices, dtype=torch.float64, device=device),
        )
        self.reset()

    @property
    def columns(self) -> tuple[Tensor, ...]:
        """Tables of all vertices in the order of `MemoryRows`, written in place and never moved."""
        return tuple(getattr(self._rows, name) for name in MemoryRows.__slots__)

    def read(self, ids: Tensor) -> MemoryRows:
        """Rows of vertices int64[n], any number of times the same."""
        return self._rows[ids]

    def write(self, ids: Tensor, events: Tensor, rows: MemoryRows) -> None:
        """Replace rows.

        Args:
            ids: int64[n], each vertex once.
            events: int64[n], ordinal of the event that each row comes from; where several workers
                write the same vertex, the largest wins. Not needed in one process.
            rows: n of them.
        """
        self.keep(ids)
        self._put(ids, rows)

    def _put(self, ids: Tensor, rows: MemoryRows) -> None:
        for name in MemoryRows.__slots__:
            column: Tensor = getattr(self._rows, name)
            column[ids] = getattr(rows, name).to(column)

    def keep(self, ids: Tensor | None, but: MemoryMark | None = None) -> None:
        """Let marks keep rows that are about to be written; for those who write `columns`.

        Args:
            ids: int64[n]; None: all. but: a mark that has them.
        """
        for mark in self._marks:
            if mark is not but:
                every = torch.arange(self._rows.updated.numel()) if ids is None else ids
                mark.keep(every, self._rows)

    def reset(self) -> None:
        """Back to the beginning: zeros, and no message."""
        self.keep(None)
        self._rows.memory.zero_()
        self._rows.updated.fill_(self._begin)
        self._rows.mail.zero_()
        self._rows.mail_time.fill_(-torch.inf)

    def state(self) -> MemoryRows:
        """A copy of all rows."""
        return MemoryRows(*(getattr(self._rows, name).clone() for name in MemoryRows.__slots__))

    def mark(self) -> MemoryMark | MemoryRows:
        """This moment, to go back to by `restore` any number of times.

        Where all rows are many on the host, it costs what is written afterwards: copies of 25,000
        vertices took a sixth of the rounds of some hundred events.
        """
        memory = self._rows.memory
        nbytes = sum(getattr(self._rows, name).nbytes for name in MemoryRows.__slots__)
        if memory.device.type != "cpu" or nbytes <= SMALL:
            return self.state()
        mark = MemoryMark(memory.shape[0])
        self._marks.add(mark)
        return mark

    def restore(self, state: MemoryMark | MemoryRows) -> None:
        """Back to a copy, of this memory or another one, or to a mark of this one."""
        if isinstance(state, MemoryMark):
            for ids, rows in state.pieces:
                self.keep(ids, but=state)
                self._put(ids, rows)
            return
        self.keep(None)
        for name in MemoryRows.__slots__:
            getattr(self._rows, name).copy_(getattr(state, name))


@dataclass(slots=True, eq=False)
class HeldWrites:
    """Writes of batches whose last time is not over, in order.

    Attributes:
        time: that time; None where nothing is held.
        writes: vertices, events and rows of each, as `VertexMemory.write` takes them.
    """

    time: float | None = None
    writes: list[tuple[Tensor, Tensor, MemoryRows]] = field(default_factory=list)

    def add(self, time: float, ids: Tensor, events: Tensor, rows: MemoryRows) -> None:
        """Hold one more write."""
        self.time = time
        self.writes.append((ids, events, rows))

    def copy(self) -> HeldWrites:
        """The same writes; what is written is never changed."""
        return HeldWrites(self.time, list(self.writes))


@dataclass(frozen=True, slots=True, eq=False)
class MemoryState:
    """A copy or a mark of a memory, in the form of whoever keeps its rows, and what is held."""

    rows: Any
    held: HeldWrites


@dataclass(frozen=True, slots=True, eq=False)
class Recalled:
    """Memories as a batch found them.

    All on the device of the model.

    Attributes:
        vertices: int64[U], ascending.
        place: int64: the row of each target and neighbour of the farthest hop; roots come first.
        rows: as read.
        memories: [U, M], messages taken in.
    """

    vertices: Tensor
    place: Tensor
    rows: MemoryRows
    memories: Tensor


def last_messages(
    recalled: Recalled, events: Tensor, times: Tensor, edges: Tensor | None
) -> tuple[Tensor, Tensor, MemoryRows]:
    """New state of the ends of a batch's events: their memory, and the message of their last event.

    A message older than the one that waits at its vertex is dropped, as of events replayed.

    Args:
        recalled: memories as the batch found them; its roots are the b sources, then the b
            destinations, then any others.
        events: int64[b], ascending.
        times: float64[b] or longer, of the events.
        edges: [b, edge_dim], or None.

    Returns:
        int64[n] vertices, each once, int64[n] the events that they keep, and n rows.
    """
    device = recalled.place.device
    # Source and destination of each event, one event after the other.
    ends = recalled.place[: 2 * events.numel()].view(2, -1).t().flatten()
    last = torch.full_like(recalled.vertices, -1, device=device).scatter_reduce_(
        0, ends, torch.arange(ends.numel(), device=device), "amax"
    )
    touched = (last >= 0).nonzero().squeeze(1)
    entry = last[touched]
    time = times.to(device)[entry // 2]
    newer = time >= recalled.rows.mail_time[touched]
    touched, entry, time = touched[newer], entry[newer], time[newer]
    memories, old = recalled.memories.detach(), recalled.rows[touched]
    mail = [memories[touched], memories[ends[entry ^ 1]]]
    if edges is not None:
        mail.append(edges[entry // 2])
    rows = MemoryRows(
        memories[touched],
        torch.where(old.mail_time.isfinite(), old.mail_time, old.updated),
        torch.cat(mail, dim=1),
        time,
    )
    return recalled.vertices[touched], events.to(device)[entry // 2], rows
