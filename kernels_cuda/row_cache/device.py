"""The cache of feature rows on a device (GNNFlow, section 4.3); `row_cache` has the rules.

Rows, ids and scores lie on the device. Ids are looked up there, and one kernel gathers hits from
the slots and misses from where they are: the device, page-locked memory of the host, or rows that
were gathered by the host and copied. Who is evicted and admitted is sorted out by torch, with the
CPU's ties.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dgbench.kernels_cuda._checks import check_ids
from dgbench.kernels_cuda.build_info import extension, stream_of
from dgbench.kernels_cuda.row_cache.op import (
    INDEXES,
    POLICIES,
    CacheLookup,
    CacheState,
    Index,
    Policy,
)
from dgbench.runtime.errors import InvalidInputError, UnsupportedError, unknown_key

NEVER = 2**31 - 1
"""Rank of a slot that is not to be evicted."""


@dataclass(frozen=True, slots=True)
class _Pending:
    """The last lookup: slots hit once each, and of every miss its id, its number of occurrences and
    where it occurs first."""

    asked: int
    hit: Tensor
    misses: Tensor
    counts: Tensor
    first: Tensor


class DeviceRowCache:
    """`row_cache.RowCache` with its slots on a device.

    Args: as there; `index` `dense` takes 4 bytes for every id, `hash` stands for a map of what is
    kept, here a sorted list of 12 bytes a slot.

    Raises:
        InvalidInputError: a size out of range.
        UnknownKeyError: a policy or index that does not exist.
        UnsupportedError: no compiled operators for the device.
    """

    def __init__(
        self,
        num_ids: int,
        dim: int,
        capacity: int,
        *,
        policy: Policy = "lru",
        limit: int | None = None,
        index: Index = "dense",
        device: torch.device | str = "cuda",
    ) -> None:
        if policy not in POLICIES:
            raise unknown_key("policy", policy, POLICIES)
        if index not in INDEXES:
            raise unknown_key("index", index, INDEXES)
        limit = capacity if limit is None else limit
        for name, value, low, high in (
            ("num_ids", num_ids, 0, 2**62),
            ("dim", dim, 1, 2**20),
            ("capacity", capacity, 0, 2**31 - 2),
            ("limit", limit, 0, capacity),
        ):
            if not low <= value <= high:
                raise InvalidInputError(f"{name} is {value}, allowed are {low} to {high}")
        self.capacity, self.dim, self.num_ids = capacity, dim, num_ids
        self.device = torch.device(device)
        self._native: Any = extension(self.device)
        if not hasattr(self._native, "gather_rows"):
            raise UnsupportedError(f"a cache on '{self.device}' is RowCache")
        self._policy, self._limit = policy, limit
        self._size = self._ring = self._batch = 0
        self._pending: _Pending | None = None
        self._ids = self._full(capacity, -1, torch.int64)
        self._rows = torch.empty(capacity, dim, device=self.device)
        self._last = self._full(capacity, 0)
        self._score = self._full(capacity, 0)
        self._dense = self._full(num_ids, -1) if index == "dense" else None
        self._sorted, self._slot_of = self._full(0, 0, torch.int64), self._full(0, 0)

    def lookup(self, ids: Tensor) -> CacheLookup:
        """Find ids int64[n], on the CPU or the device; see `RowCache.lookup`.

        Returns:
            Places and misses on the device: a table that is page-locked is read from there, and
            the host learns only where it gathers rows itself.

        Raises:
            InvalidInputError: another dtype or shape, or an id out of range.
        """
        if ids.dtype != torch.int64 or ids.dim() != 1:
            raise InvalidInputError(f"ids is {ids.dtype} with {ids.dim()} dimensions, int64[n]")
        check_ids(ids, "ids", self.num_ids)
        ids = ids.to(self.device).contiguous()
        place = torch.empty(ids.numel(), dtype=torch.int32, device=self.device)
        self._native.look_up(
            ids, self._dense, self._sorted, self._slot_of, self.num_ids, place, *self._stream()
        )
        missed = (place < 0).nonzero().squeeze(1)
        hit = torch.unique(place[place >= 0]).long()
        unique, inverse, counts = torch.unique(ids[missed], return_inverse=True, return_counts=True)
        first = missed.new_full(unique.shape, ids.numel())
        first.scatter_reduce_(0, inverse, missed, "amin")
        order = first.argsort()  # in order of first occurrence
        rank = torch.empty_like(order)
        rank[order] = torch.arange(order.numel(), device=self.device)
        place[missed] = (-1 - rank[inverse]).int()
        misses = unique[order]
        self._pending = _Pending(ids.numel(), hit, misses, counts[order], first[order])
        return CacheLookup(place, misses, hit.numel(), ids.numel() - missed.numel())

    def gather(self, found: CacheLookup, source: Tensor, out: Tensor, *, by_id: bool) -> None:
        """Write the rows of the last lookup into `out` on the device; see `RowCache.gather`.

        Args:
            source: on the device or on the CPU; page-locked tables are read over the bus, of others
                the missing rows are gathered by the host and copied.
        """
        pending = self._last_lookup(found)
        self._check_rows("source", source, self.num_ids if by_id else pending.misses.numel())
        self._check_rows("out", out, pending.asked)
        misses = pending.misses if by_id else None
        name = "gather_rows"
        if source.device.type != self.device.type:
            if by_id and source.is_pinned():
                name = "gather_rows_pinned"
            else:
                rows = source.index_select(0, found.misses.cpu()) if by_id else source
                source, misses = rows.to(self.device), None
        kernel = getattr(self._native, name)
        kernel(found.place, misses, self._rows, source, out, *self._stream())

    def update(self, found: CacheLookup, out: Tensor) -> tuple[int, int]:
        """Score hits and admit misses of the last lookup; see `RowCache.update`."""
        pending = self._last_lookup(found)
        self._check_rows("out", out, pending.asked)
        self._pending = None
        self._batch += 1
        self._last[pending.hit] = self._batch
        self._score[pending.hit] += 1
        missed = pending.misses.numel()
        wanted = min(missed, self._limit)
        if self._policy == "static" or wanted == 0:
            return 0, 0
        free = min(wanted, self.capacity - self._size)
        slots = torch.arange(self._size, self._size + free, device=self.device)
        victims = self._victims(wanted - free, pending.hit.numel())
        slots = torch.cat([slots, victims])
        admitted = slots.numel()
        often = pending.counts.sort(descending=True, stable=True).indices[:admitted]
        chosen = often.sort().values
        fresh = pending.misses[chosen]
        if self._dense is not None:
            self._dense[self._ids[victims]] = -1
            self._dense[fresh] = slots.int()
        self._ids[slots] = fresh
        self._last[slots] = self._batch
        self._score[slots] = 1
        self._rows[slots] = out[pending.first[chosen]]
        self._size += free
        self._sort()
        return admitted, admitted - free

    def assign(self, state: CacheState) -> None:
        """Keep exactly this; all or nothing; see `RowCache.assign`."""
        ids, kept = state.ids, state.ids.numel()
        if kept > self.capacity:
            raise InvalidInputError(f"ids has {kept} elements, the cache {self.capacity} slots")
        check_ids(ids, "ids", self.num_ids)
        if torch.unique(ids).numel() < kept:
            raise InvalidInputError("cache: an id stands in two places")
        self._check_rows("rows", state.rows, kept)
        for name in ("last", "score"):
            scores = getattr(state, name)
            if scores.dtype != torch.int32 or scores.shape != (kept,):
                raise InvalidInputError(
                    f"{name} is {scores.dtype}{list(scores.shape)}, expected torch.int32[{kept}]"
                )
        if not 0 <= state.ring < max(self.capacity, 1) or state.batch < 0:
            raise InvalidInputError(f"cache: ring {state.ring} or batch {state.batch} is no such")
        if self._dense is not None:
            self._dense[self._ids[: self._size]] = -1
        for held, given in (
            (self._ids, ids),
            (self._rows, state.rows),
            (self._last, state.last),
            (self._score, state.score),
        ):
            held[:kept] = given.to(self.device)
        self._size, self._ring, self._batch = kept, state.ring, state.batch
        if self._dense is not None:
            self._dense[self._ids[:kept]] = torch.arange(
                kept, dtype=torch.int32, device=self.device
            )
        self._sort()
        self._pending = None

    def state(self) -> CacheState:
        """A copy of all that is kept, on the CPU."""
        held = (self._ids, self._rows, self._last, self._score)
        copies = [array[: self._size].clone().cpu() for array in held]
        return CacheState(*copies, ring=self._ring, batch=self._batch)

    def ids(self) -> Tensor:
        """int64[k] on the CPU, the ids that are kept, by slot."""
        return self._ids[: self._size].clone().cpu()

    def grow(self, num_ids: int) -> None:
        """Allow ids below `num_ids`, at least as many as before."""
        if num_ids < self.num_ids:
            raise InvalidInputError(f"num_ids is {num_ids}, it was {self.num_ids} already")
        if self._dense is not None:
            more = self._full(num_ids - self.num_ids, -1)
            self._dense = torch.cat([self._dense, more])
        self.num_ids = num_ids

    @property
    def index_bytes(self) -> int:
        """Bytes of the map from ids to slots."""
        held = (self._sorted, self._slot_of) if self._dense is None else (self._dense,)
        return sum(array.numel() * array.element_size() for array in held)

    def _victims(self, wanted: int, hits: int) -> Tensor:
        """Slots to be emptied, at most `wanted`, in the order in which they are filled again."""
        if self._policy == "fifo":
            slots = (torch.arange(wanted, device=self.device) + self._ring) % max(1, self.capacity)
            self._ring = (self._ring + wanted) % max(1, self.capacity)
            return slots
        ranks = self._last if self._policy == "lru" else self._score
        last = self._last[: self._size]
        ranks = ranks[: self._size].masked_fill(last == self._batch, NEVER)
        order = ranks.sort(stable=True).indices
        return order[: min(wanted, self._size - hits)].sort().values

    def _sort(self) -> None:
        if self._dense is None:
            self._sorted, slots = self._ids[: self._size].sort()
            self._slot_of = slots.int()

    def _last_lookup(self, found: CacheLookup) -> _Pending:
        if self._pending is None or found.place.numel() != self._pending.asked:
            raise InvalidInputError("found is not of the last lookup since the last update")
        return self._pending

    def _check_rows(self, name: str, rows: Tensor, count: int) -> None:
        shape = (rows.shape[0], self.dim) if name == "source" else (count, self.dim)
        fits = tuple(rows.shape) == shape and rows.shape[0] >= count and rows.is_contiguous()
        there = rows.device.type == self.device.type or name != "out"
        if rows.dtype != torch.float32 or not fits or not there:
            raise InvalidInputError(
                f"{name} is {rows.dtype}{list(rows.shape)} on {rows.device}, expected contiguous "
                f"torch.float32[{count}, {self.dim}]" + (f" on {self.device}" * (name == "out"))
            )

    def _full(self, count: int, value: int, dtype: torch.dtype = torch.int32) -> Tensor:
        return torch.full((count,), value, dtype=dtype, device=self.device)

    def _stream(self) -> tuple[int]:
        return stream_of(self.device) or (0,)
