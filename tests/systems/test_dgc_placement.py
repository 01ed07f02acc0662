"""Placements: every vertex-step has a worker, dealt out as each partition says."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.supergraph import Supergraph, build_supergraph
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.dgc.placement import by_both, by_chunks, by_sequences, by_snapshots


def snapshot(count: int, edges: set[tuple[int, int]]) -> Csr:
    """Row u hears column v for every (u, v)."""
    ordered = sorted(edges)
    rows = torch.tensor([u for u, _ in ordered], dtype=torch.int64)
    counts = torch.bincount(rows, minlength=count)
    indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return Csr(indptr, torch.tensor([v for _, v in ordered], dtype=torch.int32), count)


@st.composite
def graphs(draw) -> Supergraph:
    count, steps = draw(st.integers(1, 7)), draw(st.integers(1, 6))
    ends = st.integers(0, count - 1)
    made = [
        {(u, v) for u, v in draw(st.sets(st.tuples(ends, ends), max_size=8)) if u != v}
        for _ in range(steps)
    ]
    presence = draw(st.sampled_from(("span", "tail", "edges")))
    return build_supergraph([snapshot(count, edges) for edges in made], presence=presence)


@settings(deadline=None, max_examples=100)
@given(graphs(), st.integers(1, 9))
def test_snapshots_and_sequences_are_dealt_out_evenly(graph: Supergraph, workers: int) -> None:
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
    # Runs of snapshots differ by one at most, and no worker before a run has a later one.
    given_out = {t: int(w) for t, w in zip(graph.step.tolist(), runs.structure, strict=True)}
    ordered = [given_out[t] for t in sorted(given_out)]
    assert ordered == sorted(ordered)


def test_refused() -> None:
    graph = build_supergraph([snapshot(2, {(0, 1)})])
    with pytest.raises(InvalidInputError, match="workers is 0"):
        by_snapshots(graph, 0)
    with pytest.raises(InvalidInputError, match="workers is 0"):
        by_sequences(graph, 0)
    with pytest.raises(InvalidInputError, match=r"chunk is torch.int32 \[3\]"):
        by_chunks(graph, torch.zeros(3, dtype=torch.int32), 1, torch.zeros(1), 1)
    with pytest.raises(InvalidInputError, match="chunk holds 0 to 1, allowed are 0 to 0"):
        by_chunks(graph, torch.tensor([0, 1], dtype=torch.int32), 1, torch.zeros(1), 1)
    with pytest.raises(InvalidInputError, match="worker_of_chunk holds"):
        by_chunks(graph, torch.zeros(2, dtype=torch.int32), 1, torch.tensor([2]), 2)
