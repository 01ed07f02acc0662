"""DGL's own sampler and partitioner under the trainer that all systems share (section 2.2)."""

from __future__ import annotations

import os
import warnings
from contextlib import redirect_stdout
from types import ModuleType

import torch
from torch import Tensor

from dgbench.kernels_cuda.temporal_sample import Sample
from dgbench.runtime.errors import MissingPackageError, UnsupportedError
from dgbench.systems.base.stream import StreamData, StreamWorkload


def import_dgl() -> ModuleType:
    """The module. Raises MissingPackageError where it is absent or does not load."""
    os.environ.setdefault("DGLBACKEND", "pytorch")  # else it writes one into the home folder
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import dgl
    except Exception as error:  # its libraries are bound to versions of torch and may fail anyhow
        said = str(error).splitlines()[0] if str(error) else ""
        raise MissingPackageError(
            f"DGL is not usable here: {type(error).__name__}: {said}", hint="pip install dgl==1.1.3"
        ) from error
    return dgl


class DglAccess:
    """A `GraphAccess` over `dgl.sampling.sample_neighbors`: uniform over all edges, no time.

    The released sampler is used as it is: it draws without replacement and repeats only with the
    seed of DGL, which `sample` sets from the number of the call.
    """

    def __init__(self, workload: StreamWorkload, data: StreamData) -> None:
        """Keep nothing yet. Raises MissingPackageError without DGL."""
        self._dgl = import_dgl()
        self._workload, self._data = workload, data
        self.inserted = 0

    def insert(self, first: int, last: int) -> None:
        """Make the graph anew from events 0 .. last - 1, with the format that sampling reads."""
        events = self._data.events
        src, dst = events.src[:last], events.dst[:last]
        # Edges into a seed are drawn: a directed event belongs to its source.
        if self._workload.undirected:
            ends = torch.cat([dst, src]), torch.cat([src, dst])
        else:
            ends = dst, src
        self.graph = self._dgl.graph(ends, num_nodes=events.num_nodes).formats(["csc"])
        self.inserted = last

    def partition(self, parts: int) -> Tensor:
        """The part of every vertex by METIS, int64[N], as DGL partitions for several machines.

        Each pair is handed over once and without self edges: METIS corrupts its memory otherwise.
        """
        dgl = self._dgl
        simple = dgl.to_simple(dgl.remove_self_loop(self.graph.formats(["csc", "coo"])))
        with redirect_stdout(None):  # it prints its times
            return dgl.metis_partition_assignment(dgl.to_bidirected(simple), parts)

    def sample(
        self, nodes: Tensor, times: Tensor, *, draw: int, positions: Tensor | None = None
    ) -> list[list[Sample]]:
        """[[hop]] of roots; edges may be newer than their root. See `GraphAccess.sample`."""
        self._dgl.seed(draw % 2**31)
        hops: list[Sample] = []
        where = torch.arange(nodes.numel()) if positions is None else positions
        for fanout in self._workload.fanouts:
            block = self._dgl.sampling.sample_neighbors(self.graph, nodes, fanout)
            # Its edges stand seed by seed, also where a vertex is asked for several times.
            taken = self.graph.in_degrees(nodes).clamp(max=fanout)
            offsets = torch.zeros(nodes.numel() + 1, dtype=torch.int64)
            torch.cumsum(taken, 0, out=offsets[1:])
            eids = block.edata[self._dgl.EID] % self.inserted
            neighbours = block.edges()[0]
            edge_times = self._data.events.t[eids]
            hops.append(Sample(nodes, times, where, offsets, neighbours, eids, edge_times, fanout))
            nodes, times = torch.cat([nodes, neighbours]), torch.cat([times, edge_times])
            where = torch.arange(nodes.numel())
        return [hops]

    def node_features(self, ids: Tensor) -> Tensor:
        """float32[n, node_dim] of vertices int64[n]."""
        return _rows(self._data.node_feat, ids)

    def edge_features(self, eids: Tensor) -> Tensor:
        """float32[n, edge_dim] of edges int64[n]."""
        return _rows(self._data.edge_feat, eids)


def _rows(table: Tensor | None, ids: Tensor) -> Tensor:
    if table is None:
        raise UnsupportedError("the workload has no such features")
    return table.index_select(0, ids)
