"""The seven datasets of PiPAD's Table 1, two real ones beside them, and their sizes by preset;
snapshots of them, and settings of PiPAD that take turns.

Feature lengths are those of section 5.1 (16 -> 32 on small graphs, 2 -> 6 on large ones). The
edge-life l is not printed; these values reproduce the printed smoothed totals on disjoint
snapshots. Scales below 1 apply to twins only: a real dataset is never cut in its vertices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from dgbench import datasets
from dgbench.datasets import SnapshotSequence
from dgbench.lab.estimates import PaperForms
from dgbench.lab.grid import by_preset
from dgbench.lab.paper import PapersGraphs
from dgbench.lab.printed import expanded
from dgbench.systems.base import Measurement, Preset, RunContext, Workload
from dgbench.systems.base.data import describe, latest
from dgbench.systems.base.own_graphs import GraphsByName, vertices_of
from dgbench.systems.base.race import oracle_of
from dgbench.systems.base.turns import RaceContender, opened, turns_of
from dgbench.systems.pipad.ladders import ON, PUBLISHED

MAX_SMALL: Final = 100_000
"""Vertices up to which a dataset of the user's counts as small."""


LEDGER: Final = Path(__file__).parents[1] / "claims.yaml"


@dataclass(frozen=True, slots=True)
class FrameGraph:
    """One row of Table 1 and our settings for it.

    Attributes:
        name, title: the card's name and the paper's spelling.
        small: whether the paper counts it among the small graphs.
        edge_life: smoothing l, snapshots.
        scales: twin size factor for (smoke, quick, full, paper).
    """

    name: str
    title: str
    small: bool
    edge_life: int
    scales: tuple[float, float, float, float]

    @property
    def printed(self) -> dict[str, int]:
        """N, E, D, T and smoothed E as Table 1 prints them; empty for graphs of our own."""
        found = expanded(LEDGER, f"tab1-{IN_LEDGER.get(self.name, self.name)}")
        return {{"S": "T"}.get(column, column): number for column, number in found.items()}

    @property
    def feature_dim(self) -> int:
        return 16 if self.small else 2

    @property
    def hidden_dim(self) -> int:
        return 32 if self.small else 6

    def scale(self, preset: Preset) -> float:
        return self.scales[("smoke", "quick", "full", "paper").index(preset)]


IN_LEDGER: Final = {"amz-automotive": "automotive", "covid19-england": "covid"}
"""Name of a graph in the ledger, where it is not our name."""

GRAPHS: Final = (
    FrameGraph("flickr", "Flickr", False, 15, (1 / 2048, 1 / 1024, 1 / 16, 1.0)),
    FrameGraph("youtube", "Youtube", False, 18, (1 / 2048, 1 / 256, 1 / 16, 1.0)),
    FrameGraph("amz-automotive", "amz-Automotive", False, 42, (1 / 512, 1 / 64, 1 / 8, 1.0)),
    FrameGraph("epinions", "Epinions", False, 6, (1 / 512, 1 / 64, 1 / 8, 1.0)),
    FrameGraph("hepth", "HepTh", True, 7, (1 / 64, 1 / 64, 1 / 4, 1.0)),
    FrameGraph("pems08", "PEMS08", True, 1, (1.0, 1.0, 1.0, 1.0)),
    FrameGraph("covid19-england", "Covid19-England", True, 8, (1.0, 1.0, 1.0, 1.0)),
)  # fmt: skip

PAPERS_GRAPHS: Final = PapersGraphs({graph.name for graph in GRAPHS})

EXTRAS: Final = (
    # Real graphs that the paper does not use, raced beside its own; no claim counts them.
    FrameGraph("bitcoin-otc", "Bitcoin OTC", True, 10, (1.0, 1.0, 1.0, 1.0)),
    FrameGraph("sx-mathoverflow", "sx-mathoverflow", True, 5, (1.0, 1.0, 1.0, 1.0)),
)
ALL: Final = GRAPHS + EXTRAS
BY_NAME: Final = GraphsByName(
    ALL,
    lambda card: FrameGraph(card.name, card.title, (vertices_of(card) or 0) <= MAX_SMALL, 5,
                       (1.0, 1.0, 1.0, 1.0)),
)  # fmt: skip
MODELS: Final = ("evolvegcn", "mpnn_lstm", "tgcn_model")
MODEL_TITLES: Final = {
    "evolvegcn": "EvolveGCN",
    "mpnn_lstm": "MPNN-LSTM",
    "tgcn_model": "T-GCN model (Zhao et al.)",
}
DENSER: Final = ("flickr", "hepth", "epinions")
"""Graphs that the paper calls denser."""
FORMS: Final = PaperForms(
    "pipad",
    texts=LEDGER.with_name("texts.yaml"),
    labels={"dataset": BY_NAME.title, "model": MODEL_TITLES},
    facts={
        "size": ("dataset", lambda name: "small" if BY_NAME[name].small else "large"),
        "density": ("dataset", lambda name: "denser" if name in DENSER else "others"),
    },
    order={"dataset": [graph.name for graph in ALL], "model": MODELS},
    uncounted=frozenset(graph.name for graph in EXTRAS),
    judged=PUBLISHED,
)
METHODS: Final = ("pygt", "pygt-a", "pygt-r", "pygt-g", "pipad")
SMOKE_GRAPHS: Final = ("hepth", "pems08", "covid19-england")
MUCH: Final = 2.0
"""Factor from which a share counts as far larger than another."""
NEEDS_CUDA: Final = (
    "needs one CUDA device (nox -s reproduce -- pipad --device cuda), whose evidence is weak "
    "where the paper's datasets are twins"
)
FRAME: Final = 16
EPOCHS: Final = 200


def snapshots(preset: Preset) -> int | None:
    """Snapshots that a timed cell keeps: a few frames in short presets, all in `paper`."""
    return {"smoke": FRAME + 4, "quick": FRAME + 8, "full": FRAME + 48, "paper": None}[preset]


def workload(graph: FrameGraph, model: str, preset: Preset) -> Workload:
    """The training task of section 5.1 on one graph.

    EvolveGCN is trained on every snapshot of the frame: its weights evolve without looking at the
    features, so with a loss on the last snapshot alone the other fifteen would be dead work.
    """
    return Workload(
        dataset=graph.name,
        scale=graph.scale(preset),
        snapshots=snapshots(preset),
        edge_life=graph.edge_life,
        model=model,  # type: ignore[arg-type]
        feature_dim=graph.feature_dim,
        hidden_dim=graph.hidden_dim,
        loss_on="every" if model == "evolvegcn" else "last",
        frame=FRAME,
    )


def task_of(params: Mapping[str, Any], preset: Preset) -> Workload:
    """The training task of a cell."""
    return workload(BY_NAME[params["dataset"]], params["model"], preset)


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
TURNS = {"smoke": 3, "quick": 6, None: 10}
"""Turns at least; six are the fewest whose extremes bound a median with 95 %."""


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


def race_settings(
    contenders: Mapping[str, Mapping[str, bool]],
    task: Workload,
    context: RunContext,
    *,
    main: str,
    budgets: float,
) -> tuple[Measurement, dict[str, list[float]]]:
    """Let settings of PiPAD take turns on a task.

    Args:
        contenders: switches by name. main: the one whose step time is the cell's.
        budgets: budgets of a process that all of them share.

    Returns:
        Checks and times of all; and seconds of each step by name.
    """
    oracle = oracle_of(task, context)
    racing = {name: RaceContender("pipad", switches) for name, switches in contenders.items()}
    with opened(racing, task, context) as trainers:
        turns = turns_of(trainers, by_preset(TURNS, context.preset), context.budget_s * budgets)
        first = context.round == 1
        checks = turns.audited(oracle, first=first)
        checks += oracle.settings(trainers, first=first, starts=turns.starts)
        measured = Measurement(
            deviation={"output": max(check.gap for check in checks if check.of == "outputs")},
            checks=checks,
            data=describe(oracle.trainer.data),
            notes=list(getattr(trainers.get(ON), "notes", [])),
        )
    measured.observe("step_time", median(turns.seconds[main]), samples=turns.seconds[main])
    for name, seconds in turns.seconds.items():
        measured.observe("step_time", median(seconds), setting=name)
    return measured, turns.seconds
