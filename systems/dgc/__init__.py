"""DGC: training dynamic graphs with graph partitioning by chunks (Chen, Li, Wu)."""

from pathlib import Path

from dgbench.lab.outcomes import checks_of
from dgbench.systems.base import Paper
from dgbench.systems.dgc.experiments import EXPERIMENTS
from dgbench.systems.dgc.experiments.settings import PAPERS_GRAPHS
from dgbench.systems.dgc.system import DgcSystem, DgcTrainer

PAPER = Paper(
    name="dgc",
    title="DGC",
    venue="PACMMOD 2023",
    about=(
        "Trains graph networks over whole timelines whose snapshots differ in size and whose "
        "vertices come and go. DGC cuts them into chunks across space and time, deals these out by "
        "predicted work, fuses those of one device, and resends only embeddings that changed."
    ),
    system="dgc",
    ledger=Path(__file__).with_name("claims.yaml"),
    experiments=EXPERIMENTS,
    checks=checks_of(*EXPERIMENTS),
    graphs=PAPERS_GRAPHS,
    readings=(
        "A vertex is present from its first to its last edge; the paper does not say when it is.",
        "Neither the task nor the hidden size is printed: ours is whether a vertex has an edge in "
        "the next snapshot, with 32 units.",
        "PSS deals snapshots out in turn, as the paper's account of its traffic asks for; whole "
        "runs of snapshots stand beside it.",
        "Equation 6 has the sign that its text asks for; as printed, its threshold falls.",
        "The average workload of equation 3 is that of a worker, and empty workers compete by the "
        "room they have.",
    ),
    since="2026-11-29",
)

__all__ = ["PAPER", "DgcSystem", "DgcTrainer"]
