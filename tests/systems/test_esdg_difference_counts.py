"""ESDG's differences: what is counted is what is encoded and sent."""

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
from dgbench.lab.printed import same_printed
from dgbench.runtime.meter import Meter
from dgbench.runtime.transfer import open_link
from dgbench.systems.base import get_system
from dgbench.systems.base.timeline import TimelineWorkload
from dgbench.systems.esdg import EsdgTrainer
from dgbench.systems.esdg.experiments import fig4, table1
from dgbench.systems.esdg.experiments.common import Changes, formula
from dgbench.systems.esdg.experiments.settings import MODELS, RANKS
from dgbench.systems.esdg.transfer import Delivery, TransferFormat, slots_for

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


def test_first_and_last_snapshots_of_a_count():
    changes = Changes(*(np.arange(5) + k for k in range(3)))
    assert changes.first(2).added.tolist() == [1, 2]
    assert changes.last(2).removed.tolist() == [5, 6]
    assert changes.last(None) is changes


@given(GRAPHS, st.floats(0, 8))
@settings(max_examples=40, deadline=None)
def test_the_smallest_life_that_reaches_a_ratio(raw, ratio):
    lives = EdgeLives.of_snapshots(raw)
    total = [int(lives.entries(life).sum()) for life in range(1, len(raw) + 1)]
    enough = [life for life, n in enumerate(total, 1) if n >= ratio * total[0]]
    assert table1.smallest_life(lives, ratio) == (enough[0] if enough else None)


@pytest.mark.parametrize(
    ("counted", "printed", "same"),
    [
        (13_668_320, 13_000_000, True),  # cut, as the paper does
        (13_400_000, 13_000_000, True),
        (14_000_000, 13_000_000, False),
        (12_500_000, 13_000_000, True),
        (12_400_000, 13_000_000, False),
        (501, 501, True),
        (502, 501, False),
        (1_038_999_999, 1_038_000_000, True),
        (1_040_000_000, 1_038_000_000, False),
    ],
)
def test_printed_digits(counted, printed, same):
    assert same_printed(counted, printed) is same


@given(st.integers(1, 300), st.sampled_from([1, 2, 4]), st.sampled_from(RANKS))
def test_runs_cover_every_snapshot_once(steps, blocks, ranks):
    blocks = min(blocks, steps)
    runs = fig4.runs_of(steps, blocks, ranks)
    assert len(runs) == ranks
    assert sorted(t for own in runs for run in own for t in run) == list(range(steps))


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


@pytest.mark.parametrize("model", MODELS)
def test_an_epoch_sends_the_counted_matrices_twice(model):
    raw = tiny_sequence(snapshots=9, features=2)
    work = TimelineWorkload(dataset="tiny", model=model, window=3)
    changes = changes_of(list(raw.topology), 1).first(8)
    sent = changes.sent({0, 4}, fallback=False)
    for on, counted in ((False, changes.plain()), (True, sent)):
        switches = get_system("esdg").switches({"difference": on})
        trainer = EsdgTrainer(work, raw, switches, nb=2)
        trainer.step(0)
        assert trainer.meter.counters["bytes_topology"] == fig4.PASSES * counted
        assert trainer.meter.counters["bytes_features"] == 2 * 8 * 4 * 2 * raw.num_nodes
        trainer.close()
