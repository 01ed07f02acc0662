"""DGC's datasets and models (Table 1, section 7.1), the data held beside them, and our sizes.

The paper's four graphs are twins wherever their files are not held. What a presence rule makes of
their vertices is counted by the experiment `table1`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from dgbench.lab.estimates import EvaluationContext, Filter, PaperForms, real_data
from dgbench.lab.evidence import PapersGraphs, uses_twin
from dgbench.lab.printed import expanded
from dgbench.lab.table import Entry
from dgbench.systems.base import Preset
from dgbench.systems.base.own_graphs import GraphsByName

if TYPE_CHECKING:
    from dgbench.systems.base.sequences import SequenceWorkload

LEDGER: Final = Path(__file__).parents[1] / "claims.yaml"
PRESETS: Final = ("smoke", "quick", "full", "paper")
TRAINED_LIKE: Final = "full"
"""Preset whose sizes whole trainings (`quality`) have."""


def place_of(preset: Preset) -> int:
    """Index into sizes by preset."""
    return PRESETS.index(TRAINED_LIKE if preset == "quality" else preset)


@dataclass(frozen=True, slots=True)
class ChunkedGraph:
    """One graph and our settings for it.

    Attributes:
        name, title: the card's name and the name shown.
        window: length of a window as printed; the unit stands for Amazon only, days. "" where the
            paper does not use the graph.
        scales: twin size factor by preset; 1 for data that is held.
        real: whether the data is held and real.
    """

    name: str
    title: str
    window: str
    scales: tuple[float, float, float, float]
    real: bool = False

    @property
    def printed(self) -> dict[str, int]:
        """Snapshots, vertices and edges as Table 1 prints them; empty for our own additions."""
        return expanded(LEDGER, f"tab1-{self.title.lower()}")

    @property
    def bins(self) -> int | None:
        """T of Table 1; None takes the card's."""
        return self.printed.get("snapshots")

    def scale(self, preset: Preset) -> float:
        return self.scales[place_of(preset)]


GRAPHS: Final = (
    ChunkedGraph("amazon", "Amazon", "30", (1 / 4096, 1 / 1024, 1 / 64, 1.0)),
    ChunkedGraph("epinions", "Epinion", "1", (1 / 4096, 1 / 1024, 1 / 64, 1.0)),
    ChunkedGraph("movie", "Movie", "30", (1 / 4096, 1 / 512, 1 / 64, 1.0)),
    ChunkedGraph("stack", "Stack", "10", (1 / 4096, 1 / 1024, 1 / 64, 1.0)),
)  # fmt: skip
"""The paper's four graphs, in its order."""

PAPERS_GRAPHS: Final = PapersGraphs({graph.name for graph in GRAPHS}, families=("synthetic",))
"""Its four graphs, and what its own generator makes."""

ONE: Final = (1.0, 1.0, 1.0, 1.0)
HELD: Final = (
    ChunkedGraph("sx-mathoverflow", "sx-mathoverflow", "", ONE, real=True),
    ChunkedGraph("epinions-2011-ratings", "Epinions 2011", "", ONE, real=True),
    ChunkedGraph("amazon-magazine", "Amazon magazines", "", ONE, real=True),
    ChunkedGraph("wikipedia", "Wikipedia", "", ONE, real=True),
    ChunkedGraph("email-eu-core", "email-Eu", "", ONE, real=True),
)
"""Real data held here, in the windows of their cards: what decides where a twin may not."""

ALL: Final = GRAPHS + HELD
KIN: Final = {
    "amazon": "amazon-magazine",
    "epinions": "epinions-2011-ratings",
    "stack": "sx-mathoverflow",
}
"""Held graphs of the site that a graph of the paper is of; of MovieLens none is held."""

T = TypeVar("T")


def standing_in(
    dataset: str,
    found: Sequence[T],
    name: Callable[[T], str],
    twin: Callable[[T], bool],
    *,
    any_graph: bool = False,
) -> list[T]:
    """Items found on one of the paper's graphs; else on the held graph of the same site; with
    `any_graph` else on all real graphs; else on the twin, which decides what its rules allow."""
    real = [one for one in found if not twin(one)]
    for wanted in (dataset, KIN.get(dataset)):
        if mine := [one for one in real if name(one) == wanted]:
            return mine
    if any_graph and real:
        return real
    return [one for one in found if name(one) == dataset]


def with_stand_ins(*datasets: str, any_graph: bool = False) -> Filter:
    """Filter: entries on these graphs of the paper, or on what stands in for each (`standing_in`);
    none of twins beside real ones."""

    def kept(entries: list[Entry], context: EvaluationContext) -> list[Entry]:
        mine = [
            one for dataset in datasets
            for one in standing_in(dataset, entries, lambda e: e["dataset"],
                                   lambda e: uses_twin([e.row]), any_graph=any_graph)
        ]  # fmt: skip
        return real_data(mine, context) or mine

    return kept


def papers_first(entries: list[Entry], context: EvaluationContext) -> list[Entry]:
    """Filter: entries on the paper's graphs where these are real, else on real ones, else all."""
    real = real_data(entries, context)
    return [one for one in real if one.row in PAPERS_GRAPHS] or real or entries


BY_NAME: Final = GraphsByName(
    ALL, lambda card: ChunkedGraph(card.name, card.title, "", ONE, real=True)
)

MODELS: Final = ("tgcn_2layer", "dysat", "mpnn_lstm_bare")
MODEL_TITLES: Final = {
    "tgcn_2layer": "T-GCN model",
    "dysat": "DySAT",
    "mpnn_lstm_bare": "MPNN-LSTM",
}
PAPERS, OTHERS = "the paper's graphs", "other real graphs"
NUMBERED: Final = {dim: f"{dim} {{}}".format for dim in ("epoch", "seed")}
"""Words of dimensions that are counted."""
FORMS: Final = PaperForms(
    "dgc",
    texts=LEDGER.with_name("texts.yaml"),
    labels={"dataset": BY_NAME.title, "model": MODEL_TITLES, **NUMBERED},
    facts={"origin": ("dataset", lambda name: OTHERS if BY_NAME[name].real else PAPERS)},
    order={"dataset": [graph.name for graph in ALL], "model": MODELS},
)
MODEL_OF: Final = {"T-GCN": "tgcn_2layer", "DySAT": "dysat", "MPNN-LSTM": "mpnn_lstm_bare"}
"""Our model for a name of the ledger. T-GCN is the traffic model: GCNs inside a GRU."""

DATASET_OF: Final = {graph.title: graph.name for graph in GRAPHS}
"""Our dataset for a name of the ledger."""

NEEDS_CUDA: Final = "needs CUDA devices: nox -s reproduce -- dgc --device cuda"


def snapshots(preset: Preset) -> int | None:
    """Snapshots that a timed cell keeps, the last ones and the target; all in full and paper."""
    return (9, 65, None, None)[place_of(preset)]


def workload(graph: ChunkedGraph, model: str, preset: Preset, **fields: object) -> SequenceWorkload:
    """Our training task with the paper's settings (7.1) on one graph, at a preset's scale and
    snapshots; `fields` are those of `SequenceWorkload` that go before these."""
    from dgbench.systems.base.sequences import SequenceWorkload

    return SequenceWorkload(
        **{
            "dataset": graph.name,
            "model": model,
            "scale": graph.scale(preset),
            "bins": graph.bins,
            "snapshots": snapshots(preset),
            **fields,
        }  # type: ignore[arg-type]
    )
