"""Counted traffic of any placement against sets of pairs, and against what the engine sends."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_data import TinySequence, csr_of
from torch import Tensor

from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.supergraph import build_supergraph
from dgbench.models.dtdg.dysat import Dysat
from dgbench.models.dtdg.mpnn_lstm_bare import MpnnLstmBare
from dgbench.models.dtdg.tgcn_2layer import TgcnTwoLayer
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.dgc.partition import critical_path
from dgbench.systems.dgc.placement import Placement
from dgbench.systems.dgc.recount import EdgeRecount
from dgbench.systems.dgc.volumes import count_traffic, hearing, shape_of

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


@settings(deadline=None, max_examples=80)
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


def recounted(count: int, name: str, seed: int = 1):
    """Rows and stages of a recount, and the flows of `count_traffic`."""
    csrs = [random_csr(seed + t, count, count, 0.1) for t in range(6)]
    graph, shape = build_supergraph(csrs, presence="span"), shape_of(MODELS[name](2, 4))
    worker = torch.randint(0, 5, (graph.num_vertices,), dtype=torch.int32,
                           generator=torch.Generator().manual_seed(seed))  # fmt: skip
    placement = placed(worker, worker.flip(0), 5)
    edges = EdgeRecount(TinySequence(csrs, torch.empty(0), torch.empty(0), count), 6)
    found = edges.rows(placement, shape), edges.span(placement)
    flows = count_traffic(Snapshots([*csrs, csrs[0]]), graph, placement, shape).flows
    sent = {flow.name: flow.rows for flow in flows if flow.direction == "forward"}
    return *found, sent, critical_path(graph, placement)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_recount_finds_the_same(name):
    rows, span, flows, wanted_span = recounted(8, name)
    states = sum(matrix for key, matrix in rows.items() if key.startswith("state"))
    plain = {key: matrix for key, matrix in rows.items() if not key.startswith("state")}
    if name != "dysat":
        plain["state"] = states
    assert {key: of.tolist() for key, of in plain.items()} == {
        key: of.tolist() for key, of in flows.items()
    }
    assert span == pytest.approx(wanted_span)


def test_widths_and_what_goes_back():
    shapes = {name: shape_of(model(2, 8)) for name, model in MODELS.items()}
    assert shapes["tgcn"].round_dims == (2, 24)
    assert shapes["tgcn"].round_grads == (False, True)
    assert shapes["tgcn"].round_floats == 2 + 2 * 24
    assert shapes["tgcn"].state_floats == 2 * 8
    assert shapes["mpnn"].state_floats == 2 * 4 * 8
    assert shapes["dysat"].round_grads == (True,)  # what is shown hangs on a weight
    assert shapes["dysat"].attention
    assert shapes["dysat"].counts().all_steps
    assert shapes["tgcn"].counts().weights() == (25, 8)
    for model in MODELS.values():
        assert shape_of(model(2, 8).double()) == shape_of(model(2, 8))


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
