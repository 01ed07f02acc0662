"""The whole partition of DGC: chunks, their work, their workers (section 3), and refinement.

The paper's version is `ChunkSettings(levels=1, refine=False)`: labels once, then Algorithm 1. What
is added here, each with a switch: labels through several levels (`levels`), and refinement
(`refine`) of several starts on what is really sent, see `refinement`:

- `labels`: Algorithm 1 on chunks of label propagation, once for each of `seeds`;
- `wholes`: the same with labels of entities as wholes, for a recurrence under a limit of span;
- `entity`: each worker a run of entities of equal work;
- `blocks`: each worker a run of snapshots of equal work.

Each start is improved once, and the best goes on: what sends least, for a recurrence under a limit
of how much of it is done in a row (`span_limit`, `candidates`). Of a large graph only the best
start is refined, and single vertex-steps only, as a partition has to be worth its time; of a small
one several go on, for more rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, Literal

import torch
from torch import Tensor

from dgbench.kernels_cuda.label_propagation import propagate_labels
from dgbench.kernels_cuda.supergraph import (
    INCOMING,
    OUTGOING,
    Supergraph,
    chunk_edges,
    chunk_traffic,
    contract,
)
from dgbench.runtime.errors import InvalidInputError, unknown_key
from dgbench.systems.dgc.assignment import Assignment, Empty, Mean, assign_chunks, assignment_of
from dgbench.systems.dgc.candidates import Search, runs, span_of
from dgbench.systems.dgc.placement import Placement, by_chunks
from dgbench.systems.dgc.refinement import apart_hypergraph, hypergraph_of, refine_apart, within
from dgbench.systems.dgc.supergraph import (
    ChunkStatistics,
    ExchangeCounts,
    chunk_cap,
    chunk_statistics,
    cut_weight,
    make_chunks,
)

Start = Literal["labels", "wholes", "entity", "blocks"]
STARTS: Final[tuple[Start, ...]] = ("labels", "wholes", "entity", "blocks")
By = Literal["labels", "metis", "kahypar"]
BY: Final[tuple[By, ...]] = ("labels", "metis", "kahypar")
LARGE: Final = 2_000_000
"""Edges from which only one start is refined, without coarsening."""

SMALL: Final = 150_000
"""Edges below which several candidates go on to the end, for more rounds."""

ROUNDS: Final = 3
SMALL_ROUNDS: Final = 5
_WORK: Final = 2**30
"""Units of a partition's whole work at least, so that a share of it is a round number."""

_COST: Final = 2**8
"""Units of the cheapest vertex-step or edge at least: what rounding to units may lose is 0.2 %."""

_MOST_WORK: Final = 2**52
"""Units of the whole work at most, so that sums and shares of it fit int64 and float64."""

Workload = Callable[[ChunkStatistics], Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkSettings:
    """Settings of the chunks and of their assignment to workers.

    Attributes:
        per_worker: chunks of full size that a worker gets at least; the cap on their size.
        levels: of label propagation, 1 for the paper's.
        weights: of edges, `profiled` (section 3.2) or `unit`, for labels and Algorithm 1.
        temporal_edges: whether these see edges in time.
        refine: improve workers on what is sent, from `starts`.
        starts: where refinement begins; without it there is only `labels`, and so where none of
            those named applies.
        apart: let refinement give the two encoders of a vertex-step different workers under
            attention, where that sends less: an entity's steps meet at one worker, wherever its
            snapshots are. It is then PSS-TS, refined, that chunks are compared with. Work is even
            over both encoders together, not in each.
        seeds: how many seeds of label propagation are started from.
        rounds: of coarsening and refining for the best start; 0 moves single vertex-steps only;
            None: ROUNDS, more for a small graph and 0 for a large one.
        slack: load of a worker beyond the mean that refinement may use.
        span_limit: how much of a recurrence may be done in a row, an even share being 1, see
            `candidates`; None: least traffic alone, whoever has to wait. Attention has no span.
        by: `labels`, or a general partitioner on the same supergraph (`controls`) as a control.
        workload: which model of a chunk's work is asked for, see `workloads.workload_of`.
        mean, empty: of Algorithm 1, see `assignment`.
        seed: of label propagation, 0 <= seed < 2^32.
    """

    per_worker: int = 16
    levels: int = 8
    weights: Literal["profiled", "unit"] = "profiled"
    temporal_edges: bool = True
    refine: bool = True
    starts: tuple[Start, ...] = STARTS
    apart: bool = True
    seeds: int = 1
    rounds: int | None = None
    slack: float = 0.05
    span_limit: float | None = 1.5
    by: By = "labels"
    workload: Literal["vertices", "edges", "linear", "mlp"] = "mlp"
    mean: Mean = "worker"
    empty: Empty = "corrected"
    seed: int = 1

    def serial(self, counts: ExchangeCounts) -> bool:
        """Return True if a limit of span applies: one is set, and states are handed on."""
        sent = counts.temporal * counts.temporal_floats
        return self.span_limit is not None and not counts.all_steps and sent > 0

    def check(self) -> ChunkSettings:
        """Return self.

        Raises:
            UnknownKeyError, InvalidInputError: a field out of its range.
        """
        for name, value, allowed in (
            ("weights", self.weights, ("profiled", "unit")),
            ("by", self.by, BY),
            *(("starts", start, STARTS) for start in self.starts),
        ):
            if value not in allowed:
                raise unknown_key(name, value, allowed)
        for name, value, least in (
            ("seeds", self.seeds, 1),
            ("rounds", ROUNDS if self.rounds is None else self.rounds, 0),
            ("slack", self.slack, 0),
            ("span_limit", 1 if self.span_limit is None else self.span_limit, 1),
            ("starts", len(self.starts), 1),
        ):
            if not value >= least:
                raise InvalidInputError(f"{name} is {value}, allowed are numbers from {least}")
        return self


PAPER: Final = ChunkSettings(levels=1, refine=False)
"""Settings that the paper describes, without our additions."""


@dataclass(frozen=True, slots=True, eq=False)
class ChunkPartition:
    """Chunks and their workers.

    Attributes:
        placement: of vertex-steps; its units are the chunks. See `ChunkSettings.apart` for where
            its two workers differ; `assignment` is then that of the structure encoder.
        chunk: int32[V] in [0, count).
        count: C.
        assignment: worker of each chunk, loads by the workload model, weight of cut edges.
        statistics: of the chunks.
        floats: {stage: floats of an epoch by the counts}, from the first start to the end; a start
            is called by its name, `improved NAME` after one round, see `candidates.Search`.
        seconds: `supergraph` (what refinement reads of it), `generation`, `assignment`,
            `refinement`, wall clock.
        notes: what a reader of a row has to know.
    """

    placement: Placement
    chunk: Tensor
    count: int
    assignment: Assignment
    statistics: ChunkStatistics
    floats: dict[str, int]
    seconds: dict[str, float]
    notes: list[str]


@dataclass(slots=True)
class _PartitionClock:
    seconds: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(
            ("supergraph", "generation", "assignment", "refinement"), 0.0
        )
    )
    last: float = field(default_factory=time.perf_counter)

    def note(self, name: str) -> None:
        now = time.perf_counter()
        self.seconds[name] += now - self.last
        self.last = now


def partition_chunks(
    graph: Supergraph,
    counts: ExchangeCounts,
    workers: int,
    settings: ChunkSettings | None = None,
    workload: Workload | None = None,
    *,
    threads: int | None = None,
) -> ChunkPartition:
    """Cut the vertex-steps into chunks and give each a worker.

    Args:
        graph: the vertex-steps, edges weighted by `counts.weights()`.
        counts: what a model sends along an edge (`volumes.Shape.counts`).
        workers: P, 1 to 64.
        settings: None for the defaults.
        workload: work of chunks, float64[C] in any unit; None: vertices and edges that end there,
            one each, and a note.
        threads: of the compiled operators; no result depends on it.

    Raises:
        InvalidInputError, UnknownKeyError: a number out of its range or an unknown name.
        UnsupportedError: a general partitioner that is not installed or gave up.
    """
    settings = (settings or ChunkSettings()).check()
    if not 1 <= workers <= 64:
        raise InvalidInputError(f"workers is {workers}, allowed are 1 to 64")
    notes = [text] if (text := getattr(workload, "note", "")) else []
    if workload is None:
        workload, notes = vertices_and_edges, ["work of a chunk: vertices and edges, one each"]
    clock = _PartitionClock()
    seen = _seen(graph, settings)
    clock.note("supergraph")
    refine = settings.refine and workers > 1 and graph.num_vertices > 0
    # Of a large graph labels run once: on entities, where cuts in time may have to be few.
    wholes = refine and settings.serial(counts) and graph.csr.nnz // 2 >= LARGE
    wholes = wholes and settings.by == "labels" and "wholes" in settings.starts
    chunk, count, assignment, statistics = _plain(
        seen, counts, workers, settings, workload, clock, threads, wholes=wholes
    )
    floats: dict[str, int] = {}
    worker = time_worker = None
    if refine:
        name = settings.by if settings.by != "labels" else "wholes" if wholes else "labels"
        first = {name: assignment.worker[chunk.long()]}
        worker, time_worker = _refined(
            graph, counts, workers, settings, workload, first, statistics, floats, clock, threads
        )
        chunk, count = _rechunk(seen, chunk, count, worker, workers, settings, threads)
        statistics = chunk_statistics(graph, chunk, count)
        of_chunk = torch.zeros(count, dtype=torch.int32)
        of_chunk[chunk.long()] = worker
        loads = torch.zeros(workers, dtype=torch.float64)
        loads.index_add_(0, of_chunk.long(), workload(statistics).double())
        if time_worker is not worker:
            loads = _loads_apart(graph, statistics, workload, worker, time_worker, workers)
            notes.append("the time encoder of a vertex-step may run at another worker")
        assignment = Assignment(of_chunk, loads, cut_weight(seen, worker))
        clock.note("refinement")
    placement = by_chunks(graph, chunk, count, assignment.worker, workers)
    if time_worker is not worker:
        placement = replace(placement, time=time_worker)
    return ChunkPartition(
        placement, chunk, count, assignment, statistics, floats, clock.seconds, notes
    )


def vertices_and_edges(statistics: ChunkStatistics) -> Tensor:
    """float64[C]: a unit of work for each vertex-step and each edge that ends there."""
    return (statistics.vertices + statistics.edges).double()


def critical_path(graph: Supergraph, placement: Placement) -> tuple[int, float]:
    """(stages, span) of a recurrence under a placement, see `candidates.span_of`."""
    return span_of(graph, placement.time, placement.workers)


def _seen(graph: Supergraph, settings: ChunkSettings) -> Supergraph:
    """The graph with the weights that labels and Algorithm 1 see."""
    weight = graph.edge_weight
    if settings.weights == "profiled" and settings.temporal_edges:
        return graph
    kind = graph.directions()
    if settings.weights == "unit":
        both = kind == INCOMING | OUTGOING
        weight = 1 + both.to(torch.int32)
    if not settings.temporal_edges:
        weight = torch.where(kind == 0, 0, weight)
    return replace(graph, edge_weight=weight)


def _plain(
    graph: Supergraph,
    counts: ExchangeCounts,
    workers: int,
    settings: ChunkSettings,
    workload: Workload,
    clock: _PartitionClock,
    threads: int | None,
    *,
    wholes: bool = False,
) -> tuple[Tensor, int, Assignment, ChunkStatistics]:
    """Chunks and workers without refinement."""
    if settings.by != "labels":
        from dgbench.systems.dgc.controls import cut_by

        hyper = None
        if settings.by == "kahypar":
            hyper = hypergraph_of(graph, counts, torch.ones(graph.num_vertices, dtype=torch.int64))
        options = {"hyper": hyper, "slack": settings.slack, "seed": settings.seed}
        chunk = cut_by(settings.by, graph, workers, **options)
        count = workers
        own = torch.arange(workers, dtype=torch.int32)
        clock.note("generation")
        statistics = chunk_statistics(graph, chunk, count)
        traffic = chunk_traffic(graph, chunk, count)
        found = assignment_of(own, workload(statistics), traffic, workers)
        clock.note("assignment")
        return chunk, count, found, statistics
    cap = chunk_cap(graph, workers, settings.per_worker)
    options = {"levels": settings.levels, "seed": settings.seed, "threads": threads}
    made = make_chunks(graph, cap, wholes=wholes, **options)
    clock.note("generation")
    statistics = chunk_statistics(graph, made.chunk, made.count)
    found = assign_chunks(
        workload(statistics),
        made.traffic,
        workers,
        mean=settings.mean,
        empty=settings.empty,
    )
    clock.note("assignment")
    return made.chunk, made.count, found, statistics


def _refined(
    graph: Supergraph,
    counts: ExchangeCounts,
    workers: int,
    settings: ChunkSettings,
    workload: Workload,
    first: dict[str, Tensor],
    statistics: ChunkStatistics,
    floats: dict[str, int],
    clock: _PartitionClock,
    threads: int | None,
) -> tuple[Tensor, Tensor]:
    """int32[V] each: workers of vertex-steps in both encoders; one object where they are alike."""
    parts = vertex_loads(graph, statistics, workload)
    load = sum(parts).clamp(min=1)
    fine = hypergraph_of(graph, counts, load)
    cap = int((1 + settings.slack) * int(load.sum()) / workers)
    large, small = graph.csr.nnz // 2 >= LARGE, graph.csr.nnz // 2 < SMALL
    starts = {name: worker for name, worker in first.items() if name in (*settings.starts, *BY[1:])}
    if settings.by == "labels":
        plain = [
            (f"labels {k + 1}", k, False)
            for k in range(1, settings.seeds if "labels" in settings.starts else 0)
        ]
        if "wholes" in settings.starts and settings.serial(counts) and "wholes" not in first:
            plain.append(("wholes", 0, True))
        for name, k, wholes in plain:
            other = replace(settings, seed=(settings.seed + k) % 2**32)
            chunk, _, found, _ = _plain(
                graph, counts, workers, other, workload, clock, threads, wholes=wholes
            )
            starts[name] = found.worker[chunk.long()]
        starts |= runs(graph, load, workers, settings.starts)
    # `wholes` alone is no start where nothing keeps a limit of span.
    starts = starts or first
    rounds = settings.rounds
    if rounds is None:
        rounds = 0 if large else SMALL_ROUNDS if small else ROUNDS
    search = Search(
        graph, counts, workers, fine, cap, rounds, settings.seed, threads,
        settings.span_limit if settings.serial(counts) else None, floats,
    )  # fmt: skip
    found = search.best(starts, large=large, small=small)
    worker, floats["end"] = found.worker, found.floats
    if not (settings.apart and counts.all_steps) or large:
        return worker, worker
    both = apart_hypergraph(graph, counts, *parts)
    begin = {"together": worker, **runs(graph, parts[0], workers, settings.starts)}
    found = [refine_apart(both, graph, start, workers, cap) for start in begin.values()]
    best = min(found, key=both.cost)
    floats["apart"] = both.cost(best)
    if floats["apart"] >= floats["end"]:
        return worker, worker
    floats["end"] = floats["apart"]
    count = graph.num_vertices
    return best[:count].contiguous(), best[count:].contiguous()


def _loads_apart(
    graph: Supergraph,
    statistics: ChunkStatistics,
    workload: Workload,
    structure: Tensor,
    time: Tensor,
    workers: int,
) -> Tensor:
    """float64[P]: work of workers, both encoders, in the unit of the workload model."""
    loads = torch.zeros(workers, dtype=torch.int64)
    for worker, load in zip(
        (structure, time), vertex_loads(graph, statistics, workload), strict=True
    ):
        loads.index_add_(0, worker.long(), load)
    whole = float(workload(statistics).sum())
    return loads.double() * (whole / max(1, int(loads.sum())))


def vertex_loads(
    graph: Supergraph, statistics: ChunkStatistics, workload: Workload
) -> tuple[Tensor, Tensor]:
    """Work of vertex-steps from the chunks', by least squares: int64[V] for their edges, and each.

    Edges are the structure encoder's, the rest counts for the time encoder. The unit follows the
    whole work: as many units as keep the cheapest vertex-step or edge from being rounded away.
    """
    terms = torch.stack([statistics.vertices, statistics.edges], 1).double()
    guess = workload(statistics).double()
    weight = torch.linalg.lstsq(terms, guess[:, None], driver="gelsd").solution[:, 0]
    if bool((weight < 0).any()):  # one explains it better alone
        alone = (terms * guess[:, None]).sum(0) / terms.square().sum(0).clamp(min=1)
        weight = torch.where(weight < 0, 0.0, alone)
    ids = torch.arange(graph.num_vertices, dtype=torch.int32)
    edges = chunk_edges(graph, ids, ids.numel())[0].double()
    total = float(weight[0] * edges.numel() + weight[1] * edges.sum())
    if not total > 0:
        return torch.zeros_like(edges).long(), torch.ones_like(edges).long()
    cheapest = float(weight[weight > 0].min())
    scale = min(max(_WORK / total, _COST / cheapest), _MOST_WORK / total)
    each = torch.full_like(edges, float(weight[0]) * scale).round().long()
    return (weight[1] * scale * edges).round().long(), each


def _rechunk(
    graph: Supergraph,
    chunk: Tensor,
    count: int,
    worker: Tensor,
    workers: int,
    settings: ChunkSettings,
    threads: int | None,
) -> tuple[Tensor, int]:
    """Chunks of one worker each: parts of the old ones, small ones joined.

    First to neighbours, as labels do; of a large graph parts stay as they are. Then what is still
    small to others of its worker, see `bundled`: thousands of chunks of two vertices that nobody
    else touches would each be a unit of work.
    """
    cap = chunk_cap(graph, workers, settings.per_worker)
    part = chunk * workers + worker
    used = torch.zeros(count * workers, dtype=torch.bool)
    used[part.long()] = True
    number = torch.cumsum(used, 0, dtype=torch.int32) - 1
    part, count = number[part.long()], int(number[-1]) + 1
    if graph.csr.nnz // 2 >= LARGE:
        return bundled(part, count, worker, cap)
    csr, sums = contract(graph.csr, within(graph.csr, graph.edge_weight, worker), part, count)
    weight = (sums >> max(0, int(sums.max()).bit_length() - 31) if sums.numel() else sums).int()
    sizes = torch.bincount(part, minlength=count).to(torch.int32)
    run = propagate_labels(csr, weight, sizes, cap=cap, seed=settings.seed, threads=threads)
    joined, count = run.chunks()
    return bundled(joined[part.long()], count, worker, cap)


def bundled(chunk: Tensor, count: int, worker: Tensor, cap: int) -> tuple[Tensor, int]:
    """Chunks of up to half the cap joined to others of their worker, as long as the cap holds.

    Args:
        chunk: int32[V] in [0, count), each of one worker.
        count: C.
        worker: int32[V].
        cap: vertex-steps of a chunk at most.

    Returns:
        int32[V], and how many chunks there are now.
    """
    sizes = torch.bincount(chunk, minlength=count)
    owner = torch.zeros(count, dtype=torch.int64).index_put_((chunk.long(),), worker.long())
    half = max(1, cap // 2)
    small = ((sizes <= half) & (sizes > 0)).nonzero().squeeze(1)
    small = small[torch.argsort(owner[small], stable=True)]
    # A run of the small ones of a worker, cut where half the cap is full: the last of a part may
    # go beyond it, by half the cap at most.
    before = torch.cumsum(sizes[small], 0) - sizes[small]
    first = torch.searchsorted(owner[small], owner[small])
    part = (before - before[first]) // half if small.numel() else before
    most = int(part.max()) + 1 if small.numel() else 1
    name = torch.arange(count) + int(owner.max() + 1 if count else 0) * most
    name[small] = owner[small] * most + part
    names, joined = torch.unique(name[chunk.long()], return_inverse=True)
    return joined.to(torch.int32), names.numel()
