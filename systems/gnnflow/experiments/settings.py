"""GNNFlow's datasets and models (Table 5, section 6), the data held beside them, and our sizes.

The paper's graphs are twins wherever their files are not held. Their rounds stay a day long at
every scale, so that a round is the same share of the graph as in the paper.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dgbench.lab.estimates import Estimate, PaperForms
from dgbench.lab.evidence import PapersGraphs
from dgbench.lab.printed import ledger, plain
from dgbench.lab.quantities import MeasuredQuantity, of_rows
from dgbench.lab.table import number
from dgbench.systems.base import Preset
from dgbench.systems.base.own_graphs import GraphsByName, span_of

if TYPE_CHECKING:
    from dgbench.kernels_cuda.temporal_store import TemporalStore
    from dgbench.systems.base.stream import StreamWorkload

LEDGER: Final = Path(__file__).parents[1] / "claims.yaml"
PRESETS: Final = ("smoke", "quick", "full", "paper")


@dataclass(frozen=True, slots=True)
class StreamGraph:
    """One graph and our settings for it.

    Attributes:
        name, title: the card's name and the name shown.
        undirected: whether an edge is kept at both ends. The paper does so for Reddit and Netflix.
        round: length of a round of continuous training, in the card's unit of time.
        scales: twin size factor by preset; 1 for data that is held.
        tau: threshold of the adaptive block size (section 6.2).
        fixed: slots of a block of fixed size (section 6.2).
        window: length of one of DySAT's snapshots, in the card's unit of time.
        node_cache, edge_cache: capacity of the caches as a share of nodes and edges (section 6).
        real: whether the data is held and real.
    """

    name: str
    title: str
    undirected: bool
    round: float
    scales: tuple[float, float, float, float]
    tau: int = 64
    fixed: int = 64
    window: float = 7 * 86400.0
    node_cache: float = 0.03
    edge_cache: float = 0.003
    real: bool = False

    @property
    def printed(self) -> dict[str, int]:
        """Nodes, edges and dimensions as Table 5 prints them; empty for our additions."""
        columns = ("nodes", "edges", "node_dim", "edge_dim")
        said = {key: ledger(LEDGER)[f"tab5-{key.replace('_', '-')}"] for key in columns}
        if self.title not in said["nodes"]:
            return {}
        return {key: int(plain(column[self.title] or 0)) for key, column in said.items()}

    @property
    def node_dim(self) -> int:
        """Floats of a vertex's feature, 0 for none; drawn with a fixed seed where none are held."""
        return _width("node", self.title)

    @property
    def edge_dim(self) -> int:
        """Floats of an edge's feature, 0 for none; drawn with a fixed seed where none are held."""
        return _width("edge", self.title)

    def scale(self, preset: Preset) -> float:
        """Size factor of the twin in this preset."""
        return self.scales[PRESETS.index(preset)]


def _width(of: str, title: str) -> int:
    """Width of features in Table 5; our additions have the features of Reddit."""
    printed = ledger(LEDGER)[f"tab5-{of}-dim"]
    return int(plain(printed[title if title in printed else "Reddit"] or 0))


DAY: Final = 86400.0
RELEASED_WINDOW: Final = 10_000.0
"""Seconds of a snapshot of DySAT in the configurations of TGL and GNNFlow, for every dataset; taken
where our times are the seconds of the released data."""
ONE: Final = (1.0, 1.0, 1.0, 1.0)


GRAPHS: Final = (
    StreamGraph("reddit", "Reddit", True, DAY, (1 / 64, 1 / 8, 1.0, 1.0),
          window=RELEASED_WINDOW),
    StreamGraph("netflix", "Netflix", True, 1.0, (1 / 4096, 1 / 512, 1 / 16, 1.0),
          tau=48, fixed=48, window=30.0),
    StreamGraph("gdelt", "GDELT", False, DAY, (1 / 4096, 1 / 1024, 1 / 32, 1.0),
          tau=8192, fixed=1024),
    StreamGraph("mag", "MAG", False, 30 * DAY, (1 / 4096, 1 / 2048, 1 / 128, 1.0),
          window=360 * DAY, node_cache=0.01),
    StreamGraph("ldbc", "LDBC", True, DAY, (1 / 4096, 1 / 4096, 1 / 512, 1.0)),
)  # fmt: skip
"""The paper's five graphs, in the order of Table 5."""

PAPERS_GRAPHS: Final = PapersGraphs({graph.name for graph in GRAPHS})

HELD: Final = (
    StreamGraph("wikipedia", "Wikipedia", True, 3600.0, ONE, window=RELEASED_WINDOW,
          real=True),
    StreamGraph("sx-mathoverflow", "sx-mathoverflow", True, DAY, ONE, window=30 * DAY,
          real=True),
    StreamGraph("enron", "Enron", True, DAY, ONE, window=14 * DAY, real=True),
    StreamGraph("college-msg", "CollegeMsg", True, DAY, ONE, window=3 * DAY, real=True),
    StreamGraph("email-eu-core", "email-Eu", True, DAY, ONE, real=True),
    StreamGraph("epinions-2011-ratings", "Epinions 2011", True, 1.0, ONE, window=1.0,
          real=True),
)  # fmt: skip
"""Real data held here: what decides where a twin may not. Wikipedia, a month long, has rounds of an
hour; Epinions has eleven stamps of time and a round for each."""

FLIGHTS: Final = StreamGraph(
    "flights-2001-01", "US flights", True, 3600.0, ONE, window=DAY, real=True
)
"""Real data that stands in the arena where Enron is not here; a month, in rounds of an hour."""

ALL: Final = GRAPHS + HELD
BY_NAME: Final = GraphsByName(
    (*ALL, FLIGHTS),
    lambda card: StreamGraph(
        card.name, card.title, True, (span_of(card) or 1.0) / 100, ONE,
        window=(span_of(card) or 1.0) / 30, real=True,
    ),
)  # fmt: skip
"""A dataset of the user's has a hundred rounds, and windows of a thirtieth of it."""
graph_title: Final = BY_NAME.title
HELD_NAMES: Final = tuple(graph.name for graph in HELD)
TWIN_NAMES: Final = tuple(graph.name for graph in GRAPHS)


@dataclass(frozen=True, slots=True)
class StreamModelSettings:
    """A model of section 6.

    Attributes:
        title: the name shown.
        fanouts: neighbours drawn per hop, the hop next to the root first.
        sampling: `recent` or `uniform`.
        batch: edges of a mini-batch on one GPU.
        snapshots: windows looked at per root; 1 is everything before the root.
        chunks: parts of a batch by which its border moves from epoch to epoch (1: it stays).
    """

    title: str
    fanouts: tuple[int, ...]
    sampling: str
    batch: int
    snapshots: int = 1
    chunks: int = 1


SETTINGS: Final = {
    "tgn": StreamModelSettings("TGN", (10,), "recent", 4000, chunks=8),
    "tgat": StreamModelSettings("TGAT", (10, 10), "uniform", 600),
    "dysat": StreamModelSettings("DySAT", (10, 10), "uniform", 600, snapshots=3),
    "graphsage": StreamModelSettings("GraphSAGE", (15, 10), "uniform", 1200),
    "gat": StreamModelSettings("GAT", (10, 10), "uniform", 1200),
}
MODELS: Final = ("tgn", "tgat", "dysat")
"""The temporal models of sections 6.1 to 6.3."""
STATIC_MODELS: Final = ("graphsage", "gat")
MODEL_TITLES: Final = {name: one.title for name, one in SETTINGS.items()}
FORMS: Final = PaperForms(
    "gnnflow",
    texts=LEDGER.with_name("texts.yaml"),
    labels={
        "dataset": BY_NAME.title,
        "model": MODEL_TITLES,
        "baseline": {"tgl": "TGL", "tgl with cache": "TGL with cache", "dgl": "DGL"},
        "scale": "{:.3g}".format,
    },
    order={"dataset": [graph.name for graph in ALL], "model": MODELS},
)
MODEL_OF: Final = {one.title: name for name, one in SETTINGS.items()}
"""Our model for a name of the ledger."""
EPOCHS: Final = 3
"""Epochs of a round (section 6.1)."""
INITIAL: Final = 0.3
"""Share of the events that a model is trained on before the rounds begin (section 6.1)."""
LAMBDA: Final = 0.2
"""Share of a cache that one batch may replace (section 4.3)."""
GROWTH: Final = "growth in proportion to edges"
"""Model by which seconds on a part of a graph are brought to full size."""


def by_dataset(claim: str) -> dict[str, float]:
    """A column of a printed table, by our names of datasets."""
    names = {graph.title: graph.name for graph in GRAPHS}
    return {names[title]: plain(value) for title, value in ledger(LEDGER)[claim].items()}


def by_graph(quantity: MeasuredQuantity, names: Iterable[str]) -> dict[str, MeasuredQuantity]:
    """A quantity on each of these graphs, by the ledger's name of the graph."""
    return {graph_title(name): quantity.where(dataset=name) for name in names}


def at_full_size(quantity: MeasuredQuantity) -> MeasuredQuantity:
    """Numbers that grow with the edges, for as many of them as the whole graph has."""
    return quantity / of_rows(lambda row: float(row.data.get("scale") or 1.0), per=quantity.dims)


def turn_count(context: Any, dims: Any, one: Estimate) -> dict[str, int]:
    """Turns that a speedup rests on, beside its mark."""
    return {"n": sum(number(row, "turns") for row in one.rows)}


NEEDS_CUDA: Final = "needs CUDA devices: nox -s reproduce -- gnnflow --device cuda"


def filled_store(events: Any, batch: int, **how: Any) -> TemporalStore:
    """A store of all events, inserted in batches; `how`: further arguments of the store."""
    from dgbench.kernels_cuda.temporal_store import TemporalStore

    store = TemporalStore(events.num_nodes, **how)
    for first in range(0, len(events), batch):
        cut = slice(first, first + batch)
        store.insert(events.src[cut], events.dst[cut], events.t[cut])
    return store


def workload(graph: StreamGraph, model: str, preset: Preset, **fields: object) -> StreamWorkload:
    """A training task with the paper's settings (section 6) on one graph.

    `fields` are those of `StreamWorkload` that go before these.
    """
    from dgbench.systems.base.stream import StreamWorkload

    one = SETTINGS[model]
    batch = int(fields.get("batch", one.batch))  # type: ignore[call-overload]
    return StreamWorkload(
        **{
            "dataset": graph.name,
            "model": model,
            "scale": graph.scale(preset),
            "undirected": graph.undirected,
            "node_dim": graph.node_dim,
            "edge_dim": graph.edge_dim,
            "fanouts": one.fanouts,
            "sampling": one.sampling,
            "window": graph.window if one.snapshots > 1 else None,
            "snapshots": one.snapshots,
            "batch": one.batch,
            "chunks": math.gcd(one.chunks, batch),
            **fields,
        }  # type: ignore[arg-type]
    )
