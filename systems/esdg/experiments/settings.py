"""ESDG's datasets and models (Table 1, section 6.1), and our sizes by preset.

Neither the edge life l nor the window w of the smoothing is printed. Ours are the smallest with
which the twin at full size reaches Table 1's ratio of smoothed to raw edges, both as distinct
edges of a snapshot; the experiment `table1` finds them again at the size of a preset.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dgbench.lab.estimates import PaperForms
from dgbench.lab.evidence import PapersGraphs, some
from dgbench.lab.printed import expanded, ledger
from dgbench.systems.base import Preset
from dgbench.systems.base.own_graphs import GraphsByName
from dgbench.systems.base.timeline import TimelineWorkload

LEDGER: Final = Path(__file__).parents[1] / "claims.yaml"
PRESETS: Final = ("smoke", "quick", "full", "paper")


@dataclass(frozen=True, slots=True)
class SnapshotGraph:
    """One graph and our settings for it.

    Attributes:
        name, title: the card's name and the name shown.
        edge_life, window: l and w of the smoothing.
        scales: twin size factor by preset; 1 for data that is held.
        real: whether the data is held and real.
    """

    name: str
    title: str
    edge_life: int
    window: int
    scales: tuple[float, float, float, float]
    real: bool = False

    @property
    def printed(self) -> dict[str, int]:
        """N, T, nnz and smoothed edges as Table 1 prints them; empty for graphs of our own."""
        return expanded(LEDGER, f"tab1-{self.title.lower()}")

    @property
    def bins(self) -> int | None:
        """T of Table 1; None takes the card's."""
        return self.printed.get("T")

    def scale(self, preset: Preset) -> float:
        return self.scales[PRESETS.index(preset)]

    @property
    def lengths(self) -> dict[str, int]:
        """Length of the smoothing by the column of Table 1 that counts its edges."""
        return {"M_product": self.window, "edge_life": self.edge_life}


GRAPHS: Final = (
    SnapshotGraph("epinions", "epinions", 85, 53, (1 / 512, 1 / 128, 1 / 16, 1.0)),
    SnapshotGraph("flickr", "flickr", 25, 31, (1 / 2048, 1 / 384, 1 / 32, 1.0)),
    SnapshotGraph("youtube", "youtube", 76, 82, (1 / 1024, 1 / 256, 1 / 32, 1.0)),
    SnapshotGraph("amlsim", "AMLSim", 14, 15, (1 / 512, 1 / 128, 1 / 16, 1.0)),
)  # fmt: skip

PAPERS_GRAPHS: Final = PapersGraphs({graph.name for graph in GRAPHS}, families=("random",))
"""Its graphs, and random ones of its recipe. Small runs of AMLSim's generator are other data."""
STAND_INS: Final = PapersGraphs(PAPERS_GRAPHS.names, families=("amlsim", "random"))
"""Graphs that claims on the paper's are judged by: its own, and what its generators make."""

ONE: Final = (1.0, 1.0, 1.0, 1.0)
REAL: Final = (
    # Real data beside the paper's own: small runs of its generator, and graphs of repeated events.
    SnapshotGraph("amlsim-20k-cycle200", "AMLSim 20K cycle", 10, 10, ONE, real=True),
    SnapshotGraph("amlsim-20k-fanin200", "AMLSim 20K fan-in", 10, 10, ONE, real=True),
    SnapshotGraph("amlsim-20k-fanin200cycle200", "AMLSim 20K both", 10, 10, ONE, real=True),
    SnapshotGraph("bitcoin-otc", "Bitcoin OTC", 10, 10, ONE, real=True),
    SnapshotGraph("sx-mathoverflow", "sx-mathoverflow", 10, 10, ONE, real=True),
)
ALL: Final = GRAPHS + REAL
COUNTED: Final = (
    *ALL,
    # Graphs of many repeated events, where raw snapshots overlap most; only counted.
    SnapshotGraph("wikipedia", "Wikipedia", 10, 10, ONE, real=True),
    SnapshotGraph("email-eu-core", "email-Eu", 10, 10, ONE, real=True),
)
BY_NAME: Final = GraphsByName(
    COUNTED, lambda card: SnapshotGraph(card.name, card.title, 10, 10, ONE, real=True)
)
panel: Final = BY_NAME.panel

MODELS: Final = ("tm_gcn", "cd_gcn", "evolvegcn_o")
MODEL_TITLES: Final = {"tm_gcn": "TM-GCN", "cd_gcn": "CD-GCN", "evolvegcn_o": "EvolveGCN"}
FORMS: Final = PaperForms(
    "esdg",
    texts=LEDGER.with_name("texts.yaml"),
    labels={
        "dataset": BY_NAME.title,
        "model": MODEL_TITLES,
        "blocks": lambda count: some(count, "block"),
        "seed": "seed {}".format,
    },
    facts={"origin": ("dataset", lambda name: "real" if BY_NAME[name].real else "paper")},
    order={"dataset": [graph.name for graph in ALL], "model": MODELS},
    stand_ins=STAND_INS,
)
RACE_TITLES: Final = {
    **{name: graph.title for name, graph in BY_NAME.items()},
    **MODEL_TITLES,
    "flickr": "Flickr",
    "amlsim-20k-fanin200cycle200": "AMLSim 20K fan-in and cycle",
}
"""Titles in the races that say how much faster ESDG's two techniques make an epoch."""
SMOOTHING: Final = {"tm_gcn": "m_transform", "cd_gcn": "none", "evolvegcn_o": "edge_life"}
"""Smoothing that the paper applies to the graph before training each model (5.1)."""

RANKS: Final = (1, 2, 4, 8, 16, 32, 64, 128)

IN_LEDGER: Final = {"tm_gcn": "tmgcn", "cd_gcn": "cdgcn", "evolvegcn_o": "egcn"}


def table2(column: str, model: str) -> dict[int, float]:
    """A model's numbers in a column of Table 2, by GPUs; what did not run is left out."""
    said = ledger(LEDGER)[f"tab2-{column}-{IN_LEDGER[model]}"]
    return {ranks: float(value) for ranks, value in said.items() if value != "DNR"}


WITHIN: Final = 0.25
"""Relative tolerance of volumes, times and factors that a model or other data give."""


def printed_at(value: Mapping[int, Any], at: Mapping[str, Any]) -> float | None:
    """A claim's number at so many ranks; None where nothing ran or is printed."""
    number = value.get(at["ranks"])
    return number if isinstance(number, int | float) else None


def snapshots(preset: Preset) -> int | None:
    """Snapshots that a timed cell keeps, plus the target; all in `paper`."""
    return {"smoke": 9, "quick": 33, "full": 97, "paper": None}[preset]


def workload(
    graph: SnapshotGraph, model: str, preset: Preset, **fields: object
) -> TimelineWorkload:
    """Link prediction with the paper's settings (6.1, 6.4) on one graph, smoothed for the model."""
    return TimelineWorkload(
        **{
            "dataset": graph.name,
            "scale": graph.scale(preset),
            "bins": graph.bins,
            "snapshots": snapshots(preset),
            "model": model,
            "smoothing": SMOOTHING[model],
            "edge_life": graph.edge_life,
            "window": graph.window,
            **fields,
        }  # type: ignore[arg-type]
    )
