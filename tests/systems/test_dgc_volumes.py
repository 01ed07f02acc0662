"""Placements of DGC, their counted traffic against sets of pairs, and projected epochs."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_data import csr_of
from torch import Tensor

from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.supergraph import build_supergraph
from dgbench.models.dtdg.dysat import Dysat
from dgbench.models.dtdg.mpnn_lstm_bare import MpnnLstmBare
from dgbench.models.dtdg.tgcn_2layer import TgcnTwoLayer
from dgbench.runtime.errors import InvalidInputError
from dgbench.runtime.topology.named import PCIE3
from dgbench.systems.dgc.placement import Placement, by_both, by_chunks, by_sequences, by_snapshots
from dgbench.systems.dgc.projection import LINKS, Rates, load_of, machine, project
from dgbench.systems.dgc.volumes import Shape, count_traffic, hearing, shape_of

MODELS = {"tgcn": TgcnTwoLayer, "dysat": Dysat, "mpnn": MpnnLstmBare}


def random_csr(seed: int, rows: int, cols: int, density: float) -> Csr:
    """A random matrix, with loops."""
    draw = np.random.default_rng(seed)
    pairs = {(v, u) for v, u in np.argwhere(draw.random((rows, cols)) < density).tolist()}
    return csr_of(pairs, rows)


@dataclass
class Snapshots:
    """As much of a SnapshotSequence as counting reads."""

    topology: list

    def __len__(self) -> int:
        return len(self.topology)


def placed(structure: Tensor, time: Tensor | None, workers: int) -> Placement:
    time = structure if time is None else time
    unit = torch.zeros_like(structure)
    return Placement("chunks", workers, structure, time, unit, 1)


def slow(csrs, graph, placement, shape):
    """{(name, direction): {(sender, receiver): rows}} by sets of (vertex-step, worker)."""
    ids = {
        (v, t): i
        for i, (v, t) in enumerate(zip(graph.entity.tolist(), graph.step.tolist(), strict=True))
    }
    structure, time = placement.structure.tolist(), placement.time.tolist()
    shown, state, everywhere, moved = set(), [], set(), []
    for t, csr in enumerate(csrs):
        for v in range(csr.num_rows):
            for u in csr.indices[int(csr.indptr[v]) : int(csr.indptr[v + 1])].tolist():
                if u != v:
                    shown.add((ids[u, t], structure[ids[v, t]]))
    steps: dict[int, list[int]] = {}
    for i, v in enumerate(graph.entity.tolist()):
        steps.setdefault(v, []).append(i)
    for mine in steps.values():
        state += [(time[a], time[b]) for a, b in pairwise(mine)]
        everywhere |= {(i, time[j]) for i in mine for j in mine}
    moved = list(zip(structure, time, strict=True))
    pairs = {"structure": [(structure[i], w) for i, w in shown], "state": state, "move": moved}
    pairs["time"] = [(time[i], w) for i, w in everywhere]
    found = {}
    names = [("structure", f"structure{k}", g) for k, g in enumerate(shape.round_grads)]
    names.append(("time", "time", True) if shape.attention else ("state", "state", True))
    if placement.moves:
        names.append(("move", "move", True))
    for kind, name, back in names:
        rows = np.zeros((placement.workers,) * 2, dtype=np.int64)
        for sender, receiver in pairs[kind]:
            rows[sender, receiver] += sender != receiver
        found[name, "forward"] = rows
        if back:
            found[name, "backward"] = rows.T
    return found


@st.composite
def cases(draw: st.DrawFn):
    count = draw(st.sampled_from([1, 2, 6, 11]))
    steps = draw(st.sampled_from([1, 2, 5, 9]))
    seed = draw(st.integers(0, 2**16))
    density = draw(st.sampled_from([0.0, 0.08, 0.4]))
    csrs = [random_csr(seed + t, count, count, density) for t in range(steps)]
    presence = draw(st.sampled_from(["edges", "span", "tail"]))
    graph = build_supergraph(csrs, presence=presence)
    workers = draw(st.sampled_from([1, 2, 3, 8]))
    generator = torch.Generator().manual_seed(seed)
    one, other = (
        torch.randint(0, workers, (graph.num_vertices,), generator=generator, dtype=torch.int32)
        for _ in range(2)
    )
    return csrs, graph, placed(one, other if draw(st.booleans()) else None, workers)


@settings(max_examples=80)
@given(case=cases(), name=st.sampled_from(sorted(MODELS)))
def test_rows_are_those_of_sets(case, name):
    csrs, graph, placement = case
    shape = shape_of(MODELS[name](2, 4))
    # A target behind the snapshots of the graph is not read.
    traffic = count_traffic(Snapshots([*csrs, csrs[0]]), graph, placement, shape)
    wanted = slow(csrs, graph, placement, shape)
    found = {(flow.name, flow.direction): flow for flow in traffic.flows}
    assert found.keys() == wanted.keys()
    for key, flow in found.items():
        assert flow.rows.tolist() == wanted[key].tolist(), key
    assert traffic.bytes() == sum(int(f.rows.sum()) * f.width * 4 for f in traffic.flows)
    assert traffic.spatial + traffic.temporal == traffic.bytes() == int(traffic.matrix().sum())
    hears = hearing(Snapshots(csrs), graph)
    assert hears.indptr.tolist() == graph.incoming().indptr.tolist()
    assert hears.indices.tolist() == graph.incoming().indices.tolist()


def test_refusals():
    csrs = [random_csr(t, 5, 5, 0.4) for t in range(3)]
    graph = build_supergraph(csrs)
    shape = shape_of(TgcnTwoLayer(2, 4))
    good = torch.zeros(graph.num_vertices, dtype=torch.int32)
    for data, worker in ((csrs, good[1:]), (csrs, good + 2), (csrs[:1], good)):
        with pytest.raises(InvalidInputError):
            count_traffic(Snapshots(data), graph, placed(worker, None, 2), shape)
    with pytest.raises(InvalidInputError):
        hearing(Snapshots([random_csr(9, 5, 5, 1.0)] * 3), build_supergraph([csr_of([], 5)] * 3))


@settings(max_examples=100)
@given(cases(), st.integers(1, 9))
def test_snapshots_and_sequences_are_dealt_out_evenly(case, workers: int) -> None:
    _, graph, _ = case
    turns = by_snapshots(graph, workers)
    runs = by_snapshots(graph, workers, contiguous=True)
    whole = by_sequences(graph, workers)
    assert turns.structure.tolist() == [int(t) % workers for t in graph.step]
    assert runs.structure.tolist() == [int(t) * workers // graph.steps for t in graph.step]
    entities = sorted(set(graph.entity.tolist()))
    turn = {entity: i % workers for i, entity in enumerate(entities)}
    assert whole.structure.tolist() == [turn[int(v)] for v in graph.entity]
    for placement in (turns, runs, whole):
        assert not placement.moves
        assert placement.unit.tolist() == graph.step.tolist()
        assert placement.structure.dtype == torch.int32
    both = by_both(graph, workers)
    assert both.structure.tolist() == turns.structure.tolist()
    assert both.time.tolist() == whole.time.tolist()
    assert both.moves == (workers > 1)
    assert both.loads().sum(1).tolist() == [graph.num_vertices] * 2


def test_refused() -> None:
    graph = build_supergraph([csr_of({(1, 0)}, 2)])
    for place in (by_snapshots, by_sequences):
        with pytest.raises(InvalidInputError, match="workers"):
            place(graph, 0)
    for chunk, owner, name in (([0, 0, 0], [0], "chunk"), ([0, 1], [0], "chunk"),
                               ([0, 0], [2], "worker_of_chunk")):  # fmt: skip
        with pytest.raises(InvalidInputError, match=name):
            by_chunks(graph, torch.tensor(chunk).int(), 1, torch.tensor(owner), 2)


RNN = Shape(
    feature_dim=2, hidden_dim=8, round_dims=(2, 8), round_grads=(False, True), spatial_dim=8,
    state_dims=(8,), attention=False,
)  # fmt: skip
RATES = Rates(vertex_s=1e-6, edge_s=2e-7, time_s=3e-6, unit_s=1e-4, copy_bytes_per_s=1e10)


@settings(max_examples=60)
@given(cases(), st.integers(1, 3))
def test_loads_are_those_of_a_slow_count(case, chunks: int) -> None:
    csrs, graph, placement = case
    data, size = Snapshots(csrs), placement.workers
    chunk = (torch.arange(graph.num_vertices) % chunks).to(torch.int32)
    placement = by_chunks(graph, chunk, chunks, torch.arange(chunks) % size, size)
    hears = hearing(data, graph)
    load = load_of(graph, hears, placement, RNN)
    for link in LINKS if size == 8 else ():  # machines of eight devices
        epoch = project(load, RNN, RATES, machine(link))
        assert epoch.seconds == epoch.compute_s + epoch.load_s + epoch.communicate_s
        assert epoch.load_s == pytest.approx(int(load.loaded.max()) * 4 * (2 + 8) / PCIE3)
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
