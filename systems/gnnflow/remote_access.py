"""A graph on several machines as a trainer sees it: one rank's end of it (GNNFlow 4.4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dgbench.kernels_cuda.temporal_sample import Sample
from dgbench.runtime.collectives import Communicator
from dgbench.systems.gnnflow.cache import FeatureCache
from dgbench.systems.gnnflow.dispatch import Dispatcher
from dgbench.systems.gnnflow.feature_store import (
    EdgeRows,
    FeatureRows,
    Fetcher,
    VertexRows,
    WholeTableRows,
)
from dgbench.systems.gnnflow.local_graph import open_graph
from dgbench.systems.gnnflow.owners import MachineLayout, Owners, Schedule
from dgbench.systems.gnnflow.remote_sampling import RemoteSampler

if TYPE_CHECKING:
    from dgbench.systems.base.stream import StreamData, StreamWorkload

MachineOf = Callable[[Tensor], Tensor]
"""int64[n] ids -> int64[n], the machines where their rows live."""


@dataclass(frozen=True, slots=True)
class GraphRankSettings:
    """Layout of a graph over machines, and caches of the ranks.

    Attributes:
        layout: ranks on machines; one machine: every rank has all of the graph.
        schedule: which rank of a machine is asked.
        graph: how a machine keeps its records, `blocks` or `rows`.
        tau: slots of an adaptive block at most.
        node_cache, edge_cache: slots of each rank's caches as a share of all vertices and edges;
            0: none.
    """

    layout: MachineLayout
    schedule: Schedule = "static"
    graph: str = "blocks"
    tau: int = 64
    node_cache: float = 0.0
    edge_cache: float = 0.0


class RemoteAccess:
    """A `GraphAccess` of one rank; all ranks call it alike.

    Features are fetched with the sample, all at once, so that ranks exchange rows as often as each
    other whatever they ask for afterwards.

    Args:
        comm: the group. owners: of the vertices. settings: layout, schedule, caches.
        workload, data: of `load_stream`; a rank reads of it what is dispatched and its own events.

    Attributes:
        graph: this machine's records.
    """

    def __init__(
        self,
        comm: Communicator,
        owners: Owners,
        workload: StreamWorkload,
        data: StreamData,
        settings: GraphRankSettings,
    ) -> None:
        self.comm, self.owners, self.workload, self.data = comm, owners, workload, data
        layout = settings.layout
        self.layout = layout
        self.graph = open_graph(
            settings.graph, data.events.num_nodes, tau=settings.tau, origin=data.events.span[0]
        )
        self._dispatcher = Dispatcher(comm, layout, owners, undirected=workload.undirected)
        self._sampler = RemoteSampler(
            comm,
            layout,
            owners,
            self._one_hop,
            workload.fanouts,
            snapshots=workload.snapshots,
            window=workload.window,
            prop_time=workload.root_times,
            schedule=settings.schedule,
        )
        fetcher = Fetcher(comm, layout, owners, schedule=settings.schedule)
        self._homes = self._sampler.homes
        self._vertices: _Kind | None = None
        self._edges: _Kind | None = None
        if data.node_feat is not None:
            table = VertexRows.of(owners, layout.machine(comm.rank), data.node_feat)
            self._vertices = _Kind(
                "node", fetcher, table, data.node_feat.shape[0], settings.node_cache
            )
        if data.edge_feat is not None:
            rows: FeatureRows = EdgeRows(data.edge_feat.shape[1])
            if layout.machines == 1:
                rows = WholeTableRows(data.edge_feat)  # the machine's, which its ranks share
            self._edges = _Kind("edge", fetcher, rows, len(data.events), settings.edge_cache)

    def insert(self, first: int, last: int) -> None:
        """Take in events first .. last - 1: each machine what is its own."""
        events, cut = self.data.events, slice(first, last)
        kept = self._edges is not None and isinstance(self._edges.rows, EdgeRows)
        feature = self.data.edge_feat[cut] if kept else None
        records = self._dispatcher.dispatch(
            events.src[cut], events.dst[cut], events.t[cut], events.eid[cut], feature
        )
        self.graph.insert(records)
        if kept:
            self._edges.rows.append(records.eid, records.feature)
        self.comm.meter.count("records_inserted", len(records))

    def finish(self) -> None:
        """All events of a round are there: get ready to sample."""
        self.graph.finish()

    def expect(self, events: Tensor) -> None:
        """The events of this rank's share of the next batch, whose features are wanted as well."""
        self._own = events

    def sample(
        self, nodes: Tensor, times: Tensor, *, draw: int, positions: Tensor | None = None
    ) -> list[list[Sample]]:
        """Neighbourhoods of this rank's roots, [snapshot][hop], and all their features."""
        if positions is None:
            positions = torch.arange(nodes.numel())
        samples = self._sampler.sample(nodes, times, draw=draw, positions=positions)
        with self.comm.meter.phase("fetch"):
            if self._vertices is not None:
                last = [hops[-1] for hops in samples]
                ids = torch.cat([part for hop in last for part in (hop.nodes, hop.neighbours)])
                self._vertices.bring(torch.unique(ids), self.owners.of)
            if self._edges is not None:
                own = self._own
                self._homes.note(own, self.owners.of(self.data.events.src[own]))
                known, machine = self._homes.known()
                self._edges.bring(known, lambda ids: machine[torch.searchsorted(known, ids)])
        return samples

    @property
    def device(self) -> torch.device:
        """Where ids of features are taken and their rows handed out."""
        return self.comm.device

    def node_features(self, ids: Tensor) -> Tensor:
        """float32[n, node_dim] of vertices of the last samples."""
        return self._vertices.take(ids)

    def edge_features(self, eids: Tensor) -> Tensor:
        """float32[n, edge_dim] of edges of the last samples, or of the own events."""
        return self._edges.take(eids)

    def _one_hop(self, nodes: Tensor, times: Tensor, **how: object) -> Sample:
        task = self.workload
        return self.graph.sample(
            nodes,
            times,
            policy=task.sampling,
            window=task.window,
            closed=task.closed,
            seed=task.seed,
            **how,
        )


class _Kind:
    """Features of vertices, or of edges: where they lie, a cache, and those of a batch."""

    def __init__(
        self, name: str, fetcher: Fetcher, rows: FeatureRows, count: int, share: float
    ) -> None:
        self.name, self.rows = name, rows
        self._source = _Remote(name, fetcher, rows, count)
        self._cache: FeatureCache | None = None
        if share > 0:
            self._cache = FeatureCache(
                self._source, max(1, round(share * count)), device=str(fetcher.comm.device)
            )

    def bring(self, wanted: Tensor, machine_of: MachineOf) -> None:
        """Fetch the rows of a batch, int64[n] ids, ascending and each once."""
        source, meter = self._source, self._source.fetcher.comm.meter
        source.begin(machine_of)
        if self._cache is None:
            self._rows = source.gather(wanted)
        else:
            hits = self._cache.hits
            self._rows = self._cache.fetch(wanted)
            meter.count(f"{self.name}_hits", self._cache.hits - hits)
            meter.count(f"{self.name}_requests", wanted.numel())
        source.end()
        self._ids = wanted.to(self._rows.device)

    def take(self, ids: Tensor) -> Tensor:
        """Rows of what was brought."""
        return self._rows[torch.searchsorted(self._ids, ids)]


class _Remote:
    """Source of a cache's misses: one exchange with all ranks for every batch."""

    def __init__(self, name: str, fetcher: Fetcher, rows: FeatureRows, count: int) -> None:
        self.fetcher, self._name, self._rows = fetcher, name, rows
        self.num_rows, self.dim = count, rows.dim

    def begin(self, machine_of: MachineOf) -> None:
        """A batch: `machine_of(ids)` says where rows live."""
        self._machine_of, self._asked = machine_of, False

    def gather(self, ids: Tensor, out: Tensor | None = None) -> Tensor:
        """float32[n, dim], in the order of ids; also into `out`."""
        self._asked = True
        machine = self._machine_of(ids.cpu()) if self.fetcher.layout.machines > 1 else None
        found = self.fetcher.fetch(self._name, self._rows, ids, machine)
        return found if out is None else out.copy_(found)

    def end(self) -> None:
        """Answer the others where this rank's cache had everything."""
        if not self._asked:
            self.gather(torch.empty(0, dtype=torch.int64))
