"""Choice of a partition: starts of the refinement, its continuation, and the final selection.

Least traffic alone is a bad choice for a recurrence: runs of snapshots send least of many graphs,
and then each worker waits for the states of the one before (section 2.2 on PSS). So beside what is
sent stands the span of `span_of`, how much of the recurrence is done in a row. A candidate has to
keep below a limit of span and to send no more than snapshots dealt in turn, sequences or both
would; the one of these that sends least is taken. Where none keeps both, the least span among those
that send no more is: a partition that sends more than the simplest ones has no reason to be.

Cuts in time make the span. So a start whose refinement goes beyond the limit is refined again with
weights in time that are a multiple, `STAY`, of what is sent, and entities as wholes are refined,
which hand no state on at all. Attention has no span: least traffic is taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import torch
from torch import Tensor

from dgbench.kernels_cuda.supergraph import Supergraph, order_by_chunk
from dgbench.systems.dgc.placement import by_both, by_sequences, by_snapshots
from dgbench.systems.dgc.refinement import SWEEPS, Hypergraph, hypergraph_of, improve
from dgbench.systems.dgc.supergraph import ExchangeCounts

STAY: Final = (4, 16, 64)
"""Multiples of weights in time, each asked only where the one before went beyond the limit."""

HALVINGS: Final = 2
"""Multiples asked between one that keeps the limit and one that does not."""

LARGE_SWEEPS: Final = 2
"""Sweeps over a large graph: those after the second win a hundredth."""

GOING_ON: Final = 2
"""Candidates of a small graph that go on to the end."""

ALONG: Final = ("wholes", "entity")
"""Starts that do not cut in time."""

_LARGEST: Final = 2**31 - 1
_AGAIN: Final = ", again"


def span_of(graph: Supergraph, worker: Tensor, workers: int) -> tuple[int, float]:
    """(stages, span) of a recurrence whose vertex-steps have these workers, integers [V].

    Stages: segments of the entity that is cut most, one after the other. Span: vertex-steps that
    workers do one after another, the largest share of each stage, over an even share V / P; 1 is
    all in parallel, P is one worker at a time.
    """
    count = worker.numel()
    if not count:
        return 0, 1.0
    cut = torch.zeros(count, dtype=torch.int32)
    cut[1:] = (graph.entity[1:] == graph.entity[:-1]) & (worker[1:] != worker[:-1])
    total = torch.cumsum(cut, 0, dtype=torch.int32)
    first = total[graph.start[:-1].clamp(max=count - 1)]
    stage = total.sub_(first.index_select(0, graph.entity))
    stages = int(stage.max()) + 1
    work = torch.bincount(stage * workers + worker, minlength=stages * workers)
    longest = work.view(stages, workers).amax(1).sum()
    return stages, float(longest) * workers / count


def runs(
    graph: Supergraph, load: Tensor, workers: int, starts: tuple[str, ...]
) -> dict[str, Tensor]:
    """Runs of equal work: of entities, and of snapshots, which may share their first and last."""
    found: dict[str, Tensor] = {}
    if "entity" in starts:
        upto = torch.cumsum(load, 0)
        last = graph.start[graph.entity.long() + 1] - 1
        found["entity"] = _equal_shares(upto[last], int(upto[-1]), workers)
    if "blocks" in starts:
        order, _ = order_by_chunk(graph.step, graph.steps)
        shares = _equal_shares(torch.cumsum(load[order], 0), int(load.sum()), workers)
        found["blocks"] = torch.empty_like(shares)
        found["blocks"][order] = shares
    return found


def _equal_shares(upto: Tensor, total: int, workers: int) -> Tensor:
    return ((upto - 1).clamp(min=0) * workers // max(1, total)).clamp(max=workers - 1).int()


def again(name: str) -> str:
    """The name of a candidate that goes on."""
    return name if name.endswith(_AGAIN) else name + _AGAIN


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A partition on the way.

    Attributes:
        name: its start and what was done.
        worker: int32[V].
        floats: sent in an epoch.
        span: of the recurrence; 1 where that does not count.
        stay: multiple of weights in time that it is refined with.
    """

    name: str
    worker: Tensor
    floats: int
    span: float
    stay: int


@dataclass(slots=True, eq=False)
class Search:
    """Candidates for one graph, and the choice among them.

    Attributes:
        graph, counts, workers: as in `partition_chunks`.
        fine: the hypergraph of what is sent.
        cap: load of a worker at most.
        rounds: of `improve` for the best; 0 moves single vertex-steps only.
        seed, threads: of label propagation.
        span_limit: None: least traffic alone, as for attention.
        floats: {name: floats} of all that was tried, filled here.
    """

    graph: Supergraph
    counts: ExchangeCounts
    workers: int
    fine: Hypergraph
    cap: int
    rounds: int
    seed: int
    threads: int | None
    span_limit: float | None
    floats: dict[str, int]
    _scaled: dict[int, tuple[Hypergraph, Supergraph]] = field(default_factory=dict)
    _simple: int | None = None

    def candidate(self, name: str, worker: Tensor, stay: int = 1) -> Candidate:
        """Count a partition."""
        self.floats[name] = sent = self.fine.cost(worker)
        span = span_of(self.graph, worker, self.workers)[1] if self.span_limit is not None else 1.0
        return Candidate(name, worker, sent, span, stay)

    def rank(self, one: Candidate) -> tuple[int, float]:
        """Sort key of a candidate, smallest first; see the head of this file."""
        if self.span_limit is None:
            return 0, one.floats
        within, less = one.span <= self.span_limit, one.floats <= self.simple()
        if less:
            return (0, one.floats) if within else (1, one.span)
        return (2, one.floats) if within else (3, one.span * one.floats)

    def simple(self) -> int:
        """Floats of the best of snapshots in turn, sequences, and both."""
        if self._simple is None:
            sent = [
                self.fine.cost(place(self.graph, self.workers).structure)
                for place in (by_snapshots, by_sequences)
            ]
            if self.counts.move_floats:
                both = by_both(self.graph, self.workers)
                sent.append(self.counts.move_floats * int((both.structure != both.time).sum()))
            self._simple = min(sent)
        return self._simple

    def _weights(self, stay: int) -> tuple[Hypergraph, Supergraph]:
        if stay == 1:
            return self.fine, self.graph
        if stay not in self._scaled:
            counts = replace(self.counts, temporal_floats=self.counts.temporal_floats * stay)
            weight = self.graph.edge_weight
            heavy = (weight.long() * stay).clamp(max=_LARGEST).int()
            weight = torch.where(self.graph.directions() == 0, heavy, weight)
            self._scaled[stay] = (
                hypergraph_of(self.graph, counts, self.fine.load),
                replace(self.graph, edge_weight=weight),
            )
        return self._scaled[stay]

    def step(
        self, name: str, worker: Tensor, stay: int = 1, *, turn: int = 0, sweeps: int = SWEEPS
    ) -> Candidate:
        """Refine once, with coarsening unless `rounds` is 0."""
        hyper, graph = self._weights(stay)
        if self.rounds:
            options = {"seed": (self.seed + turn) % 2**32, "threads": self.threads}
            moved = improve(hyper, graph, worker, self.workers, self.cap, **options)
        else:
            moved = hyper.refine(worker, self.workers, self.cap, sweeps=sweeps)
        return self.candidate(name, moved, stay)

    def whole(self, name: str, worker: Tensor) -> Candidate:
        """Entities as wholes, each beginning where most of its steps are."""
        there = self.graph.start.diff() > 0
        entity = self.graph.entity.long()
        cluster = (torch.cumsum(there, 0) - 1).index_select(0, entity).to(torch.int32)
        owned = torch.zeros(there.numel() * self.workers, dtype=torch.int64)
        owned.index_add_(0, entity * self.workers + worker, torch.ones_like(entity))
        begin = owned.view(-1, self.workers).argmax(1)[there].to(torch.int32)
        coarse = self.fine.contract(cluster, begin.numel())
        moved = coarse.refine(begin, self.workers, self.cap)
        return self.candidate(name, moved.index_select(0, cluster.long()))

    def best(self, starts: Mapping[str, Tensor], *, large: bool, small: bool) -> Candidate:
        """Refine starts and choose."""
        first = [self.candidate(name, worker) for name, worker in starts.items()]
        tried = self._one(first) if large else self._each(first)
        if len(tried) == 1 and self.rounds <= 1:
            return tried[0]
        ahead = sorted(tried, key=self.rank)[: GOING_ON if small else 1]
        for turn in range(1, self.rounds):
            ahead = [self.step(again(one.name), one.worker, one.stay, turn=turn) for one in ahead]
            tried += ahead
        return min(tried, key=self.rank)

    def _each(self, first: list[Candidate]) -> list[Candidate]:
        """Each start refined; those too serial again, with heavier weights in time."""
        found = {one.name: self.step(f"improved {one.name}", one.worker) for one in first}
        tried = list(found.values())
        if self.span_limit is None:
            return tried
        tried += [self.whole(f"{one.name}, whole", one.worker) for one in first]
        # Of starts along entities one is enough; runs of snapshots stay serial.
        along = [one for one in first if one.name in ALONG]
        others = [one for one in first if one.name not in (*ALONG, "blocks")]
        for one in (*others, *sorted(along, key=lambda one: one.floats)[:1]):
            if found[one.name].span > self.span_limit:
                tried += self._heavier(one)
        return tried

    def _heavier(self, one: Candidate) -> list[Candidate]:
        """A start refined with multiples of weights in time, about the least within the limit."""
        tried: list[Candidate] = []
        low = high = 1
        while high < STAY[-1] and not (tried and tried[-1].span <= self.span_limit):
            low, high = high, next(stay for stay in STAY if stay > high)
            tried.append(self.step(f"{one.name}, {high} times", one.worker, high))
        if tried[-1].span > self.span_limit:
            return tried
        for _ in range(HALVINGS):
            if (stay := (low + high) // 2) == low:
                break
            tried.append(self.step(f"{one.name}, {stay} times", one.worker, stay))
            low, high = (low, stay) if tried[-1].span <= self.span_limit else (stay, high)
        return tried

    def _one(self, first: list[Candidate]) -> list[Candidate]:
        """The start of a large graph that is best as it is, refined; another if that fails."""
        if self.span_limit is None:
            one = min(first, key=self.rank)
            return [self.step(f"improved {one.name}", one.worker, sweeps=LARGE_SWEEPS)]
        within = [one for one in first if one.span <= self.span_limit]
        if not within:
            chosen = min(first, key=lambda one: one.floats)
            within = [self.whole(f"{chosen.name}, whole", chosen.worker)]
        one = min(within, key=lambda one: one.floats)
        found = self.step(f"improved {one.name}", one.worker, sweeps=LARGE_SWEEPS)
        if found.span <= self.span_limit:
            return [found]
        stay = STAY[1]
        options = {"sweeps": LARGE_SWEEPS}
        return [one, found, self.step(f"{one.name}, {stay} times", one.worker, stay, **options)]
