"""GNNFlow's feature cache (section 4.3): a fraction of the rows of a host table, renewed by batch.

What a batch asks for is looked up at once; hits come from the cache, each different miss once from
the source. What is kept can be carried to the next round (*reuse*) and set back at the start of
every epoch (*restoration*): both are `snapshot` and `restore`.

Readings. A miss is fetched once a batch, however often it is asked for. An update admits at most
`admission` of the capacity, in free slots too, and prefers what the batch asks for most often.
Memories of TGN change every iteration and do not belong here.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from dgbench.kernels_cuda._checks import check_ids, check_vector
from dgbench.kernels_cuda.row_cache import CacheState, Index, Policy, check_rows, open_row_cache
from dgbench.kernels_cuda.temporal_store.files import UNREADABLE
from dgbench.kernels_cuda.workspace import scratch
from dgbench.runtime.errors import DataError, InvalidInputError
from dgbench.runtime.meter import Meter


class RowSource(Protocol):
    """Where rows that are not kept come from.

    Attributes:
        num_rows: ids are 0 .. num_rows - 1; may grow, never shrink.
        dim: floats of a row.
    """

    num_rows: int
    dim: int

    def gather(self, ids: Tensor, out: Tensor | None = None) -> Tensor:
        """float32[n, dim], the rows of ids int64[n] on any device, in `out` where it is given."""


class FeatureTable:
    """Rows of a table, float32[N, D]; page-locked memory of the host is read by a device itself."""

    def __init__(self, table: Tensor) -> None:
        check_rows(table, "table", table.shape[0], table.shape[-1])
        self.table = table
        self.num_rows, self.dim = table.shape

    def gather(self, ids: Tensor, out: Tensor | None = None) -> Tensor:
        """The rows of ids int64[n]."""
        ids = ids.to(self.table.device)
        return torch.index_select(self.table, 0, ids, **({} if out is None else {"out": out}))


@dataclass(slots=True)
class CacheCounts:
    """Counts of a cache's requests since it was made or `reset`.

    Attributes:
        requests, hits: ids asked for and those found, repeated ones of a batch included.
        unique, unique_hits: the same with each id counted once a batch, as it is transferred.
        admitted, evicted: rows put in, and those of them that took another's place.
    """

    requests: int = 0
    hits: int = 0
    unique: int = 0
    unique_hits: int = 0
    admitted: int = 0
    evicted: int = 0

    @property
    def misses(self) -> int:
        return self.requests - self.hits

    @property
    def unique_misses(self) -> int:
        """Rows that came from the source."""
        return self.unique - self.unique_hits

    @property
    def hit_rate(self) -> float:
        """Share of the requests that hit; 0 without requests."""
        return self.hits / self.requests if self.requests else 0.0

    @property
    def unique_hit_rate(self) -> float:
        """Share of the different ids of all batches that hit: rows that were not transferred."""
        return self.unique_hits / self.unique if self.unique else 0.0


class FeatureCache:
    """Rows of a source, as many as fit.

    Args:
        rows: where misses come from.
        capacity: rows kept at most, from 0.
        policy: who is evicted: `lru`, `lfu`, `fifo`, or `static`, where only `fill` admits.
        admission: largest share of the capacity that one fetch admits, in (0, 1] (the paper's
            lambda, 0.2).
        index: `dense`, 4 bytes for each id there may be, or `hash`, by what is kept.
        device: where rows are kept and handed out.
        meter: told the seconds of each part where it times phases, and bytes that missed.

    Attributes:
        counts: hits and misses so far.

    Raises:
        InvalidInputError: a capacity or share out of range.
        UnknownKeyError: a policy or index that does not exist.
        UnsupportedError: no compiled cache for the device.
    """

    def __init__(
        self,
        rows: RowSource,
        capacity: int,
        *,
        policy: Policy = "lru",
        admission: float = 0.2,
        index: Index = "dense",
        device: str = "cpu",
        meter: Meter | None = None,
    ) -> None:
        if not 0 < admission <= 1:
            raise InvalidInputError(f"admission is {admission}, allowed are values in (0, 1]")
        self.rows, self.capacity, self.policy, self.admission = rows, capacity, policy, admission
        self.counts = CacheCounts()
        self.meter = meter if meter is not None else Meter()
        self._device = torch.device(device)
        limit = min(capacity, max(1, int(admission * capacity)))
        self._slots = open_row_cache(
            rows.num_rows, rows.dim, capacity, policy=policy, limit=limit, index=index,
            device=device,
        )  # fmt: skip

    @property
    def requests(self) -> int:
        return self.counts.requests

    @property
    def hits(self) -> int:
        return self.counts.hits

    @property
    def misses(self) -> int:
        return self.counts.misses

    def fetch(self, ids: Tensor, *, update: bool = True) -> Tensor:
        """The rows of ids int64[n], float32[n, D] in their order; ids may repeat.

        Args:
            ids: of rows; any order.
            update: whether to score hits and admit misses. If the source fails nothing changes.

        Raises:
            InvalidInputError: another dtype or shape, or an id that the source has not.
        """
        if self.rows.num_rows > self._slots.num_ids:
            self._slots.grow(self.rows.num_rows)
        with self._timed("lookup"):
            found = self._slots.lookup(ids)
        table = getattr(self.rows, "table", None)
        direct = table is not None and table.device.type == "cpu"
        with self._timed("source"):
            source = table if direct else self.rows.gather(found.misses)
        with self._timed("gather"):
            shape = (ids.numel(), self.rows.dim)
            out = scratch.empty(shape, torch.empty(0, device=self._device))
            self._slots.gather(found, source, out, by_id=direct)
        counts, unique_misses = self.counts, found.misses.numel()
        counts.requests += ids.numel()
        counts.hits += found.request_hits
        counts.unique += found.hits + unique_misses
        counts.unique_hits += found.hits
        self.meter.count("cache_bytes_missed", 4 * self.rows.dim * unique_misses)
        if update:
            with self._timed("update"):
                admitted, evicted = self._slots.update(found, out)
            counts.admitted += admitted
            counts.evicted += evicted
        return out

    def fill(self, ids: Tensor) -> None:
        """Keep the rows of these different ids, at most `capacity`, and nothing else.

        Raises:
            InvalidInputError: too many, one of them twice or not in the source; nothing changes.
        """
        check_vector(ids.cpu(), "ids", torch.int64)
        check_ids(ids, "ids", self.rows.num_rows)
        if ids.numel() > self.capacity:
            raise InvalidInputError(f"ids has {ids.numel()} elements, the cache {self.capacity}")
        scores = torch.zeros(ids.numel(), dtype=torch.int32, device=ids.device)
        self.restore(CacheState(ids, self.rows.gather(ids), scores, scores, 0, 0))

    def contents(self) -> Tensor:
        """int64[k], the ids that are kept, by slot."""
        return self._slots.ids()

    def snapshot(self) -> CacheState:
        """All that is kept, with its scores: to be carried on, or to be restored later."""
        return self._slots.state()

    def restore(self, state: CacheState) -> None:
        """Keep what a snapshot of this cache, or of one of the same width, kept.

        Raises:
            InvalidInputError: it does not fit here; nothing changes.
        """
        if self.rows.num_rows > self._slots.num_ids:
            self._slots.grow(self.rows.num_rows)
        self._slots.assign(state)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write what is kept to a file (npz), whole or not at all."""
        write_state(self.snapshot(), path)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], rows: RowSource, capacity: int, **settings: Any
    ) -> FeatureCache:
        """A new cache that keeps what `save` wrote.

        Args:
            path: of the file.
            rows, capacity, **settings: as for a new cache.

        Raises:
            DataError: the file is not what `save` writes.
            InvalidInputError: it does not fit the capacity or the source.
        """
        made = cls(rows, capacity, **settings)
        made.restore(read_state(path))
        return made

    def reset_counts(self) -> None:
        """Count anew from here."""
        self.counts = CacheCounts()

    @contextmanager
    def _timed(self, part: str) -> Iterator[None]:
        if not self.meter.timing:
            yield
            return
        start = time.perf_counter()
        yield
        self.meter.spend(f"cache_{part}", time.perf_counter() - start)


def write_state(state: CacheState, path: str | os.PathLike[str]) -> None:
    """Write a cache's state; the file appears whole or not at all."""
    path = Path(path)
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with partial.open("wb") as file:
            np.savez(
                file,
                ids=state.ids.cpu().numpy(),
                rows=state.rows.cpu().numpy(),
                last=state.last.cpu().numpy(),
                score=state.score.cpu().numpy(),
                order=np.array([state.ring, state.batch], dtype=np.int64),
            )
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def read_state(path: str | os.PathLike[str]) -> CacheState:
    """Read what `write_state` wrote.

    Raises:
        DataError: there is no such file, or it holds something else.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            ids, rows, last, score = (
                torch.from_numpy(np.ascontiguousarray(file[name]))
                for name in ("ids", "rows", "last", "score")
            )
            ring, batch = (int(number) for number in file["order"])
    except UNREADABLE as error:
        raise DataError(f"'{path}' is not a saved cache: {error}") from error
    return CacheState(ids, rows, last, score, ring, batch)
