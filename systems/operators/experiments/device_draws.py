"""T-GCN's samplers and sums on a device: draws from a tree, edges, subgraphs, and partner sums."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from dgbench.kernels_cuda.edge_sampling import (
    EdgeTable,
    keep_share,
    sample_layerwise,
    sample_nodewise,
    sample_subgraph,
)
from dgbench.kernels_cuda.edge_sampling.device import table_on
from dgbench.kernels_cuda.interact import edge_dots, group_edges, partner_sums
from dgbench.kernels_cuda.weighted import SegmentTree
from dgbench.kernels_cuda.weighted.device import draw_sets
from dgbench.lab.experiment import Preset
from dgbench.lab.result_checks import ResultCheck, close, equal
from dgbench.systems.operators.experiments.edge_sampling import check_sample
from dgbench.systems.operators.race import OURS, Call, OperatorCase, OperatorRace

CPU = "CPU"
AGAINST = "results of the CPU"
ITEMS = {"smoke": (2000,), "quick": (1_000_000,), None: (10_000, 1_000_000, 20_000_000)}
GRAPHS = {"smoke": (200, 4000), "quick": (50_000, 1_000_000), None: (500_000, 10_000_000)}
"""Vertices, edges."""
ROOTS = {"smoke": 20, "quick": 1000, None: 10_000}
FRONTIERS = {
    "smoke": ((50, 2, 40),),
    "quick": ((1000, 100, 2000),),
    None: tuple(
        (frontier, count, 20_000) for frontier in (1000, 10_000, 50_000) for count in (1, 100, 500)
    ),
}
"""Slots of a frontier, subgraphs at once, draws of each."""


class TreeDraws(OperatorRace):
    name = "tree_draws"
    title = "A few draws from a tree of sums on a device"
    question = "How fast are draws of few of many items from a tree, against prefix sums by torch?"
    reading = (
        "Independent draws of a hundredth of the items; every other form builds its tree first."
    )
    devices = ("cuda",)
    workloads = {preset: tuple({"items": n} for n in sizes) for preset, sizes in ITEMS.items()}
    label = "{items:,} items"

    def case(self, params: Mapping[str, Any], preset: Preset, device: str) -> OperatorCase:
        n = params["items"]
        count = max(1, min(100_000, n // 100))
        weights = torch.randint(1, 50, (n,), generator=torch.Generator().manual_seed(n))
        host = SegmentTree(weights)
        right = host.draw(count, seed=3, remove=False)
        there = weights.to(device)
        make = tree_class(device)
        tree, sums = make(there), there.cumsum(0)
        built, removed, prefix = f"{OURS}, built", f"{OURS}, removed", "torch prefix sums"

        def check(name: str, _: int, found: Tensor) -> ResultCheck:
            if name == prefix:
                inside = (found >= 0) & (found < n)
                return equal("samples", inside, torch.ones_like(inside), against="items there are")
            if name == removed:  # a device passes over what it has drawn: other random numbers
                items = found.cpu().unique()
                seen = torch.tensor([found.numel(), items.numel(), int((weights[items] > 0).sum())])
                return equal(
                    "samples", seen, torch.full_like(seen, count),
                    against="distinct items with weight",
                )  # fmt: skip
            return equal("samples", found, right, against=AGAINST)

        return OperatorCase(
            calls={
                OURS: lambda _: tree.draw(count, seed=3, remove=False),
                built: lambda _: make(there).draw(count, seed=3, remove=False),
                removed: lambda _: make(there).draw(count, seed=3),
                CPU: lambda _: host.draw(count, seed=3, remove=False),
                prefix: lambda _: torch.searchsorted(
                    sums, torch.randint(int(sums[-1]), (count,), device=device), right=True
                ),
            },
            check=check,
            baselines=((OURS, (CPU, prefix)),),
            work=(("throughput", {"of": "draws"}, count),),
        )


def tree_class(device: str) -> Any:
    """The tree of a device."""
    if device != "cuda":
        return SegmentTree
    from dgbench.kernels_cuda.weighted.device_segment_tree import DeviceSegmentTree

    return DeviceSegmentTree


def skewed_edges(vertices: int, edges: int) -> tuple[Tensor, Tensor]:
    """Sources and destinations with degrees by a power law, and a hub."""
    draw = torch.Generator().manual_seed(7)
    src = (vertices * torch.rand(edges, generator=draw, dtype=torch.float64) ** 4).long()
    dst = (vertices * torch.rand(edges, generator=draw, dtype=torch.float64) ** 2).long()
    return src, dst


def table_of(src: Tensor, dst: Tensor, vertices: int) -> EdgeTable:
    """A table of edges that come one after the other."""
    return EdgeTable.build(src, dst, torch.arange(len(src)).double(), vertices)


class DeviceEdges(OperatorRace):
    name = "device_edges"
    title = "Samples of edges on a device"
    question = "How fast does a device sample shares of rows and edges around roots?"
    reading = (
        "Kept shares are compared with the CPU's, which is timed with all threads. A device draws "
        "around roots by other random numbers: its samples must be edges of the stream, each once "
        "a root and layer, and as many at every root as the CPU's."
    )
    devices = ("cuda",)
    rivals = "the CPU"
    workloads = {
        preset: tuple(
            {"sampler": sampler, "vertices": n, "edges": edges}
            for sampler in ("share", "nodewise", "union", "layerwise")
        )
        for preset, (n, edges) in GRAPHS.items()
    }
    label = "{sampler}"

    def case(self, params: Mapping[str, Any], preset: Preset, device: str) -> OperatorCase:
        src, dst = skewed_edges(params["vertices"], params["edges"])
        table = table_of(src, dst, params["vertices"])
        there = table_on(table, device)
        count = ROOTS[preset if preset in ROOTS else None]
        draw = torch.Generator().manual_seed(2)
        asked = torch.randint(table.num_nodes, (count,), generator=draw)
        sampler = params["sampler"]
        how = {"method": "keys", "seed": 1}
        calls: dict[str, Call]
        if sampler == "share":
            calls = {
                OURS: lambda _: keep_share(there, seed=1),
                CPU: lambda _: keep_share(table, seed=1),
            }
            if device == "cuda":
                offsets = torch.zeros(table.num_nodes + 1, dtype=torch.int64, device=device)
                torch.cumsum((there.degrees + 1) // 2, 0, out=offsets[1:])
                begin, end = there.indptr[:-1], there.indptr[1:]
                calls[f"{OURS}, keys alone"] = lambda _: draw_sets(begin, end, offsets, seed=1)
        elif sampler == "layerwise":
            calls = {
                name: lambda _, one=one, ids=ids: sample_layerwise(
                    one, ids, [5000, 5000], batch=1000, **how
                )
                for name, one, ids in ((OURS, there, asked.to(device)), (CPU, table, asked))
            }
        else:
            calls = {
                name: lambda _, one=one, ids=ids: sample_nodewise(
                    one, ids, [10, 10], union=sampler == "union", **how
                )
                for name, one, ids in ((OURS, there, asked.to(device)), (CPU, table, asked))
            }
        wanted = calls[CPU](0)

        def check(name: str, _: int, found: Any) -> ResultCheck | None:
            if name.startswith(f"{OURS}, "):
                return None  # another form of the same result
            if isinstance(found, Tensor):
                return equal("samples", found, wanted, against=AGAINST)
            rules = check_sample(found, src, dst, table.num_nodes)
            if sampler == "layerwise" or not rules.passed:
                return rules
            at_roots = (one.layers[0].offsets.diff() for one in (found, wanted))
            return equal("samples", *at_roots, against="numbers that the CPU draws at each root")

        return OperatorCase(
            calls=calls,
            check=check,
            baselines=((OURS, (CPU,)),),
            work=(("throughput", {"of": "edges"}, table.num_edges),) if sampler == "share" else (),
        )


class DeviceSubgraphs(OperatorRace):
    name = "device_subgraphs"
    title = "Subgraphs by many frontiers at once"
    question = "How fast are draws of subgraphs on a device, by frontiers that move at once?"
    reading = "Without the edges that vertices induce. The CPU moves its frontiers one by one."
    devices = ("cuda",)
    rivals = "the CPU"
    slow_s = 20.0
    workloads = {
        preset: tuple(
            {"frontier": frontier, "size": count, "batch": draws, "vertices": n, "edges": edges}
            for frontier, count, draws in FRONTIERS[preset]
        )
        for preset, (n, edges) in GRAPHS.items()
    }
    label = "{size} frontiers of {frontier:,}, {batch:,} draws"

    def case(self, params: Mapping[str, Any], preset: Preset, device: str) -> OperatorCase:
        src, dst = skewed_edges(params["vertices"], params["edges"])
        table = table_of(src, dst, params["vertices"])
        there = table_on(table, device)
        frontier, count, draws = params["frontier"], params["size"], params["batch"]
        how = {"induced": False, "seed": 1, "replacement": frontier > table.num_nodes}
        run = partial(sample_subgraph, count=count, **how)
        wanted = run(table, frontier, draws)
        right = {"offsets": wanted.offsets, "vertices": wanted.vertices}
        return OperatorCase(
            calls={
                OURS: lambda _: run(there, frontier, draws),
                CPU: lambda _: run(table, frontier, draws),
            },
            check=lambda _, __, found: equal(
                "samples", {"offsets": found.offsets, "vertices": found.vertices}, right,
                against=AGAINST,
            ),
            work=(("throughput", {"of": "draws"}, count * draws),),
        )  # fmt: skip


class Partners(OperatorRace):
    name = "partners"
    title = "Sums over partners of an interval's edges"
    question = "How fast are sums over the partners of edges, and products of their rows?"
    reading = (
        "Sums at both ends of every edge, by edges grouped before, against torch's index_add; or "
        "products of the rows of both ends, against torch's. Grouping is timed by itself."
    )
    devices = ("cuda",)
    workloads = {
        preset: tuple(
            {"what": what, "edges": edges, "vertices": n, "width": width, "skew": float(skew)}
            for what in ("sums", "products")
            for edges, n, width, skew in sizes
        )
        for preset, sizes in {
            "smoke": ((2000, 300, 8, 2),),
            "quick": ((20_000, 5000, 64, 2), (500_000, 50_000, 64, 2)),
            None: (
                (20_000, 5000, 64, 2),
                (2_500_000, 125_000, 64, 2),
                (2_500_000, 125_000, 64, 6),
                (2_500_000, 125_000, 16, 4),
            ),
        }.items()
    }
    label = "{what}, {edges:,} edges, {vertices:,} x {width}, skew {skew:g}"

    def case(self, params: Mapping[str, Any], preset: Preset, device: str) -> OperatorCase:
        edges, n, width = params["edges"], params["vertices"], params["width"]
        draw = torch.Generator().manual_seed(3)
        ends = torch.rand(2, edges, generator=draw, dtype=torch.float64) ** params["skew"]
        src, dst = (n * ends).long()
        x = torch.rand(n, width, generator=draw)
        if params["what"] == "products":
            exact = (x[src].double() * x[dst].double()).sum(1)
            src, dst, x = (one.to(device) for one in (src, dst, x))
            calls: dict[str, Call] = {
                OURS: lambda _: edge_dots(src, dst, x, x),
                "torch": lambda _: (x[src] * x[dst]).sum(1),
            }
            moved = edges * (20 + 8 * width)
        else:
            exact = torch.zeros(2, n, width, dtype=torch.float64)
            exact[0].index_add_(0, src, x[dst].double())
            exact[1].index_add_(0, dst, x[src].double())
            src, dst, x = (one.to(device) for one in (src, dst, x))
            by_src, by_dst = group_edges(src, n), group_edges(dst, n)

            def ours(_: int) -> list[Tensor]:
                found = partner_sums(src, dst, x, x, by_src=by_src, by_dst=by_dst)
                return [found.sum_s, found.sum_g]

            def by_torch(_: int) -> list[Tensor]:
                return [
                    torch.zeros_like(x).index_add_(0, one, x[other])
                    for one, other in ((src, dst), (dst, src))
                ]

            calls = {OURS: ours, "torch": by_torch, "grouping": lambda _: group_edges(src, n)}
            moved = 2 * (edges * (16 + 4 * width) + n * (8 + 4 * width))
        return OperatorCase(
            calls=calls,
            check=lambda name, _, found: None if name == "grouping" else close(
                "outputs", list(found) if isinstance(found, list) else found,
                list(exact) if params["what"] == "sums" else exact, 1e-5,
                against="float64 sums of torch",
            ),
            baselines=((OURS, ("torch",)),),
            work=(("bandwidth", {}, moved), ("product_rate", {}, 2 * edges * width)),
        )  # fmt: skip
