"""TGN's memory of every vertex, dealt out to the vertices' machines (GNNFlow 4.4).

A rank reads the memories that a batch needs from their owners at its start, and at its end writes
those of the events that it trained. Several ranks may write one vertex: the row of the latest event
counts, as if the whole batch had been trained by one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dgbench.models.ctdg import MemoryRows
from dgbench.runtime.collectives import Communicator
from dgbench.systems.gnnflow.dispatch import check_group
from dgbench.systems.gnnflow.feature_store import Fetcher, VertexRows
from dgbench.systems.gnnflow.owners import MachineLayout, Owners, Schedule


class RemoteMemory:
    """Distributed counterpart of `VertexMemory`; all ranks call it alike, also with no vertices.

    Rows, ids and events lie on the group's device.

    Ranks of one machine are processes here and keep a copy each of what the paper's share, so a
    write goes to every rank of the owner.

    Args:
        comm: the group. layout: its ranks on machines. owners: of the vertices.
        num_vertices: N.
        memory_dim, mail_dim: floats of a memory and of a message.
        begin: time from which the age of the first message is counted.
        dtype: of both.
        schedule: which rank of a machine is asked.
    """

    def __init__(
        self,
        comm: Communicator,
        layout: MachineLayout,
        owners: Owners,
        num_vertices: int,
        memory_dim: int,
        mail_dim: int,
        *,
        begin: float = 0.0,
        dtype: torch.dtype = torch.float32,
        schedule: Schedule = "static",
    ) -> None:
        check_group(comm, layout, owners)
        self.comm, self.layout, self.owners = comm, layout, owners
        self._dims, self._begin = (memory_dim, mail_dim), begin
        count = owners.count(layout.machine(comm.rank), num_vertices)
        there = comm.device
        self._rows = VertexRows(
            owners, torch.zeros(count, memory_dim + mail_dim, dtype=dtype, device=there)
        )
        self._times = VertexRows(owners, torch.zeros(count, 2, dtype=torch.float64, device=there))
        self._fetcher = Fetcher(comm, layout, owners, schedule=schedule)
        self.reset()

    @property
    def tables(self) -> tuple[Tensor, Tensor]:
        """Own rows in order of `owners.local`, written in place and never moved: memory and mail
        [n, M + D], times of both [n, 2]."""
        return self._rows.rows, self._times.rows

    def read(self, ids: Tensor) -> MemoryRows:
        """Rows of vertices int64[n]; one that is named twice travels twice."""
        machine = self.owners.of(ids.cpu()) if self.layout.machines > 1 else None
        tables = {"memory": self._rows, "memory_times": self._times}
        rows, times = self._fetcher.fetch_all(tables, ids, machine)
        memory, mail = rows.split(self._dims, dim=1)
        updated, mail_time = times.unbind(1)
        return MemoryRows(memory, updated.contiguous(), mail, mail_time.contiguous())

    def write(self, ids: Tensor, events: Tensor, rows: MemoryRows) -> None:
        """Replace rows at their owners; see `VertexMemory.write`."""
        comm, per = self.comm, self.layout.per_machine
        if self.layout.machines == 1:
            order, counts = torch.arange(ids.numel(), device=ids.device), [ids.numel()]
        else:
            machine = self.owners.of(ids.cpu())
            order = torch.argsort(machine, stable=True).to(ids.device)
            counts = torch.bincount(machine, minlength=self.layout.machines).tolist()
        order = torch.cat([part for part in order.split(counts) for _ in range(per)])
        send = [count for count in counts for _ in range(per)]
        receive = comm.exchange_sizes(send)
        whole = torch.cat([rows.memory, rows.mail], dim=1)
        times = torch.stack([rows.updated, rows.mail_time], dim=1)
        ids, events, whole, times = (
            comm.all_to_all(column[order].detach(), send, receive)
            for column in (ids, events, whole, times)
        )
        last = latest(ids, events)
        self._rows.put(ids[last], whole[last].to(self._rows.rows))
        self._times.put(ids[last], times[last])

    def reset(self) -> None:
        """Back to the beginning: zeros, and no message."""
        self._rows.rows.zero_()
        self._times.rows[:, 0] = self._begin
        self._times.rows[:, 1] = -torch.inf

    def state(self) -> tuple[Tensor, Tensor]:
        """A copy of this rank's rows."""
        return self._rows.rows.clone(), self._times.rows.clone()

    mark = state

    def restore(self, state: tuple[Tensor, Tensor]) -> None:
        """Back to a copy."""
        self._rows.rows.copy_(state[0])
        self._times.rows.copy_(state[1])


def latest(ids: Tensor, events: Tensor) -> Tensor:
    """int64[m]: for each distinct id the row of its largest event; the last of equal ones."""
    order = torch.argsort(events, stable=True)
    order = order[torch.argsort(ids[order], stable=True)]
    last = torch.ones_like(order, dtype=torch.bool)
    last[:-1] = ids[order][1:] != ids[order][:-1]
    return order[last]
