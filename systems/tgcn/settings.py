"""T-GCN's graphs and settings (Table 1, section 6.1), the data held beside them, and our sizes.

The paper's graphs are twins wherever their files are not held. A twin of scale s has s times the
vertices and edges of a follow graph (Flickr, Twitter), and the square root of s times the vertices
of an interaction graph (LastFM, Reddit), so that mean degrees shrink with the latter.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dgbench.lab.estimates import PaperForms
from dgbench.lab.evidence import PapersGraphs
from dgbench.lab.printed import ledger, plain
from dgbench.systems.base import Preset
from dgbench.systems.base.own_graphs import GraphsByName

if TYPE_CHECKING:
    from dgbench.datasets import EventStream
    from dgbench.systems.base.interactions import InteractionWorkload

DATASET_OF: Final = {
    "Lastfm": "lastfm",
    "Reddit": "reddit",
    "Flickr": "flickr",
    "Twitter": "twitter",
}
"""Our dataset for a name of the ledger."""
PRINTED_TITLE: Final = {name: title for title, name in DATASET_OF.items()}
"""The name of the ledger for a dataset of ours."""
_LEDGER: Final = Path(__file__).with_name("claims.yaml")


@dataclass(frozen=True, slots=True)
class Printed:
    """A row of Table 1.

    Attributes:
        vertices, edges: counts, with the two or three digits that are printed.
        degree: the column headed average degree, whose definition changes from row to row.
        feature: the column headed Feature; its meaning is not explained.
    """

    vertices: int
    edges: int
    degree: float
    feature: int


def values() -> dict[str, Any]:
    """Value of each claim, by its id without the paper's prefix."""
    return ledger(_LEDGER)


def by_dataset(claim: str) -> dict[str, float]:
    """A column or row of a table by dataset; what ran out of memory is left out."""
    printed = values()[claim]
    return {
        DATASET_OF[title]: plain(value) for title, value in printed.items() if value != "OOM"
    }  # fmt: skip


@cache
def table1(dataset: str) -> Printed:
    """A graph's row of Table 1."""
    columns = (
        by_dataset(f"tab1-{name}") for name in ("vertices", "edges", "avg-degree", "feature")
    )
    vertices, edges, degree, feature = (column[dataset] for column in columns)
    return Printed(int(vertices), int(edges), degree, int(feature))


def table2(system: str, part: str) -> dict[str, float]:
    """Seconds of Table 2 on one V100, by dataset: `io`, `compute` or `total` of a system."""
    return by_dataset(f"tab2-{system}-{part}")


def table3(system: str) -> dict[str, float]:
    """MB of device memory of Table 3, by dataset."""
    return by_dataset(f"tab3-{system}-memory")


PRESETS: Final = ("smoke", "quick", "full", "paper")


@dataclass(frozen=True, slots=True)
class GridGraph:
    """One graph and our sizes for it.

    Attributes:
        name, title: the card's name and the name shown.
        bipartite: sources and destinations are different kinds of vertices.
        scales: twin size factor by preset; 1 for data that is held.
        real: whether the data is held and real.
    """

    name: str
    title: str
    bipartite: bool
    scales: tuple[float, float, float, float]
    real: bool = False

    @property
    def printed(self) -> Printed:
        """Its row of Table 1; our additions have none."""
        return table1(self.name)

    def scale(self, preset: Preset) -> float:
        """Size factor of the twin in this preset."""
        return self.scales[PRESETS.index(preset)]


ONE: Final = (1.0, 1.0, 1.0, 1.0)

GRAPHS: Final = (
    GridGraph("lastfm", "LastFM", True, (1 / 64, 1 / 16, 1.0, 1.0)),
    GridGraph("reddit", "Reddit", True, (1 / 64, 1 / 8, 1.0, 1.0)),
    GridGraph("flickr", "Flickr", False, (1 / 1024, 1 / 128, 1 / 8, 1.0)),
    GridGraph("twitter", "Twitter", False, (1 / 4096, 1 / 4096, 1 / 256, 1.0)),
)  # fmt: skip
"""The paper's four graphs, in the order of Table 1."""

HELD: Final = (
    GridGraph("wikipedia", "Wikipedia", True, ONE, real=True),
    GridGraph("enron", "Enron", False, ONE, real=True),
    GridGraph("college-msg", "CollegeMsg", False, ONE, real=True),
    GridGraph("sx-mathoverflow", "sx-mathoverflow", False, ONE, real=True),
)  # fmt: skip
"""Real data held here: what decides where a twin may not."""

ALL: Final = GRAPHS + HELD
BY_NAME: Final = GraphsByName(
    ALL, lambda card: GridGraph(card.name, card.title, card.bipartite, ONE, real=True)
)
graph_title: Final = BY_NAME.title


@cache
def contender_title(name: str) -> str:
    """Title of a contender, of a setting or of a way to draw; a name without one as it is."""
    from dgbench.systems.tgcn.races import SETTING_TITLES, TITLES
    from dgbench.systems.tgcn.sampling_tasks import NAMES

    return {**NAMES, **SETTING_TITLES, **TITLES}.get(name, name)


FORMS: Final = PaperForms(
    "tgcn",
    texts=Path(__file__).with_name("texts.yaml"),
    labels={
        "dataset": graph_title,
        **dict.fromkeys(("system", "setting", "baseline", "method"), contender_title),
    },
    order={"dataset": [graph.name for graph in ALL]},
)
PAPERS_GRAPHS: Final = PapersGraphs({graph.name for graph in GRAPHS})
TWIN_NAMES: Final = tuple(graph.name for graph in GRAPHS)
SMALL_NAMES: Final = TWIN_NAMES[:3]
"""The graphs that both baselines can train on; on Twitter they run out of memory (section 6.2)."""
HELD_NAMES: Final = tuple(graph.name for graph in HELD)
ON_SMALL: Final = {"dataset": SMALL_NAMES}
NEEDS_CUDA: Final = "needs CUDA devices: nox -s reproduce -- tgcn --device cuda"
HIDDEN: Final = 64
"""Floats of a hidden layer, and so of a vertex's embedding (section 6.1.3)."""
SHARE: Final = 0.5
"""Share of a neighbourhood that is sampled, and so of the edges that are trained on."""
PIECES: Final = 11
"""Pieces of time of Figure 9."""
GPU_BYTES: Final = 32 * 2**30
"""Memory of one V100 of the paper's machine."""


def workload(graph: GridGraph, preset: Preset, **fields: object) -> InteractionWorkload:
    """A training task with the paper's settings (section 6.1) on one graph.

    Args:
        graph: one of `ALL`.
        preset: decides the scale of a twin.
        **fields: fields of `InteractionWorkload` that go before these.
    """
    from dgbench.systems.base.interactions import InteractionWorkload

    return InteractionWorkload(
        **{
            "dataset": graph.name,
            "scale": graph.scale(preset),
            "hidden_dim": HIDDEN,
            "share": SHARE,
            **fields,
        }  # type: ignore[arg-type]
    )


def open_graph(name: str, preset: Preset, scale: float | None = None) -> EventStream:
    """The events of one of `ALL`, the twin at the preset's scale or at this one."""
    from dgbench import datasets

    graph = BY_NAME[name]
    return datasets.open_events(name, "auto", graph.scale(preset) if scale is None else scale)


def synthetic_data(words: str) -> dict[str, Any]:
    """The `data` field of a measurement on numbers that no graph is behind.

    Claims about these name no dataset, so that this is not a twin of one.
    """
    return {"dataset": "none", "twin": False, "scale": 1.0, "note": words}
