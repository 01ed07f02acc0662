"""A cache of feature rows that is looked up, gathered from and renewed in whole batches.

GNNFlow (PVLDB 17, section 4.3) keeps a fraction of the node and edge features on the device. A
batch of ids is looked up at once, hits are gathered from the cache and misses from the host, then
all scores are updated and at most a fraction of the slots is given to misses.

Rules, the same on every device and for every number of threads:

- Batches count from 1. Slots that a batch hits get its number as `last` and one more in `score`,
  however often the batch asks for them.
- At most `limit` misses of a batch are admitted: those that occur most often in it, ties by first
  occurrence. They take free slots first, then those of victims, in order of first occurrence.
- Victims have the smallest `last` (lru) or `score` (lfu), ties by slot, and are never hit in the
  same batch; fifo takes the next slots round a ring; static admits nothing. A new row has `last` =
  batch and `score` = 1.

A score of the paper falls by one in every batch; the batch of the last use has the same order and
needs no pass over all slots.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, Protocol

import torch
from torch import Tensor

from dgbench.kernels_cuda._checks import check_ids, check_vector
from dgbench.kernels_cuda.build_info import extension
from dgbench.runtime.errors import InvalidInputError, UnsupportedError, unknown_key

Policy = Literal["lru", "lfu", "fifo", "static"]
POLICIES: Final = ("lru", "lfu", "fifo", "static")
"""Position is the number the compiled cache knows a policy by."""
Index = Literal["dense", "hash"]
INDEXES: Final = ("dense", "hash")


@dataclass(frozen=True, slots=True)
class CacheLookup:
    """Result of a lookup; valid until the next call of the cache that made it.

    Attributes:
        place: int32[n], the slot of each id, or -1 - k where it is the k-th miss.
        misses: int64[m], ids that are not kept, each once, in order of first occurrence; on the
            device of the cache.
        hits: different ids that are kept.
        request_hits: ids of the batch that are kept, repeated ones included.
    """

    place: Tensor
    misses: Tensor
    hits: int
    request_hits: int


@dataclass(frozen=True, slots=True)
class CacheState:
    """All that a cache keeps, k slots from 0 on.

    Attributes:
        ids: int64[k]. rows: float32[k, D]. last, score: int32[k].
        ring: slot that fifo takes next. batch: number of the last batch.
    """

    ids: Tensor
    rows: Tensor
    last: Tensor
    score: Tensor
    ring: int
    batch: int

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(
            a.numel() * a.element_size() for a in (self.ids, self.rows, self.last, self.score)
        )


class SlotCache(Protocol):
    """Interface of a cache on any device; see `RowCache`."""

    capacity: int
    dim: int
    num_ids: int

    def lookup(self, ids: Tensor) -> CacheLookup: ...
    def gather(self, found: CacheLookup, source: Tensor, out: Tensor, *, by_id: bool) -> None: ...
    def update(self, found: CacheLookup, out: Tensor) -> tuple[int, int]: ...
    def assign(self, state: CacheState) -> None: ...
    def state(self) -> CacheState: ...
    def ids(self) -> Tensor: ...
    def grow(self, num_ids: int) -> None: ...


class RowCache:
    """Slots for rows on the CPU. Not for several threads at once; it uses torch's threads itself.

    Args:
        num_ids: ids are 0 .. num_ids - 1.
        dim: floats of a row, D.
        capacity: slots, from 0.
        policy: who is evicted.
        limit: misses admitted by one update, 0 .. capacity.
        index: `dense` takes 4 bytes for every id, `hash` 32 to 64 for every slot and miss.

    Raises:
        InvalidInputError: a size out of range.
        UnknownKeyError: a policy or index that does not exist.
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
        self._ids = torch.full((capacity,), -1, dtype=torch.int64)
        self._rows = torch.empty(capacity, dim)
        self._last = torch.zeros(capacity, dtype=torch.int32)
        self._score = torch.zeros(capacity, dtype=torch.int32)
        self._slots = extension(self._rows.device).RowCache(
            self._ids, self._rows, self._last, self._score, num_ids, POLICIES.index(policy), limit,
            index == "hash",
        )  # fmt: skip

    def lookup(self, ids: Tensor) -> CacheLookup:
        """Find ids int64[n]; nothing changes but what `gather` and `update` refer to.

        Raises:
            InvalidInputError: another dtype or shape, or an id out of range.
        """
        check_vector(ids, "ids", torch.int64)
        place = torch.empty(ids.numel(), dtype=torch.int32)
        try:
            missed = self._slots.lookup(ids.contiguous(), place)
        except ValueError:
            check_ids(ids, "ids", self.num_ids)
            raise
        misses = torch.empty(missed, dtype=torch.int64)
        self._slots.misses(misses)
        return CacheLookup(place, misses, *self._slots.hits())

    def gather(self, found: CacheLookup, source: Tensor, out: Tensor, *, by_id: bool) -> None:
        """Write the row of every id of the last lookup into `out`, float32[n, D].

        Args:
            found: the last lookup.
            source: where misses come from: float32[num_ids, D] with `by_id`, else float32[m, D],
                the rows of `found.misses`.
            out: written; contiguous.
            by_id: see `source`.
        """
        check_rows(source, "source", self.num_ids if by_id else found.misses.numel(), self.dim)
        check_rows(out, "out", found.place.numel(), self.dim)
        self._slots.gather(found.place, source, by_id, out, torch.get_num_threads())

    def update(self, found: CacheLookup, out: Tensor) -> tuple[int, int]:
        """Score the hits of the last lookup and admit misses from their gathered rows.

        Returns:
            Misses admitted, and how many of them evicted another row.
        """
        check_rows(out, "out", found.place.numel(), self.dim)
        return self._slots.update(out, torch.get_num_threads())

    def assign(self, state: CacheState) -> None:
        """Keep exactly this; all or nothing.

        Raises:
            InvalidInputError: more rows than slots, an id out of range or twice, other lengths.
        """
        check_vector(state.ids, "ids", torch.int64)
        kept = state.ids.numel()
        if kept > self.capacity:
            raise InvalidInputError(f"ids has {kept} elements, the cache {self.capacity} slots")
        check_ids(state.ids, "ids", self.num_ids)
        check_rows(state.rows, "rows", kept, self.dim)
        for name in ("last", "score"):
            check_vector(getattr(state, name), name, torch.int32, kept)
        try:
            self._slots.assign(
                state.ids.contiguous(), state.rows, state.last.contiguous(),
                state.score.contiguous(), state.ring, state.batch, torch.get_num_threads(),
            )  # fmt: skip
        except ValueError as error:
            raise InvalidInputError(f"cache: {error}") from error

    def state(self) -> CacheState:
        """A copy of all that is kept."""
        size, ring, batch = self._slots.order()
        held = (self._ids, self._rows, self._last, self._score)
        return CacheState(*(array[:size].clone() for array in held), ring=ring, batch=batch)

    def ids(self) -> Tensor:
        """int64[k], the ids that are kept, by slot."""
        return self._ids[: self._slots.order()[0]].clone()

    def grow(self, num_ids: int) -> None:
        """Allow ids below `num_ids`, at least as many as before."""
        if num_ids < self.num_ids:
            raise InvalidInputError(f"num_ids is {num_ids}, it was {self.num_ids} already")
        self._slots.grow(num_ids)
        self.num_ids = num_ids

    @property
    def index_bytes(self) -> int:
        """Bytes of the map from ids to slots."""
        return self._slots.index_bytes()


def open_row_cache(
    num_ids: int,
    dim: int,
    capacity: int,
    *,
    policy: Policy = "lru",
    limit: int | None = None,
    index: Index = "dense",
    device: str = "cpu",
) -> SlotCache:
    """The cache of a device; see `RowCache` for the arguments.

    Raises:
        UnsupportedError: no compiled cache for this device.
    """
    if torch.device(device).type == "cpu":
        return RowCache(num_ids, dim, capacity, policy=policy, limit=limit, index=index)
    try:
        from dgbench.kernels_cuda.row_cache.device import DeviceRowCache
    except ImportError as error:
        raise UnsupportedError(f"no compiled cache for '{device}': {error}") from error
    return DeviceRowCache(
        num_ids, dim, capacity, policy=policy, limit=limit, index=index, device=device
    )


def check_rows(rows: Tensor, name: str, count: int, dim: int) -> None:
    """Check for contiguous float32[count, dim] on the CPU; raises InvalidInputError."""
    if rows.dtype != torch.float32 or rows.dim() != 2 or not rows.is_contiguous():
        raise InvalidInputError(
            f"{name} is {rows.dtype} with shape {list(rows.shape)}, expected contiguous float32"
            f"[{count}, {dim}]"
        )
    if tuple(rows.shape) != (count, dim) or rows.device.type != "cpu":
        raise InvalidInputError(
            f"{name} has shape {list(rows.shape)} on {rows.device}, expected [{count}, {dim}] on "
            "the CPU"
        )
