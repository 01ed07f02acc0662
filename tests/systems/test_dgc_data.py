"""Counts of graphs by DGC, and its synthetic graphs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dgbench.datasets import EventStream, Origin
from dgbench.datasets.transforms import equal_windows
from dgbench.kernels_cuda.snapshots import edge_snapshots
from dgbench.kernels_cuda.supergraph import build_supergraph
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError
from dgbench.systems.dgc.experiments import fig14
from dgbench.systems.dgc.experiments.lifetimes import RULES, Lifetimes, gini
from dgbench.systems.dgc.synthetic import EDGES, ENDS, FAMILIES, VERTICES, Synthetic

EVENTS = st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 9))


@given(st.lists(EVENTS, max_size=25), st.integers(1, 7))
@settings(max_examples=60)
def test_counts_are_those_of_the_supergraph(events, steps):
    nodes = 6
    ordered = torch.tensor(sorted(events, key=lambda e: e[2]), dtype=torch.int64).reshape(-1, 3)
    src, dst, t = ordered.t().contiguous().unbind()
    made = EventStream(src=src, dst=dst, t=t.double(), num_nodes=nodes, origin=Origin("tiny"))
    found = Lifetimes.of_events(made, steps)
    bins, _ = equal_windows(made.t, steps)
    csrs = edge_snapshots(made.src, made.dst, bins, steps, nodes)
    assert found.edges.tolist() == [csr.nnz for csr in csrs]
    assert found.events == sum(s != d for s, d, _ in events)
    assert found.pairs == len({(s, d) for s, d, _ in events if s != d})
    for rule in RULES:
        graph = build_supergraph(csrs, presence=rule)
        assert found.vertices(rule) == graph.num_vertices
        steps_of = torch.bincount(graph.step, minlength=steps)
        assert found.present(rule).tolist() == steps_of.tolist()
    lengths = torch.diff(build_supergraph(csrs).start)
    assert found.lengths.tolist() == lengths[lengths > 0].tolist()


@given(st.lists(st.integers(0, 50), max_size=30))
@settings(max_examples=60)
def test_gini_is_the_mean_difference_over_twice_the_mean(numbers):
    values = np.array(numbers, dtype=float)
    total = values.sum()
    slow = np.abs(values[:, None] - values[None]).sum() / (2 * len(values) * total) if total else 0
    assert gini(values) == pytest.approx(slow)


@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_totals_hold_and_only_one_thing_varies(family, ends):
    spreads = []
    for level in (fig14.LEVELS[family][0], fig14.LEVELS[family][-1]):
        graph = Synthetic(family=family, level=level, ends=ends, scale=1 / 500)
        data = graph.snapshots().check()
        assert len(data) == graph.steps
        steps = build_supergraph(list(data.topology))
        assert steps.num_vertices == pytest.approx(VERTICES / 500, rel=fig14.CLOSE)
        assert sum(data.num_edges) == pytest.approx(EDGES / 500, rel=fig14.CLOSE)
        assert all(csr.values is None for csr in data.topology)
        lengths = torch.diff(steps.start).numpy()
        spreads.append((gini(np.array(data.num_edges)), gini(lengths)))
    edges, lengths = (after - before for before, after in zip(*spreads, strict=True))
    varied, kept = (edges, lengths) if family == "spatial" else (lengths, edges)
    assert varied > 0.3
    assert abs(kept) < 0.1


def test_fields_out_of_range_are_refused():
    for fields, error in (
        ({"family": "other"}, UnknownKeyError),
        ({"ends": "other"}, UnknownKeyError),
        ({"level": -0.1}, InvalidInputError),
        ({"scale": 0.0}, InvalidInputError),
        ({"scale": 1e-6}, InvalidInputError),
        ({"steps": 1}, InvalidInputError),
    ):
        with pytest.raises(error):
            Synthetic(**({"family": "spatial", "level": 0.1} | fields)).snapshots()
