"""Parts of ESDG's partitions: vertices, rows and shares against lists and dense products."""

from __future__ import annotations

import importlib.util
from collections import Counter

import numpy as np
import pytest
import torch
from esdg_tiny import data, workload
from hypothesis import given
from hypothesis import strategies as st

from dgbench.kernels_cuda.csr import Csr
from dgbench.runtime.collectives import CountOnly
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError, UnsupportedError
from dgbench.systems.base.timeline import timeline_model
from dgbench.systems.esdg.hybrid import HybridSplit
from dgbench.systems.esdg.hybrid_plan import entries_held, row_blocks
from dgbench.systems.esdg.partition import block_ranges
from dgbench.systems.esdg.vertex import VertexSplit
from dgbench.systems.esdg.vertex_parts import IMBALANCE, METHODS, VertexParts, nets, split_vertices
from dgbench.systems.esdg.vertex_plan import remote_reads


def all_of(pairs: list[tuple[int, int]], nodes: int) -> Csr:
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
    topology = [all_of(pairs, 7) for pairs in graphs]
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
        found.append(all_of(list(zip(rows.tolist(), cols.tolist(), strict=True)), nodes))
    return found


@pytest.mark.parametrize("method", METHODS)
def test_parts_cover_all_vertices_and_none_is_too_heavy(method):
    if method in ("pymetis", "kahypar"):
        pytest.importorskip(method)
    for size in (1, 2, 5, 20):
        for topology in (communities(), data().topology, [all_of([], 9), all_of([(3, 3)], 9)]):
            nodes = topology[0].num_rows
            parts = split_vertices(topology, size, method)
            assert torch.equal(parts.order.sort().values, torch.arange(nodes))
            assert torch.equal(parts.position[parts.order], torch.arange(nodes))
            for part in range(size):
                assert (parts.owner[parts.vertices(part)] == part).all()
            assert torch.equal(parts.owner, split_vertices(topology, size, method).owner)
            if nodes > size and method != "ranges":
                weight = len(topology) + sum(c.indptr.diff() for c in topology)
                load = torch.zeros(size, dtype=torch.int64).index_add_(0, parts.owner, weight)
                # Vertices are not cut: those that change places may differ by one.
                assert load.max() <= (1 + IMBALANCE) * load.sum() / size + 2 * weight.max()


SHARES = {"pymetis": 0.0, "kahypar": 0.0, "propagation": 0.6}
"""Largest share of the remote reads of parts by ranges."""


@pytest.mark.parametrize("method", SHARES)
def test_partitioners_find_communities(method):
    if method != "propagation":
        pytest.importorskip(method)
    topology = communities()
    found, ranges = (
        remote_reads(topology, split_vertices(topology, 4, m)) for m in (method, "ranges")
    )
    assert ranges > 1000
    assert found <= SHARES[method] * ranges


def test_what_is_taken_unless_asked(monkeypatch):
    there = importlib.util.find_spec("pymetis") is not None
    parts = split_vertices(data().topology, 3)
    assert parts.method == ("pymetis" if there else "propagation")
    assert split_vertices(data().topology, 11).method == "ranges"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert split_vertices(data().topology, 3).method == "propagation"
    for method in ("pymetis", "kahypar"):
        with pytest.raises(UnsupportedError, match=method):
            split_vertices(data().topology, 3, method)


def test_what_a_rank_holds_is_what_was_planned():
    topology, blocks = data().topology[:7], block_ranges(7, 2)
    for size, group in ((2, 2), (4, 2), (6, 3), (3, 1)):
        rows = row_blocks(topology, 11, group)
        held = entries_held(topology, blocks, rows, size)
        assert sum(held) == sum(csr.nnz for csr in topology)
        for rank in range(size):
            model = timeline_model(workload("tm_gcn", "class"))
            split = HybridSplit(CountOnly(rank, size), model, data(), 11, group=group)
            split.prepare(blocks)
            assert sum(split.held_rows.entries.values()) == held[rank]


@given(
    st.lists(st.lists(st.integers(0, 9), max_size=30), min_size=1, max_size=3), st.integers(1, 12)
)
def test_rows_are_cut_by_entries(readers, group):
    topology = []
    for rows in readers:
        indptr = torch.zeros(11, dtype=torch.int64)
        indptr[1:] = torch.bincount(torch.tensor(rows, dtype=torch.int64), minlength=10).cumsum(0)
        topology.append(Csr(indptr, torch.zeros(len(rows), dtype=torch.int32), 10))
    weight = [len(readers) + sum(rows.count(v) for rows in readers) for v in range(10)]
    blocks = row_blocks(topology, 10, group, "entries")
    assert [v for b in blocks for v in b] == list(range(10))
    assert len(blocks) == group
    for block in blocks:
        # A row goes where its middle lies, so half a row may hang over at each end.
        over = max((weight[v] for v in block), default=0)
        assert sum(weight[v] for v in block) <= sum(weight) / group + over
    equal = row_blocks(topology, 10, group)
    assert max(map(len, equal)) - min(map(len, equal)) <= 1


def test_wrong_arguments_are_named():
    model = timeline_model(workload("tm_gcn", "class"))
    topology, parts = data().topology, VertexParts(torch.arange(11) % 2, 2)
    with pytest.raises(UnknownKeyError, match="method"):
        split_vertices(topology, 2, "dice")
    for name, call in (
        ("parts", lambda: split_vertices([], 2)),
        ("owner", lambda: VertexParts(torch.tensor([0, 2]), 2)),
        ("pieces", lambda: VertexSplit(CountOnly(0, 2), model, data(), range(8), parts, pieces=0)),
        ("parts", lambda: VertexSplit(CountOnly(0, 3), model, data(), range(8), parts)),
    ):
        with pytest.raises(InvalidInputError, match=name):
            call()
