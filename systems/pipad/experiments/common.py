"""Helpers of PiPAD's experiments: snapshots of a graph, and cells by graph."""

from __future__ import annotations

from typing import Any

from dgbench import datasets
from dgbench.datasets import SnapshotSequence
from dgbench.systems.base import Preset
from dgbench.systems.base.data import describe, latest
from dgbench.systems.pipad.experiments.settings import ALL, GRAPHS, FrameGraph, snapshots

QUICK = ("flickr", "youtube", "hepth", "covid19-england")
SMOKE = ("youtube", "hepth", "pems08", "covid19-england", "bitcoin-otc")
COUNTED = {
    "smoke": SMOKE,
    "quick": [graph.name for graph in GRAPHS],
    None: [graph.name for graph in ALL],
}
"""Graphs that counting experiments look at; in quick those that claims count."""
FEW = {"smoke": SMOKE[:2], "quick": QUICK, None: [graph.name for graph in ALL]}
"""Graphs of experiments that take longer."""


def open_graph(
    graph: FrameGraph,
    preset: Preset,
    *,
    edge_life: int | None = None,
    feature_dim: int | None = None,
    whole: bool = False,
) -> SnapshotSequence:
    """Snapshots of a graph at a preset's size.

    Args:
        edge_life: smoothing instead of the graph's own; 1 gives raw snapshots.
        feature_dim: floats per vertex instead of the paper's.
        whole: all snapshots, not only those that a timed cell keeps.
    """
    found = datasets.open_snapshots(
        datasets.SnapshotSpec(
            dataset=graph.name,
            scale=graph.scale(preset),
            edge_life=graph.edge_life if edge_life is None else edge_life,
            feature_dim=graph.feature_dim if feature_dim is None else feature_dim,
        )
    )
    return found if whole else latest(found, snapshots(preset))


def data_of(sequence: SnapshotSequence) -> dict[str, Any]:
    """The `data` field of a measurement on these snapshots."""
    return describe(sequence)
