"""The seven datasets of PiPAD's Table 1, two real ones beside them, and their sizes by preset.

Feature lengths are those of section 5.1 (16 -> 32 on small graphs, 2 -> 6 on large ones). The
edge-life l is not printed; these values reproduce the printed smoothed totals on disjoint
snapshots. Scales below 1 apply to twins only: a real dataset is never cut in its vertices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dgbench.lab.estimates import PaperForms
from dgbench.lab.paper import PapersGraphs
from dgbench.lab.printed import expanded
from dgbench.systems.base import Preset, Workload
from dgbench.systems.base.own_graphs import GraphsByName, vertices_of
from dgbench.systems.pipad.ladders import PUBLISHED

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
