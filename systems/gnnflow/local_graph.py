"""Graph storage of one machine: blocks that grow, or sorted rows built from all records.

The second is what systems for static graphs have, and is rebuilt for whatever is new. Both answer
with the same samples.
"""

from __future__ import annotations

from typing import Final, Protocol

from torch import Tensor, cat

from dgbench.kernels_cuda.tcsr import Tcsr, build_tcsr, sample_tcsr
from dgbench.kernels_cuda.temporal_sample import Sample, sample_neighbours
from dgbench.kernels_cuda.temporal_store import BlockPolicy, TemporalStore
from dgbench.runtime.errors import unknown_key
from dgbench.systems.gnnflow.dispatch import Records

GRAPHS: Final = ("blocks", "rows")


class LocalGraph(Protocol):
    """The records of one machine."""

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
    """

    def __init__(self, num_vertices: int, *, tau: int = 64, origin: float = 0.0) -> None:
        self.store = TemporalStore(num_vertices, policy=BlockPolicy("adaptive", tau), origin=origin)

    def insert(self, records: Records) -> None:
        """As in `LocalGraph`."""
        self.store.insert(records.vertex, records.neighbour, records.t, records.eid)

    def finish(self) -> None:
        """Nothing is left to do."""

    def sample(self, nodes: Tensor, times: Tensor, **how: object) -> Sample:
        """As in `LocalGraph`."""
        return sample_neighbours(self.store, nodes, times, **how)  # type: ignore[arg-type]


class SortedRows:
    """Sorted rows of all records so far.

    Args:
        num_vertices: N of the whole graph.
    """

    def __init__(self, num_vertices: int) -> None:
        self._num_vertices = num_vertices
        self._records: list[Records] = []
        self._rows: Tcsr | None = None

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


def open_graph(kind: str, num_vertices: int, *, tau: int, origin: float) -> LocalGraph:
    """An empty graph: `blocks` or `rows`; raises UnknownKeyError for another kind."""
    if kind not in GRAPHS:
        raise unknown_key("graph", kind, GRAPHS)
    if kind == "rows":
        return SortedRows(num_vertices)
    return LocalBlockGraph(num_vertices, tau=tau, origin=origin)
