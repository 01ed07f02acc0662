"""Operators of dgbench: races of the compiled operators against the best that is installed."""

from pathlib import Path

from dgbench.lab.paper import Paper
from dgbench.systems.operators.claims import CHECKS
from dgbench.systems.operators.experiments import EXPERIMENTS

PAPER = Paper(
    name="operators",
    title="Operators",
    venue="dgbench's own claims",
    about=(
        "Every system here stands on a few compiled operators: sums over neighbours, recurrences, "
        "attention, differences of graphs, samplers. Each is raced on drawn inputs against what "
        "torch, PyG, DGL, numpy, scipy and METIS offer for the same result."
    ),
    system="dgbench",
    ledger=Path(__file__).with_name("claims.yaml"),
    experiments=EXPERIMENTS,
    checks=CHECKS,
    readings=(
        "These claims are dgbench's own: they are of the machine that runs them, so that a race on "
        "its CPU measures them and stands for nothing else.",
        "Contenders take turns in one process on the same inputs; results are compared before and "
        "after timing, and a peer whose result is wrong is left out with a note.",
    ),
)

__all__ = ["PAPER"]
