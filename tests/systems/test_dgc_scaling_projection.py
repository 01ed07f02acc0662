"""Projections of Figure 12: counts against slow obvious ones, and how epochs are put together."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.supergraph import Supergraph, build_supergraph
from dgbench.runtime.errors import InvalidInputError
from dgbench.runtime.topology.named import PCIE3
from dgbench.systems.dgc.placement import by_both, by_chunks, by_sequences, by_snapshots
from dgbench.systems.dgc.projection import (
    LINKS,
    Factor,
    MeasuredEpoch,
    Rates,
    fit_rates,
    load_of,
    machine,
    project,
    stages_of,
    with_share,
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


class Sequence:
    """Snapshots, as far as `hearing` reads them."""

    def __init__(self, csrs: list[Csr]) -> None:
        self.topology = csrs

    def __len__(self) -> int:
        return len(self.topology)


def csr_of(count: int, edges: set[tuple[int, int]]) -> Csr:
    rows: list[list[int]] = [[] for _ in range(count)]
    for source, target in sorted(edges):
        rows[target].append(source)
    indptr = torch.tensor([0, *(len(r) for r in rows)]).cumsum(0)
    columns = [c for r in rows for c in sorted(r)]
    return Csr(indptr, torch.tensor(columns, dtype=torch.int32), count)


@st.composite
def graphs(draw) -> tuple[Sequence, Supergraph, Tensor, int]:
    """A sequence, its vertex-steps, and a worker for each."""
    count, steps, size = draw(st.integers(1, 6)), draw(st.integers(1, 5)), draw(st.integers(1, 4))
    vertex = st.integers(0, count - 1)
    csrs = [
        csr_of(count, draw(st.sets(st.tuples(vertex, vertex), max_size=8))) for _ in range(steps)
    ]
    graph = build_supergraph(csrs)
    total = graph.num_vertices
    workers = draw(st.lists(st.integers(0, size - 1), min_size=total, max_size=total))
    return Sequence(csrs), graph, torch.tensor(workers, dtype=torch.int32), size


def slow_stages(graph: Supergraph, worker: Tensor) -> int:
    most = 0
    for entity in range(len(graph.start) - 1):
        ids = range(int(graph.start[entity]), int(graph.start[entity + 1]))
        pieces, before = 0, None
        for v in ids:
            pieces += int(worker[v]) != before
            before = int(worker[v])
        most = max(most, pieces)
    return most


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_stages_are_the_most_pieces_of_an_entity(case) -> None:
    _, graph, worker, _ = case
    assert stages_of(graph, worker) == slow_stages(graph, worker)


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


def example(size: int = 8) -> tuple[Sequence, Supergraph]:
    ring = [csr_of(40, {(v, (v + t + 1) % 40) for v in range(40)}) for t in range(16)]
    return Sequence(ring), build_supergraph(ring)


def test_an_epoch_is_the_sum_of_its_parts_on_either_machine() -> None:
    data, graph = example()
    hears = hearing(data, graph)
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


def test_every_cut_of_a_recurrence_is_waited_for() -> None:
    data, graph = example()
    hears = hearing(data, graph)
    round_robin = load_of(graph, hears, by_snapshots(graph, 8), RNN)
    runs = load_of(graph, hears, by_snapshots(graph, 8, contiguous=True), RNN)
    assert (round_robin.stages, runs.stages) == (16, 8)
    assert load_of(graph, hears, by_snapshots(graph, 8), ATTENTION).stages == 1
    one, other = (project(load, RNN, RATES, machine("pcie")) for load in (round_robin, runs))
    assert one.compute_s == pytest.approx(other.compute_s + 8 * RATES.unit_s)
    assert one.communicate_s > other.communicate_s


def test_larger_graphs_take_longer_by_what_grows() -> None:
    data, graph = example()
    load = load_of(graph, hearing(data, graph), by_sequences(graph, 8), RNN)
    plain = project(load, RNN, RATES, machine("nvlink"))
    edges = project(load, RNN, RATES, machine("nvlink"), factor=Factor(1.0, 1000.0))
    vertices = project(load, RNN, RATES, machine("nvlink"), factor=Factor(1000.0, 1.0))
    assert edges.communicate_s > 2 * plain.communicate_s  # only halos travel under PTS
    assert vertices.communicate_s == plain.communicate_s
    assert vertices.compute_s > plain.compute_s
    for wrong in ((0.0, 1.0), (1.0, float("nan"))):
        with pytest.raises(InvalidInputError):
            Factor(*wrong)
    four = load_of(graph, hearing(data, graph), by_sequences(graph, 4), RNN)
    with pytest.raises(InvalidInputError, match="8 devices for 4 workers"):
        project(four, RNN, RATES, machine("nvlink"))
    with pytest.raises(InvalidInputError, match="allowed: nvlink, pcie"):
        machine("ethernet")


def test_stale_rows_leave_a_share_of_the_traffic() -> None:
    data, graph = example()
    load = load_of(graph, hearing(data, graph), by_both(graph, 8), RNN)
    epoch = project(load, RNN, RATES, machine("pcie"))
    assert with_share(epoch, 0.25).communicate_s == epoch.communicate_s / 4
    assert with_share(epoch, 0.25).compute_s == epoch.compute_s
    with pytest.raises(InvalidInputError):
        with_share(epoch, 1.5)


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
    with pytest.raises(InvalidInputError, match="do not tell"):
        fit_rates([runs[0]] * 4, 1e10)
    with pytest.raises(InvalidInputError, match="2 runs"):
        fit_rates(runs[:2], 1e10)
