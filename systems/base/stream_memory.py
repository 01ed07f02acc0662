"""The memory of every vertex that TGN keeps, in one process."""

from __future__ import annotations

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
    ) -> None:
        """All zero.

        Args:
            num_vertices: N.
            memory_dim, mail_dim: floats of a memory and of a message.
            begin: time from which the age of the first message is counted.
            dtype: of both.
        """
        self._begin = begin
        self._rows = MemoryRows(
            torch.zeros(num_vertices, memory_dim, dtype=dtype),
            torch.zeros(num_vertices, dtype=torch.float64),
            torch.zeros(num_vertices, mail_dim, dtype=dtype),
            torch.zeros(num_vertices, dtype=torch.float64),
        )
        self.reset()

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
