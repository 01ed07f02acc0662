"""Chunks, their assignment by Algorithm 1, and the partition's moves and switches."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_dgc_volumes import MODELS, Snapshots, placed, random_csr
from tiny_data import csr_of

from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.supergraph import build_supergraph
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError, UnsupportedError
from dgbench.systems.dgc import controls
from dgbench.systems.dgc.assignment import assign_chunks
from dgbench.systems.dgc.candidates import span_of
from dgbench.systems.dgc.partition import PAPER, ChunkSettings, critical_path, partition_chunks
from dgbench.systems.dgc.placement import by_both, by_sequences, by_snapshots
from dgbench.systems.dgc.refinement import apart_hypergraph, hypergraph_of, improve, refine_apart
from dgbench.systems.dgc.supergraph import chunk_cap, chunk_statistics, cut_weight, make_chunks
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


@settings(max_examples=60)
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


@settings(max_examples=25)
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


@settings(max_examples=30)
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


@settings(max_examples=60)
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


Pairs = dict[tuple[int, int], int]


def traffic_of(chunks: int, pairs: Pairs) -> tuple[Csr, torch.Tensor]:
    """The symmetric matrix of these weights."""
    both = sorted({**pairs, **{(b, a): w for (a, b), w in pairs.items()}}.items())
    counts = np.bincount([a for (a, _), _ in both], minlength=chunks)
    indptr = torch.from_numpy(np.concatenate([[0], counts.cumsum()]).astype(np.int64))
    columns = torch.tensor([b for (_, b), _ in both], dtype=torch.int32)
    return Csr(indptr, columns, chunks), torch.tensor([w for _, w in both], dtype=torch.int64)


def slow(workload, pairs: Pairs, workers, mean, empty):
    """Equation 3 worker by worker."""
    both = {**pairs, **{(b, a): w for (a, b), w in pairs.items()}}
    target = sum(workload) / (workers if mean == "worker" else max(1, len(workload)))
    given_to: list[list[int]] = [[] for _ in range(workers)]
    load = [0.0] * workers
    for a in sorted(range(len(workload)), key=lambda a: (-workload[a], a)):
        h = [sum(both.get((a, b), 0) for b in queue) for queue in given_to]
        room = [target - x for x in load]
        if empty == "literal":
            score = [r * x for r, x in zip(room, h, strict=True)]
            m = score.index(max(score))
        elif max(room) > 0:
            score = [r * (x + 1.0) for r, x in zip(room, h, strict=True)]
            best = max(score)
            m = min((load[i], i) for i in range(workers) if score[i] == best)[1]
        else:
            m = load.index(min(load))
        given_to[m].append(a)
        load[m] += workload[a]
    where = {a: m for m, queue in enumerate(given_to) for a in queue}
    cut = sum(w for (a, b), w in pairs.items() if where[a] != where[b])
    return [where[a] for a in range(len(workload))], load, cut


@settings(max_examples=120)
@given(
    chunks=st.sampled_from([0, 1, 2, 9, 30]),
    workers=st.sampled_from([1, 2, 3, 8]),
    density=st.sampled_from([0.0, 0.1, 0.6]),
    mean=st.sampled_from(["worker", "chunk"]),
    empty=st.sampled_from(["corrected", "literal"]),
    equal=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_the_same_as_the_slow_loop(chunks, workers, density, mean, empty, equal, seed):
    generator = np.random.default_rng(seed)
    # Halves, so that sums are exact and ties are ties.
    workload = [1.0] * chunks if equal else (generator.integers(0, 40, chunks) / 2).tolist()
    pairs = {
        (a, b): int(generator.integers(1, 9))
        for a in range(chunks)
        for b in range(a + 1, chunks)
        if generator.random() < density
    }
    work = torch.tensor(workload, dtype=torch.float64)
    found = assign_chunks(work, traffic_of(chunks, pairs), workers, mean=mean, empty=empty)
    where, load, cut = slow(workload, pairs, workers, mean, empty)
    assert found.worker.tolist() == where
    assert found.loads.tolist() == load
    assert found.cut == cut


def test_assignment_refusals():
    work, none = torch.ones(2, dtype=torch.float64), traffic_of(2, {})
    for bad in (work.float(), -work, work * float("nan"), torch.ones(3, dtype=torch.float64)):
        with pytest.raises(InvalidInputError):
            assign_chunks(bad, none, 2)
    for workers, epsilon, name in ((0, 1.0, "workers"), (2, 0.0, "epsilon")):
        with pytest.raises(InvalidInputError, match=name):
            assign_chunks(work, none, workers, epsilon=epsilon)
    for name in ("mean", "empty"):
        with pytest.raises(UnknownKeyError, match=name):
            assign_chunks(work, none, 2, **{name: "none"})


def communities(groups: int, size: int, steps: int, seed: int = 0) -> list[Csr]:
    """Snapshots in which entities meet inside their group, and seldom outside."""
    generator = np.random.default_rng(seed)
    count = groups * size
    made = []
    for _ in range(steps):
        source = generator.integers(0, count, 3 * count)
        inside = source // size * size + generator.integers(0, size, 3 * count)
        target = np.where(generator.random(3 * count) < 0.98, inside, source[::-1])
        pairs = set(zip(source.tolist(), target.tolist(), strict=True))
        made.append(csr_of(pairs | {(v, u) for u, v in pairs}, count))
    return made


@settings(max_examples=25)
@given(
    seed=st.integers(0, 999),
    cap=st.sampled_from([1, 3, 10, 100_000]),
    levels=st.sampled_from([1, 2, 8]),
    chunks=st.sampled_from([None, 4]),
)
def test_statistics_of_chunks(seed, cap, levels, chunks):
    graph = build_supergraph(communities(3, 5, 4, seed), spatial=2)
    made = make_chunks(graph, cap, levels=levels, seed=seed)
    chunk, count = made.chunk, made.count
    assert sorted(set(chunk.tolist())) == list(range(count))
    assert int(torch.bincount(chunk).max()) <= cap
    assert len(made.runs) <= levels
    if chunks is not None:
        generator = torch.Generator().manual_seed(seed)
        chunk, count = torch.randint(chunks, chunk.shape, generator=generator).int(), chunks
    found = chunk_statistics(graph, chunk, count)
    names, where = graph.entity.tolist(), chunk.tolist()
    vertices, edges, inner, cut = Counter(where), Counter(), Counter(), 0
    for v in range(graph.num_vertices):
        for e in range(int(graph.csr.indptr[v]), int(graph.csr.indptr[v + 1])):
            u = int(graph.csr.indices[e])
            if v < u and where[u] != where[v]:
                cut += int(graph.edge_weight[e])
            if names[u] != names[v]:
                edges[where[v]] += 1
                inner[where[v]] += where[u] == where[v] and u > v
    assert found.vertices.tolist() == [vertices[c] for c in range(count)]
    assert found.edges.tolist() == [edges[c] for c in range(count)]
    assert found.inner_edges.tolist() == [inner[c] for c in range(count)]
    assert cut_weight(graph, chunk) == cut
    assert torch.equal(found.padded, found.sequences * found.longest)
    features = found.features(16, [32, 8], lengths=True)
    assert features.shape == (count, 7)
    assert features[0].tolist() == [
        *(float(x[0]) for x in (found.vertices, found.edges)),
        *(16.0, 32.0, 8.0, float(found.sequences[0]), float(found.padded[0])),
    ]
    assert found.features(16, [32]).shape == (count, 4)


def test_levels_fill_chunks_and_cut_less():
    graph = build_supergraph(communities(8, 12, 12), spatial=2)
    cap = chunk_cap(graph, 2, 4)
    one, more = (make_chunks(graph, cap, levels=levels) for levels in (1, 8))
    assert len(more.runs) > len(one.runs) == 1
    assert more.count < one.count
    assert cut_weight(graph, more.chunk) <= cut_weight(graph, one.chunk)
    # Groups stay together: what is cut is a small part of all weight.
    assert cut_weight(graph, more.chunk) < 0.3 * int(graph.edge_weight.sum()) // 2


def test_weights_that_outgrow_32_bits_are_scaled_down():
    chain = csr_of([(0, 1), (1, 0), (2, 3), (3, 2), (1, 2), (2, 1)], 4)
    graph = build_supergraph([chain] * 6, spatial=2**30 - 1, temporal=1)
    made = make_chunks(graph, graph.num_vertices)
    assert made.count == 1


def test_a_sequence_without_edges_has_no_chunks():
    graph = build_supergraph([csr_of([], 3)] * 2)
    made = make_chunks(graph, chunk_cap(graph, 4))
    assert (made.count, made.chunk.numel(), made.cap) == (0, 0, 1)
    assert chunk_statistics(graph, made.chunk, 0).features(2, [4]).shape == (0, 4)
    for name, call in (
        ("workers", lambda: chunk_cap(graph, 0)),
        ("per_worker", lambda: chunk_cap(graph, 1, 0)),
        ("levels", lambda: make_chunks(graph, 1, levels=0)),
        ("cap", lambda: make_chunks(graph, 0)),
        ("chunk", lambda: chunk_statistics(graph, torch.zeros(1, dtype=torch.int32), 1)),
    ):
        with pytest.raises(InvalidInputError, match=name):
            call()
