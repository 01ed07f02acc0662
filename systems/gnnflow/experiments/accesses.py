"""Features that a training run requests: the ids of every batch, without training anything.

A root sees only edges before its own time, so one store of all events gives the samples that a
store grown round by round would give. Negatives are drawn anew in every epoch, as TGL does: with
the same ones each time, sampling ahead would know them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor

from dgbench.kernels_cuda.temporal_sample import Sample, sample_hops, sample_neighbours
from dgbench.kernels_cuda.temporal_store import TemporalStore
from dgbench.lab import rule_combinations as combine
from dgbench.lab.entry_rules import Entries, in_order_of_entries, near_entries
from dgbench.lab.outcomes import Rule
from dgbench.lab.result_checks import ResultCheck, equal
from dgbench.runtime.draws import draws_of
from dgbench.systems.base import Preset
from dgbench.systems.base.stream import (
    StreamData,
    StreamWorkload,
    batch_draw,
    batches,
    negatives_of,
)
from dgbench.systems.base.stream_data import first_events
from dgbench.systems.gnnflow.experiments.sample_checks import (
    by_subject,
    samples_check,
    static_samples_check,
)
from dgbench.systems.gnnflow.experiments.settings import (
    INITIAL,
    STATIC_MODELS,
    StreamGraph,
    workload,
)
from dgbench.systems.gnnflow.rounds import Round, rounds_by_time

WITHIN: Final = 5.0
"""Tolerance of a share against a printed one, in points."""
PRESAMPLING: Final = 1_000
"""Epochs from here on are those that a static cache samples ahead: other draws than training."""


@dataclass(frozen=True, slots=True)
class Access:
    """Ids that one batch requests, repeated as they are sampled.

    Attributes:
        nodes: int64[n], targets and neighbours of the outermost hop.
        edges: int64[m], edges of all hops and snapshots.
    """

    nodes: Tensor
    edges: Tensor

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
        served: batches handed out so far.
    """

    def __init__(
        self, graph: StreamGraph, model: str, preset: Preset, *, gpus: int = 1, **fields: object
    ) -> None:
        self.graph, self.gpus, self.static = graph, gpus, model in STATIC_MODELS
        self.task: StreamWorkload = workload(graph, model, preset, **fields)
        self.data = open_stream(self.task)
        events = self.data.events
        self.store = TemporalStore.static(
            events.num_nodes, events.src, events.dst, events.t, undirected=self.task.undirected
        )
        self.served = 0
        # Roots, times, call and ids of a batch drawn from all, and of the last one.
        self._compared: list[tuple[Tensor, Tensor, int, Access]] = []

    def rounds(self, most: int, length: float | None = None) -> list[Round]:
        """The last rounds of the stream; `length`: of a round, by default the graph's."""
        length = self.graph.round if length is None else length
        return rounds_by_time(self.data.events.t, length, initial=INITIAL)[-most:]

    def epoch(self, one: Round, epoch: int = 0) -> Iterator[Access]:
        """The batches of an epoch, in the order of time."""
        mine = torch.arange(one.first, one.last, self.gpus)
        for events in batches(self.task, mine, self.data.events.t[mine], epoch):
            yield self.batch(events, epoch)

    def batch(self, events: Tensor, epoch: int = 0) -> Access:
        """Ids that a batch of events int64[b] requests."""
        stream = self.data.events
        drawn = negatives_of(self.task, self.data, events + epoch * 2**40)
        nodes = torch.cat((stream.src[events], stream.dst[events], drawn))
        draw = batch_draw(self.task, int(events[0]), epoch)
        return self._sampled(nodes, stream.t[events].repeat(3), draw)

    def from_vertices(self, nodes: Tensor) -> Access:
        """Ids that a static model requests when it trains on these vertices, int64[b]."""
        return self._sampled(nodes, nodes.double(), int(nodes[0]))

    def _sampled(self, nodes: Tensor, times: Tensor, draw: int) -> Access:
        """Ids that roots request; static models draw from all edges, whatever their time."""
        if self.static:
            times = torch.full_like(times, torch.inf)
        samples = self._hops(nodes, times, draw)
        outer = [hops[-1] for hops in samples]
        access = Access(
            torch.cat([part for hop in outer for part in (hop.nodes, hop.neighbours)]),
            torch.cat([hop.eids for hops in samples for hop in hops]),
        )
        self.served += 1
        one = nodes, times, draw, access
        before = self._compared[0] if self._compared else one
        self._compared = [before if draws_of("accesses").randrange(self.served) else one, one]
        return access

    def checks(self) -> list[ResultCheck]:
        """Checks of two of the batches that were handed out, one of them the last: drawn roots of
        each by the plain sampler, and the ids that were kept of all of its samples."""
        compare = static_samples_check if self.static else samples_check
        found = []
        for *call, access in self._compared:
            samples = self._hops(*call)
            found.append(compare(self.task, self.data.events, *call, samples))
            outer = [snapshot[-1] for snapshot in samples]
            wanted = {
                "node": [
                    i for hop in outer for i in (*hop.nodes.tolist(), *hop.neighbours.tolist())
                ],
                "edge": [eid for hops in samples for hop in hops for eid in hop.eids.tolist()],
            }
            kept = {kind: access.of(kind) for kind in wanted}
            found.append(equal("ids", kept, wanted, against="samples of the batch"))
        return by_subject(found)

    def _hops(self, nodes: Tensor, times: Tensor, draw: int) -> list[list[Sample]]:
        task = self.task
        if not self.static:
            return sample_hops(
                self.store, nodes, times, task.fanouts, policy=task.sampling, window=task.window,
                snapshots=task.snapshots, prop_time=task.root_times, seed=task.seed, draw=draw,
            )  # fmt: skip
        hops: list[Sample] = []
        for hop, fanout in enumerate(task.fanouts):
            one = sample_neighbours(
                self.store, nodes, times[:1].expand(nodes.numel()).contiguous(), fanout=fanout,
                policy="uniform", seed=task.seed, draw=draw, hop=hop,
            )  # fmt: skip
            hops.append(one)
            nodes = torch.cat((nodes, one.neighbours))
        return [hops]

    def count(self, kind: str) -> int:
        """Number of `node` or `edge` ids."""
        return self.data.events.num_nodes if kind == "node" else len(self.data.events)

    def capacity(self, kind: str, times: float = 1.0) -> int:
        """Slots of a cache of the paper's share of the ids, or `times` as many."""
        share = self.graph.node_cache if kind == "node" else self.graph.edge_cache
        return max(1, min(self.count(kind), round(times * share * self.count(kind))))


def as_printed(entries: Entries) -> Rule:
    """Shares near the printed ones; the direction is their order."""
    return combine.with_printed_value(
        in_order_of_entries(entries), near_entries(entries, points=WITHIN)
    )


def open_stream(task: StreamWorkload) -> StreamData:
    """The events of a workload, without features."""
    from dgbench import datasets

    events = datasets.open_events(task.dataset, task.source, task.scale, task.seed)
    events, destinations = first_events(events, task.events)
    bare = replace(
        events, eid=torch.arange(len(events)), node_feat=None, edge_feat=None, label=None
    )
    return StreamData(bare, None, None, destinations=destinations)
