"""A batch of a stream on a device, from its events to the rows that a network starts from.

Insert, sample, distinct vertices and their rows are launches of one stream: the host neither waits
for the device nor reads anything back, so that a CUDA graph can record all of a batch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from dgbench.kernels_cuda.batch_rows import (
    BatchMemory,
    DistinctIds,
    MemoryTables,
    gather_by_count,
)
from dgbench.kernels_cuda.build_info import extension, stream_of
from dgbench.kernels_cuda.temporal_sample.hops import MAX_UNCOUNTED, lay_out
from dgbench.kernels_cuda.temporal_sample.samples import Sample
from dgbench.kernels_cuda.temporal_store.device_sampling import check_sampling
from dgbench.kernels_cuda.temporal_store.resident import ResidentStore
from dgbench.runtime.errors import InvalidInputError

_NAMED: Final = 1
"""Word of the memory that says how many vertices the farthest hop names."""


class RecordedBatch:
    """Batches of b events over a `ResidentStore`, in arrays that stay where they are.

    `read` inserts the events, samples around their sources, destinations and others (three roots
    an event, in this order), and finds the distinct vertices of the sample and their rows;
    `write` leaves the messages of the events in memory. What follows from a batch is the same as
    without a graph, and that of the CPU. Room for events has to be reserved in the store before a
    graph is recorded; what is wrong with a batch is told by the store's `check`.

    Args:
        store: of the same device; its inserts are made here.
        events: b, from 1.
        fanouts, policy, window, closed, prop_time, replace, seed, search: as for `sample_hops`,
            with at most `hops.MAX_UNCOUNTED` neighbours in a hop.
        draw: of the first batch; each one after it takes the next, modulo 2^32. Another one is
            taken where `draws` is set.
        features: float32 or float64 [N, F] on the device or in page-locked memory, or None.
        memory: of all vertices, written in place, or None.

    Attributes:
        given: int64[5, b], to be filled by the caller: sources, destinations, others, edge ids,
            and the bits of the times. `t` is float64[b], the same memory. Where fewer events are to
            be read than b, the vertices and ids of the others are -1.
        draws: int64[1], the draw of the batch before.
        samples: a hop each, uncounted.
        distinct: `ids` are the vertices that the farthest hop names, `place` says where each of its
            targets and then each neighbour that holds stands among them; roots come first.
        node_rows: [C, F] of `features`, by `distinct.ids`; None without.
        memory: its `rows` are of `distinct.ids`, as read; None without.

    Raises:
        InvalidInputError: an argument out of range, or tables of another size than the store.
    """

    def __init__(
        self,
        store: ResidentStore,
        events: int,
        fanouts: Sequence[int],
        *,
        policy: str = "recent",
        window: float | None = None,
        prop_time: bool = False,
        closed: bool = False,
        replace: bool = False,
        seed: int = 0,
        draw: int = 0,
        search: str = "binary",
        features: Tensor | None = None,
        memory: MemoryTables | None = None,
    ) -> None:
        uniform, linear = check_sampling(fanouts, policy, search, seed, draw, 1, window)
        layout = lay_out(3 * events, tuple(fanouts), 1, uniform, named=True)
        if layout is None:
            raise InvalidInputError(
                f"{events} events with fan-outs {list(fanouts)}: allowed are 1 or more with at "
                f"most {MAX_UNCOUNTED} neighbours in a hop"
            )
        for name, table in (("features", features), ("memory", memory and memory.memory)):
            if table is not None and table.shape[0] != store.num_vertices:
                raise InvalidInputError(
                    f"{name} has {table.shape[0]} rows, the store {store.num_vertices} vertices"
                )
        self.store, self.device, self._layout = store, store.device, layout
        length = float("inf") if window is None else float(window)
        self._how = uniform, linear, replace, seed, length, closed, prop_time
        device = store.device
        self.given = torch.zeros(5, events, dtype=torch.int64, device=device)
        self.t = self.given[4].view(torch.float64)
        self._memory = torch.zeros(layout.words, dtype=torch.int64, device=device)
        self._scratch = torch.zeros(layout.scratch, dtype=torch.int64, device=device)
        (hops,) = layout.cut(self._memory, layout.most)
        self.samples = [dataclasses.replace(hop, uncounted=True) for hop in hops]
        roots: Sample = self.samples[0]
        self._memory[0] = roots.nodes.numel()
        roots.positions.copy_(torch.arange(roots.nodes.numel()))
        # The first launch of a batch adds 1.
        self.draws = torch.full((1,), draw - 1, dtype=torch.int64, device=device)
        self.distinct = DistinctIds(store.num_vertices, layout.names, device)
        capacity = self.distinct.ids.numel()
        self._tables: list[Tensor] = []
        self._rows: list[Tensor] = []
        self.memory = None if memory is None else BatchMemory(memory, capacity)
        if self.memory is not None:
            self._tables += self.memory.tables.all
            self._rows += self.memory.rows.all
        self.node_rows = None
        if features is not None:
            shape = capacity, features.shape[1]
            self.node_rows = torch.zeros(shape, dtype=features.dtype, device=device)
            self._tables.append(features)
            self._rows.append(self.node_rows)

    @property
    def named(self) -> Tensor:
        """int64[1] on the device: the places that hold, of `distinct.place`."""
        return self._memory[_NAMED : _NAMED + 1]

    def read(self, *, insert: bool = True) -> None:
        """Insert what was `given`, sample, and find the distinct vertices and their rows.

        Args:
            insert: False where the store has the events already.
        """
        if insert:
            src, dst, _, eid, _ = self.given
            self.store.insert(src, dst, self.t, eid)
        roots = self.samples[0]
        extension(self.device).roots_of(
            self.given[:3], self.t, roots.nodes, roots.times, self.draws, *self._stream()
        )
        self.store.launch_in(self._memory, self._scratch, self._layout, self.draws, *self._how)
        start = self._layout.named
        names = self._memory[start : start + self._layout.names]
        self.distinct.launch(names, self.named)
        if self._tables:
            gather_by_count(self.distinct.ids, self.distinct.count, self._tables, self._rows)

    def write(self, memories: Tensor, edges: Tensor | None = None) -> None:
        """Leave the messages of the events in memory, as TGN does.

        Args:
            memories: [C, M] of `distinct.ids`, messages taken in.
            edges: [b, edge_dim], rows of the events; None where that is 0.

        Raises:
            InvalidInputError: another dtype, shape or device, or there is no memory.
        """
        if self.memory is None:
            raise InvalidInputError("there is no memory to write to")
        place, ids = self.distinct.place, self.distinct.ids
        self.memory.write(place, self.t, ids, memories, edges)

    def _stream(self) -> tuple[int, ...]:
        return stream_of(self.device) or (0,)
