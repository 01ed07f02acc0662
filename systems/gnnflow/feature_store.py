"""Features where their vertices and edges live, and how other ranks get them (GNNFlow 4.4).

Rows of vertices lie at the vertex's place on its machine (the paper keeps a Python dict from id to
row; `Owners.local` makes one superfluous). Rows of edges lie in ascending order of edge id, as new
edges have larger ids: they are only appended, and found by binary search.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor

from dgbench.kernels_cuda.row_cache import take_rows
from dgbench.runtime.collectives import Communicator
from dgbench.runtime.errors import InvalidInputError
from dgbench.runtime.machine_memory import PageLock, shared_tensor
from dgbench.systems.gnnflow.dispatch import check_group
from dgbench.systems.gnnflow.owners import MachineLayout, Owners, Schedule


class FeatureRows(Protocol):
    """Features of some vertices or edges on one machine.

    Attributes:
        dim: floats of a row.
        nbytes: of the memory that this rank keeps rows in; none of what another rank writes.
    """

    dim: int

    @property
    def nbytes(self) -> int: ...

    def gather(self, ids: Tensor) -> Tensor:
        """[n, dim], the rows of ids that are here; on any device."""
        ...


class WholeTableRows:
    """Rows at their ids: of a machine that has all.

    Args:
        rows: [n, dim], of the host; page-locked here where a CUDA device takes rows.
        device: that takes rows.
    """

    def __init__(self, rows: Tensor, device: torch.device | str = "cpu") -> None:
        self.rows, self.dim, self._device = rows, rows.shape[1], torch.device(device)
        self._lock = locked_whole(rows, self._device)

    @property
    def nbytes(self) -> int:
        """As in `FeatureRows`."""
        return self.rows.nbytes

    def gather(self, ids: Tensor) -> Tensor:
        """As in `FeatureRows`; on the device."""
        return take_rows(self.rows, ids, self._device)


class EdgeRows:
    """Rows by edge id, append only.

    Args:
        dim: floats of a row.
        dtype: of the rows.
        device: that takes rows.

    Attributes:
        num_rows: rows that are kept.
        dim: floats of a row.
    """

    def __init__(
        self,
        dim: int,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self.dim, self.num_rows, self._device = dim, 0, torch.device(device)
        self._ids = torch.empty(0, dtype=torch.int64)
        self._rows = torch.empty(0, dim, dtype=dtype)

    @property
    def nbytes(self) -> int:
        """As in `FeatureRows`."""
        return self._ids.nbytes + self._rows.nbytes

    def append(self, ids: Tensor, rows: Tensor) -> None:
        """Add rows of new edges.

        Args:
            ids: int64[n], ascending and above all ids so far; repeated ones (an undirected edge
                with both ends here) are kept once.
            rows: [n, dim].

        Raises:
            InvalidInputError: ids out of order, or rows of another shape.
        """
        if rows.shape != (ids.numel(), self.dim):
            raise InvalidInputError(
                f"'rows' has shape {tuple(rows.shape)}, needed: ({ids.numel()}, {self.dim})"
            )
        if not ids.numel():
            return
        last = int(self._ids[self.num_rows - 1]) if self.num_rows else -1
        fall = ids.diff() < 0
        if int(ids[0]) <= last or bool(fall.any()):
            where = int(fall.to(torch.uint8).argmax()) + 1 if bool(fall.any()) else 0
            before = int(ids[where - 1]) if where else last
            raise InvalidInputError(
                f"'ids'[{where}] is {int(ids[where])} after {before}; new edges have larger ids"
            )
        keep = torch.ones_like(ids, dtype=torch.bool)
        keep[1:] = ids.diff() > 0
        ids, rows = ids[keep], rows[keep]
        first, self.num_rows = self.num_rows, self.num_rows + ids.numel()
        if self.num_rows > self._ids.numel():  # twice as much each time: O(1) for a row
            space = max(self.num_rows, 2 * self._ids.numel())
            self._ids = _grown(self._ids, space, first)
            self._rows = _grown(self._rows, space, first)
        self._ids[first : self.num_rows] = ids
        self._rows[first : self.num_rows] = rows

    def gather(self, ids: Tensor) -> Tensor:
        """[n, dim], the rows of edges in any order.

        Raises:
            InvalidInputError: an edge that is not here.
        """
        known, ids = self._ids[: self.num_rows], ids.to(self._ids.device)
        place = torch.searchsorted(known, ids)
        found = place < self.num_rows
        if self.num_rows:
            found &= known[place.clamp(max=self.num_rows - 1)] == ids
        if not bool(found.all()):
            raise InvalidInputError(
                f"edge {int(ids[~found][0])} has no row here; {self.num_rows} edges do"
            )
        return take_rows(self._rows, place, self._device)


class SharedEdgeRows(EdgeRows):
    """Rows by edge id in memory that the ranks of a machine share; its first one writes.

    All ranks of the group call `append` alike.

    Args:
        comm: the group. members: ranks of this rank's machine.
        ids, rows: of `shared_tensor`, with room for all edges there will be: int64[E], [E, dim].
        device: that takes rows.
    """

    def __init__(
        self,
        comm: Communicator,
        members: Sequence[int],
        ids: Tensor,
        rows: Tensor,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__(rows.shape[1], dtype=rows.dtype, device=device)
        self._comm, self._first = comm, members[0]
        self._ids, self._rows = ids, rows
        self._lock = PageLock(rows, self._device)

    @property
    def nbytes(self) -> int:
        """As in `FeatureRows`, of rows in use: pages that nobody has touched take none."""
        width = self._ids.element_size() + self.dim * self._rows.element_size()
        return self.num_rows * width if self._comm.rank == self._first else 0

    def append(self, ids: Tensor, rows: Tensor) -> None:
        """As there; only those of the rank that writes are read."""
        if self._comm.rank == self._first:
            super().append(ids, rows)
        self.num_rows = self._comm.gather_objects(self.num_rows)[self._first]
        self._lock.reach(self.num_rows * self.dim * self._rows.element_size())


class VertexRows:
    """Rows of a machine's own vertices, at their places.

    Args:
        owners: of the vertices.
        rows: [count, dim], in order of `owners.local`; of the host, or of the device.
        device: that takes rows of the host, which are page-locked here for a CUDA device; None:
            rows are taken where they are.
        owned: whether this rank keeps them; False where another one of its machine does.
    """

    def __init__(
        self,
        owners: Owners,
        rows: Tensor,
        device: torch.device | str | None = None,
        *,
        owned: bool = True,
    ) -> None:
        self.owners, self.rows, self._owned = owners, rows, owned
        self.num_rows, self.dim = rows.shape[0], rows.shape[1]
        self._device = rows.device if device is None else torch.device(device)
        self._lock = locked_whole(rows, self._device)

    @property
    def nbytes(self) -> int:
        """As in `FeatureRows`."""
        return self.rows.nbytes if self._owned else 0

    @classmethod
    def of(
        cls,
        owners: Owners,
        machine: int,
        rows: Tensor,
        device: torch.device | str | None = None,
    ) -> VertexRows:
        """Cut a machine's share out of the rows of all vertices [N, dim]; all of them uncopied."""
        if owners.machines == 1:
            return cls(owners, rows, device)
        mine = (owners.of(torch.arange(rows.shape[0])) == machine).nonzero().flatten()
        share = rows.new_empty(mine.numel(), rows.shape[1])
        share[owners.local(mine)] = rows[mine]
        return cls(owners, share, device)

    @classmethod
    def shared(
        cls,
        comm: Communicator,
        members: Sequence[int],
        owners: Owners,
        machine: int,
        rows: Tensor,
    ) -> VertexRows | None:
        """`of` in memory that the ranks of a machine share, filled by its first one; all ranks of
        the group call it alike. None where they cannot share any."""
        count = owners.count(machine, rows.shape[0])
        share = shared_tensor(comm, members, (count, rows.shape[1]), rows.dtype)
        if share is None:
            return None
        first = comm.rank == members[0]
        if first:
            share.copy_(cls.of(owners, machine, rows).rows)
        comm.barrier()
        return cls(owners, share, comm.device, owned=first)

    def gather(self, ids: Tensor) -> Tensor:
        """[n, dim], rows of own vertices."""
        place = self.owners.local(ids.to(self.rows.device))
        if self._device.type == self.rows.device.type:
            return self.rows[place]
        return take_rows(self.rows, place, self._device)

    def put(self, ids: Tensor, rows: Tensor) -> None:
        """Overwrite rows of own vertices; no id twice."""
        self.rows[self.owners.local(ids)] = rows


class Fetcher:
    """Gets rows from the ranks that hold them; all ranks call it alike.

    A row's machine is asked at the rank that the schedule says. Own rows are read directly. Counts
    `<name>_rows_remote` and `<name>_rows_local` go to the communicator's meter.

    Args:
        comm: the group. layout: its ranks on machines.
        owners: of the vertices.
        schedule: which rank of a machine is asked.
    """

    def __init__(
        self,
        comm: Communicator,
        layout: MachineLayout,
        owners: Owners,
        *,
        schedule: Schedule = "static",
    ) -> None:
        check_group(comm, layout, owners)
        self.comm, self.layout, self.schedule = comm, layout, schedule

    def fetch(self, name: str, rows: FeatureRows, ids: Tensor, machine: Tensor | None) -> Tensor:
        """Rows of any ids, in their order: `fetch_all` of one kind."""
        return self.fetch_all({name: rows}, ids, machine)[0]

    def fetch_all(
        self, tables: Mapping[str, FeatureRows], ids: Tensor, machine: Tensor | None
    ) -> list[Tensor]:
        """Rows of several kinds of the same ids, in their order; ids and sizes travel once.

        Args:
            tables: by name of the counters, what this rank's machine holds.
            ids: int64[n], on the host or the group's device; of unequal number on the ranks, also
                none.
            machine: int64[n] on either, where each row lives; not read where there is one.

        Returns:
            [n, dim] of each, on the group's device.
        """
        comm = self.comm
        if self.layout.machines == 1:
            self._count(tables, 0, ids.numel())
            return [rows.gather(ids).to(comm.device) for rows in tables.values()]
        # How much is asked of whom is a matter of the host, whatever connects the ranks.
        server = self.layout.servers(comm.rank, machine, ids.to(machine.device), self.schedule)
        send = torch.bincount(server, minlength=comm.size).tolist()
        self._count(tables, ids.numel() - send[comm.rank], send[comm.rank])
        order = torch.argsort(server, stable=True).to(comm.device)
        receive = comm.exchange_sizes(send)
        asked = comm.all_to_all(ids.to(comm.device)[order], send, receive)
        fetched = []
        for rows in tables.values():
            arrived = comm.all_to_all(rows.gather(asked).to(comm.device), receive, send)
            found = arrived.new_empty(arrived.shape)
            found[order] = arrived
            fetched.append(found)
        return fetched

    def _count(self, names: Iterable[str], remote: int, local: int) -> None:
        for name in names:
            self.comm.meter.count(f"{name}_rows_remote", remote)
            self.comm.meter.count(f"{name}_rows_local", local)


def locked_whole(rows: Tensor, device: torch.device) -> PageLock:
    """The lock of all rows of the host that a device takes; of rows elsewhere it locks nothing."""
    lock = PageLock(rows, device if rows.device.type == "cpu" else torch.device("cpu"))
    lock.reach(rows.nbytes)
    return lock


def _grown(x: Tensor, space: int, used: int) -> Tensor:
    larger = x.new_empty(space, *x.shape[1:])
    larger[:used] = x[:used]
    return larger
