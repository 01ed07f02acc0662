"""Graph storage of one machine: blocks that grow, or sorted rows built from all records.

The second is what systems for static graphs have, and is rebuilt for whatever is new. Both answer
with the same samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import torch
from torch import Tensor, cat

from dgbench.kernels_cuda.tcsr import Tcsr, build_tcsr, sample_tcsr
from dgbench.kernels_cuda.temporal_sample import Sample, sample_neighbours
from dgbench.kernels_cuda.temporal_store import BlockPolicy, TemporalStore
from dgbench.kernels_cuda.temporal_store.device import DeviceStore, Placement
from dgbench.runtime.collectives import Communicator
from dgbench.runtime.errors import unknown_key
from dgbench.systems.gnnflow.dispatch import Records

GRAPHS: Final = ("blocks", "rows")


class LocalGraph(Protocol):
    """The records of one machine.

    Attributes:
        nbytes: of the memory that this rank keeps them in; none of what another rank writes.
    """

    @property
    def nbytes(self) -> int: ...

    def insert(self, records: Records) -> None:
        """Take in records of this machine's vertices, in time order."""
        ...

    def finish(self) -> None:
        """Be ready to sample: all records of a round are here."""
        ...

    def sample(self, nodes: Tensor, times: Tensor, **how: object) -> Sample:
        """One hop; arguments as of `sample_neighbours`."""
        ...


class LocalBlockGraph:
    """GNNFlow's store. The ids of all vertices are allowed, so its table is that long.

    Args:
        num_vertices: N of the whole graph.
        tau: slots of an adaptive block at most.
        origin: earliest time.
        fences: find the blocks of a window by search; else walk their list, as the paper does.
    """

    def __init__(
        self, num_vertices: int, *, tau: int = 64, origin: float = 0.0, fences: bool = False
    ) -> None:
        self.search = "binary" if fences else "linear"
        self.store = TemporalStore(num_vertices, policy=BlockPolicy("adaptive", tau), origin=origin)

    @property
    def nbytes(self) -> int:
        """As in `LocalGraph`."""
        return self.store.memory().total

    def insert(self, records: Records) -> None:
        """As in `LocalGraph`."""
        self.store.insert(records.vertex, records.neighbour, records.t, records.eid)

    def finish(self) -> None:
        """Nothing is left to do."""

    def sample(self, nodes: Tensor, times: Tensor, **how: object) -> Sample:
        """As in `LocalGraph`."""
        how = {"search": self.search, **how}
        return sample_neighbours(self.store, nodes, times, **how)  # type: ignore[arg-type]


class SharedBlockGraph(LocalBlockGraph):
    """GNNFlow's store once for all ranks of a machine, in memory that they share (section 4.2).

    The first rank of the machine inserts, the others read the same pages; on a device each of them
    page-locks these for itself (`DeviceStore`). All ranks of the group call `insert` alike.

    Args:
        comm: the group. members: ranks of this rank's machine.
        files: of `share_files`, four; not closed here.
        Others as there.
    """

    def __init__(
        self,
        comm: Communicator,
        members: Sequence[int],
        files: Sequence[int],
        num_vertices: int,
        *,
        tau: int = 64,
        origin: float = 0.0,
        fences: bool = False,
    ) -> None:
        self._comm, self._first = comm, members[0]
        self.search = "binary" if fences else "linear"
        self.store = TemporalStore(
            num_vertices,
            policy=BlockPolicy("adaptive", tau),
            origin=origin,
            files=files,
            writes=comm.rank == members[0],
        )
        self._publish()

    @property
    def nbytes(self) -> int:
        """As in `LocalGraph`."""
        return self.store.memory().total if self._writes else 0

    @property
    def _writes(self) -> bool:
        return self._comm.rank == self._first

    def insert(self, records: Records) -> None:
        """As in `LocalGraph`; only those of the rank that writes are read."""
        self._comm.barrier()  # nobody samples any more
        if self._writes:
            super().insert(records)
        self._publish()

    def _publish(self) -> None:
        """Let all ranks of the machine see what its first one has written."""
        told = self._comm.gather_objects(self.store.counts() if self._writes else None)
        if not self._writes:
            self.store.follow(told[self._first])


class DeviceBlockGraph:
    """GNNFlow's store as a rank with a device samples it: there, where the placement puts it.

    Args:
        graph: of the machine, on the host. Where its ranks share it, each page-locks it for itself.
        device: of this rank. placement: of `PLACEMENTS`; the paper's is `hybrid`.
    """

    def __init__(
        self, graph: LocalBlockGraph, device: torch.device, placement: Placement = "hybrid"
    ) -> None:
        self.graph = graph
        self.mirror = DeviceStore(graph.store, placement, device=device)

    @property
    def nbytes(self) -> int:
        """As in `LocalGraph`."""
        return self.graph.nbytes

    def insert(self, records: Records) -> None:
        """As in `LocalGraph`; the device then has what changed."""
        self.graph.insert(records)
        self.mirror.update()

    def finish(self) -> None:
        """Nothing is left to do."""

    def sample(self, nodes: Tensor, times: Tensor, **how: object) -> Sample:
        """As in `LocalGraph`; the arrays are the device's."""
        how = {"search": self.graph.search, **how}
        return self.mirror.sample_hop(nodes, times, **how)  # type: ignore[arg-type]


class SortedRows:
    """Sorted rows of all records so far.

    Args:
        num_vertices: N of the whole graph.
    """

    def __init__(self, num_vertices: int) -> None:
        self._num_vertices = num_vertices
        self._records: list[Records] = []
        self._rows: Tcsr | None = None

    @property
    def nbytes(self) -> int:
        """As in `LocalGraph`: of the rows, and of the records that they are built from."""
        columns = [
            getattr(part, name)
            for part in self._records
            for name in ("vertex", "neighbour", "t", "eid")
        ]
        return (0 if self._rows is None else self._rows.nbytes) + sum(x.nbytes for x in columns)

    def insert(self, records: Records) -> None:
        """As in `LocalGraph`."""
        self._records.append(records)
        self._rows = None

    def finish(self) -> None:
        """Build the rows from everything that was ever inserted."""
        if self._rows is None:
            parts = self._records
            columns = [
                cat([getattr(part, name) for part in parts])
                for name in ("vertex", "neighbour", "t", "eid")
            ]
            self._rows = build_tcsr(self._num_vertices, *columns)
            self._records = [Records(*columns)]

    def sample(self, nodes: Tensor, times: Tensor, **how: object) -> Sample:
        """As in `LocalGraph`."""
        self.finish()
        return sample_tcsr(self._rows, nodes, times, **how)  # type: ignore[arg-type]


def open_graph(
    kind: str, num_vertices: int, *, tau: int, origin: float, fences: bool = False
) -> LocalGraph:
    """An empty graph: `blocks` or `rows`; raises UnknownKeyError for another kind."""
    if kind not in GRAPHS:
        raise unknown_key("graph", kind, GRAPHS)
    if kind == "rows":
        return SortedRows(num_vertices)
    return LocalBlockGraph(num_vertices, tau=tau, origin=origin, fences=fences)
