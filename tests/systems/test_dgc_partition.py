"""Placements, chunks and their assignment by Algorithm 1, moves, and projected epochs of DGC."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from dgc_tiny import random_sequence, scattered, sequence_of
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tiny_data import csr_of, matrix_of

from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.supergraph import build_supergraph
from dgbench.models.dtdg.dysat import Dysat
from dgbench.models.dtdg.mpnn_lstm_bare import MpnnLstmBare
from dgbench.models.dtdg.tgcn_2layer import TgcnTwoLayer
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError, UnsupportedError
from dgbench.runtime.topology.named import PCIE3
from dgbench.systems.dgc import controls
from dgbench.systems.dgc.assignment import assign_chunks
from dgbench.systems.dgc.partition import PAPER, ChunkSettings, critical_path, partition_chunks
from dgbench.systems.dgc.placement import Placement, by_both, by_chunks, by_sequences, by_snapshots
from dgbench.systems.dgc.projection import LINKS, Rates, load_of, machine, project
from dgbench.systems.dgc.refinement import hypergraph_of, improve
from dgbench.systems.dgc.supergraph import chunk_cap, chunk_statistics, make_chunks
from dgbench.systems.dgc.volumes import Shape, count_traffic, hearing, shape_of

MODELS = {"tgcn": TgcnTwoLayer, "dysat": Dysat, "mpnn": MpnnLstmBare}
SEEDS = st.integers(0, 2**16)


def graph_of(name: str, seed: int, count: int = 12, steps: int = 6, edges: int = 20):
    """Snapshots of so many edges, their weighted vertex-steps, and a model's shape."""
    draw = torch.Generator().manual_seed(seed)
    pairs = [torch.randint(0, count, (edges, 2), generator=draw).tolist() for _ in range(steps)]
    data, shape = sequence_of(pairs, count), shape_of(MODELS[name](2, 4))
    counts = shape.counts()
    spatial, temporal = counts.weights()
    graph = build_supergraph(
        data.topology, spatial=spatial, temporal=temporal, per_length=counts.all_steps
    )
    return data, graph, shape


def floats_of(data, graph, placement, shape) -> int:
    return count_traffic(data, graph, placement, shape).bytes() // 4


def loads_of(load: torch.Tensor, worker: torch.Tensor, workers: int) -> torch.Tensor:
    return torch.zeros(workers, dtype=torch.int64).index_add_(0, worker.long(), load)


@settings(max_examples=60)
@given(
    name=st.sampled_from(sorted(MODELS)), seed=SEEDS, workers=st.sampled_from([2, 3, 4, 8]),
    edges=st.sampled_from([0, 15, 100]), clusters=st.sampled_from([1, 3, 20]),
)  # fmt: skip
def test_cost_is_what_is_counted(name, seed, workers, edges, clusters):
    data, graph, shape = graph_of(name, seed, edges=edges)
    draw, count = torch.Generator().manual_seed(seed), graph.num_vertices
    worker = scattered(graph, workers, seed).structure
    load = torch.randint(1, 9, (count,), generator=draw)
    fine = hypergraph_of(graph, shape.counts(), load)

    def counted(of: torch.Tensor) -> int:
        placement = Placement("chunks", workers, of, of, torch.zeros_like(of), 1)
        return floats_of(data, graph, placement, shape)

    assert fine.cost(worker) == counted(worker)
    # A partition that keeps clusters costs the same on the contracted hypergraph.
    cluster = torch.randint(0, clusters, (count,), generator=draw, dtype=torch.int32)
    of_cluster = torch.randint(0, workers, (clusters,), generator=draw, dtype=torch.int32)
    coarse = fine.contract(cluster, clusters)
    assert coarse.cost(of_cluster) == counted(of_cluster[cluster.long()])
    assert coarse.load.tolist() == loads_of(load, cluster, clusters).tolist()
    # Moves only ever lower the cost of a partition inside its cap, and keep the cap.
    cap = max(1, int(loads_of(load, worker, workers).max()))
    for moved in (
        fine.refine(worker, workers, cap),
        improve(fine, graph, worker, workers, cap, levels=(4, 2), threads=1),
    ):
        assert fine.cost(moved) <= fine.cost(worker)
        assert int(loads_of(load, moved, workers).max()) <= cap


@settings(max_examples=25)
@given(
    name=st.sampled_from(sorted(MODELS)), seed=SEEDS, workers=st.sampled_from([1, 2, 4]),
    edges=st.sampled_from([0, 25]),
    settings_=st.sampled_from([
        ChunkSettings(),
        PAPER,
        replace(PAPER, empty="literal"),
        replace(PAPER, temporal_edges=False),
        ChunkSettings(weights="unit", seeds=2, rounds=0),
        ChunkSettings(starts=("blocks",)),
        ChunkSettings(span_limit=None),
        ChunkSettings(span_limit=1.0, starts=("wholes",)),
        ChunkSettings(starts=("entity",), rounds=2),
    ]),
)  # fmt: skip
@example("dysat", 0, 2, 25, ChunkSettings(span_limit=1.0, starts=("wholes",)))  # makes no start
def test_a_partition_is_whole(name, seed, workers, edges, settings_):
    data, graph, shape = graph_of(name, seed, edges=edges)
    made, again = (
        partition_chunks(graph, shape.counts(), workers, settings_, threads=n) for n in (1, 2)
    )
    place = made.placement
    assert place.structure is place.time or "apart" in made.floats
    assert torch.equal(place.time, again.placement.time)
    assert torch.equal(place.structure, again.placement.structure)
    assert torch.equal(made.chunk, again.chunk)
    assert place.units == made.count
    assert torch.equal(place.structure, made.assignment.worker[made.chunk.long()])
    assert int(made.statistics.vertices.sum()) == graph.num_vertices
    if "end" in made.floats:
        assert made.floats["end"] == floats_of(data, graph, place, shape)


def test_refinement_lowers_what_is_sent_and_keeps_balance():
    data, graph, shape = graph_of("tgcn", 11, count=60, steps=10, edges=110)
    paper, refined = (
        partition_chunks(graph, shape.counts(), 4, chosen, threads=1)
        for chosen in (PAPER, ChunkSettings())
    )
    sent = [floats_of(data, graph, made.placement, shape) for made in (refined, paper)]
    assert sent[0] < sent[1]
    assert refined.assignment.imbalance <= 1.1


def test_a_recurrence_is_not_done_by_one_worker_after_another():
    # Dense snapshots: runs of them send least by far.
    data, graph, shape = graph_of("tgcn", 4, count=30, steps=12, edges=90)
    simple = min(
        floats_of(data, graph, place(graph, 4), shape)
        for place in (by_snapshots, by_sequences, by_both)
    )
    sent, span = {}, {}
    for limit in (None, 1.5, 3.0):
        limited = ChunkSettings(span_limit=limit)
        place = partition_chunks(graph, shape.counts(), 4, limited, threads=1).placement
        sent[limit], span[limit] = (
            floats_of(data, graph, place, shape), critical_path(graph, place)[1]
        )  # fmt: skip
    assert sent[None] <= sent[1.5]
    assert span[None] > 1.5  # or this graph shows nothing
    for limit in (1.5, 3.0):
        # Below the limit, or as little as is found among those that send no more than simple ones.
        assert span[limit] <= limit or (span[limit] <= span[None] and sent[limit] <= simple)


Pairs = dict[tuple[int, int], int]


def traffic_of(chunks: int, pairs: Pairs) -> tuple[Csr, torch.Tensor]:
    """The symmetric matrix of these weights."""
    both = pairs | {(b, a): w for (a, b), w in pairs.items()}
    weights = [both[entry] for entry in sorted(both)]
    return matrix_of(both, chunks), torch.tensor(weights, dtype=torch.int64)


def slow(workload, pairs: Pairs, workers, mean, empty):
    """Equation 3 worker by worker."""
    both = {**pairs, **{(b, a): w for (a, b), w in pairs.items()}}
    target = sum(workload) / (workers if mean == "worker" else max(1, len(workload)))
    where: dict[int, int] = {}
    load = [0.0] * workers
    for a in sorted(range(len(workload)), key=lambda a: (-workload[a], a)):
        h = [sum(both.get((a, b), 0) for b in where if where[b] == m) for m in range(workers)]
        room = [target - x for x in load]
        if empty == "literal":
            score = [r * x for r, x in zip(room, h, strict=True)]
            m = score.index(max(score))
        elif max(room) > 0:
            score = [r * (x + 1.0) for r, x in zip(room, h, strict=True)]
            m = min((load[i], i) for i in range(workers) if score[i] == max(score))[1]
        else:
            m = load.index(min(load))
        where[a] = m
        load[m] += workload[a]
    cut = sum(w for (a, b), w in pairs.items() if where[a] != where[b])
    return [where[a] for a in range(len(workload))], load, cut


@settings(max_examples=120)
@given(
    chunks=st.sampled_from([0, 1, 2, 9, 30]), workers=st.sampled_from([1, 2, 3, 8]),
    density=st.sampled_from([0.0, 0.1, 0.6]), mean=st.sampled_from(["worker", "chunk"]),
    empty=st.sampled_from(["corrected", "literal"]), equal=st.booleans(), seed=SEEDS,
)  # fmt: skip
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
    assert (found.worker.tolist(), found.loads.tolist(), found.cut) == (where, load, cut)


@settings(max_examples=25)
@given(
    seed=st.integers(0, 999), cap=st.sampled_from([1, 3, 10, 100_000]),
    levels=st.sampled_from([1, 2, 8]),
)  # fmt: skip
def test_chunks_have_room_and_features(seed, cap, levels):
    """test_dgc_predictor counts the same of chunks that are cut out."""
    _, graph, _ = graph_of("tgcn", seed)
    made = make_chunks(graph, cap, levels=levels, seed=seed)
    assert sorted(set(made.chunk.tolist())) == list(range(made.count))
    assert int(torch.bincount(made.chunk).max()) <= cap
    assert len(made.runs) <= levels
    found = chunk_statistics(graph, made.chunk, made.count)
    first = [float(x[0]) for x in (found.vertices, found.edges, found.sequences, found.padded)]
    features = found.features(16, [32, 8], lengths=True)
    assert features[0].tolist() == [*first[:2], 16.0, 32.0, 8.0, *first[2:]]


def test_weights_that_outgrow_32_bits_are_scaled_down():
    chain = csr_of([(0, 1), (1, 0), (2, 3), (3, 2), (1, 2), (2, 1)], 4)
    graph = build_supergraph([chain] * 6, spatial=2**30 - 1, temporal=1)
    assert make_chunks(graph, graph.num_vertices).count == 1


def test_a_sequence_without_edges_has_no_chunks():
    graph = build_supergraph([csr_of([], 3)] * 2)
    made = make_chunks(graph, chunk_cap(graph, 4))
    assert (made.count, made.chunk.numel(), made.cap) == (0, 0, 1)
    assert chunk_statistics(graph, made.chunk, 0).features(2, [4]).shape == (0, 4)


def test_refusals(monkeypatch):
    _, graph, shape = graph_of("tgcn", 2)
    work, none = torch.ones(2, dtype=torch.float64), traffic_of(2, {})

    def parted(workers: int = 2, **fields):
        return partition_chunks(graph, shape.counts(), workers, ChunkSettings(**fields))

    for error, name, call in (
        (InvalidInputError, "workers", lambda: parted(0)),
        (UnknownKeyError, "by", lambda: parted(by="metsi")),
        (UnknownKeyError, "starts", lambda: parted(starts=("nowhere",))),
        (InvalidInputError, "seeds", lambda: ChunkSettings(seeds=0).check()),
        (InvalidInputError, "span_limit", lambda: ChunkSettings(span_limit=0.5).check()),
        (InvalidInputError, "work", lambda: assign_chunks(work * float("nan"), none, 2)),
        (InvalidInputError, "", lambda: assign_chunks(work[:1], none, 2)),
        (InvalidInputError, "workers", lambda: assign_chunks(work, none, 0)),
        (UnknownKeyError, "mean", lambda: assign_chunks(work, none, 2, mean="none")),
        (UnknownKeyError, "empty", lambda: assign_chunks(work, none, 2, empty="none")),
        (InvalidInputError, "workers", lambda: chunk_cap(graph, 0)),
        (InvalidInputError, "levels", lambda: make_chunks(graph, 1, levels=0)),
        (InvalidInputError, "cap", lambda: make_chunks(graph, 0)),
        (InvalidInputError, "chunk", lambda: chunk_statistics(graph, work.int(), 1)),
    ):
        with pytest.raises(error, match=name or None):
            call()
    monkeypatch.setattr(controls.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UnsupportedError, match="pymetis"):
        parted(by="metis")
    # A partitioner that dies is a reason.
    monkeypatch.setattr(controls.importlib.util, "find_spec", lambda name: True)
    for script, limit_s in (("import os; os.abort()", 60), ("raise SystemExit('no room')", 60),
                            ("time.sleep(60)", 0.5)):  # fmt: skip
        monkeypatch.setattr(controls, "_METIS", script)
        with pytest.raises(UnsupportedError):
            controls.cut_by("metis", graph, 2, timeout_s=limit_s)


def test_placements_refused() -> None:
    data = sequence_of([[(1, 0), (2, 1)]] * 3, 3)
    graph, shape = build_supergraph(data.topology), shape_of(TgcnTwoLayer(2, 4))
    good = torch.zeros(graph.num_vertices, dtype=torch.int32)
    for of, worker in ((data, good[1:]), (data, good + 2), (sequence_of([[]], 3), good)):
        placement = Placement("chunks", 2, worker, worker, torch.zeros_like(worker), 1)
        with pytest.raises(InvalidInputError):
            count_traffic(of, graph, placement, shape)
    with pytest.raises(InvalidInputError):
        hearing(data, build_supergraph([csr_of([], 3)] * 3))
    for place in (by_snapshots, by_sequences):
        with pytest.raises(InvalidInputError, match="workers"):
            place(graph, 0)
    one = build_supergraph([csr_of({(1, 0)}, 2)])
    for chunk, owner, name in (([0, 0, 0], [0], "chunk"), ([0, 1], [0], "chunk"),
                               ([0, 0], [2], "worker_of_chunk")):  # fmt: skip
        with pytest.raises(InvalidInputError, match=name):
            by_chunks(one, torch.tensor(chunk).int(), 1, torch.tensor(owner), 2)


RNN = Shape(
    feature_dim=2, hidden_dim=8, round_dims=(2, 8), round_grads=(False, True), spatial_dim=8,
    state_dims=(8,), attention=False,
)  # fmt: skip
RATES = Rates(vertex_s=1e-6, edge_s=2e-7, time_s=3e-6, unit_s=1e-4, copy_bytes_per_s=1e10)


@settings(max_examples=60)
@given(
    nodes=st.sampled_from([1, 2, 6, 11]), steps=st.sampled_from([1, 2, 5, 9]), seed=SEEDS,
    most=st.sampled_from([0, 12, 60]), presence=st.sampled_from(["edges", "span", "tail"]),
    size=st.sampled_from([1, 2, 3, 8]), chunks=st.integers(1, 3),
)  # fmt: skip
def test_loads_are_those_of_a_slow_count(nodes, steps, seed, most, presence, size, chunks) -> None:
    data = random_sequence(nodes, steps + 1, most, seed)
    graph = build_supergraph(data.topology[:-1], presence=presence)
    chunk = (torch.arange(graph.num_vertices) % chunks).to(torch.int32)
    placement = by_chunks(graph, chunk, chunks, torch.arange(chunks) % size, size)
    hears = hearing(data, graph)
    assert hears.indptr.tolist() == graph.incoming().indptr.tolist()
    assert hears.indices.tolist() == graph.incoming().indices.tolist()
    load = load_of(graph, hears, placement, RNN)
    for link in LINKS if size == 8 else ():  # machines of eight devices
        epoch = project(load, RNN, RATES, machine(link))
        assert epoch.seconds == epoch.compute_s + epoch.load_s + epoch.communicate_s
        assert epoch.load_s == pytest.approx(int(load.loaded.max()) * 4 * (2 + 8) / PCIE3)
    owner, unit = placement.structure.tolist(), chunk.tolist()
    heard = [set(hears.indices[a:b].tolist()) for a, b in pairwise(hears.indptr.tolist())]
    for p in range(size):
        own = {v for v in range(graph.num_vertices) if owner[v] == p}
        units = [{v for v in own if unit[v] == c} for c in {unit[v] for v in own}]
        others = [set().union(*(heard[v] for v in mine)) for mine in units]
        loaded = sum(len(far - mine) for far, mine in zip(others, units, strict=True))
        assert int(load.vertices[p]) == int(load.rows[p]) == len(own)
        assert int(load.edges[p]) == sum(len(heard[v]) for v in own)
        assert int(load.units[p]) == len(units)
        assert int(load.loaded[p]) == len(own) + loaded
        assert int(load.fused[p]) == len(own) + len(set().union(*others) - own)
