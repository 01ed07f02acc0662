"""New events to the machines that store them (GNNFlow 4.4, section 5 "Dynamic graphs").

A directed edge becomes one record, at its source; an undirected one becomes two, one at each end,
so an edge between machines is stored on both. Records stay in the order of their events, the one
of the source first, hence every list is what a single store would hold.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dgbench.runtime.collectives import Communicator, equal_parts
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.gnnflow.owners import MachineLayout, Owners


@dataclass(frozen=True, slots=True)
class Records:
    """Edges as they are stored, in the order of their events.

    Attributes:
        vertex: int64[n], whose list a record belongs to. neighbour: int64[n], the other end.
        t: float64[n]. eid: int64[n].
        feature: float32[n, D] or None, of the edges.
    """

    vertex: Tensor
    neighbour: Tensor
    t: Tensor
    eid: Tensor
    feature: Tensor | None = None

    def __len__(self) -> int:
        return self.vertex.numel()

    def rows(self, keep: Tensor) -> Records:
        """Some of them: by a mask, or by positions."""
        feature = None if self.feature is None else self.feature[keep]
        return Records(
            self.vertex[keep], self.neighbour[keep], self.t[keep], self.eid[keep], feature
        )


def records_of(
    src: Tensor,
    dst: Tensor,
    t: Tensor,
    eid: Tensor,
    feature: Tensor | None = None,
    *,
    undirected: bool,
) -> Records:
    """The records of events: one each, or two each in the order source, destination.

    Args:
        src, dst, eid: int64[E]. t: numbers[E].
        feature: float32[E, D] or None.
        undirected: whether an edge is stored at both ends; a self edge is then two records.

    Raises:
        InvalidInputError: columns of different lengths.
    """
    lengths = {"dst": dst, "t": t, "eid": eid, "feature": feature}
    for name, column in lengths.items():
        if column is not None and column.shape[0] != src.numel():
            raise InvalidInputError(
                f"'{name}' has {column.shape[0]} rows and 'src' {src.numel()}; needed: as many"
            )
    t = t.to(torch.float64)
    if not undirected:
        return Records(src, dst, t, eid, feature)
    return Records(
        torch.stack([src, dst], dim=1).flatten(),
        torch.stack([dst, src], dim=1).flatten(),
        t.repeat_interleave(2),
        eid.repeat_interleave(2),
        None if feature is None else feature.repeat_interleave(2, dim=0),
    )


def split_records(owners: Owners, records: Records) -> list[Records]:
    """The records of each machine, each list in the order of the events."""
    machine = owners.of(records.vertex)
    return [records.rows(machine == one) for one in range(owners.machines)]


class Dispatcher:
    """Brings batches of events to all ranks of the machines that store them.

    Every rank reads an equal part of a batch, in order, and sends each machine what is its own;
    what arrives, in order of the sender, is in the order of the events. Ranks of one machine share
    a store as the paper's do, and its first one gets the records; or each has a store of its own,
    and all get them. With a single machine every rank reads the whole batch and nothing travels.

    Args:
        comm: as many ranks as the layout has.
        layout: ranks on machines.
        owners: of the vertices.
        undirected: whether edges are stored at both ends.
        shared: whether the ranks of a machine share a store, which the first of them writes.

    Raises:
        InvalidInputError: a group of another size, or other machines than the owners'.
    """

    def __init__(
        self,
        comm: Communicator,
        layout: MachineLayout,
        owners: Owners,
        *,
        undirected: bool,
        shared: bool = False,
    ) -> None:
        check_group(comm, layout, owners)
        self.comm, self.layout, self.owners = comm, layout, owners
        self.undirected, self._shared = undirected, shared

    def dispatch(
        self, src: Tensor, dst: Tensor, t: Tensor, eid: Tensor, feature: Tensor | None = None
    ) -> Records:
        """Records of this rank's machine; all ranks call it with the same batch.

        Args:
            src, dst, eid: int64[E]. t: numbers[E], in time order.
            feature: float32[E, D] or None.
        """
        comm, layout = self.comm, self.layout
        if layout.machines == 1:
            return records_of(src, dst, t, eid, feature, undirected=self.undirected)
        parts = equal_parts(src.numel(), comm.size)
        first = sum(parts[: comm.rank])
        mine = slice(first, first + parts[comm.rank])
        records = records_of(
            src[mine],
            dst[mine],
            t[mine],
            eid[mine],
            None if feature is None else feature[mine],
            undirected=self.undirected,
        )
        order, send = self._order(records)
        sent = records.rows(order)
        columns = [sent.vertex, sent.neighbour, sent.eid, sent.t.view(torch.int64)]
        receive = comm.exchange_sizes(send)
        table = comm.all_to_all(torch.stack(columns, dim=1), send, receive)
        vertex, neighbour, ids, bits = (column.contiguous() for column in table.unbind(1))
        rows = None
        if sent.feature is not None:
            rows = comm.all_to_all(sent.feature, send, receive)
        return Records(vertex, neighbour, bits.view(torch.float64), ids, rows)

    def _order(self, records: Records) -> tuple[Tensor, list[int]]:
        """Positions of what goes to each rank, one rank after the other, and how many."""
        machine = self.owners.of(records.vertex)
        order = torch.argsort(machine, stable=True)
        counts = torch.bincount(machine, minlength=self.layout.machines).tolist()
        per = self.layout.per_machine
        copies = 1 if self._shared else per
        pieces = [piece for piece in order.split(counts) for _ in range(copies)]
        sent = [count if k < copies else 0 for count in counts for k in range(per)]
        return torch.cat(pieces), sent


def check_group(comm: Communicator, layout: MachineLayout, owners: Owners) -> None:
    """Raise InvalidInputError unless a group, its layout and the owners fit each other."""
    if comm.size != layout.ranks:
        raise InvalidInputError(
            f"the layout has {layout.ranks} ranks ({layout.machines} machines x "
            f"{layout.per_machine}), the group has {comm.size}"
        )
    if owners.machines != layout.machines:
        raise InvalidInputError(
            f"vertices are assigned to {owners.machines} machines, the layout has {layout.machines}"
        )
