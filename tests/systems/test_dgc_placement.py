"""Placements: every vertex-step has a worker, dealt out as each partition says."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_data import csr_of

from dgbench.kernels_cuda.supergraph import Supergraph, build_supergraph
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.dgc.placement import by_both, by_chunks, by_sequences, by_snapshots


@st.composite
def graphs(draw) -> Supergraph:
    count, steps = draw(st.integers(1, 7)), draw(st.integers(1, 6))
    ends = st.integers(0, count - 1)
    pairs = st.sets(st.tuples(ends, ends), max_size=8)
    presence = draw(st.sampled_from(("span", "tail", "edges")))
    return build_supergraph([csr_of(draw(pairs), count) for _ in range(steps)], presence=presence)


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
    graph = build_supergraph([csr_of({(1, 0)}, 2)])
    for place in (by_snapshots, by_sequences):
        with pytest.raises(InvalidInputError, match="workers"):
            place(graph, 0)
    for chunk, owner, name in (([0, 0, 0], [0], "chunk"), ([0, 1], [0], "chunk"),
                               ([0, 0], [2], "worker_of_chunk")):  # fmt: skip
        with pytest.raises(InvalidInputError, match=name):
            by_chunks(graph, torch.tensor(chunk).int(), 1, torch.tensor(owner), 2)
