"""Distinct vertices of a batch, and their rows of features and memory, by numbers on the device.

Nothing here waits for the device: outputs have room for the most there may be, and how many there
are stands in the device's memory. All of it can be part of a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dgbench.kernels_cuda._checks import FLOATS, check_vector
from dgbench.kernels_cuda.build_info import extension, stream_of
from dgbench.runtime.errors import InvalidInputError


class DistinctIds:
    """Distinct ids of a batch, as `torch.unique(return_inverse=True)` finds them.

    Attributes:
        capacity: ids of a batch at most.
        ids: int64[min(capacity, num_ids)], ascending; the first `count` hold.
        count: int64[1] on the device.
        place: int64[capacity], where each id stands in `ids`; -1 for one that is out of range.
            Nothing is written behind those of the batch.
    """

    def __init__(self, num_ids: int, capacity: int, device: torch.device | str) -> None:
        """Make room; 3/8 of a byte for each number that an id may be.

        Raises:
            InvalidInputError: a negative number, or a capacity above 2^31 - 1.
        """
        if num_ids < 0 or not 0 <= capacity < 2**31:
            raise InvalidInputError(
                f"num_ids is {num_ids} and capacity {capacity}, allowed are numbers from 0, "
                "capacities below 2^31"
            )
        self.num_ids, self.capacity = num_ids, capacity
        self.device = torch.device(device)
        self.ids = torch.zeros(min(capacity, num_ids), dtype=torch.int64, device=device)
        self.count = torch.zeros(1, dtype=torch.int64, device=device)
        self.place = torch.full((capacity,), -1, dtype=torch.int64, device=device)
        words = max(1, -(-num_ids // 32))
        self._set = torch.zeros(words, dtype=torch.int32, device=device)
        self._ranks = torch.zeros(words, dtype=torch.int64, device=device)
        sums = extension(self.device).set_sums(num_ids)
        self._sums = torch.zeros(sums, dtype=torch.int32, device=device)

    def launch(self, ids: Tensor, live: Tensor) -> None:
        """Find the distinct ones of the first `live` ids. Four launches.

        Args:
            ids: int64[capacity]. live: int64[1]; both on the device.

        Raises:
            InvalidInputError: another dtype, length or device.
        """
        check_vector(ids, "ids", torch.int64, self.capacity, device=self.place.device)
        check_vector(live, "live", torch.int64, 1, device=self.place.device)
        extension(self.device).distinct_ids(
            ids, live, self.num_ids, self._set, self._sums, self._ranks, self.ids, self.count,
            self.place, *_stream(self.device),
        )  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class MemoryTables:
    """Memory of all vertices, as TGN keeps it, on a device.

    Attributes:
        memory: floating [N, M].
        updated: float64[N], time of the last message taken in.
        mail: floating [N, 2 M + edge_dim]: [own memory | the other's | edge] of the last event.
        mail_time: float64[N], when that was; -inf where nothing happened yet.
    """

    memory: Tensor
    updated: Tensor
    mail: Tensor
    mail_time: Tensor

    @property
    def all(self) -> tuple[Tensor, ...]:
        """In order."""
        return self.memory, self.updated, self.mail, self.mail_time

    def room(self, rows: int) -> MemoryTables:
        """Zeros for so many rows of each."""
        return MemoryTables(*(one.new_zeros((rows, *one.shape[1:])) for one in self.all))


def gather_by_count(
    ids: Tensor, live: Tensor, tables: Sequence[Tensor], targets: Sequence[Tensor]
) -> None:
    """Row ids[i] of each table becomes row i of its target, for the first `live` ids. One launch.

    Rows behind the last, and those of ids that a table does not have, stay as they are.

    Args:
        ids: int64[capacity]. live: int64[1]; both on the device.
        tables: one to six, float32 or float64 [rows] or [rows, columns], on the device; the last
            one may lie in page-locked memory instead.
        targets: on the device, [capacity] or [capacity, columns] of the same dtypes.

    Raises:
        InvalidInputError: another dtype, shape or device.
    """
    check_vector(ids, "ids", torch.int64, device=ids.device)
    check_vector(live, "live", torch.int64, 1, device=ids.device)
    if not 1 <= len(tables) <= 6 or len(targets) != len(tables):
        raise InvalidInputError(
            f"there are {len(tables)} tables and {len(targets)} targets, allowed are 1 to 6 of both"
        )
    for number, (table, target) in enumerate(zip(tables, targets, strict=True)):
        last = number + 1 == len(tables)
        if not (table.device == ids.device or (last and table.is_pinned())):
            raise InvalidInputError(f"tables[{number}] lies on {table.device}, ids on {ids.device}")
        wanted = (ids.numel(), *table.shape[1:])
        wrong = table.dtype not in FLOATS or not table.is_contiguous() or table.dim() not in (1, 2)
        if wrong or target.dtype != table.dtype or tuple(target.shape) != wanted:
            raise InvalidInputError(
                f"tables[{number}] is {table.dtype}{list(table.shape)} and its target "
                f"{target.dtype}{list(target.shape)}, expected contiguous floats and a target of "
                f"{list(wanted)}"
            )
        if target.device != ids.device or not target.is_contiguous():
            raise InvalidInputError(f"targets[{number}] is not contiguous on {ids.device}")
    sent = tables[-1].device != ids.device
    sources, pinned = (tables[:-1], _words(tables[-1])) if sent else (tables, None)
    extension(ids.device).gather_by_count(
        ids, live, [_words(one) for one in sources], pinned, [_words(one) for one in targets],
        *_stream(ids.device),
    )  # fmt: skip


class BatchMemory:
    """Memory of a batch's vertices: read as it is, and written as TGN leaves it.

    Args:
        tables: of all vertices; written in place.
        capacity: vertices of a batch at most.

    Attributes:
        rows: of the batch's vertices as they were read.

    Raises:
        InvalidInputError: tables that do not fit together.
    """

    def __init__(self, tables: MemoryTables, capacity: int) -> None:
        memory, updated, mail, mail_time = tables.all
        vertices, width = memory.shape
        self.edge_dim = mail.shape[1] - 2 * width
        right = self.edge_dim >= 0 and mail.dtype == memory.dtype in FLOATS
        for one in (updated, mail_time):
            right = right and one.dtype == torch.float64 and one.shape == (vertices,)
        for one in tables.all:
            right = right and one.is_contiguous() and one.device == memory.device
        if not right or mail.shape[0] != vertices:
            shapes = ", ".join(f"{one.dtype}{list(one.shape)}" for one in tables.all)
            raise InvalidInputError(f"tables are {shapes}, expected those of MemoryTables")
        self.tables, self.capacity = tables, capacity
        self.rows = tables.room(capacity)
        self._last = torch.full((capacity,), -1, dtype=torch.int32, device=memory.device)

    def write(
        self, place: Tensor, t: Tensor, distinct: Tensor, memories: Tensor, edges: Tensor | None
    ) -> None:
        """Leave both ends of b events their memory and the message of their last event. 2 launches.

        The last event in order of the batch wins. A message older than the one that waits at its
        vertex is dropped. Events at what is no vertex leave nothing.

        Args:
            place: int64[2 b or more], rows of the sources, then of the destinations.
            t: float64[b].
            distinct: int64[capacity], the vertex of each row.
            memories: [capacity, M], messages taken in.
            edges: [b, edge_dim]; None where that is 0.

        Raises:
            InvalidInputError: another dtype, shape or device.
        """
        device, table = self._last.device, self.tables.memory
        check_vector(t, "t", torch.float64, device=device)
        check_vector(place, "place", torch.int64, device=device)
        check_vector(distinct, "distinct", torch.int64, self.capacity, device=device)
        if place.numel() < 2 * t.numel():
            raise InvalidInputError(
                f"place has {place.numel()} elements, {t.numel()} events have {2 * t.numel()} ends"
            )
        if (edges is None) != (self.edge_dim == 0):
            raise InvalidInputError(f"edges are given where edge_dim is not 0; {self.edge_dim=}")
        for name, rows, wanted in (
            ("memories", memories, (self.capacity, table.shape[1])),
            ("edges", edges, (t.numel(), self.edge_dim)),
        ):
            if rows is None:
                continue
            if rows.dtype != table.dtype or rows.shape != wanted or rows.device != device:
                raise InvalidInputError(
                    f"{name} is {rows.dtype}{list(rows.shape)} on {rows.device}, expected "
                    f"{table.dtype}{list(wanted)} on {device}"
                )
        memory, updated, mail, mail_time = self.tables.all
        extension(device).leave_messages(
            place, t, distinct, _words(memories.detach().contiguous()), self.rows.updated,
            self.rows.mail_time, None if edges is None else _words(edges.detach().contiguous()),
            self._last, _words(memory), updated, _words(mail), mail_time, *_stream(device),
        )  # fmt: skip


def _words(table: Tensor) -> Tensor:
    """The same rows as words of 4 bytes, [rows, words]."""
    if table.dim() == 1:
        table = table.unsqueeze(1)
    return table.view(torch.float32)


def _stream(device: torch.device) -> tuple[int, ...]:
    return stream_of(device) or (0,)
