"""Chunks as DGC's predictor measures them: cut from graphs or random, and run part by part."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_data import tiny_sequence

from dgbench.kernels_cuda.supergraph import build_supergraph
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.dgc.chunk_samples import GraphChunks, RandomChunks
from dgbench.systems.dgc.chunk_times import (
    MODELS,
    ChunkTimer,
    model_named,
    statistics_of,
)
from dgbench.systems.dgc.supergraph import chunk_statistics

FIELDS = ("vertices", "edges", "inner_edges", "sequences", "longest")


def graph_of(seed: int, presence: str = "span"):
    data = tiny_sequence(nodes=9, snapshots=6, edges=14, seed=seed)
    return build_supergraph(data.topology[:-1], presence=presence)


def chunked(graph, seed: int, count: int):
    draw = torch.Generator().manual_seed(seed)
    return torch.randint(count, (graph.num_vertices,), generator=draw).int()


# --- chunks of a graph ----------------------------------------------------------------------------


@given(st.integers(0, 50), st.integers(1, 5), st.sampled_from(("edges", "span", "tail")))
@settings(max_examples=40, deadline=None)
def test_a_chunk_holds_what_its_rows_hear(seed, count, presence):
    graph = graph_of(seed, presence)
    chunk = chunked(graph, seed, count)
    cut = GraphChunks(graph, chunk, count, "tiny")
    hears = graph.incoming()
    x = torch.rand(graph.num_vertices)
    degree = (hears.indptr.diff() + 1).float()
    for number in range(count):
        own = (chunk == number).nonzero().squeeze(1)
        found = cut[number]
        assert found.rows == own.numel() == int(found.lengths.sum())
        # A-hat x row by row, over a dictionary of who hears whom.
        others: list[int] = []
        for v in own.tolist():
            heard = hears.indices[hears.indptr[v] : hears.indptr[v + 1]].tolist()
            others += [u for u in heard if chunk[u] != number]
        others = sorted(set(others))
        shown = x[torch.cat([own, torch.tensor(others, dtype=torch.int64)])]
        assert found.csr.num_cols == shown.numel()
        for row, v in enumerate(own.tolist()):
            entries = slice(int(found.csr.indptr[row]), int(found.csr.indptr[row + 1]))
            got = (found.csr.values[entries] * shown[found.csr.indices[entries].long()]).sum()
            heard = hears.indices[hears.indptr[v] : hears.indptr[v + 1]].long()
            wanted = (x[heard] / (degree[v] * degree[heard]).sqrt()).sum()
            torch.testing.assert_close(got, wanted)
            torch.testing.assert_close(found.loop[row], 1 / degree[v])
        assert bool((found.csr.indices.diff()[_inside(found.csr.indptr)] > 0).all())


def _inside(indptr):
    """For each entry, True if the next one is in the same row."""
    row = torch.repeat_interleave(torch.arange(indptr.numel() - 1), indptr.diff())
    return row.diff() == 0


@given(st.integers(0, 50), st.integers(1, 6))
@settings(max_examples=40, deadline=None)
def test_sizes_of_cut_chunks_are_the_partitions(seed, count):
    graph = graph_of(seed)
    chunk = chunked(graph, seed, count)
    cut = GraphChunks(graph, chunk, count, "tiny")
    wanted = chunk_statistics(graph, chunk, count)
    found = statistics_of([cut[i] for i in range(count)])
    for name in FIELDS:
        assert torch.equal(getattr(found, name), getattr(wanted, name)), name


# --- random chunks --------------------------------------------------------------------------------


@given(st.integers(0, 10_000), st.integers(1, 400))
@settings(max_examples=60, deadline=None)
def test_random_chunks_are_well_formed(seed, largest):
    for chunk in RandomChunks(seed, largest).take(2):
        csr, rows = chunk.csr, chunk.rows
        assert 1 <= rows <= largest
        assert int(chunk.lengths.sum()) == rows
        assert int(chunk.lengths.min()) >= 1
        assert csr.values.numel() == csr.nnz
        row = torch.repeat_interleave(torch.arange(rows), csr.indptr.diff())
        assert not bool((row == csr.indices).any())
        assert bool((csr.indices.diff()[_inside(csr.indptr)] > 0).all())
        far = csr.indices[csr.indices >= rows].unique()
        assert far.tolist() == list(range(rows, csr.num_cols))


def test_random_chunks_repeat_for_a_seed_and_spread_over_sizes():
    first, second = RandomChunks(5, 2000).take(200), RandomChunks(5, 2000).take(200)
    assert [c.key for c in first] == [c.key for c in second]
    assert all(
        torch.equal(a.csr.indices, b.csr.indices) for a, b in zip(first, second, strict=True)
    )
    sizes = torch.tensor([chunk.rows for chunk in first])
    assert int((sizes < 45).sum()) > 60  # 45 is the root of 2000: half of the logarithms
    assert int((sizes > 45).sum()) > 60
    assert any(chunk.csr.nnz == 0 for chunk in first)
    assert {chunk.key for chunk in first} != {c.key for c in RandomChunks(6, 2000).take(200)}
    with pytest.raises(InvalidInputError, match="largest"):
        RandomChunks(1, 0).take(1)


# --- running a chunk ------------------------------------------------------------------------------


@pytest.mark.parametrize("model", MODELS)
def test_each_pass_reaches_exactly_the_parameters_of_its_encoder(model):
    net = model_named(model, 2, 4)
    timer = ChunkTimer(net, clock=lambda: 0.0)
    chunk = next(c for c in RandomChunks(4, 60).take(20) if c.csr.num_cols > c.rows > 5)
    reached = []
    for encoder in ("structure", "time"):
        timer.job(chunk, encoder)()
        own = {name for name, p in net.named_parameters() if p.grad is not None}
        assert all(bool(p.grad.isfinite().all()) for p in net.parameters() if p.grad is not None)
        reached.append({name for name in own if not name.startswith("head")})
    every = {name for name, _ in net.named_parameters() if not name.startswith("head")}
    assert reached[0]
    assert reached[1]
    assert reached[0] | reached[1] == every
    assert not reached[0] & reached[1]


@pytest.mark.parametrize("model", MODELS)
def test_chunks_of_one_vertex_without_edges_and_of_none_can_be_run(model):
    timer = ChunkTimer(model_named(model, 2, 4), clock=lambda: 0.0, least=1, most=1)
    graph = graph_of(1)
    cut = GraphChunks(graph, torch.arange(graph.num_vertices).int(), graph.num_vertices, "tiny")
    for number in (0, graph.num_vertices - 1):
        assert timer.both(cut[number]) == (0.0, 0.0)
    bare = next(c for c in RandomChunks(4, 9).take(99) if c.csr.nnz == 0)
    assert timer.both(bare) == (0.0, 0.0)
