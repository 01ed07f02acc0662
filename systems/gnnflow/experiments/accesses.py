"""Which features a training run asks for: the ids of every batch, without training anything.

A root sees only edges before its own time, so one store of all events gives the samples that a
store grown round by round would give. Negatives are drawn anew in every epoch, as TGL does: with
the same ones each time, sampling ahead would know them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch import Tensor

from dgbench.kernels_cuda.temporal_sample import sample_hops, sample_neighbours
from dgbench.kernels_cuda.temporal_store import TemporalStore
from dgbench.systems.base import Preset
from dgbench.systems.base.stream import (
    StreamData,
    StreamWorkload,
    batch_draw,
    batches,
    negatives_of,
)
from dgbench.systems.gnnflow.experiments.settings import (
    EPOCHS,
    INITIAL,
    STATIC_MODELS,
    Graph,
    workload,
)
from dgbench.systems.gnnflow.rounds import Round, rounds_by_time

PRESAMPLING: Final = 1_000
"""Epochs from here on are those that a static cache samples ahead: other draws than training."""


@dataclass(frozen=True, slots=True)
class Access:
    """What one batch asks for, repeated as it is sampled.

    Attributes:
        nodes: int64[n], targets and neighbours of the outermost hop.
        edges: int64[m], edges of all hops and snapshots.
        events: of the batch.
    """

    nodes: Tensor
    edges: Tensor
    events: int

    def of(self, kind: str) -> Tensor:
        """`nodes` or `edges` by the words `node` and `edge`."""
        return self.nodes if kind == "node" else self.edges


class Accesses:
    """Samples of a workload over its stream.

    Args:
        graph, model, preset: of `settings`.
        gpus: how many share a batch evenly; what one of them asks for is given.
        **fields: fields of the workload that go before these.

    Attributes:
        task: the workload. data: its events, without features. store: all of them.
    """

    def __init__(
        self, graph: Graph, model: str, preset: Preset, *, gpus: int = 1, **fields: object
    ) -> None:
        self.graph, self.model, self.gpus = graph, model, gpus
        self.task: StreamWorkload = workload(graph, model, preset, **fields)
        self.data = open_stream(self.task)
        events = self.data.events
        self.store = TemporalStore.static(
            events.num_nodes, events.src, events.dst, events.t, undirected=self.task.undirected
        )

    def rounds(self, most: int | None = None, length: float | None = None) -> list[Round]:
        """Rounds of the stream after the initial part, or the last `most` of them.

        Args:
            most: how many at most.
            length: of a round; by default the graph's.
        """
        every = rounds_by_time(
            self.data.events.t, self.graph.round if length is None else length, initial=INITIAL
        )
        return every if most is None else every[-most:]

    def epoch(self, one: Round, epoch: int = 0) -> Iterator[Access]:
        """The batches of an epoch, in the order of time."""
        mine = torch.arange(one.first, one.last, self.gpus)
        for events in batches(self.task, mine, self.data.events.t[mine], epoch):
            yield self.batch(events, epoch)

    def batch(self, events: Tensor, epoch: int = 0) -> Access:
        """What a batch of events int64[b] asks for."""
        stream = self.data.events
        drawn = negatives_of(self.task, self.data, events + epoch * 2**40)
        nodes = torch.cat((stream.src[events], stream.dst[events], drawn))
        times = stream.t[events].repeat(3)
        draw = batch_draw(self.task, int(events[0]), epoch)
        if self.model in STATIC_MODELS:
            return self._static(nodes, draw, events.numel())
        found = sample_hops(
            self.store, nodes, times, self.task.fanouts, policy=self.task.sampling,
            window=self.task.window, snapshots=self.task.snapshots,
            prop_time=self.task.root_times, seed=self.task.seed, draw=draw,
        )  # fmt: skip
        outer = [hops[-1] for hops in found]
        return Access(
            torch.cat([part for hop in outer for part in (hop.nodes, hop.neighbours)]),
            torch.cat([hop.eids for hops in found for hop in hops]),
            events.numel(),
        )

    def from_vertices(self, nodes: Tensor) -> Access:
        """What a static model asks for that trains on these vertices, int64[b]."""
        return self._static(nodes, int(nodes[0]), nodes.numel())

    def _static(self, nodes: Tensor, draw: int, events: int) -> Access:
        """Static models draw from all edges, whatever their time."""
        edges = []
        for hop, fanout in enumerate(self.task.fanouts):
            one = sample_neighbours(
                self.store, nodes, torch.full((nodes.numel(),), torch.inf, dtype=torch.float64),
                fanout=fanout, policy="uniform", seed=self.task.seed, draw=draw, hop=hop,
            )  # fmt: skip
            edges.append(one.eids.clone())
            nodes = torch.cat((nodes, one.neighbours))
        return Access(nodes, torch.cat(edges), events)

    def count(self, kind: str) -> int:
        """How many `node` or `edge` ids there are."""
        return self.data.events.num_nodes if kind == "node" else len(self.data.events)

    def dim(self, kind: str) -> int:
        """Floats of a feature."""
        return self.graph.node_dim if kind == "node" else self.graph.edge_dim

    def capacity(self, kind: str, times: float = 1.0) -> int:
        """Slots of a cache of the paper's share of the ids, or `times` as many."""
        share = self.graph.node_cache if kind == "node" else self.graph.edge_cache
        return max(1, min(self.count(kind), round(times * share * self.count(kind))))

    def describe(self) -> dict[str, Any]:
        """The `data` field of a measurement."""
        return self.data.describe()


def open_stream(task: StreamWorkload) -> StreamData:
    """The events of a workload, without features."""
    from dgbench import datasets

    events = datasets.open_events(task.dataset, task.source, task.scale, task.seed)
    if task.events is not None:
        events = events.select(0, min(task.events, len(events)))
    bare = replace(
        events, eid=torch.arange(len(events)), node_feat=None, edge_feat=None, label=None
    )
    return StreamData(bare, None, None)


def record(
    accesses: Accesses, rounds: Sequence[Round], epochs: int = EPOCHS
) -> list[list[list[Access]]]:
    """All batches by round and epoch, so that several caches may serve the same ones."""
    return [[list(accesses.epoch(one, e)) for e in range(epochs)] for one in rounds]
