"""On the real files: bundled, or where DGBENCH_DATA names them; one test per dataset."""

import pytest
import torch

from dgbench import datasets
from dgbench.datasets import SnapshotSpec, open_events, open_snapshots
from dgbench.datasets.sources import find_form


def held_or_skip(name, held_data):
    if name not in held_data:
        pytest.skip(f"'{name}' is neither bundled nor in DGBENCH_DATA")


HOLDABLE = [name for name, card in datasets.cards().items() if card.forms]


@pytest.mark.parametrize("name", HOLDABLE)
def test_reads_as_its_card_says_and_loads_the_same_again(name, held_data):
    held_or_skip(name, held_data)
    card = datasets.card(name)
    wanted = find_form(card).form.counts
    if card.kind == "signals":
        first = open_snapshots(SnapshotSpec(name, snapshots=2, feature_dim=2)).check()
        assert first.num_nodes == wanted.nodes
        again = open_snapshots(SnapshotSpec(name, snapshots=2, feature_dim=2))
        assert torch.equal(first.features, again.features)
        assert first.num_edges == again.num_edges
        return
    first, again = open_events(name), open_events(name)
    assert (len(first), first.num_nodes) == (wanted.edges, wanted.nodes)
    assert bool((first.t[1:] >= first.t[:-1]).all())
    assert int(torch.unique(torch.stack([first.src, first.dst]))[-1]) < first.num_nodes
    assert torch.equal(first.src, again.src)
    assert torch.equal(first.t, again.t)


def test_england_covid(held_data):
    held_or_skip("covid19-england", held_data)
    made = open_snapshots(SnapshotSpec("covid19-england")).check()
    assert (len(made), made.num_nodes, made.feature_dim) == (61, 129, 16)
    assert sum(made.num_edges) == 82_529 - 7_869  # the self loops are dropped
    assert torch.equal(made.features[20, :, -1], made.targets[20])
    assert torch.equal(made.features[20, :, 0], made.targets[5])
    assert made.features[3, :, :12].abs().max() == 0
    assert made.origin.kind == "real"
    smooth = open_snapshots(SnapshotSpec("covid19-england", edge_life=8))
    assert sum(smooth.num_edges) == 100_061  # with the self loops the paper's 108 K
    weighted = open_snapshots(SnapshotSpec("covid19-england", weighted=True)).check()
    assert float(weighted.topology[0].values.min()) >= 10


def test_pems08(held_data):
    held_or_skip("pems08", held_data)
    made = open_snapshots(SnapshotSpec("pems08")).check()
    assert (len(made), made.num_nodes, made.feature_dim) == (90, 170, 16)
    assert made.num_edges == [277] * 90
    assert made.topology[0] is made.topology[89]
    assert torch.equal(made.features[40, :, 3], made.targets[40 - 12])
    assert made.origin.kind == "subset"
    both = open_snapshots(SnapshotSpec("pems08", symmetric=True)).check()
    assert both.num_edges[0] == 2 * (277 - 3)


def test_smoothed_windows_of_a_trust_network(held_data):
    held_or_skip("bitcoin-otc", held_data)
    raw = open_snapshots(SnapshotSpec("bitcoin-otc", snapshots=20, feature_dim=2)).check()
    assert sum(raw.num_edges) == 35_592  # no pair occurs twice
    smooth = open_snapshots(
        SnapshotSpec("bitcoin-otc", snapshots=20, feature_dim=2, edge_life=3)
    ).check()
    n = raw.num_edges
    assert smooth.num_edges == [sum(n[max(0, t - 2) : t + 1]) for t in range(20)]
