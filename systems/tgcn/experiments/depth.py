"""Number of vertices that a sample reaches as layers are added (section 2.3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

import torch

from dgbench.kernels_cuda.edge_sampling import (
    EdgeSample,
    EdgeTable,
    sample_layerwise,
    sample_nodewise,
)
from dgbench.lab.charts import failed, failures, mark, sweep
from dgbench.lab.grid import Grid
from dgbench.lab.table import Table, rows_of
from dgbench.systems.base import Cell, FigureSpec, Measurement, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.tgcn.common import open_graph
from dgbench.systems.tgcn.recounts import check_walk, half_of
from dgbench.systems.tgcn.settings import BY_NAME, SHARE, graph_title, panel

NAME: Final = "depth"
SHOWN: Final = {
    "smoke": ("college-msg",),
    "quick": ("flickr", "wikipedia", "sx-mathoverflow"),
    "full": ("lastfm", "reddit", "flickr", "twitter", "wikipedia", "enron", "sx-mathoverflow"),
    "paper": ("lastfm", "reddit", "flickr", "twitter", "wikipedia", "enron", "sx-mathoverflow"),
}
LAYERS: Final = 5
FANOUT: Final = 4
"""Neighbours a vertex samples: small, so that five layers do not reach the whole graph."""
WIDTH: Final = 256
"""Edges that a layer of layer-wise sampling draws."""
ROOTS: Final = {"smoke": 50, "quick": 200, "full": 1000, "paper": 1000}
UNION_ROOTS: Final = 10
"""Roots of samples of half of the union, which soon hold a tenth of a graph each."""
WAYS: Final = {
    "node": f"node-wise, {FANOUT} of every vertex",
    "union": "node-wise, half of the union",
    "layer": f"layer-wise, {WIDTH} a layer",
}
"""A fixed number of every vertex's neighbours, as the statement is meant; half of them, as the
experiments sample; a fixed number for all vertices of a layer."""

Rows = Sequence[Any]


class Depth(Grid):
    paper = "tgcn"
    name = NAME
    title = "Samples by depth"
    device = "cpu"
    question = (
        "Does a sample grow exponentially with layers, node by node, and linearly, layer-wise?"
    )
    reading = (
        "Counted over random roots. Node-wise and union samples are per root, a layer-wise one is "
        "of a batch. A vertex that is reached twice in a layer is sampled once, so that growth "
        "bends where a sample covers much of the graph."
    )
    claims = ("tgcn-s2-nodewise-exponential", "tgcn-s2-layerwise-linear")
    axes: ClassVar = {"dataset": SHOWN}
    timeout_s: ClassVar = {"full": 600, "paper": 3600, None: 60}

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph = BY_NAME[str(cell.params["dataset"])]
        events = open_graph(graph.name, context.preset)
        table = EdgeTable.build(
            events.src, events.dst, events.t, events.num_nodes, undirected=True
        )  # fmt: skip
        occupied = table.degrees.nonzero().squeeze(1)
        found = Measurement(
            data=describe(events),
        )
        found.observe("vertices", len(occupied))
        found.observe("edges", len(events))
        found.observe("vertices", ROOTS[context.preset], of="roots")
        found.observe("degree", 2 * len(events) / max(1, len(occupied)), method="mean")
        numbers = torch.Generator().manual_seed(5)
        places = torch.randint(len(occupied), (ROOTS[context.preset],), generator=numbers)
        roots = occupied[places]
        drawn = samples(table, roots)
        for way, sample in drawn.items():
            for layer, mean in enumerate(counts(sample), 1):
                found.observe("degree", mean, method=way, layer=layer)
        amounts = {
            "node": lambda degrees: int(degrees.clip(max=FANOUT).sum()),
            "union": lambda degrees: int(half_of(degrees.sum(), SHARE)),
            "layer": lambda degrees: min(WIDTH, int(degrees.sum())),
        }
        found.checks = [
            check_walk(
                (events.src, events.dst), sample, roots if way != "union" else roots[:UNION_ROOTS],
                amount=amounts[way], part=way,
            )
            for way, sample in drawn.items()
        ]  # fmt: skip
        return found

    def figures(self) -> list[FigureSpec]:
        return [
            sweep(NAME, "Edges that a sample draws in each layer", points, xlabel="layer",
                ylabel="edges drawn in the layer", xlog=False, names=False),
        ]  # fmt: skip

    def answer(self, rows: Rows) -> str:
        found = rows_of(rows, experiment=NAME)
        if not found:
            return ""
        grown, flat = ([one[-1] / one[0] for row in found if (one := drawn(row, way))]
                       for way in ("node", "layer"))  # fmt: skip
        ends = list(dict.fromkeys(f"{end:.1f}" for end in (min(flat), max(flat))))
        times = "as many" if ends == ["1.0"] else f"{' to '.join(ends)} times as many"
        return (
            f"The last of {LAYERS} layers draws {min(grown):.0f} to {max(grown):.0f} times the "
            f"edges of the first node-wise ({FANOUT}^{LAYERS - 1} = {FANOUT ** (LAYERS - 1)} with "
            f"no vertex met twice), and {times} layer-wise."
        )


def samples(table: EdgeTable, roots: torch.Tensor) -> dict[str, EdgeSample]:
    """Samples around roots by each of `WAYS`."""
    sizes = [FANOUT] * LAYERS
    return {
        "node": sample_nodewise(table, roots, sizes, union=False, seed=1),
        "union": sample_nodewise(table, roots[:UNION_ROOTS], share=SHARE, layers=3, seed=1),
        "layer": sample_layerwise(table, roots, [WIDTH] * LAYERS, seed=1),
    }


def counts(sample: EdgeSample) -> list[float]:
    """Edges drawn in each layer: of a root on average, of a batch if layer-wise."""
    return [ids.numel() / (sample.node_offsets.numel() - 1) for ids in sample.eids]


def drawn(row: Any, way: str) -> list[float]:
    """Edges drawn in layers 1, 2, ..."""
    return Table.of([row]).where("degree", method=way).values


def points(rows: Rows) -> list[dict[str, Any]]:
    """Points of `sweep`: edges by layer."""
    made = [
        mark(row, panel=panel(row), series=words, x=layer, y=edges, counted=True)
        for row in rows_of(rows, experiment=NAME)
        for way, words in WAYS.items()
        for layer, edges in enumerate(drawn(row, way), 1)
        if edges > 0
    ]
    return made + [
        {"panel": graph_title(row.params["dataset"]), "series": WAYS["node"], "x": 1,
         "failed": failed(row), "row_ids": [row.id]}
        for row in failures(rows, NAME)
    ]  # fmt: skip
