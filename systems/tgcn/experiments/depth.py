"""Number of vertices that a sample reaches as layers are added (section 2.3)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import torch

from dgbench.kernels_cuda.edge_sampling import (
    EdgeSample,
    EdgeTable,
    sample_layerwise,
    sample_nodewise,
)
from dgbench.lab import line_rules
from dgbench.lab.figure_forms import Sweep
from dgbench.lab.quantities import observed
from dgbench.lab.study import FormExperiment
from dgbench.systems.base import Cell, Measurement, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.tgcn.recounts import check_walk, half_of
from dgbench.systems.tgcn.settings import BY_NAME, FORMS, SHARE, open_graph

SHOWN = {
    "smoke": ("college-msg",),
    "quick": ("flickr", "wikipedia", "sx-mathoverflow"),
    None: ("lastfm", "reddit", "flickr", "twitter", "wikipedia", "enron", "sx-mathoverflow"),
}
LAYERS = 5
FANOUT = 4
"""Neighbours a vertex samples: small, so that five layers do not reach the whole graph."""
WIDTH = 256
"""Edges that a layer of layer-wise sampling draws."""
ROOTS = {"smoke": 50, "quick": 200, "full": 1000, "paper": 1000}
UNION_ROOTS = 10
"""Roots of samples of half of the union, which soon hold a tenth of a graph each."""
WAYS = {
    "node": f"node-wise, {FANOUT} of every vertex",
    "union": "node-wise, half of the union",
    "layer": f"layer-wise, {WIDTH} a layer",
}
"""A fixed number of every vertex's neighbours, as the statement is meant; half of them, as the
experiments sample; a fixed number for all vertices of a layer."""

MULTIPLIED = 1.5
"""Smallest factor of the drawn edges per layer: some vertices have few neighbours, some are met
twice."""
FLAT = 0.1
"""Difference of layers up to which they are alike."""
DRAWN = observed("degree", per=("dataset", "layer"))
"""Edges that a sample draws in a layer."""


def multiplies(layers: Mapping[int, float]) -> bool:
    """Return True if each layer draws several times the edges of the one before."""
    return min(after / before for before, after in pairwise(layers.values())) >= MULTIPLIED


def are_alike(layers: Mapping[int, float]) -> bool:
    """Return True if all layers draw about as many edges."""
    return max(layers.values()) <= (1 + FLAT) * min(layers.values())


class Depth(FormExperiment):
    forms, name = FORMS, "depth"
    device = "cpu"
    axes = {"dataset": SHOWN}
    timeout_s = {"full": 600, "paper": 3600, None: 60}
    headline, unit = (
        DRAWN.where(method="node", layer=LAYERS) / DRAWN.where(method="node", layer=1),
        "x",
    )
    figure_forms = (
        Sweep(
            "depth", "Edges that a sample draws in each layer",
            {words: DRAWN.where(method=way) for way, words in WAYS.items()},
            panel="{dataset}", series="of", x="layer", more=lambda *_: {"counted": True},
            gaps={"series": WAYS["node"], "x": 1}, xlabel="layer",
            ylabel="edges drawn in the layer", xlog=False, names=False,
        ),
    )  # fmt: skip
    claims = {
        "tgcn-s2-nodewise-exponential": line_rules.each_line(
            DRAWN.where(method="node"), "layer", multiplies
        ),
        "tgcn-s2-layerwise-linear": line_rules.each_line(
            DRAWN.where(method="layer"), "layer", are_alike
        ),
    }

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph = BY_NAME[str(cell.params["dataset"])]
        events = open_graph(graph.name, context.preset)
        table = EdgeTable.build(
            events.src, events.dst, events.t, events.num_nodes, undirected=True
        )  # fmt: skip
        occupied = table.degrees.nonzero().squeeze(1)
        found = Measurement(data=describe(events))
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
