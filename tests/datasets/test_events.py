import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dgbench.datasets import EventStream
from dgbench.runtime.errors import DataError


def stream(t, nodes=4):
    count = len(t)
    return EventStream.build(
        np.arange(count) % nodes, np.arange(count) % nodes, np.asarray(t, float), num_nodes=nodes
    )


def test_build_keeps_values_and_sets_types():
    made = EventStream.build(
        np.array([0, 2], np.int32), [2, 1], [1, 3], weight=[0.5, 2], label=[0, 1]
    )
    assert made.num_nodes == 3
    assert made.src.dtype == made.dst.dtype == made.eid.dtype == torch.int64
    assert made.t.dtype == torch.float64
    assert made.weight.dtype == torch.float32
    assert made.src.tolist() == [0, 2]
    assert made.t.tolist() == [1.0, 3.0]
    assert made.span == (1.0, 3.0)


def test_no_events_and_isolated_vertices():
    empty = EventStream.build([], [], [], num_nodes=7)
    assert (len(empty), empty.num_nodes, empty.span) == (0, 7, (0.0, 0.0))
    assert [len(part) for part in empty.split()] == [0, 0, 0]
    assert empty.before(3.0) == 0
    assert EventStream.build([], [], []).num_nodes == 0


def test_sorting_is_stable_and_moves_every_column():
    made = EventStream.build(
        [0, 1, 2, 3], [3, 2, 1, 0], [5.0, 1.0, 5.0, 1.0], weight=[0, 1, 2, 3], label=[0, 1, 2, 3],
        edge_feat=[[0], [1], [2], [3]], sort=True,
    )  # fmt: skip
    assert made.src.tolist() == [1, 3, 0, 2]
    assert made.eid.tolist() == made.label.tolist() == made.weight.tolist() == [1, 3, 0, 2]
    assert made.edge_feat[:, 0].tolist() == [1, 3, 0, 2]


EDGE = {"src": [0], "dst": [0], "t": [0]}
BROKEN = [
    ({"src": [0, -1], "dst": [0, 0], "t": [0, 1]}, r"src\[1\] = -1"),
    ({"src": [0, 9], "dst": [0, 0], "t": [0, 1], "num_nodes": 9}, r"src\[1\] = 9"),
    ({"src": [2**40]}, "num_nodes is 1099511627777"),
    ({"src": np.array([2**63], np.uint64)}, "src"),
    ({"src": [0.0]}, "src"),
    ({"src": ["a"]}, "src"),
    ({"src": [0, 1], "t": [0, 1]}, "dst has 1 entries, src has 2"),
    ({"src": [[0]]}, "src"),
    ({"src": [0, 0], "dst": [0, 0], "t": [0, np.nan]}, r"t\[1\] is nan"),
    ({"t": [np.inf]}, r"t\[0\] is inf"),
    ({"t": np.array([2**60])}, r"2\*\*53"),
    ({"src": [0, 1, 2, 0], "dst": [1] * 4, "t": [1, 5, 4, 2]}, r"t\[2\] = 4\.0 .*t\[1\] = 5\.0"),
    ({"weight": [np.nan]}, r"weight\[0\] is nan"),
    ({"edge_feat": [[1, np.nan]]}, r"edge_feat\[0, 1\] is nan"),
    ({"node_feat": [[np.inf]]}, r"node_feat\[0, 0\] is inf"),
    ({"node_feat": [[1], [2]]}, "node_feat has 2 rows"),
    ({"label": [1, 2]}, "label has 2 rows"),
    ({"edge_feat": [1]}, "edge_feat"),
    ({"num_nodes": -1}, "num_nodes is -1"),
    ({"dst": [2], "num_nodes": 3, "num_src": 4}, "num_src"),
    ({"src": [1], "dst": [2], "num_nodes": 3, "num_src": 1}, r"src\[0\] = 1"),
    ({"num_nodes": 3, "num_src": 1}, r"dst\[0\] = 0"),
]


@pytest.mark.parametrize(("arguments", "words"), BROKEN)
def test_every_rule_is_checked_with_what_was_found(arguments, words):
    with pytest.raises(DataError, match=words):
        EventStream.build(**EDGE | arguments)


@given(st.lists(st.integers(0, 6), max_size=30), st.floats(-1, 8))
def test_before_is_strict(times, query):
    made = stream(sorted(times))
    assert made.before(query) == sum(t < query for t in times)


@given(st.lists(st.integers(0, 9), max_size=40), st.floats(0, 1), st.floats(0, 1))
def test_split_is_chronological_and_never_cuts_a_time(times, a, b):
    train, val = sorted((a, b))[0], abs(a - b)
    parts = stream(sorted(times)).split(train, val)
    assert torch.cat([p.t for p in parts]).tolist() == sorted(times)
    filled = [p for p in parts if len(p)]
    for left, right in itertools.pairwise(filled):
        assert left.t[-1] < right.t[0]
    assert len(parts[0]) <= train * len(times) + 0.5
