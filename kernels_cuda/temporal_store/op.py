"""A temporal graph in blocks that grows in place (GNNFlow, PVLDB 17, section 4.1).

Every vertex owns blocks of records in time order; new records fill the last block and go on in a
new one, so that an insert costs what it brings and nothing is sorted again. By default a vertex's
first block grows up to a size, so that most have one. Samplers read the same memory right after
(`temporal_sample`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from dgbench.kernels_cuda import _cpu
from dgbench.kernels_cuda._checks import check_vector
from dgbench.kernels_cuda.temporal_store.files import read_blocks, write_blocks
from dgbench.kernels_cuda.temporal_store.types import (
    ADAPTIVE,
    EXACT,
    GROWN,
    RECORD_BYTES,
    SIZINGS,
    BlockPolicy,
    Inserted,
    Late,
    LayoutName,
    Offloaded,
    StoreMemory,
)
from dgbench.runtime.errors import (
    DataError,
    DgbenchError,
    InvalidInputError,
    UnsupportedError,
    unknown_key,
)

__all__ = [
    "ADAPTIVE",
    "GROWN",
    "BlockPolicy",
    "Inserted",
    "Offloaded",
    "StoreMemory",
    "TemporalStore",
]

_LAYOUTS: Final = tuple(RECORD_BYTES)
_SAME: Final = ("layout", "undirected", "origin")  # of a store and the files it reads


class TemporalStore:
    """Records of a temporal graph, by vertex and in time order.

    A directed edge is one record at its source; an undirected one is a record at either end (two at
    the same vertex for a self edge). Equal times keep their order of arrival. Any number of threads
    may read it, but none while one changes it.

    Args:
        num_vertices: N, 0 to 2^32 - 2.
        policy: of block sizes; by default `grown`, which is not the paper's (`ADAPTIVE`).
        layout: `packed`, 16 bytes a record, edge ids below 2^32 - 1; `compact`, 12, times also
            whole numbers from `origin` on, less than 2^32 above it; `wide`, 24 bytes, any edge id.
        undirected: whether edges are kept at both ends.
        late: `refuse` an edge that is older than the last record of its vertex, or `sort` it in,
            which rewrites the records of that vertex.
        origin: time of compact's zero.
        files: descriptors of four files of shared memory that hold the pools for several
            processes; the store does not close them. Its blocks then stay where they are: it takes
            no `offload` and no `reload`.
        writes: whether this process is the one that changes what is in the files. Others see it
            after `follow`.

    Raises:
        InvalidInputError, UnknownKeyError: an argument out of range or not known.
        UnsupportedError: no memory for it; so from every method that makes the store larger.
    """

    def __init__(
        self,
        num_vertices: int,
        *,
        policy: BlockPolicy = GROWN,
        layout: LayoutName = "packed",
        undirected: bool = False,
        late: Late = "refuse",
        origin: float = 0.0,
        files: Sequence[int] = (),
        writes: bool = True,
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
        self._shared = len(files) > 0
        with _as_invalid_input():
            self.handle = _cpu.TemporalStore(
                num_vertices,
                SIZINGS[policy.name],
                policy.size,
                _LAYOUTS.index(layout),
                undirected,
                self.origin,
                tuple(files),
                writes,
            )

    def counts(self) -> tuple[float, ...]:
        """Sizes of the pools and counts, from which another process sees what is in the files."""
        return self.handle.counts()

    def follow(self, counts: tuple[float, ...]) -> None:
        """Be what the process that writes had at its `counts`; nobody may change it meanwhile.

        Raises:
            InvalidInputError: this process writes itself, or no such counts.
        """
        with _as_invalid_input():
            self.handle.follow(counts)

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
            if count and int(t.abs().max()) > EXACT:
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

    def delete_edges(self, eid: Tensor) -> int:
        """Hide all records of these edges for good; they keep their places. Walks the whole store.

        Args:
            eid: int64[k], each in the store and not deleted before.

        Returns:
            Records that were hidden.

        Raises:
            InvalidInputError: an edge that is not there; nothing was deleted.
        """
        check_vector(eid, "eid", torch.int64)
        with _as_invalid_input():
            return self.handle.delete_edges(eid.contiguous())

    def delete_vertices(self, ids: Tensor) -> None:
        """Hide vertices with their records, and every record whose neighbour is one of them.

        No edge may be inserted at such a vertex. `revive_vertices` shows all of it again.

        Args:
            ids: int64[k], vertices of the store; deleted ones may be among them.

        Raises:
            InvalidInputError: an id out of range; nothing was deleted.
        """
        check_vector(ids, "ids", torch.int64)
        with _as_invalid_input():
            self.handle.delete_vertices(ids.contiguous(), True)

    def revive_vertices(self, ids: Tensor) -> None:
        """The reverse of `delete_vertices`, with the same argument and errors."""
        check_vector(ids, "ids", torch.int64)
        with _as_invalid_input():
            self.handle.delete_vertices(ids.contiguous(), False)

    def offload(self, before: float, path: str | Path) -> Offloaded:
        """Move old blocks into a file: each whose records are all older than `before`.

        A block with a newer record stays whole. The pools are then built anew without free space
        between blocks, for which there must be memory.

        Raises:
            StoreError: the file cannot be written; the store is as before then.
            UnsupportedError: the store lies in shared memory.
        """
        self._check_own()
        path, before = Path(path), float(before)
        shelf = self.handle.older(before)
        size = write_blocks(path, self._header(), shelf)
        self.handle.drop(before)
        sizes = shelf.sizes()
        return Offloaded(len(shelf.vertices()), len(sizes), int(sizes.sum()), size, path)

    def reload(self, path: str | Path) -> None:
        """Put the blocks of an offload back in front of what the store holds; all or nothing.

        Raises:
            DataError: not such a file, one of a store with another layout, or a damaged one.
            InvalidInputError: its records are not older than those here, and late is refused.
        """
        self._check_own()
        header, arrays = read_blocks(Path(path))
        for name, own in self._header().items():
            if name in _SAME and header.get(name) != own:
                raise DataError(f"'{path}' is of a store with {name} {header.get(name)}, not {own}")
        try:
            self._reload(arrays)
        except InvalidInputError as error:
            if "damaged" in str(error):
                raise DataError(f"'{path}': {error}") from None
            raise

    def _check_own(self) -> None:
        if self._shared:
            raise UnsupportedError("the blocks of a store in shared memory stay where they are")

    def _reload(self, arrays: list[Tensor]) -> None:
        with _as_invalid_input():
            self.handle.reload(*arrays, self.late == "sort")

    def save(self, path: str | Path) -> None:
        """Write the whole store into one file, blocks as they are.

        Raises:
            StoreError: the file cannot be written.
        """
        write_blocks(Path(path), self._header(), self.handle.older(float("inf")))

    @classmethod
    def load(cls, path: str | Path) -> TemporalStore:
        """The store that `save` wrote.

        Raises:
            DataError: not such a file, or a damaged one.
        """
        header, arrays = read_blocks(Path(path))
        try:
            policy, late = BlockPolicy(**header["policy"]), header["late"]
            shape = {name: header[name] for name in _SAME}
            store = cls(header["num_vertices"], policy=policy, late=late, **shape)
            store._reload(arrays)
            store.handle.resume(header["num_events"], float(header["last_time"]))
            store.delete_vertices(torch.tensor(header["deleted"], dtype=torch.int64))
        except (KeyError, TypeError, ValueError, DgbenchError) as error:
            raise DataError(f"cannot read a store from '{path}': {error}") from error
        return store

    def _header(self) -> dict[str, Any]:
        return {
            "layout": self.layout,
            "undirected": self.undirected,
            "origin": self.origin,
            "num_vertices": self.num_vertices,
            "policy": asdict(self.policy),
            "late": self.late,
            "num_events": self.num_events,
            "last_time": self.last_time,
            "deleted": self.handle.deleted(),
        }

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
    """Convert errors of the extension into dgbench's own."""
    try:
        yield
    except ValueError as error:
        hint = late if "older than the last record" in str(error) else ""
        raise InvalidInputError(str(error), hint=hint) from None
    except MemoryError:
        raise UnsupportedError(
            "there is no memory for a store of this size; it is as it was before",
            hint="use layout='compact', offload old blocks, or a machine with more memory",
        ) from None
    except (TypeError, OverflowError) as error:
        raise InvalidInputError(f"an argument is of the wrong type: {error}") from None
