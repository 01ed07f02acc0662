"""A growing graph as TGL keeps it: sorted rows, rebuilt from all edges for whatever is new."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from dgbench.kernels_cuda.row_cache import page_locked, take_rows
from dgbench.kernels_cuda.tcsr import Tcsr, build_tcsr, sample_tcsr_hops
from dgbench.kernels_cuda.temporal_sample import Sample
from dgbench.runtime.errors import InvalidInputError, UnsupportedError
from dgbench.runtime.meter import Meter
from dgbench.systems.base.stream import StreamData, StreamWorkload
from dgbench.systems.base.stream_access import sampling_of


class FeatureRowCache(Protocol):
    """Anything that hands out rows of features and may keep some of them near."""

    def fetch(self, ids: Tensor) -> Tensor:
        """float32[n, D] of int64[n]."""


class RebuiltAccess:
    """A `GraphAccess` over `Tcsr`.

    Attributes:
        rows: the graph, None before the first insertion.
        inserted: events in it.
    """

    def __init__(
        self,
        workload: StreamWorkload,
        data: StreamData,
        *,
        meter: Meter | None = None,
        threads: int | None = None,
        device: str = "cpu",
        node_cache: FeatureRowCache | None = None,
        edge_cache: FeatureRowCache | None = None,
    ) -> None:
        """Keep nothing yet.

        Args:
            workload, data: of `load_stream`.
            meter: counts `built_records`, all that a rebuild writes.
            threads: of the builder and the sampler, torch's number if None.
            device: where rows of features are wanted; a CUDA device gets page-locked tables.
            node_cache, edge_cache: asked for features instead of the whole tables.
        """
        self._workload = workload
        self._data = data
        self._meter = meter if meter is not None else Meter()
        self._threads = threads
        self._goal = device
        self._tables = {
            kind: None if table is None else page_locked(table, device)
            for kind, table in (("node", data.node_feat), ("edge", data.edge_feat))
        }
        self._node_cache, self._edge_cache = node_cache, edge_cache
        self.rows: Tcsr | None = None
        self.inserted = 0

    def insert(self, first: int, last: int) -> None:
        """Build all rows again from events 0 .. last - 1.

        Raises:
            InvalidInputError: events were left out, or come twice.
        """
        events = self._data.events
        if first != self.inserted or not first <= last <= len(events):
            raise InvalidInputError(
                f"events [{first}, {last}) to be inserted after {self.inserted} of {len(events)}"
            )
        self.rows = build_tcsr(
            events.num_nodes,
            events.src[:last],
            events.dst[:last],
            events.t[:last],
            undirected=self._workload.undirected,
            threads=self._threads,
        )
        self._meter.count("built_records", self.rows.num_records)
        self.inserted = last

    def sample(
        self, nodes: Tensor, times: Tensor, *, draw: int, positions: Tensor | None = None
    ) -> list[list[Sample]]:
        """See `GraphAccess.sample`. Raises UnsupportedError before the first insertion."""
        if self.rows is None:
            raise UnsupportedError("nothing was inserted yet", hint="call `insert` first")
        task = self._workload
        return sample_tcsr_hops(
            self.rows,
            nodes,
            times,
            task.fanouts,
            **sampling_of(task),
            draw=draw,
            positions=positions,
            threads=self._threads,
        )

    def node_features(self, ids: Tensor) -> Tensor:
        """float32[n, node_dim] of vertices int64[n]."""
        return self._rows("node", self._node_cache, ids)

    def edge_features(self, eids: Tensor) -> Tensor:
        """float32[n, edge_dim] of edges int64[n]."""
        return self._rows("edge", self._edge_cache, eids)

    def _rows(self, kind: str, cache: FeatureRowCache | None, ids: Tensor) -> Tensor:
        if cache is not None:
            return cache.fetch(ids)
        table = self._tables[kind]
        if table is None:
            raise UnsupportedError("the workload has no such features")
        return take_rows(table, ids, self._goal)
