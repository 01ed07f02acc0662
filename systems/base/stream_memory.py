"""The memory of every vertex that TGN keeps, in one process, and what a batch leaves there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from dgbench.models.ctdg import MemoryRows


class VertexMemory:
    """Memories and waiting messages of N vertices.

    Trainers read it at the start of a batch and write it at the end. A system that deals memories
    out to owners replaces it by anything with `read` and `write`.
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
        for name in MemoryRows.__slots__:
            column: Tensor = getattr(self._rows, name)
            column[ids] = getattr(rows, name).to(column)

    def reset(self) -> None:
        """Back to the beginning: zeros, and no message."""
        self._rows.memory.zero_()
        self._rows.updated.fill_(self._begin)
        self._rows.mail.zero_()
        self._rows.mail_time.fill_(-torch.inf)

    def state(self) -> MemoryRows:
        """A copy of all rows."""
        return MemoryRows(*(getattr(self._rows, name).clone() for name in MemoryRows.__slots__))

    def restore(self, state: MemoryRows) -> None:
        """Back to a copy."""
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
    """A copy of a memory: its rows, in the form of whoever keeps them, and what is held."""

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
