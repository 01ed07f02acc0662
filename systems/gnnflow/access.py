"""GNNFlow's graph as a trainer sees it: blocks that grow in place, and caches of features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from dgbench.kernels_cuda.row_cache import Index, Policy, page_locked, take_rows
from dgbench.kernels_cuda.temporal_sample import Sample, sample_hops
from dgbench.kernels_cuda.temporal_store import GROWN, BlockPolicy, TemporalStore
from dgbench.runtime.errors import InvalidInputError
from dgbench.runtime.meter import Meter
from dgbench.systems.base.stream_access import sampling_of
from dgbench.systems.gnnflow.cache import FeatureCache, FeatureTable

if TYPE_CHECKING:
    from dgbench.systems.base.stream import StreamData, StreamWorkload

KINDS: Final = ("node", "edge")


@dataclass(frozen=True, slots=True)
class AccessSettings:
    """Sizes of blocks and caches.

    Attributes:
        tau: slots of an adaptive block at most; grown ones have their own limit.
        layout: `packed`, `compact` or `wide` records.
        node_cache, edge_cache: slots as a share of all vertices and all edges of the stream.
        policy: who is evicted: `lru`, `lfu`, `fifo`, or `static` for nobody.
        admission: share of the slots that one batch may take (the paper's lambda).
        index: how an id is found, `dense` or `hash`.
        threads: of the sampler; None takes torch's.
        placement: where a GPU that samples has the graph (`DeviceAccess`).
    """

    tau: int = 64
    layout: str = "packed"
    node_cache: float = 0.03
    edge_cache: float = 0.003
    policy: Policy = "lru"
    admission: float = 0.2
    index: Index = "dense"
    threads: int | None = None
    placement: str = "hybrid"

    def check(self) -> AccessSettings:
        """Return self; raise InvalidInputError naming a share out of range."""
        for name in ("node_cache", "edge_cache"):
            value = getattr(self, name)
            if isinstance(value, bool) or not 0 <= value <= 1:
                raise InvalidInputError(f"{name} is {value!r}; a share in [0, 1] is allowed")
        return self


class StoreAccess:
    """A `GraphAccess` over a store in blocks and two caches.

    Nothing here changes what is sampled or fetched: whatever is switched off, the answers are the
    same bits.

    Args:
        workload, data: of `load_stream`.
        switches: a truth value for each of `GnnflowSystem.techniques`.
        settings: sizes of blocks and caches.
        meter: gets hits, misses and bytes.
        device: where features are asked for.

    Attributes:
        store: what was inserted.
        caches: by kind, `node` and `edge`; without those that are off or have nothing to keep.
    """

    def __init__(
        self,
        workload: StreamWorkload,
        data: StreamData,
        switches: Mapping[str, bool],
        *,
        settings: AccessSettings | None = None,
        meter: Meter | None = None,
        device: str = "cpu",
    ) -> None:
        self.workload, self.data, self.on = workload, data, dict(switches)
        self.settings = (settings or AccessSettings()).check()
        self.meter = meter if meter is not None else Meter()
        self.device = torch.device(device)
        self._inserted = 0
        events = data.events
        self._columns = (events.src, events.dst, events.t, events.eid)
        self.store = self._empty()
        self._tables = {
            kind: None if table is None else page_locked(table, self.device)
            for kind, table in (("node", data.node_feat), ("edge", data.edge_feat))
        }
        self.caches = {
            kind: self._cache(kind, table)
            for kind, table in self._tables.items()
            if table is not None and self.on[f"{kind}_cache"]
        }
        self._start: dict[str, Any] | None = None

    def insert(self, first: int, last: int) -> None:
        """Let the graph have the events first .. last - 1 of the stream, each once and in order.

        Raises:
            InvalidInputError: they do not follow on those that are there.
        """
        if first != self._inserted or not first <= last <= len(self.data.events):
            raise InvalidInputError(
                f"events {first} .. {last - 1} cannot be inserted, {self._inserted} of "
                f"{len(self.data.events)} are there"
            )
        if not self.on["in_place"]:
            first, self.store = 0, self._empty()
        self.store.insert(*(column[first:last] for column in self._columns))
        self._inserted = last
        self.meter.count("edges_inserted", last - first)

    def sample(
        self, nodes: Tensor, times: Tensor, *, draw: int, positions: Tensor | None = None
    ) -> list[list[Sample]]:
        """Temporal neighbourhoods of roots, [snapshot][hop]; see `sample_hops`."""
        task = self.workload
        return sample_hops(
            self.store,
            nodes,
            times,
            task.fanouts,
            **sampling_of(task),
            draw=draw,
            positions=positions,
            search="binary" if self.on["fences"] else "linear",
            threads=self.settings.threads,
        )

    def node_features(self, ids: Tensor) -> Tensor:
        """float32[n, node_dim] of vertices int64[n]."""
        return self._fetch("node", ids)

    def edge_features(self, eids: Tensor) -> Tensor:
        """float32[n, edge_dim] of edges int64[n]."""
        return self._fetch("edge", eids)

    # Where in a round a trainer is (section 4.3).

    def begin_round(self) -> None:
        """A new round: keep what the caches hold, or begin empty without `reuse`."""
        if not self.on["reuse"]:
            for kind in self.caches:
                self.caches[kind] = self._cache(kind, self._tables[kind])
        if self.on["restoration"]:
            self._start = {kind: cache.snapshot() for kind, cache in self.caches.items()}

    def begin_epoch(self) -> None:
        """A new epoch: with `restoration`, go back to what the caches held at the round's begin."""
        if self._start is not None:
            for kind, state in self._start.items():
                self.caches[kind].restore(state)

    def report(self) -> dict[str, float]:
        """Bytes of the store and hit rates so far, for a row."""
        memory = self.store.memory()
        found = {"store_bytes": float(memory.total), "blocks": float(memory.blocks)}
        for kind, cache in self.caches.items():
            found[f"{kind}_hit_rate"] = cache.counts.hit_rate
            found[f"{kind}_unique_hit_rate"] = cache.counts.unique_hit_rate
        return found

    def _empty(self) -> Any:
        return TemporalStore(self.data.events.num_nodes, **self._shape())

    def _shape(self) -> dict[str, Any]:
        """Arguments of a store but the number of its vertices."""
        sized = "adaptive" if self.on["adaptive_blocks"] else "strawman"
        grown = self.on["adaptive_blocks"] and self.on["grown_blocks"]
        return {
            "policy": GROWN if grown else BlockPolicy(sized, self.settings.tau),
            "layout": self.settings.layout,
            "undirected": self.workload.undirected,
            "origin": float(self.data.events.t[0]),
        }

    def _cache(self, kind: str, table: Tensor) -> FeatureCache:
        share = getattr(self.settings, f"{kind}_cache")
        return FeatureCache(
            FeatureTable(table),
            min(table.shape[0], max(1, round(share * table.shape[0]))),
            policy=self.settings.policy,
            admission=self.settings.admission,
            index=self.settings.index,
            device=str(self.device),
            meter=self.meter,
        )

    def _fetch(self, kind: str, ids: Tensor) -> Tensor:
        cache = self.caches.get(kind)
        if cache is None:
            return take_rows(self._tables[kind], ids, self.device)
        before = cache.hits
        rows = cache.fetch(ids)
        self.meter.count(f"{kind}_hits", cache.hits - before)
        return rows
