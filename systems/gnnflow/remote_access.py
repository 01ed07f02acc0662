"""A graph on several machines as a trainer sees it: one rank's end of it (GNNFlow 4.4)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from dgbench.kernels_cuda.row_cache import CacheState
from dgbench.kernels_cuda.temporal_sample import Sample
from dgbench.runtime.collectives import Communicator
from dgbench.runtime.machine_memory import share_files, shared_tensor
from dgbench.systems.gnnflow.cache import FeatureCache
from dgbench.systems.gnnflow.dispatch import Dispatcher
from dgbench.systems.gnnflow.feature_store import (
    EdgeRows,
    FeatureRows,
    Fetcher,
    SharedEdgeRows,
    VertexRows,
    WholeTableRows,
)
from dgbench.systems.gnnflow.local_graph import (
    DeviceBlockGraph,
    LocalGraph,
    SharedBlockGraph,
    open_graph,
)
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
        fences: as the technique of one process, ours.
        node_cache, edge_cache: slots of each rank's caches as a share of all vertices and edges,
            the paper's; 0: none.
        admission: share of the slots that one batch may take.
        reuse, restoration: as the techniques of one process (section 4.3).
        on_device: whether a rank with a CUDA device samples blocks there (section 4.2); off, and
            rows always, on the host.
        shared: whether the ranks of a machine share one store of records and features in its
            memory, page-locked where they have CUDA devices (section 4.2); off, each has a copy.
    """

    layout: MachineLayout
    schedule: Schedule = "static"
    graph: str = "blocks"
    tau: int = 64
    fences: bool = False
    node_cache: float = 0.03
    edge_cache: float = 0.003
    admission: float = 0.2
    reuse: bool = True
    restoration: bool = True
    on_device: bool = True
    shared: bool = True


NO_CACHES: Final[Mapping[str, float]] = {"node_cache": 0.0, "edge_cache": 0.0}
"""Settings of ranks that keep no features, as those of TGL and DistDGL."""


class RemoteAccess:
    """A `GraphAccess` of one rank; all ranks call it alike.

    Features are fetched with the sample, all at once, so that ranks exchange rows as often as each
    other whatever they ask for afterwards.

    Args:
        comm: the group. owners: of the vertices. settings: layout, schedule, caches.
        workload, data: of `load_stream`; a rank reads of it what is dispatched and its own events.

    Attributes:
        graph: this machine's records.
        shares: whether its ranks share them.
        notes: what readers have to know.
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
        self.layout, self.settings = layout, settings
        self.notes: list[str] = []
        self._members = layout.members(layout.machine(comm.rank))
        self.graph = self._open_graph(settings)
        self.shares = isinstance(self.graph, SharedBlockGraph)
        self._there = torch.device("cpu")
        if settings.on_device and comm.device.type == "cuda" and settings.graph == "blocks":
            self.graph = DeviceBlockGraph(self.graph, comm.device)
            self._there = comm.device
        self._dispatcher = Dispatcher(
            comm, layout, owners, undirected=workload.undirected, shared=self.shares
        )
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
            machine, table = layout.machine(comm.rank), None
            if self.shares and layout.machines > 1:
                table = VertexRows.shared(comm, self._members, owners, machine, data.node_feat)
            if table is None:
                table = VertexRows.of(owners, machine, data.node_feat, comm.device)
            self._vertices = _Kind("node", fetcher, table, data.node_feat.shape[0], settings)
        if data.edge_feat is not None:
            rows: FeatureRows
            if layout.machines == 1:
                rows = WholeTableRows(
                    data.edge_feat, comm.device
                )  # of forks, all have it in common
            else:
                rows = self._edge_rows(len(data.events), data.edge_feat.shape[1])
            self._edges = _Kind("edge", fetcher, rows, len(data.events), settings)

    def _open_graph(self, settings: GraphRankSettings) -> LocalGraph:
        """The graph of this rank's machine: of all its ranks, where they can share memory."""
        count, origin = self.data.events.num_nodes, self.data.events.span[0]
        how: dict[str, Any] = {"tau": settings.tau, "origin": origin, "fences": settings.fences}
        wanted = settings.shared and self.layout.per_machine > 1 and settings.graph == "blocks"
        files = share_files(self.comm, self._members, 4) if wanted else None
        if files is None:
            if wanted:
                self.notes.append("ranks of a machine keep a copy of the graph each: no memory is "
                                  "shared here")  # fmt: skip
            return open_graph(settings.graph, count, **how)
        try:
            return SharedBlockGraph(self.comm, self._members, files, count, **how)
        finally:
            for file in files:
                os.close(file)

    def _edge_rows(self, edges: int, dim: int) -> EdgeRows:
        """Rows of the machine's edges, which come with them."""
        comm = self.comm
        if self.shares:
            ids = shared_tensor(comm, self._members, (edges,), torch.int64)
            rows = shared_tensor(comm, self._members, (edges, dim), torch.float32)
            if ids is not None and rows is not None:
                return SharedEdgeRows(comm, self._members, ids, rows, comm.device)
        return EdgeRows(dim, device=comm.device)

    @property
    def host_bytes(self) -> dict[str, int]:
        """Bytes of the host's memory that this rank keeps `records` and `features` in; those of a
        store that ranks share count at the one that writes."""
        kinds = [kind.rows.nbytes for kind in (self._vertices, self._edges) if kind is not None]
        return {"records": self.graph.nbytes, "features": sum(kinds)}

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
        own = not self.shares or self.comm.rank == self._members[0]
        self.comm.meter.count("records_inserted", len(records) if own else 0)

    def finish(self) -> None:
        """All events of a round are there: get ready to sample."""
        self.graph.finish()

    # Where in a round a trainer is (section 4.3); caches are a rank's own, so nobody is asked.

    def begin_round(self) -> None:
        """A new round: keep what the caches hold, or begin empty without `reuse`."""
        for kind in (self._vertices, self._edges):
            if kind is not None:
                kind.begin_round()

    def begin_epoch(self) -> None:
        """A new epoch: with `restoration`, go back to what the caches held at the round's begin."""
        for kind in (self._vertices, self._edges):
            if kind is not None:
                kind.begin_epoch()

    def expect(self, events: Tensor) -> None:
        """The events of this rank's share of the next batch, whose features are wanted as well."""
        self._own = events

    def sample(
        self, nodes: Tensor, times: Tensor, *, draw: int, positions: Tensor | None = None
    ) -> list[list[Sample]]:
        """Neighbourhoods of this rank's roots, [snapshot][hop], and all their features."""
        if positions is None:
            positions = torch.arange(nodes.numel())
        roots = (x.to(self._there) for x in (nodes, times, positions))
        nodes, times, positions = roots
        samples = self._sampler.sample(nodes, times, draw=draw, positions=positions)
        with self.comm.meter.phase("fetch"):
            if self._vertices is not None:
                last = [hops[-1] for hops in samples]
                ids = torch.cat([part for hop in last for part in (hop.nodes, hop.neighbours)])
                self._vertices.bring(torch.unique(ids), self.owners.of)
            if self._edges is not None:
                own = self._own
                homes = self.owners.of(self.data.events.src[own])
                self._homes.note(own.to(self._there), homes.to(self._there))
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
        self,
        name: str,
        fetcher: Fetcher,
        rows: FeatureRows,
        count: int,
        settings: GraphRankSettings,
    ) -> None:
        self.name, self.rows, self._settings = name, rows, settings
        self._source = _Remote(name, fetcher, rows, count)
        self._cache = self._empty()
        self._start: CacheState | None = None

    def _empty(self) -> FeatureCache | None:
        """A cache that keeps nothing yet; None where there is to be none."""
        share, count = getattr(self._settings, f"{self.name}_cache"), self._source.num_rows
        if share <= 0:
            return None
        return FeatureCache(
            self._source,
            min(count, max(1, round(share * count))),
            admission=self._settings.admission,
            device=str(self._source.fetcher.comm.device),
        )

    def begin_round(self) -> None:
        """See `RemoteAccess.begin_round`."""
        if not self._settings.reuse:
            self._cache = self._empty()
        if self._cache is not None and self._settings.restoration:
            self._start = self._cache.snapshot()

    def begin_epoch(self) -> None:
        """See `RemoteAccess.begin_epoch`."""
        if self._cache is not None and self._start is not None:
            self._cache.restore(self._start)

    def bring(self, wanted: Tensor, machine_of: MachineOf) -> None:
        """Fetch the rows of a batch, int64[n] ids, ascending and each once."""
        source, meter = self._source, self._source.fetcher.comm.meter
        source.begin(machine_of, wanted.device)
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

    def begin(self, machine_of: MachineOf, where: torch.device) -> None:
        """A batch: `machine_of(ids)` says where rows live, for ids on the device `where`."""
        self._machine_of, self._where, self._asked = machine_of, where, False

    def gather(self, ids: Tensor, out: Tensor | None = None) -> Tensor:
        """float32[n, dim], in the order of ids; also into `out`."""
        self._asked = True
        machine = None
        if self.fetcher.layout.machines > 1:
            machine = self._machine_of(ids.to(self._where))
        found = self.fetcher.fetch(self._name, self._rows, ids, machine)
        return found if out is None else out.copy_(found)

    def end(self) -> None:
        """Answer the others where this rank's cache had everything."""
        if not self._asked:
            self.gather(torch.empty(0, dtype=torch.int64))
