"""Parts of the vertices: nets against a slow reference, and what partitioners promise."""

from __future__ import annotations

import importlib.util
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_esdg_spread import data

from dgbench.kernels_cuda.csr import Csr
from dgbench.runtime.errors import UnsupportedError
from dgbench.systems.esdg import vertex_parts, vertex_propagation
from dgbench.systems.esdg.vertex_parts import IMBALANCE, nets, split_vertices
from dgbench.systems.esdg.vertex_plan import remote_reads

PARTITIONERS = ["pymetis", "kahypar"]
Pairs = list[tuple[int, int]]


def csr_of(pairs: Pairs, nodes: int) -> Csr:
    """Rows read columns; duplicates and loops stay."""
    pairs = sorted(pairs)
    indptr = torch.zeros(nodes + 1, dtype=torch.int64)
    rows = torch.tensor([r for r, _ in pairs], dtype=torch.int64)
    indptr[1:] = torch.bincount(rows, minlength=nodes).cumsum(0)
    return Csr(indptr, torch.tensor([c for _, c in pairs], dtype=torch.int32), nodes)


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=30),
        min_size=1,
        max_size=5,
    ),
    st.integers(1, 200),
)
def test_nets_are_who_reads_whom(graphs, most):
    topology = [csr_of(pairs, 7) for pairs in graphs]
    start, pins, weight = nets(topology, most)
    stride = max(1, -(-sum(len(g) for g in graphs) // most))
    wanted: Counter[tuple[int, ...]] = Counter()
    for pairs in graphs[::stride]:
        readers: dict[int, set[int]] = {}
        for r, c in pairs:
            if r != c:
                readers.setdefault(c, set()).add(r)
        wanted.update((c, *sorted(r)) for c, r in readers.items())
    found = {
        tuple(pins[a:b].tolist()): int(w)
        for a, b, w in zip(start[:-1], start[1:], weight, strict=True)
    }
    assert found == {net: times * stride for net, times in wanted.items()}
    assert len(found) == len(weight)


def communities(nodes: int = 120, groups: int = 4, steps: int = 6) -> list[Csr]:
    """Vertices that read their own group only, groups scattered over the ids."""
    draw = np.random.default_rng(1)
    found = []
    for _ in range(steps):
        rows = np.repeat(np.arange(nodes), 4)  # alike, so that no balance cuts a community
        cols = draw.integers(0, nodes // groups, 4 * nodes) * groups + rows % groups
        found.append(csr_of(list(zip(rows.tolist(), cols.tolist(), strict=True)), nodes))
    return found


@pytest.mark.parametrize("method", PARTITIONERS)
def test_partitioners_find_communities(method):
    pytest.importorskip(method)
    topology = communities()
    parts = split_vertices(topology, 4, method)
    assert (parts.method, parts.size) == (method, 4)
    assert parts.seconds > 0
    assert remote_reads(topology, parts) == 0
    assert remote_reads(topology, split_vertices(topology, 4, "ranges")) > 1000
    assert torch.equal(parts.owner, split_vertices(topology, 4, method).owner)
    load = torch.zeros(4, dtype=torch.int64)
    load.index_add_(0, parts.owner, sum(c.indptr.diff() for c in topology) + len(topology))
    assert load.max() <= (1 + IMBALANCE) * load.sum() / 4


@pytest.mark.parametrize("method", PARTITIONERS)
def test_graphs_without_an_edge(method):
    pytest.importorskip(method)
    parts = split_vertices([csr_of([], 9), csr_of([(3, 3)], 9)], 3, method)
    assert sum(parts.sizes) == 9


def test_labels_propagate_as_far_as_parts_have_room():
    for size in (2, 5, 40):
        for topology in (communities(), data().topology, [csr_of([], 50)]):
            nodes = topology[0].num_rows
            if nodes <= size:
                continue
            parts = split_vertices(topology, size, "propagation")
            assert parts.method == "propagation"
            assert sum(parts.sizes) == nodes
            weight = len(topology) + sum(c.indptr.diff() for c in topology)
            load = torch.zeros(size, dtype=torch.int64).index_add_(0, parts.owner, weight)
            # Vertices are not cut: those that change places may differ by one.
            assert load.max() <= (1 + IMBALANCE) * load.sum() / size + 2 * weight.max()
            assert torch.equal(parts.owner, split_vertices(topology, size, "propagation").owner)
    topology = communities()
    found, ranges = (
        remote_reads(topology, split_vertices(topology, 4, m)) for m in ("propagation", "ranges")
    )
    assert found < 0.6 * ranges


@pytest.mark.skipif(importlib.util.find_spec("kahypar") is None, reason="needs kahypar")
def test_large_graphs_are_searched_shortly_and_still_well(monkeypatch):
    topology = communities()
    written = []
    write = Path.write_text
    monkeypatch.setattr(Path, "write_text", lambda p, text: written.append(text) or write(p, text))
    limits = []
    for large in (10**9, 0):
        monkeypatch.setattr(vertex_parts, "LARGE", large)
        parts = split_vertices(topology, 4, "kahypar")
        limits.append(dict(line.split("=") for line in written[-1].splitlines())["r-fm-stop-i"])
        assert remote_reads(topology, parts) < remote_reads(
            topology, split_vertices(topology, 4, "ranges")
        )
        weight = sum(csr.indptr.diff() for csr in topology) + len(topology)
        loads = torch.bincount(parts.owner, weights=weight.double(), minlength=4)
        heaviest = float(weight.max())
        assert float(loads.max()) <= (1 + IMBALANCE) * float(weight.sum()) / 4 + heaviest
    assert int(limits[1]) < int(limits[0])


def test_vertices_are_scanned_in_slices(monkeypatch):
    whole = split_vertices(communities(), 4, "propagation")
    monkeypatch.setattr(vertex_propagation, "_MAX_CELLS", 28)
    assert torch.equal(split_vertices(communities(), 4, "propagation").owner, whole.owner)


def test_what_is_taken_unless_asked(monkeypatch):
    found = importlib.util.find_spec("pymetis") is not None
    parts = split_vertices(data().topology, 3)
    assert parts.method == ("pymetis" if found else "propagation")
    assert split_vertices(data().topology, 11).method == "ranges"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert split_vertices(data().topology, 3).method == "propagation"
    for method in ("pymetis", "kahypar"):
        with pytest.raises(UnsupportedError, match=method):
            split_vertices(data().topology, 3, method)
