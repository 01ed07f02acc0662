"""DGC's Table 1 and Figures 3 and 5(a, b): what is counted, drawn and claimed."""

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
from dgbench.systems.dgc.experiments.lifetimes import RULES, Lifetimes, gini, quarters

EVENTS = st.integers(1, 6).flatmap(
    lambda nodes: st.tuples(
        st.just(nodes),
        st.lists(
            st.tuples(st.integers(0, nodes - 1), st.integers(0, nodes - 1), st.integers(0, 9)),
            max_size=25,
        ),
    )
)


def stream(nodes: int, events: list[tuple[int, int, int]]) -> EventStream:
    ordered = sorted(events, key=lambda event: event[2])
    src, dst, t = ([e[k] for e in ordered] for k in range(3))
    return EventStream(
        src=torch.tensor(src, dtype=torch.int64),
        dst=torch.tensor(dst, dtype=torch.int64),
        t=torch.tensor(t, dtype=torch.float64),
        num_nodes=nodes,
        origin=Origin("tiny"),
    )


@given(EVENTS, st.integers(1, 7))
@settings(max_examples=60, deadline=None)
def test_counts_are_those_of_the_supergraph(given, steps):
    nodes, events = given
    made = stream(nodes, events)
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
@settings(max_examples=60, deadline=None)
def test_gini_is_the_mean_difference_over_twice_the_mean(numbers):
    values = np.array(numbers, dtype=float)
    total = values.sum()
    slow = np.abs(values[:, None] - values[None]).sum() / (2 * len(values) * total) if total else 0
    assert gini(values) == pytest.approx(slow)


def test_quarters_share_out_all_values():
    assert quarters(np.arange(8)) == [0.5, 2.5, 4.5, 6.5]
    assert quarters(np.arange(6)) == [0.5, 2.5, 4.0, 5.0]
    assert quarters(np.array([3.0])) == [3.0, 0.0, 0.0, 0.0]
