"""ESDG: Efficient Scaling of Dynamic Graph Neural Networks (Chakaravarthy et al.; SC 2021)."""

from pathlib import Path

from dgbench.lab.outcomes import checks_of
from dgbench.systems.base import Paper
from dgbench.systems.esdg.experiments import EXPERIMENTS
from dgbench.systems.esdg.experiments.settings import PAPERS_GRAPHS
from dgbench.systems.esdg.system import EsdgSystem, EsdgTrainer

PAPER = Paper(
    name="esdg",
    title="ESDG",
    venue="SC 2021",
    about=(
        "Trains graph networks on a whole timeline of snapshots at once, on many GPUs. ESDG deals "
        "out whole snapshots instead of vertices, keeps only what block borders need, and sends a "
        "snapshot as what changed since the one before it."
    ),
    system="esdg",
    ledger=Path(__file__).with_name("claims.yaml"),
    experiments=EXPERIMENTS,
    checks=checks_of(*EXPERIMENTS),
    graphs=PAPERS_GRAPHS,
    readings=(
        "Neither the edge life nor the window of the smoothing is printed: ours are the smallest "
        "that reach the printed numbers of edges.",
        "Printed volumes are the sum of three passes: forward, its re-run from checkpoints, and "
        "backward; they fit 192 steps of a million vertices to every printed digit.",
        "A vertex's own part does not count among those that its features are sent to.",
    ),
    since="2026-11-29",
)

__all__ = ["PAPER", "EsdgSystem", "EsdgTrainer"]
