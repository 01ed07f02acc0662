"""Predicted workload: all of a stream's batch on a device, from its events to TGN's memory (C4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor

from dgbench.kernels_cuda.batch_rows import MemoryTables
from dgbench.kernels_cuda.temporal_sample import sample_hops
from dgbench.kernels_cuda.temporal_store import GROWN, TemporalStore
from dgbench.kernels_cuda.temporal_store.recorded import RecordedBatch
from dgbench.kernels_cuda.temporal_store.resident import ResidentStore
from dgbench.models.ctdg import MemoryRows
from dgbench.systems.base.stream_memory import Recalled, VertexMemory, last_messages
from dgbench.systems.operators.experiments.placements import stream
from dgbench.systems.operators.predictions.case import PredictedCase, at, differing
from dgbench.systems.operators.predictions.samples import LATER

EVENTS: Final = 600
FANOUTS: Final = [10, 10]
HOW: Final = {"policy": "uniform", "seed": 3}
MEMORY, EDGE, NODE = 100, 172, 172
"""Floats of a memory, of an edge's row and of a vertex's features."""
BATCHES: Final = 4000
"""Number that there is room for: a recorded graph is wrong once pools have grown."""
GRAPH, CALLS = "C4 batch, one graph", "C4 batch, call by call"


@dataclass(frozen=True)
class StreamBatch:
    """A batch: sources, destinations, others, times and edge ids."""

    src: Tensor
    dst: Tensor
    others: Tensor
    t: Tensor
    eid: Tensor


class Inputs:
    """Sizes, features, and what stands for a network's memories, of both devices.

    Args:
        share: of the stated sizes.
    """

    def __init__(self, share: float) -> None:
        self.vertices, self.edges = at(share, LATER[0], 50), at(share, LATER[1], 500)
        self.count = at(share, EVENTS, 20)
        draw = torch.Generator().manual_seed(4)
        self.features = torch.rand(self.vertices, NODE, generator=draw)
        named = min(self.vertices, 3 * self.count * (1 + FANOUTS[0]) * (1 + FANOUTS[1]))
        self.memories = torch.rand(named, MEMORY, generator=draw)
        self.rows = torch.rand(self.count, EDGE, generator=draw)

    def first(self) -> tuple[Tensor, ...]:
        """The stream before, with the ids of its edges."""
        return *stream(self.edges, self.vertices), torch.arange(self.edges)

    def batch(self, number: int) -> StreamBatch:
        """The next `count` events."""
        begin = self.edges + number * self.count
        src, dst, t = stream(self.count, self.vertices, float(begin))
        src = (src + 7919 * number) % self.vertices
        draw = torch.Generator().manual_seed(number)
        others = torch.randint(self.vertices, (self.count,), generator=draw)
        return StreamBatch(src, dst, others, t, begin + torch.arange(self.count))


class HostBatches:
    """Batches on the CPU: its store, `torch.unique` and TGN's memory as trainers keep it."""

    def __init__(self, inputs: Inputs) -> None:
        self.inputs, self.drawn = inputs, 0
        self.store = TemporalStore(inputs.vertices, policy=GROWN, undirected=True)
        self.store.insert(*inputs.first())
        self.memory = VertexMemory(inputs.vertices, MEMORY, 2 * MEMORY + EDGE)

    def __call__(self, batch: StreamBatch) -> tuple[Tensor, ...]:
        """All that is named, vertices, places of them, features and memory as it was read."""
        self.store.insert(batch.src, batch.dst, batch.t, batch.eid)
        nodes = torch.cat([batch.src, batch.dst, batch.others])
        ((*_, last),) = sample_hops(
            self.store, nodes, batch.t.repeat(3), FANOUTS, draw=self.drawn, **HOW
        )
        self.drawn += 1
        named = torch.cat([last.nodes, last.neighbours])
        vertices, place = torch.unique(named, return_inverse=True)
        rows = self.memory.read(vertices)
        memories = self.inputs.memories[: vertices.numel()]
        recalled = Recalled(vertices, place, rows, memories)
        order = torch.arange(batch.t.numel())
        self.memory.write(*last_messages(recalled, order, batch.t, self.inputs.rows))
        return named, vertices, place, self.inputs.features[vertices], rows.memory, rows.mail


class DeviceBatches:
    """Batches on a device; a batch that was played is kept, to be played again on the CPU."""

    def __init__(self, inputs: Inputs, device: str) -> None:
        self.played: list[int] = []
        self._inputs = inputs
        store = ResidentStore(inputs.vertices, policy=GROWN, undirected=True, device=device)
        store.insert(*inputs.first())
        store.reserve(BATCHES * inputs.count, inputs.count)
        state = VertexMemory(inputs.vertices, MEMORY, 2 * MEMORY + EDGE, device=device).state()
        self.batch = RecordedBatch(
            store, inputs.count, FANOUTS, features=inputs.features.to(device),
            memory=MemoryTables(*(getattr(state, name) for name in MemoryRows.__slots__)), **HOW,
        )  # fmt: skip
        self._memories, self._rows = inputs.memories.to(device), inputs.rows.to(device)
        self._number = -1
        self.ready()

    def ready(self) -> None:
        """Bring the next batch to the device."""
        self._number += 1
        one = self._inputs.batch(self._number)
        self.batch.given[:4].copy_(torch.stack([one.src, one.dst, one.others, one.eid]))
        self.batch.t.copy_(one.t)

    def launch(self) -> None:
        """All of the batch, call by call."""
        self.batch.read()
        self.batch.write(self._memories, self._rows)

    def play(self, launched: Callable[[], object]) -> None:
        """Launch the batch, in this way."""
        launched()
        self.played.append(self._number)

    def unlike(self) -> float:
        """Share of the last batch's results that differ from the CPU's after the same ones."""
        host = HostBatches(self._inputs)
        right: tuple[Tensor, ...] = ()
        for number in self.played:
            right = host(self._inputs.batch(number))
        self.batch.store.check()
        distinct, rows = self.batch.distinct, self.batch.memory.rows
        if (int(self.batch.named), int(distinct.count)) != tuple(map(len, right[:2])):
            return 1.0
        named = distinct.ids[distinct.place[: len(right[0])]]
        found = named, distinct.ids, distinct.place, self.batch.node_rows, rows.memory, rows.mail
        pairs = zip(found, right, strict=True)
        worst = max(differing(got[: one.shape[0]], one) for got, one in pairs)
        memory = self.batch.memory.tables.mail
        return max(worst, differing(memory, host.memory.state().mail))


def whole_batches(share: float, device: str) -> Iterator[tuple[str, PredictedCase]]:
    """A batch as one CUDA graph, and by the same calls one after the other."""
    inputs = Inputs(share)
    for name in (GRAPH, CALLS):
        if device != "cuda":
            host, numbers = HostBatches(inputs), iter(range(BATCHES))

            def run(host: HostBatches = host, numbers: Iterator[int] = numbers) -> Any:
                return host(inputs.batch(next(numbers)))

            def placed(run: Callable[[], Any] = run) -> float:
                named, vertices, place, *_ = run()
                return differing(vertices[place], named)

            yield name, PredictedCase(run, placed, note="the same on the CPU, no graph")
            continue
        there = DeviceBatches(inputs, device)
        launched: Callable[[], object] = there.launch
        if name == GRAPH:
            there.play(there.launch)  # what is loaded or allocated once
            there.ready()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                there.launch()
            launched = graph.replay
        play = partial(there.play, launched)

        def deviation(there: DeviceBatches = there, play: Callable[[], None] = play) -> float:
            there.ready()
            play()
            return there.unlike()

        yield name, PredictedCase(play, deviation, before=there.ready)
