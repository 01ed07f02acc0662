"""GNNFlow: continuous training of temporal graph networks on graphs that grow (PVLDB 17)."""

from pathlib import Path

from dgbench.systems.base import Paper
from dgbench.systems.gnnflow.checks import CHECKS
from dgbench.systems.gnnflow.experiments import EXPERIMENTS

PAPER = Paper(
    name="gnnflow",
    title="GNNFlow",
    venue="PVLDB 2024",
    about=(
        "Trains temporal graph networks on a graph that keeps growing. GNNFlow appends edges to "
        "blocks in place instead of rebuilding the graph, samples neighbours by time from these "
        "blocks, and carries a feature cache from one round of new edges to the next."
    ),
    system="gnnflow",
    ledger=Path(__file__).with_name("claims.yaml"),
    experiments=EXPERIMENTS,
    checks=CHECKS,
    readings=(),
)

__all__ = ["PAPER"]
