"""Projections of Figure 12: counts against slow obvious ones, and how epochs are put together."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_dgc_volumes import Snapshots
from tiny_data import csr_of
from torch import Tensor

from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.supergraph import Supergraph, build_supergraph
from dgbench.runtime.errors import InvalidInputError
from dgbench.runtime.topology.named import PCIE3
from dgbench.systems.dgc.placement import by_both, by_chunks, by_sequences, by_snapshots
from dgbench.systems.dgc.projection import (
    LINKS,
    MeasuredEpoch,
    Rates,
    fit_rates,
    load_of,
    machine,
    project,
    stages_of,
)
from dgbench.systems.dgc.volumes import Shape, hearing

RNN = Shape(
    feature_dim=2, hidden_dim=8, round_dims=(2, 8), round_grads=(False, True), spatial_dim=8,
    state_dims=(8,), attention=False,
)  # fmt: skip
ATTENTION = Shape(
    feature_dim=2, hidden_dim=8, round_dims=(9,), round_grads=(True,), spatial_dim=8,
    state_dims=(), attention=True,
)  # fmt: skip
RATES = Rates(vertex_s=1e-6, edge_s=2e-7, time_s=3e-6, unit_s=1e-4, copy_bytes_per_s=1e10)


@st.composite
def graphs(draw) -> tuple[Snapshots, Supergraph, Tensor, int]:
    """A sequence, its vertex-steps, and a worker for each."""
    count, steps, size = draw(st.integers(1, 6)), draw(st.integers(1, 5)), draw(st.integers(1, 4))
    vertex = st.integers(0, count - 1)
    pairs = st.sets(st.tuples(vertex, vertex), max_size=8)
    csrs = [csr_of(draw(pairs), count) for _ in range(steps)]
    graph = build_supergraph(csrs)
    total = graph.num_vertices
    workers = draw(st.lists(st.integers(0, size - 1), min_size=total, max_size=total))
    return Snapshots(csrs), graph, torch.tensor(workers, dtype=torch.int32), size


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_stages_are_the_most_pieces_of_an_entity(case) -> None:
    _, graph, worker, _ = case
    pieces = [0]
    for first, stop in pairwise(graph.start.tolist()):
        mine = worker[first:stop].tolist()
        pieces.append(bool(mine) + sum(a != b for a, b in pairwise(mine)))
    assert stages_of(graph, worker) == max(pieces)


@settings(max_examples=60, deadline=None)
@given(graphs(), st.integers(1, 3))
def test_loads_are_those_of_a_slow_count(case, chunks: int) -> None:
    data, graph, _, size = case
    chunk = (torch.arange(graph.num_vertices) % chunks).to(torch.int32)
    placement = by_chunks(graph, chunk, chunks, torch.arange(chunks) % size, size)
    hears = hearing(data, graph)
    load = load_of(graph, hears, placement, RNN)
    owner = placement.structure.tolist()
    heard: dict[int, set[int]] = {u: set() for u in range(chunks)}
    edges = [0] * size
    for v in range(graph.num_vertices):
        for u in hears.indices[int(hears.indptr[v]) : int(hears.indptr[v + 1])].tolist():
            edges[owner[v]] += 1
            heard[int(chunk[v])].add(u)
    for p in range(size):
        own = {v for v in range(graph.num_vertices) if owner[v] == p}
        units = {int(chunk[v]) for v in own}
        loaded = sum(len(heard[c] - {v for v in own if int(chunk[v]) == c}) for c in units)
        fused = len(set().union(*(heard[c] for c in units)) - own)
        assert int(load.vertices[p]) == int(load.rows[p]) == len(own)
        assert int(load.edges[p]) == edges[p]
        assert int(load.units[p]) == len(units)
        assert int(load.loaded[p]) == len(own) + loaded
        assert int(load.fused[p]) == len(own) + fused


def example() -> tuple[Supergraph, Csr]:
    ring = [csr_of({(v, (v + t + 1) % 40) for v in range(40)}, 40) for t in range(16)]
    graph = build_supergraph(ring)
    return graph, hearing(Snapshots(ring), graph)


def test_an_epoch_is_the_sum_of_its_parts_on_either_machine() -> None:
    graph, hears = example()
    for shape in (RNN, ATTENTION):
        for make in (by_snapshots, by_sequences, by_both):
            load = load_of(graph, hears, make(graph, 8), shape)
            found = [project(load, shape, RATES, machine(links)) for links in LINKS]
            for epoch in found:
                assert epoch.seconds == epoch.compute_s + epoch.load_s + epoch.communicate_s
            assert found[0].compute_s == found[1].compute_s
            assert found[0].communicate_s > 0
            widths = sum(shape.round_dims) * 4
            assert found[0].load_s == pytest.approx(int(load.loaded.max()) * widths / PCIE3)
            fused = project(load, shape, RATES, machine("pcie"), fused=True)
            assert fused.seconds <= found[1].seconds


def test_rates_are_found_again() -> None:
    sizes = ((1000, 500, 1), (1000, 500, 40), (3000, 9000, 1), (3000, 9000, 60))
    runs = [
        MeasuredEpoch(
            v, e, u, v, v * RATES.vertex_s + e * RATES.edge_s + u * RATES.unit_s, v * RATES.time_s
        )
        for v, e, u in sizes
    ]
    found = fit_rates(runs, 1e10)
    for name in ("vertex_s", "edge_s", "time_s", "unit_s"):
        assert getattr(found, name) == pytest.approx(getattr(RATES, name), rel=1e-6), name
    assert found.speed == pytest.approx(90.0)
    for few in ([runs[0]] * 4, runs[:2]):
        with pytest.raises(InvalidInputError):
            fit_rates(few, 1e10)
