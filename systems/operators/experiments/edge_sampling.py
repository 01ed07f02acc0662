"""Samplers of edges with every way to make a single draw (T-GCN, Figure 7)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from dgbench.kernels_cuda.edge_sampling import (
    EdgeSample,
    EdgeTable,
    SubgraphSample,
    sample_layerwise,
    sample_nodewise,
    sample_subgraph,
)
from dgbench.lab.experiment import Preset
from dgbench.lab.result_checks import ResultCheck, at_most
from dgbench.systems.operators.race import OURS, Call, OperatorCase, OperatorRace

METHODS = (
    "its_linear", "its_bitmap", "its_list", "its_rebuild", "alias", "brs", "reservoir", "keys",
)  # fmt: skip
TABLES = ("its_linear", "its_bitmap", "its_list", "its_rebuild", "brs")
"""Methods with prefix sums."""
SCANS = ("its_linear", "its_list", "its_rebuild")
"""Methods that read a part of a pool for every draw."""
SCANNED_PER_S = 1e9
SIZES = {"smoke": (200, 4000), "quick": (2000, 100_000), None: (7000, 1_300_000)}
FRONTIER = {"smoke": 100, "quick": 1000, None: 10_000}
ROOTS = {"smoke": 20, "quick": 300, None: 2000}
SUBGRAPHS = 4
TREE = f"{OURS}, sis"
"""Ours with the paper's way to draw, a tree of sums, also where all weights are equal."""
Calls = tuple[dict[str, Call], dict[str, str]]
"""Contenders, and what is left out with reasons."""
SAMPLERS = {
    "smoke": (("nodewise", 2, "half"), ("layerwise", 2, "200")),
    "quick": (("nodewise", 2, "half"), ("by_definition", 2, "12"), ("layerwise", 2, "2000")),
    None: (
        *((kind, layers, size)
          for layers in (2, 3)
          for kind, size in (("nodewise", "half"), ("nodewise", "64"), ("by_definition", "12"))),
        ("layerwise", 2, "2000"),
    ),
}  # fmt: skip


class EdgeSamplingRace(OperatorRace):
    threads = 1
    clock = staticmethod(time.process_time)

    def drawing(
        self, params: Mapping[str, Any], preset: Preset, make: Callable[[EdgeTable, Any], Calls]
    ) -> OperatorCase:
        """A case of calls on a power-law table, whose samples are compared with its stream."""
        src, dst, t = power_law_stream(params["vertices"], params["edges"])
        table = EdgeTable.build(src, dst, t, params["vertices"])
        calls, left_out = make(table, preset if preset in ROOTS else None)
        peers = tuple(name for name in calls if name not in (OURS, TREE))
        return OperatorCase(
            calls=calls,
            # Among equal weights ours draws as `reservoir` does: a peer of the tree only.
            baselines=(
                ((OURS, tuple(p for p in peers if p != "reservoir")), (TREE, peers))
                if TREE in calls
                else ((OURS, peers),)
            ),
            check=lambda name, _, found: check_sample(found, src, dst, table.num_nodes),
            left_out=left_out,
        )


class EdgeSampling(EdgeSamplingRace):
    name = "edge_sampling"
    title = "Samples of edges by every way to make a draw"
    question = "How much does a tree of sums gain over other ways to draw, sampler by sampler?"
    reading = (
        "One thread, its processor time, one sampler for all: only how an edge is drawn differs. "
        "All edges weigh the same here, so ours is left to choose partial Fisher-Yates; the tree "
        "of sums (`sis`), which goes down and up log n nodes a draw, is raced beside. What reads a "
        "part of a pool for every draw is left out where that would take seconds."
    )
    workloads = {
        preset: tuple(
            {"sampler": kind, "layers": layers, "drawn": drawn, "vertices": n, "edges": edges}
            for kind, layers, drawn in SAMPLERS[preset]
        )
        for preset, (n, edges) in SIZES.items()
    }
    label = "{sampler}, {layers} layers of {drawn}"

    def case(self, params: Mapping[str, Any], preset: Preset, device: str) -> OperatorCase:
        def make(table: EdgeTable, size: Any) -> Calls:
            generator = torch.Generator().manual_seed(2)
            roots = torch.randint(0, table.num_nodes, (ROOTS[size],), generator=generator)
            return self._layers(table, roots, params)

        return self.drawing(params, preset, make)

    def _layers(self, table: EdgeTable, roots: Tensor, params: Mapping[str, Any]) -> Calls:
        layers, drawn = params["layers"], params["drawn"]

        def call(method: str | None) -> Call:
            if params["sampler"] == "layerwise":
                sizes = (int(drawn),) * layers
                return lambda s: sample_layerwise(table, roots[:512], sizes, method=method, seed=s)
            if params["sampler"] == "by_definition":
                sizes = (int(drawn),) * layers
                return lambda s: sample_nodewise(
                    table, roots, sizes, union=False, method=method, seed=s
                )
            if drawn == "half":
                return lambda s: sample_nodewise(
                    table, roots[:1], layers=layers, method=method, seed=s
                )
            sizes = tuple(int(drawn) >> layer for layer in range(layers))
            return lambda s: sample_nodewise(table, roots, sizes, method=method, seed=s)

        tree = call("sis")
        sample = tree(0)
        counts = torch.stack([layer.offsets.diff() for layer in sample.layers], 1)
        scanned = float((sample.pools.double() * counts).sum() / 2)
        left_out = {
            method: f"it would read {scanned:.1e} elements"
            for method in SCANS
            if scanned > SCANNED_PER_S * self.slow_s
        }
        peers = {method: call(method) for method in METHODS if method not in left_out}
        return {OURS: call(None), TREE: tree, **peers}, left_out


class SubgraphSampling(EdgeSamplingRace):
    name = "subgraph_sampling"
    title = "Subgraphs by a moving frontier"
    question = "How much does a tree of sums gain where weights change with every draw?"
    reading = (
        "One thread, its processor time. Methods with prefix sums come twice: `whole` sums up the "
        "table anew after each move, as the paper compares with; `rest` from the moved slot on."
    )
    claims = ("operators-subgraphs-prefix-sums",)
    workloads = {
        preset: ({"frontier": FRONTIER[preset], "vertices": n, "edges": edges},)
        for preset, (n, edges) in SIZES.items()
    }
    label = "frontier of {frontier:,} slots"

    def case(self, params: Mapping[str, Any], preset: Preset, device: str) -> OperatorCase:
        def make(table: EdgeTable, _: Any) -> Calls:
            def call(method: str, rebuilt: Any) -> Call:
                return lambda turn: sample_subgraph(
                    table, params["frontier"], table.num_edges // 100, count=SUBGRAPHS,
                    method=method, rebuild=rebuilt, induced=False, seed=turn,
                )  # fmt: skip

            calls = {OURS: call("sis", "rest")}
            for method in METHODS:
                if method in TABLES:
                    calls |= {f"{method} {how}": call(method, how) for how in ("whole", "rest")}
                elif method != "reservoir":
                    calls[method] = call(method, "rest")
            return calls, {}

        return self.drawing(params, preset, make)


def power_law_stream(
    vertices: int, edges: int, exponent: float = 0.8
) -> tuple[Tensor, Tensor, Tensor]:
    """Ends drawn with probabilities that fall with a power of a vertex's rank; in time order."""
    generator = torch.Generator().manual_seed(1)
    sums = (torch.arange(vertices, dtype=torch.float64) + 10).pow(-exponent).cumsum(0)
    names = torch.randperm(vertices, generator=generator)

    def ends() -> Tensor:
        drawn = torch.rand(edges, generator=generator, dtype=torch.float64) * sums[-1]
        return names[torch.searchsorted(sums, drawn).clamp_(max=vertices - 1)]

    return ends(), ends(), torch.arange(edges, dtype=torch.float64)


def check_sample(
    found: EdgeSample | SubgraphSample, src: Tensor, dst: Tensor, vertices: int
) -> ResultCheck:
    """Sampled edges are edges of the stream, each once a root and layer; vertices are distinct."""
    wrong = total = 0
    if isinstance(found, SubgraphSample):
        owner = torch.repeat_interleave(torch.arange(SUBGRAPHS), found.offsets.diff())
        total = len(found.vertices)
        outside = (found.vertices < 0) | (found.vertices >= vertices)
        keys = owner * vertices + found.vertices
        wrong = int(outside.sum()) + total - len(torch.unique(keys))
    else:
        for layer in found.layers:
            offsets, given, sources, neighbours = (
                part.cpu() for part in (layer.offsets, layer.eids, layer.sources, layer.neighbours)
            )
            eids = given.clamp(0, len(src) - 1)
            other = (eids != given) | (src[eids] != sources)
            other |= dst[eids] != neighbours
            owner = torch.repeat_interleave(torch.arange(len(offsets) - 1), offsets.diff())
            total += len(eids)
            wrong += int(other.sum()) + len(eids) - len(torch.unique(owner * len(src) + eids))
    return at_most(
        "samples", wrong / max(1, total), 0.0, against="edges of the stream", compared=total
    )
