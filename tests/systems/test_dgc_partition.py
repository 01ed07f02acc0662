"""The partition by chunks: its objective, its moves, its switches."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_dgc_volumes import MODELS, Snapshots, placed, random_csr

from dgbench.kernels_cuda.supergraph import build_supergraph
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError, UnsupportedError
from dgbench.systems.dgc import controls
from dgbench.systems.dgc.candidates import span_of
from dgbench.systems.dgc.partition import (
    PAPER,
    ChunkSettings,
    critical_path,
    partition_chunks,
)
from dgbench.systems.dgc.placement import by_both, by_sequences, by_snapshots
from dgbench.systems.dgc.refinement import (
    apart_hypergraph,
    hypergraph_of,
    improve,
    refine_apart,
)
from dgbench.systems.dgc.supergraph import chunk_statistics
from dgbench.systems.dgc.volumes import count_traffic, shape_of


def graph_of(name: str, seed: int, count: int = 12, steps: int = 6, density: float = 0.15):
    csrs = [random_csr(seed + t, count, count, density) for t in range(steps)]
    shape = shape_of(MODELS[name](2, 4))
    counts = shape.counts()
    spatial, temporal = counts.weights()
    graph = build_supergraph(csrs, spatial=spatial, temporal=temporal, per_length=counts.all_steps)
    return csrs, graph, shape


def sent_by(csrs, graph, made, shape) -> int:
    """Bytes of a partition."""
    return count_traffic(Snapshots(csrs), graph, made.placement, shape).bytes()


def loads_of(load: torch.Tensor, worker: torch.Tensor, workers: int) -> torch.Tensor:
    return torch.zeros(workers, dtype=torch.int64).index_add_(0, worker.long(), load)


@settings(deadline=None, max_examples=60)
@given(
    name=st.sampled_from(sorted(MODELS)),
    seed=st.integers(0, 2**16),
    workers=st.sampled_from([2, 3, 4, 8]),
    density=st.sampled_from([0.0, 0.1, 0.5]),
    clusters=st.sampled_from([1, 3, 20]),
)
def test_cost_is_what_is_counted(name, seed, workers, density, clusters):
    csrs, graph, shape = graph_of(name, seed, density=density)
    draw = torch.Generator().manual_seed(seed)
    count = graph.num_vertices
    worker = torch.randint(0, workers, (count,), generator=draw, dtype=torch.int32)
    load = torch.randint(1, 9, (count,), generator=draw)
    fine = hypergraph_of(graph, shape.counts(), load)

    def counted(of: torch.Tensor) -> int:
        return count_traffic(Snapshots(csrs), graph, placed(of, None, workers), shape).bytes() // 4

    assert fine.cost(worker) == counted(worker)
    # A partition that keeps clusters costs the same on the contracted hypergraph.
    cluster = torch.randint(0, clusters, (count,), generator=draw, dtype=torch.int32)
    of_cluster = torch.randint(0, workers, (clusters,), generator=draw, dtype=torch.int32)
    coarse = fine.contract(cluster, clusters)
    assert coarse.cost(of_cluster) == counted(of_cluster[cluster.long()])
    assert coarse.load.tolist() == loads_of(load, cluster, clusters).tolist()
    # Moves only ever lower the cost of a partition inside its cap, and keep the cap.
    cap = int(loads_of(load, worker, workers).max()) if count else 1
    for moved in (
        fine.refine(worker, workers, cap),
        improve(fine, graph, worker, workers, cap, levels=(4, 2), threads=1),
    ):
        assert fine.cost(moved) <= fine.cost(worker)
        assert int(loads_of(load, moved, workers).max()) <= cap if count else True


def test_no_single_move_with_room_is_left():
    _, graph, shape = graph_of("mpnn", 7, count=20)
    load = torch.ones(graph.num_vertices, dtype=torch.int64)
    fine = hypergraph_of(graph, shape.counts(), load)
    worker = torch.arange(graph.num_vertices, dtype=torch.int32) % 3
    cap = graph.num_vertices // 3 + 4
    # A sweep does not go back to a vertex that others make room for; asking again does.
    done = fine.refine(worker, 3, cap)
    while not torch.equal(again := fine.refine(done, 3, cap), done):
        done = again
    loads, least = loads_of(load, done, 3), fine.cost(done)
    for v, to in itertools.product(range(graph.num_vertices), range(3)):
        if to != int(done[v]) and int(loads[to]) < cap:
            other = done.clone()
            other[v] = to
            assert fine.cost(other) >= least


def test_overfull_workers_are_emptied():
    _, graph, shape = graph_of("tgcn", 3, count=20)
    load = torch.ones(graph.num_vertices, dtype=torch.int64)
    fine = hypergraph_of(graph, shape.counts(), load)
    all_on_one = torch.zeros(graph.num_vertices, dtype=torch.int32)
    cap = graph.num_vertices // 4 + 2
    done = fine.refine(all_on_one, 4, cap)
    assert int(loads_of(load, done, 4).max()) <= cap


@settings(deadline=None, max_examples=25)
@given(
    name=st.sampled_from(sorted(MODELS)),
    seed=st.integers(0, 2**16),
    workers=st.sampled_from([1, 2, 4]),
    density=st.sampled_from([0.0, 0.2]),
    settings_=st.sampled_from(
        [
            ChunkSettings(),
            PAPER,
            replace(PAPER, empty="literal"),
            replace(PAPER, temporal_edges=False),
            ChunkSettings(weights="unit", seeds=2, rounds=0),
            ChunkSettings(starts=("blocks",)),
            ChunkSettings(span_limit=None),
            ChunkSettings(span_limit=1.0, starts=("wholes",)),
            ChunkSettings(starts=("entity",), rounds=2),
        ]
    ),
)
@example(  # for attention no such start is made
    name="dysat",
    seed=0,
    workers=2,
    density=0.2,
    settings_=ChunkSettings(span_limit=1.0, starts=("wholes",)),
)
def test_a_partition_is_whole(name, seed, workers, density, settings_):
    csrs, graph, shape = graph_of(name, seed, density=density)
    made = partition_chunks(graph, shape.counts(), workers, settings_, threads=1)
    again = partition_chunks(graph, shape.counts(), workers, settings_, threads=2)
    place = made.placement
    assert place.structure is place.time or "apart" in made.floats
    assert torch.equal(place.time, again.placement.time)
    assert torch.equal(place.structure, again.placement.structure)
    assert torch.equal(made.chunk, again.chunk)
    assert place.units == made.count
    assert torch.equal(place.structure, made.assignment.worker[made.chunk.long()])
    statistics = chunk_statistics(graph, made.chunk, made.count)
    for field in ("vertices", "edges", "inner_edges", "sequences", "longest"):
        assert torch.equal(getattr(statistics, field), getattr(made.statistics, field))
    assert int(statistics.vertices.sum()) == graph.num_vertices
    assert set(made.seconds) == {"supergraph", "generation", "assignment", "refinement"}
    if "end" in made.floats:
        assert made.floats["end"] == sent_by(csrs, graph, made, shape) // 4


def test_refinement_lowers_what_is_sent_and_keeps_balance():
    csrs, graph, shape = graph_of("tgcn", 11, count=60, steps=10, density=0.03)
    paper, refined = (
        partition_chunks(graph, shape.counts(), 4, chosen, threads=1)
        for chosen in (PAPER, ChunkSettings())
    )
    assert sent_by(csrs, graph, refined, shape) < sent_by(csrs, graph, paper, shape)
    assert refined.assignment.imbalance <= 1.1
    for edges, notes in ((lambda s: s.edges.double(), False), (None, True)):
        made = partition_chunks(graph, shape.counts(), 4, workload=edges, threads=1)
        assert made.assignment.imbalance <= 1.1
        assert bool(made.notes) == notes  # without a workload it says what stands for it


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**16), workers=st.sampled_from([2, 3, 8]))
def test_cost_of_encoders_apart_is_what_is_counted(seed, workers):
    csrs, graph, shape = graph_of("dysat", seed)
    draw = torch.Generator().manual_seed(seed)
    count = graph.num_vertices
    work = torch.ones(count, dtype=torch.int64)
    both = apart_hypergraph(graph, shape.counts(), work, work)
    worker = torch.randint(0, workers, (2 * count,), generator=draw, dtype=torch.int32)
    for found in (worker, refine_apart(both, graph, worker[:count].clone(), workers, 2 * count)):
        place = placed(found[:count], found[count:], workers)
        sent = count_traffic(Snapshots(csrs), graph, place, shape).bytes() // 4
        assert both.cost(found) == sent


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**16),
    workers=st.sampled_from([1, 2, 5]),
    density=st.sampled_from([0.0, 0.1, 0.5]),
    spread=st.sampled_from([0.0, 0.3, 1.0]),
)
def test_span_is_that_of_a_walk(seed, workers, density, spread):
    _, graph, _ = graph_of("tgcn", seed, density=density)
    draw = torch.Generator().manual_seed(seed)
    count = graph.num_vertices
    other = torch.rand(count, generator=draw) < spread
    worker = torch.randint(0, workers, (count,), generator=draw, dtype=torch.int32) * other
    done: dict[tuple[int, int], int] = {}
    last, stage = None, 0
    for entity, at in zip(graph.entity.tolist(), worker.tolist(), strict=True):
        stage = 0 if last is None or last[0] != entity else stage + (last[1] != at)
        done[stage, at] = done.get((stage, at), 0) + 1
        last = entity, at
    stages = 1 + max((k for k, _ in done), default=-1)
    serial = sum(max(n for (k, _), n in done.items() if k == s) for s in range(stages))
    found = span_of(graph, worker, workers)
    assert found == (stages, pytest.approx(serial * workers / count if count else 1.0))


def test_a_recurrence_is_not_done_by_one_worker_after_another():
    # Dense snapshots that hardly change: runs of them send least by far.
    csrs, graph, shape = graph_of("tgcn", 4, count=30, steps=12, density=0.1)
    simple = min(
        count_traffic(Snapshots(csrs), graph, place(graph, 4), shape).bytes()
        for place in (by_snapshots, by_sequences, by_both)
    )
    sent, span = {}, {}
    for limit in (None, 1.5, 3.0):
        limited = ChunkSettings(span_limit=limit)
        made = partition_chunks(graph, shape.counts(), 4, limited, threads=1)
        sent[limit] = sent_by(csrs, graph, made, shape)
        span[limit] = critical_path(graph, made.placement)[1]
    assert sent[None] <= sent[1.5]
    assert span[None] > 1.5  # or this graph shows nothing
    for limit in (1.5, 3.0):
        # Below the limit, or as little as is found among those that send no more than simple ones.
        assert span[limit] <= limit or (span[limit] <= span[None] and sent[limit] <= simple)


def test_refusals(monkeypatch):
    _, graph, shape = graph_of("tgcn", 2)
    with pytest.raises(InvalidInputError, match="workers"):
        partition_chunks(graph, shape.counts(), 0)
    for fields in ({"by": "metsi"}, {"starts": ("nowhere",)}):
        with pytest.raises(UnknownKeyError):
            partition_chunks(graph, shape.counts(), 2, ChunkSettings(**fields))
    for fields in ({"seeds": 0}, {"span_limit": 0.5}):
        with pytest.raises(InvalidInputError, match=next(iter(fields))):
            ChunkSettings(**fields).check()
    monkeypatch.setattr(controls.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UnsupportedError, match="pymetis"):
        partition_chunks(graph, shape.counts(), 2, ChunkSettings(by="metis"))


def test_a_partitioner_that_dies_is_a_reason(monkeypatch):
    _, graph, _ = graph_of("tgcn", 2)
    monkeypatch.setattr(controls.importlib.util, "find_spec", lambda name: True)
    for script, limit_s in (("import os; os.abort()", 60), ("raise SystemExit('no room')", 60),
                            ("time.sleep(60)", 0.5)):  # fmt: skip
        monkeypatch.setattr(controls, "_METIS", script)
        with pytest.raises(UnsupportedError):
            controls.cut_by("metis", graph, 2, timeout_s=limit_s)
