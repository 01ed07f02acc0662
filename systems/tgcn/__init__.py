"""T-GCN: streaming graph networks with sampling on the CPU and training on several GPUs."""

from pathlib import Path

from dgbench.lab.outcomes import checks_of
from dgbench.systems.base import Contender, Paper
from dgbench.systems.tgcn.experiments import EXPERIMENTS
from dgbench.systems.tgcn.races import SETTING_TITLES
from dgbench.systems.tgcn.settings import PAPERS_GRAPHS
from dgbench.systems.tgcn.system import TgcnSystem
from dgbench.systems.tgcn.trainer import TgcnTrainer

PAPER = Paper(
    name="tgcn",
    title="T-GCN",
    venue="PACT 2022",
    about=(
        "Trains recurrent networks on a stream of interactions, on half of the edges, drawn on "
        "the CPU by a tree of sums (Segment Its Search). Edges are cut into grids by time, source "
        "and destination; GPUs keep the embeddings of their vertices and pass the others round a "
        "ring of NVLink pairs while they train."
    ),
    system="tgcn",
    ledger=Path(__file__).with_name("claims.yaml"),
    experiments=EXPERIMENTS,
    checks=checks_of(*EXPERIMENTS),
    graphs=PAPERS_GRAPHS,
    contenders={name: Contender("tgcn", title) for name, title in SETTING_TITLES.items()},
    readings=(
        "Inverse transform sampling may have been any of four forms, which differ in what a draw "
        "reads: all are raced, beside a selection by exponential keys.",
        "Edges stand at both ends for sampling, so that graphs with two kinds of vertices have a "
        "second layer.",
        "A frontier has 10^4 slots, or a tenth of the vertices: the text is garbled.",
        "Every edge of an interval reads embeddings as they are at its begin; interactions of a "
        "vertex in it are averaged. Then results do not depend on the number of devices.",
        "A baseline may relax its order as T-GCN does: DyGNN and JODIE race in both orders, and "
        "claims of speed are judged over the relaxed ones.",
        "Gradients reach one update back, for all contenders alike.",
        "The ring of swaps is looked for on the machine's links; the printed pairs are one choice.",
        "DyGNN's propagation is a switch: on in the baseline, off in T-GCN, which never names it.",
        "Node classes are not published. Where a task needs them they are quartiles of activity.",
    ),
    since="2026-11-29",
)

__all__ = ["PAPER", "TgcnSystem", "TgcnTrainer"]
