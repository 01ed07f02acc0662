"""Counted traffic of ESDG against formulas, lists and what is sent: partitions and differences."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_data import csr_of, tiny_sequence

from dgbench.datasets.transforms import EdgeLives, edge_life
from dgbench.kernels_cuda.difference import count_changes, encode_sequence
from dgbench.runtime.errors import InvalidInputError
from dgbench.runtime.meter import Meter
from dgbench.runtime.transfer import open_link
from dgbench.systems.esdg.experiments import fig4, table1
from dgbench.systems.esdg.experiments.common import Changes, formula
from dgbench.systems.esdg.partition import block_ranges
from dgbench.systems.esdg.transfer import Delivery, TransferFormat, slots_for
from dgbench.systems.esdg.volumes import count_snapshot, count_vertex, snapshot_floats, timeline


@pytest.mark.parametrize(
    ("model", "width", "floats"), [("tm_gcn", 12, 5_184_000_000), ("cd_gcn", 32, 13_824_000_000)]
)
@pytest.mark.parametrize(
    ("steps", "nodes", "ranks", "blocks", "pieces"),
    [
        (7, 11, 4, 1, 1),
        (7, 11, 4, 3, 2),
        (3, 2, 5, 2, 3),
        (1, 1, 3, 1, 1),
        (192, 1_000_000, 4, 1, 1),
    ],
)
def test_shares_are_counted_to_the_float(steps, nodes, ranks, blocks, pieces, model, width, floats):
    """Every float of a step goes to each vertex's owner unless it is at home, there and back."""
    counted = count_snapshot(
        model, size=ranks, steps=steps, num_nodes=nodes, blocks=blocks, pieces=pieces
    )
    found = 0
    for times in block_ranges(steps, blocks):
        parts = [len(p) for p in block_ranges_or_empty(len(times), ranks)]
        chunks = [len(p) for p in block_ranges_or_empty(nodes, ranks)]
        found += sum(s * c for p, s in enumerate(parts) for q, c in enumerate(chunks) if p != q)
    assert counted.total("floats") == 3 * width * found
    assert counted.total("bytes") == 4 * counted.total("floats")
    for phase in ("forward", "rerun", "backward"):
        assert counted.total("floats", phase=phase) == width * found
    ranges = block_ranges(steps, blocks)
    assert snapshot_floats(timeline(model), nodes, ranges, ranks) == 3 * width * found
    assert nodes < 1_000_000 or counted.total("floats") == floats  # as Table 2 prints


def block_ranges_or_empty(total: int, parts: int) -> list[range]:
    cuts = [total // parts * i + min(i, total % parts) for i in range(parts + 1)]
    return [range(a, b) for a, b in pairwise(cuts)]


def test_wrong_arguments_are_named():
    two = [np.zeros((2, 2), dtype=np.int64)]
    for name, reads, options in (
        ("reads", [], {}),
        ("reads", [np.zeros((2, 3), dtype=np.int64)], {}),
        ("pair_reads", two, {"pair_reads": []}),
        ("pieces", two, {"pieces": 0}),
    ):
        with pytest.raises(InvalidInputError, match=name):
            count_vertex("cd_gcn", reads, **options)
    with pytest.raises(InvalidInputError, match="timeline"):
        count_snapshot("tgcn_model", size=2)


# Snapshots as differences.

GRAPHS = st.integers(2, 6).flatmap(
    lambda nodes: st.lists(
        st.lists(st.tuples(st.integers(0, nodes - 1), st.integers(0, nodes - 1)), max_size=12).map(
            lambda pairs: csr_of(pairs, nodes)
        ),
        min_size=2,
        max_size=7,
    )
)


def changes_of(snapshots: list, life: int) -> Changes:
    return Changes.of(EdgeLives.of_snapshots(snapshots), life)


@given(GRAPHS, st.integers(1, 4), st.booleans(), st.sampled_from(["int64", "int32"]), st.booleans())
@settings(max_examples=60, deadline=None)
def test_counted_bytes_are_those_of_the_encoded_snapshots(raw, life, fallback, index, loops):
    smoothed = edge_life(raw, life)
    changes = changes_of(raw, life)
    restarts = {0, len(raw) // 2}
    sent = encode_sequence(
        smoothed, restarts=restarts, index=index, fallback=fallback, self_loops=loops
    )
    found = changes.sent(
        restarts, index=index, fallback=fallback, loops=raw[0].num_rows if loops else 0
    )
    assert found == sum(d.nbytes for d in sent)
    assert changes.plain(index) == (20 if index == "int64" else 12) * sum(c.nnz for c in smoothed)
    pairs = [count_changes(a, b) for a, b in pairwise(smoothed)]
    assert [*zip(changes.removed[1:], changes.added[1:], strict=True)] == pairs


def test_the_share_of_changes_gives_the_gain():
    first, second = csr_of([(0, 1), (1, 2), (2, 3), (3, 0)], 4), csr_of([(0, 1), (1, 2)], 4)
    changes = changes_of([first, second, first], 1)
    assert changes.share == 4 / 6
    steady = changes.plain() - 80
    assert steady / (changes.sent(fallback=False) - 80) == pytest.approx(formula(changes.share))
    assert formula(0) == 5.0
    assert formula(0, "int32") == 3.0
    assert formula(0.055) == pytest.approx(4.1, abs=0.01)
    assert formula(1) == 1.0
    assert changes_of([csr_of([], 3)] * 2, 1).share == 0.0


@given(GRAPHS, st.floats(0, 8))
@settings(max_examples=40, deadline=None)
def test_the_smallest_life_that_reaches_a_ratio(raw, ratio):
    lives = EdgeLives.of_snapshots(raw)
    total = [int(lives.entries(life).sum()) for life in range(1, len(raw) + 1)]
    enough = [life for life, n in enumerate(total, 1) if n >= ratio * total[0]]
    assert table1.smallest_life(lives, ratio) == (enough[0] if enough else None)


def test_bytes_by_ranks_are_those_the_engine_prepares():
    """Every rank's Delivery encodes its own runs; together they send what was counted."""
    raw = tiny_sequence(snapshots=12, features=2)
    data = replace(raw, topology=edge_life(raw.topology, 3))
    changes = changes_of(list(raw.topology), 3)
    for ranks in (1, 2, 3):
        runs = fig4.runs_of(12, 2, ranks)
        counted, most = fig4._by_ranks(changes, runs, 4 * 2 * raw.num_nodes)
        for kind, fallback in (("sent", True), ("forced", False)):
            sent, busiest = 0, 0
            for own in runs:
                meter = Meter()
                delivery = Delivery(
                    data,
                    [t for run in own for t in run],
                    TransferFormat(fallback=fallback),
                    "sym",
                    open_link("cpu", meter, slots=slots_for(12)),
                    meter,
                )
                delivery.prepare(own)
                matrices = delivery.topology_bytes(own)
                sent += matrices
                busiest = max(busiest, matrices + delivery.feature_bytes(own))
                delivery.close()
            assert counted[kind] == sent
            if kind == "sent":
                assert most["sent"] == busiest
