"""GNNFlow: continuous training of temporal graph networks on graphs that grow (PVLDB 17)."""

from pathlib import Path

from dgbench.lab.outcomes import checks_of
from dgbench.systems.base import Contender, Paper
from dgbench.systems.gnnflow.experiments import EXPERIMENTS
from dgbench.systems.gnnflow.experiments.fig13 import PLACEMENT_TITLES
from dgbench.systems.gnnflow.experiments.settings import PAPERS_GRAPHS
from dgbench.systems.gnnflow.system import GnnflowSystem, GnnflowTrainer

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
    checks=checks_of(*EXPERIMENTS),
    graphs=PAPERS_GRAPHS,
    contenders={name: Contender("gnnflow", title) for name, title in PLACEMENT_TITLES.items()},
    readings=(
        "A window is half open, so that a root never finds the edge that it is asked about; the "
        "paper's closed one can be chosen.",
        "A block takes what is left of a batch, or the vertex's degree up to the threshold where "
        "that is more: the rule as printed does not give the lists of Table 6.",
        "Adjacency lists have four edges an element, as Table 6 asks for, and one for comparison.",
        "Neighbours are drawn without replacement, all of them where there are no more than asked "
        "for, by numbers that depend on nothing but seed, call and place in the batch.",
        "A round is scored before it is trained on; its epochs start from the caches and the "
        "memories of its begin.",
        "The replay ratio is old events per new one, drawn from all before the round.",
        "Features that are not held are drawn with a fixed seed.",
    ),
    since="2026-11-29",
)

__all__ = ["PAPER", "GnnflowSystem", "GnnflowTrainer"]
