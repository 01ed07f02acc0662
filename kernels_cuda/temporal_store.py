"""A temporal graph in blocks that grows in place (GNNFlow, PVLDB 17, section 4.1).

Every vertex owns blocks of records in time order; new records fill the last block and go on in a
new one, so that an insert costs what it brings and nothing is sorted again. Samplers read the same
memory right after (`temporal_sample`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal

import torch
from torch import Tensor

from dgbench.kernels_cuda import _cpu
from dgbench.kernels_cuda._checks import check_vector
from dgbench.runtime.errors import InvalidInputError, UnsupportedError, unknown_key

PolicyName = Literal["adaptive", "adaptive_literal", "fixed", "strawman", "static"]
LayoutName = Literal["packed", "compact", "wide"]
Late = Literal["refuse", "sort"]

RECORD_BYTES: Final = {"packed": 16, "compact": 12, "wide": 24}
"""Bytes of a record by layout."""
_LAYOUTS: Final = tuple(RECORD_BYTES)
_SIZINGS: Final = {"adaptive": 0, "adaptive_literal": 1, "fixed": 2, "strawman": 3, "static": 3}
_EXACT: Final = 1 << 53


@dataclass(frozen=True, slots=True)
class BlockPolicy:
    """How many slots a new block gets. Blocks never change their size afterwards.

    Attributes:
        name: `adaptive`: max(records that are left over, min(degree, size)). The paper prints only
            the second part, but its Table 6 fits the whole. `adaptive_literal`: min(degree, size),
            again for what remains. `fixed`: `size` (an adjacency list is 1; Table 6 fits 4).
            `strawman`: the records that are left over. `static`: one block per vertex, made at
            once; such a store takes no insert. A degree counts the records of the batch at hand.
        size: the threshold tau of the adaptive policies, the slots of `fixed`, 1 to 2^32 - 2.
    """

    name: PolicyName = "adaptive"
    size: int = 64

    def __post_init__(self) -> None:
        if self.name not in _SIZINGS:
            raise unknown_key("block policy", self.name, _SIZINGS)
        if not 1 <= self.size < 2**32 - 1:
            raise InvalidInputError(f"size is {self.size}, allowed are 1 to 2^32 - 2")


ADAPTIVE: Final = BlockPolicy()


@dataclass(frozen=True, slots=True)
class Inserted:
    """What one insert did: records written, vertices that got one, blocks made, and vertices whose
    records had to be merged because some came late."""

    records: int
    vertices: int
    blocks: int
    merged: int


@dataclass(frozen=True, slots=True)
class StoreMemory:
    """Sizes of a store.

    Attributes:
        records: records in blocks, deleted ones included.
        slots: places for records in all blocks.
        blocks: blocks of all vertices.
        vertices: vertices, those without records included.
        held: bytes in use by part: `records` (all slots), `fences` and `blocks` (the blocks as a
            search and as a list see them), `vertices`, and `scratch` of the last insert.
    """

    records: int
    slots: int
    blocks: int
    vertices: int
    held: dict[str, int]

    @property
    def total(self) -> int:
        """Bytes in use, without scratch."""
        return sum(size for part, size in self.held.items() if part != "scratch")

    def paper_bytes(self, record: int = 20, block: int = 64) -> tuple[int, int]:
        """Bytes of edge data and of metadata as Table 6 counts them.

        Args:
            record: bytes of a slot: 20 fits Table 6, 21 adds the validity that section 4.1 has.
            block: bytes of a block's record: 64 fits Table 6, section 4.1 says 72.
        """
        return self.slots * record, self.blocks * block


class TemporalStore:
    """Records of a temporal graph, by vertex and in time order.

    A directed edge is one record at its source; an undirected one is a record at either end (two at
    the same vertex for a self edge). Equal times keep their order of arrival.

    Args:
        num_vertices: N, 0 to 2^32 - 2.
        policy: of block sizes.
        layout: `packed`, 16 bytes a record, edge ids below 2^32 - 1; `compact`, 12, times also
            whole numbers from `origin` on, less than 2^32 above it; `wide`, 24 bytes, any edge id.
        undirected: whether edges are kept at both ends.
        late: `refuse` an edge that is older than the last record of its vertex, or `sort` it in,
            which rewrites the records of that vertex.
        origin: time of compact's zero.

    Raises:
        InvalidInputError, UnknownKeyError: an argument out of range or not known.
    """

    def __init__(
        self,
        num_vertices: int,
        *,
        policy: BlockPolicy = ADAPTIVE,
        layout: LayoutName = "packed",
        undirected: bool = False,
        late: Late = "refuse",
        origin: float = 0.0,
    ) -> None:
        if layout not in RECORD_BYTES:
            raise unknown_key("layout", layout, RECORD_BYTES)
        if late not in ("refuse", "sort"):
            raise unknown_key("late", late, ("refuse", "sort"))
        self.policy = policy
        self.layout: LayoutName = layout
        self.undirected = undirected
        self.late: Late = late
        self.origin = float(origin)
        with _as_invalid_input():
            self.handle = _cpu.TemporalStore(
                num_vertices,
                _SIZINGS[policy.name],
                policy.size,
                _LAYOUTS.index(layout),
                undirected,
                self.origin,
            )

    @classmethod
    def static(
        cls,
        num_vertices: int,
        src: Tensor,
        dst: Tensor,
        t: Tensor,
        eid: Tensor | None = None,
        *,
        layout: LayoutName = "packed",
        undirected: bool = False,
        origin: float = 0.0,
    ) -> TemporalStore:
        """A store of all edges at once, in any order of time: one full block for each vertex.

        Args and errors as for the constructor and `insert`.
        """
        store = cls(
            num_vertices,
            policy=BlockPolicy("static"),
            layout=layout,
            undirected=undirected,
            late="sort",
            origin=origin,
        )
        store._insert(src, dst, t, eid)
        return store

    @property
    def num_vertices(self) -> int:
        """N."""
        return self.handle.num_vertices

    @property
    def num_events(self) -> int:
        """Edges ever inserted."""
        return self.handle.num_events

    @property
    def num_records(self) -> int:
        """Records in the store, deleted ones not counted."""
        return self.handle.num_records

    @property
    def last_time(self) -> float:
        """The largest time ever inserted, -inf at first."""
        return self.handle.last_time

    def insert(self, src: Tensor, dst: Tensor, t: Tensor, eid: Tensor | None = None) -> Inserted:
        """Append a batch of edges, all of it or nothing. Samplers see it right after.

        Args:
            src, dst: int64[E], vertices of the store.
            t: float64[E] or int64[E], finite.
            eid: int64[E], 0 or more; by default the number of the edge in order of insertion.

        Raises:
            InvalidInputError: an argument out of range, a deleted vertex, a late edge where such
                are refused (index, its time and the vertex's last time are named), or more than
                2^32 - 2 records of one vertex.
            UnsupportedError: the store is static.
        """
        if self.policy.name == "static":
            raise UnsupportedError(
                "a static store takes no insert",
                hint="make it anew with TemporalStore.static, or use another block policy",
            )
        return self._insert(src, dst, t, eid)

    def _insert(self, src: Tensor, dst: Tensor, t: Tensor, eid: Tensor | None) -> Inserted:
        check_vector(src, "src", torch.int64)
        count = src.numel()
        check_vector(dst, "dst", torch.int64, count)
        if isinstance(t, Tensor) and t.dtype == torch.int64:
            if count and int(t.abs().max()) > _EXACT:
                raise InvalidInputError("t holds integers beyond 2^53, which float64 cannot hold")
            t = t.double()
        check_vector(t, "t", torch.float64, count)
        if eid is None:
            eid = torch.arange(self.num_events, self.num_events + count)
        check_vector(eid, "eid", torch.int64, count)
        hint = "sort the batch by time, or open the store with late='sort'"
        with _as_invalid_input(late=hint):
            return Inserted(
                *self.handle.insert(
                    src.contiguous(),
                    dst.contiguous(),
                    t.contiguous(),
                    eid.contiguous(),
                    self.late == "sort",
                )
            )

    def add_vertices(self, count: int) -> None:
        """Append `count` vertices without records.

        Raises:
            InvalidInputError: a negative count, or more than 2^32 - 2 vertices.
        """
        with _as_invalid_input():
            self.handle.add_vertices(count)

    def neighbours(self, vertex: int) -> tuple[Tensor, Tensor, Tensor]:
        """The records of a vertex that are not hidden, in time order.

        Returns:
            Neighbours int64[d], edge ids int64[d], times float64[d].

        Raises:
            InvalidInputError: a vertex that is not in the store.
        """
        with _as_invalid_input():
            count = self.handle.degree(vertex)
            ids = torch.empty(count, dtype=torch.int64)
            eids = torch.empty(count, dtype=torch.int64)
            times = torch.empty(count, dtype=torch.float64)
            self.handle.neighbours(vertex, ids, eids, times)
        return ids, eids, times

    def degrees(self) -> Tensor:
        """int64[N]: records of each vertex that are not hidden."""
        out = torch.empty(self.num_vertices, dtype=torch.int64)
        self.handle.degrees(out)
        return out

    def list_lengths(self) -> Tensor:
        """int32[N]: blocks of each vertex, the length of its list in the paper."""
        out = torch.empty(self.num_vertices, dtype=torch.int32)
        self.handle.list_lengths(out)
        return out

    def memory(self) -> StoreMemory:
        """Records, slots, blocks and bytes of the store."""
        handle = self.handle
        return StoreMemory(
            records=handle.num_stored,
            slots=handle.num_slots,
            blocks=handle.num_blocks,
            vertices=handle.num_vertices,
            held=handle.bytes(),
        )


@contextmanager
def _as_invalid_input(late: str = "") -> Iterator[None]:
    """What the extension refuses, as our own error."""
    try:
        yield
    except ValueError as error:
        hint = late if "older than the last record" in str(error) else ""
        raise InvalidInputError(str(error), hint=hint) from None
    except (TypeError, OverflowError) as error:
        raise InvalidInputError(f"an argument is of the wrong type: {error}") from None
