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
from dgbench.systems.dgc.checks import synthetic as checks
from dgbench.systems.dgc.experiments import fig14
from dgbench.systems.dgc.experiments.lifetimes import RULES, Lifetimes, gini, quarters
from dgbench.systems.dgc.synthetic import EDGES, ENDS, FAMILIES, VERTICES, Synthetic, _draw

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
@settings(max_examples=60)
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
@settings(max_examples=60)
def test_gini_is_the_mean_difference_over_twice_the_mean(numbers):
    values = np.array(numbers, dtype=float)
    total = values.sum()
    slow = np.abs(values[:, None] - values[None]).sum() / (2 * len(values) * total) if total else 0
    assert gini(values) == pytest.approx(slow)


def test_quarters_share_out_all_values():
    assert quarters(np.arange(8)) == [0.5, 2.5, 4.5, 6.5]
    assert quarters(np.arange(6)) == [0.5, 2.5, 4.0, 5.0]
    assert quarters(np.array([3.0])) == [3.0, 0.0, 0.0, 0.0]


@given(st.integers(0, 500), st.integers(1, 30), st.floats(0, 3), st.integers(0, 9))
@settings(max_examples=80)
def test_draws_add_up_and_spread_with_the_level(total, count, level, seed):
    found = _draw(np.random.default_rng(seed), total, count, level)
    assert found.sum() == total
    assert found.min() >= 0
    assert found.size == count
    if level == 0:
        assert found.max() - found.min() <= 1


@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_totals_hold_and_only_one_thing_varies(family, ends):
    made = {
        level: Synthetic(family=family, level=level, ends=ends, scale=1 / 500)
        for level in (fig14.LEVELS[family][0], fig14.LEVELS[family][-1])
    }
    spreads = []
    for graph in made.values():
        data = graph.snapshots().check()
        assert len(data) == graph.steps
        steps = build_supergraph(list(data.topology))
        assert steps.num_vertices == pytest.approx(VERTICES / 500, rel=checks.CLOSE)
        assert sum(data.num_edges) == pytest.approx(EDGES / 500, rel=checks.CLOSE)
        assert all(csr.values is None for csr in data.topology)
        lengths = torch.diff(steps.start)
        spreads.append((gini(np.array(data.num_edges)), gini(lengths.numpy())))
    edges, lengths = (after - before for before, after in zip(*spreads, strict=True))
    varied, kept = (edges, lengths) if family == "spatial" else (lengths, edges)
    assert varied > 0.3
    assert abs(kept) < 0.1


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"family": "other", "level": 0.1}, UnknownKeyError),
        ({"family": "spatial", "level": 0.1, "ends": "other"}, UnknownKeyError),
        ({"family": "spatial", "level": -0.1}, InvalidInputError),
        ({"family": "spatial", "level": 0.1, "scale": 0.0}, InvalidInputError),
        ({"family": "spatial", "level": 0.1, "scale": 1e-6}, InvalidInputError),
        ({"family": "spatial", "level": 0.1, "steps": 1}, InvalidInputError),
    ],
)
def test_fields_out_of_range_are_refused(fields, error):
    with pytest.raises(error):
        Synthetic(**fields).snapshots()
