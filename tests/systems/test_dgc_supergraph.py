"""DGC's chunks: sizes, statistics, levels, and the weights that a model's exchanges give."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_data import csr_of

from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.supergraph import build_supergraph
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.dgc.supergraph import (
    ExchangeCounts,
    chunk_cap,
    chunk_statistics,
    cut_weight,
    make_chunks,
)

TGCN = ExchangeCounts(spatial=2, spatial_floats=32, temporal=1, temporal_floats=32)


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


@settings(deadline=None, max_examples=25)
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
