"""T-GCN's graphs and settings (Table 1, section 6.1), the data held beside them, and our sizes.

The paper's graphs are twins wherever their files are not held. A twin of scale s has s times the
vertices and edges of a follow graph (Flickr, Twitter), and the square root of s times the vertices
of an interaction graph (LastFM, Reddit), so that mean degrees shrink with the latter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dgbench.systems.base import Preset
from dgbench.systems.base.own_graphs import GraphsByName

if TYPE_CHECKING:
    from dgbench.systems.base.interactions import InteractionWorkload

PRESETS: Final = ("smoke", "quick", "full", "paper")


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


@dataclass(frozen=True, slots=True)
class Graph:
    """One graph and our sizes for it.

    Attributes:
        name, title: the card's name and the name shown.
        bipartite: sources and destinations are different kinds of vertices.
        scales: twin size factor by preset; 1 for data that is held.
        printed: its row of Table 1; None for our additions.
        real: whether the data is held and real.
    """

    name: str
    title: str
    bipartite: bool
    scales: tuple[float, float, float, float]
    printed: Printed | None = None
    real: bool = False

    def scale(self, preset: Preset) -> float:
        """Size factor of the twin in this preset."""
        return self.scales[PRESETS.index(preset)]


ONE: Final = (1.0, 1.0, 1.0, 1.0)

GRAPHS: Final = (
    Graph("lastfm", "LastFM", True, (1 / 64, 1 / 16, 1.0, 1.0),
          Printed(7_000, 1_300_000, 364.3, 39)),
    Graph("reddit", "Reddit", True, (1 / 64, 1 / 8, 1.0, 1.0),
          Printed(10_000, 672_000, 67.0, 150)),
    Graph("flickr", "Flickr", False, (1 / 1024, 1 / 128, 1 / 8, 1.0),
          Printed(2_300_000, 33_100_000, 28.8, 10)),
    Graph("twitter", "Twitter", False, (1 / 4096, 1 / 4096, 1 / 256, 1.0),
          Printed(41_600_000, 1_470_000_000, 74.6, 1)),
)  # fmt: skip
"""The paper's four graphs, in the order of Table 1."""

HELD: Final = (
    Graph("wikipedia", "Wikipedia", True, ONE, real=True),
    Graph("enron", "Enron", False, ONE, real=True),
    Graph("college-msg", "CollegeMsg", False, ONE, real=True),
    Graph("sx-mathoverflow", "sx-mathoverflow", False, ONE, real=True),
)  # fmt: skip
"""Real data held here: what decides where a twin may not."""

ALL: Final = GRAPHS + HELD
BY_NAME: Final = GraphsByName(
    ALL, lambda card: Graph(card.name, card.title, card.bipartite, ONE, real=True)
)
TWIN_NAMES: Final = tuple(graph.name for graph in GRAPHS)
SMALL_NAMES: Final = TWIN_NAMES[:3]
"""The graphs that both baselines can train on; on Twitter they run out of memory (section 6.2)."""
HELD_NAMES: Final = tuple(graph.name for graph in HELD)
DATASET_OF: Final = {
    "Lastfm": "lastfm",
    "Reddit": "reddit",
    "Flickr": "flickr",
    "Twitter": "twitter",
}
"""Our dataset for a name of the ledger."""
PRINTED_TITLE: Final = {name: title for title, name in DATASET_OF.items()}
"""The name of the ledger for a dataset of ours."""

HIDDEN: Final = 64
"""Floats of a hidden layer, and so of a vertex's embedding (section 6.1.3)."""
LAYERS: Final = 2
"""Hidden layers (section 6.1.3)."""
SHARE: Final = 0.5
"""Share of a neighbourhood that is sampled, and so of the edges that are trained on."""
SPLIT: Final = (0.8, 0.1, 0.1)
"""Training, validation and test (section 6.1.3)."""
PIECES: Final = 11
"""Pieces of time of Figure 9."""
GPUS: Final = (1, 4, 8)
"""Devices of Figure 10."""
GPU_BYTES: Final = 32 * 2**30
"""Memory of one V100 of the paper's machine."""
TABLE2: Final = {
    ("dygnn", "io"): {"lastfm": 5.53, "reddit": 24.30, "flickr": 63.18},
    ("dygnn", "compute"): {"lastfm": 64.89, "reddit": 143.93, "flickr": 560.41},
    ("dygnn", "total"): {"lastfm": 70.42, "reddit": 168.23, "flickr": 623.59},
    ("tgcn", "io"): {"lastfm": 5.24, "reddit": 25.80, "flickr": 58.52, "twitter": 1603.9},
    ("tgcn", "compute"): {"lastfm": 32.89, "reddit": 83.53, "flickr": 105.98, "twitter": 9025.2},
    ("tgcn", "total"): {"lastfm": 36.42, "reddit": 99.84, "flickr": 124.10, "twitter": 9273.05},
}
"""Table 2 as printed, seconds on one V100; a baseline that is not there ran out of memory."""
TABLE3: Final = {
    "dygnn": {"lastfm": 1529, "reddit": 1461, "flickr": 13562},
    "jodie": {"lastfm": 1837, "reddit": 1201, "flickr": 17246},
    "tgcn": {"lastfm": 822, "reddit": 826, "flickr": 6580},
}
"""Table 3 as printed, MB of device memory."""


def workload(graph: Graph, preset: Preset, **fields: object) -> InteractionWorkload:
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
