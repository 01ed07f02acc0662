"""T-GCN's samplers and sums on a device, all in one process.

Five tables. Sums over the partners of an interval's edges; subgraphs by a frontier, in ns a draw;
kept shares, many sets at once, and samples around roots; drawing k of n by keys beside torch and
the CPU; and draws from a tree of sums. Draws, shares and subgraphs are compared with the CPU's
before they are timed, sums with float64.

`of copy` is the share of what a copy on the device moves in the same time. One JSON line per
measurement goes to --out, the tables to standard output.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

import torch
from gpu_timing import Report, wait

from dgbench.kernels_cuda.edge_sampling import (
    EdgeTable,
    keep_share,
    sample_layerwise,
    sample_nodewise,
    sample_subgraph,
)
from dgbench.kernels_cuda.edge_sampling.device import table_on
from dgbench.kernels_cuda.interact import edge_dots, group_edges, partner_sums
from dgbench.kernels_cuda.weighted import SegmentTree, draw_without_replacement
from dgbench.kernels_cuda.weighted.device import draw_keys, draw_sets
from dgbench.kernels_cuda.weighted.device_segment_tree import DeviceSegmentTree
from dgbench.runtime.errors import DgbenchError
from dgbench.runtime.statistics import median

WRONG = "wrong"
MULTINOMIAL = 1 << 24
"""Most categories of torch.multinomial."""


class DrawReport(Report):
    """`Report` of contenders beside the rate of a copy."""

    def __init__(self, path: str, device: str, seconds: float, rounds: int) -> None:
        super().__init__(path, device, seconds)
        self.rounds, self.copy = rounds, 0.0

    def median_seconds(self, work: Callable[[], object], rounds: int | None = None) -> float:
        """Median of several runs after one that is not counted; few where they are long."""
        work()
        took: list[float] = []
        while len(took) < (self.rounds if rounds is None else rounds) and sum(took) <= 2:
            took.append(self.seconds(work))
        return median(took)

    def row(
        self, what: str, name: str, work: Callable[[], object], moved: int, **more: Any
    ) -> None:
        """Time one contender: `moved` bytes are what it has to read and write at least."""
        if self.over(f"{what} {name}"):
            return
        try:
            took = self.median_seconds(work)
        except (DgbenchError, RuntimeError) as error:
            wait(self.device)
            self.add(f"{what:34}{name:22}{type(error).__name__}: {str(error)[:60]}", what=what,
                     contender=name, failed=str(error)[:300], **more)  # fmt: skip
            return
        rate = moved / took / 1e9
        share = rate / self.copy if self.copy else 0
        self.add(
            f"{what:34}{name:22}{1e6 * took:12.1f} us{moved / 1e6:11.2f} MB{rate:9.1f} GB/s"
            f"{share:8.1%} of copy",
            what=what, contender=name, seconds=took, bytes=moved, copy_share=share, **more,
        )  # fmt: skip

    def check(self, what: str, good: bool) -> bool:
        if not good:
            self.wrong += 1
            self.add(f"{what:34}{WRONG}", what=what, failed=WRONG)
        return good


def copy_rate(report: DrawReport, megabytes: int) -> float:
    """GB/s that a copy reads and writes."""
    source = torch.zeros(megabytes << 18, device=report.device)
    to = torch.empty_like(source)
    took = report.median_seconds(lambda: to.copy_(source))
    rate = 2 * 4 * source.numel() / took / 1e9
    report.add(f"a copy of {megabytes} MB moves {rate:.0f} GB/s", what="copy", gb_s=rate)
    return rate


def one_set(report: DrawReport, options: Any) -> None:
    """Half of n items by their weights."""
    print("\ndrawing n / 2 of n items without replacement, in proportion to weights")
    for n in options.items:
        if report.over(f"n {n}"):
            return
        random = torch.Generator().manual_seed(n)
        weights = torch.rand(n, generator=random) + 0.1
        there, k = weights.to(report.device), n // 2
        what = f"n {n:.0e}, k n/2"
        right = draw_without_replacement(weights, k, seed=1)
        report.row(what, "keys, CPU", lambda w=weights, k=k: draw_without_replacement(w, k, seed=1),
                   4 * n + 8 * k)  # fmt: skip
        if report.device == "cuda":
            found = draw_keys(there, k, seed=1)
            if not report.check(what, torch.equal(found.cpu(), right)):
                continue
            for stored in (True, False):
                name = "keys" if stored else "keys, made anew"
                report.row(
                    what, name,
                    lambda w=there, k=k, s=stored: draw_keys(w, k, seed=1, stored=s),
                    4 * n + 8 * k, stored=stored,
                )  # fmt: skip
            # The kernels alone: without the look at the weights and the word from the device.
            bounds = torch.tensor([0, n, 0, k], device=report.device)
            report.row(
                what, "keys, no checks",
                lambda b=bounds, w=there, n=n, k=k: draw_sets(
                    b[:1], b[1:2], b[2:], weights=w, seed=1, total=k, largest=n
                ),
                4 * n + 8 * k,
            )  # fmt: skip
        report.row(
            what, "keys by torch.topk",
            lambda w=there, k=k: torch.topk(
                torch.empty_like(w).exponential_().div_(w), k, largest=False, sorted=False
            ).indices,
            4 * n + 8 * k,
        )  # fmt: skip
        if n <= MULTINOMIAL:
            report.row(what, "torch.multinomial",
                       lambda w=there, k=k: torch.multinomial(w, k), 4 * n + 8 * k)  # fmt: skip


def one_tree(report: DrawReport, options: Any) -> None:
    """Few draws of many items from one tree."""
    print("\na tree of sums: build, and draws that are independent or remove")
    for n in options.items:
        if report.over(f"tree {n}"):
            return
        weights = torch.randint(1, 50, (n,), generator=torch.Generator().manual_seed(n))
        count = max(1, min(100_000, n // 100))
        what = f"n {n:.0e}, {count} draws"
        if n <= 20_000_000:
            tree = SegmentTree(weights)
            right = tree.draw(count, seed=3, remove=False)
            report.row(
                what,
                "independent, CPU",
                lambda t=tree, c=count: t.draw(c, seed=3, remove=False),
                8 * count,
            )
        if report.device != "cuda":
            continue
        there = weights.to(report.device)
        mine = DeviceSegmentTree(there)
        if n <= 20_000_000 and not report.check(
            what, torch.equal(mine.draw(count, seed=3, remove=False).cpu(), right)
        ):
            continue
        report.row(what, "build", lambda w=there: DeviceSegmentTree(w), 20 * n)
        report.row(what, "independent",
                   lambda t=mine, c=count: t.draw(c, seed=3, remove=False), 8 * count)  # fmt: skip
        sums = there.cumsum(0)
        report.row(
            what, "prefix sums by torch",
            lambda s=sums, c=count, d=report.device: torch.searchsorted(
                s, torch.randint(int(s[-1]), (c,), device=d), right=True
            ),
            8 * count,
        )  # fmt: skip
        report.row(
            what,
            "removed, with a build",
            lambda w=there, c=count: DeviceSegmentTree(w).draw(c, seed=3),
            8 * count,
        )


def graph(options: Any) -> EdgeTable:
    """Degrees by a power law, and a hub."""
    random = torch.Generator().manual_seed(7)
    edges, vertices = options.edges, options.vertices
    src = (vertices * torch.rand(edges, generator=random, dtype=torch.float64) ** 4).long()
    dst = (vertices * torch.rand(edges, generator=random, dtype=torch.float64) ** 2).long()
    return EdgeTable.build(src, dst, torch.arange(edges).double(), vertices)


def samples(report: DrawReport, options: Any, table: EdgeTable) -> None:
    """Shares of every row, and samples around roots."""
    print(f"\nsamples of {table.num_edges} edges of {table.num_nodes} vertices, "
          f"largest degree {int(table.degrees.max())}")  # fmt: skip
    there = table_on(table, report.device)
    edges, vertices = table.num_edges, table.num_nodes
    moved = 5 * edges + 16 * vertices
    right = keep_share(table, seed=1)
    report.row("half of every row", "CPU", lambda: keep_share(table, seed=1), moved)
    if report.device == "cuda":
        if report.check("half of every row", torch.equal(keep_share(there, seed=1).cpu(), right)):
            report.row("half of every row", "one by one", lambda: keep_share(there, seed=1), moved)
        degrees = there.degrees
        offsets = torch.zeros(vertices + 1, dtype=torch.int64, device=report.device)
        torch.cumsum((degrees + 1) // 2, 0, out=offsets[1:])
        report.row(
            "half of every row", "keys",
            lambda: draw_sets(there.indptr[:-1], there.indptr[1:], offsets, seed=1),
            4 * edges + 24 * vertices,
        )  # fmt: skip
    random = torch.Generator().manual_seed(2)
    roots = torch.randint(vertices, (options.roots,), generator=random)
    tables = {"CPU": (table, roots)}
    if report.device == "cuda":
        tables["device"] = (there, roots.cuda())
    for name, (mine, asked) in tables.items():
        for what, how in (
            ("node-wise, independent", {"union": False}),
            ("node-wise, union", {"union": True}),
        ):

            def one(mine=mine, asked=asked, how=how) -> object:
                return sample_nodewise(mine, asked, [10, 10], method="keys", seed=1, **how)

            report.row(f"{what}, {options.roots} roots", name, one,
                       24 * sum(layer.eids.numel() for layer in one().layers))  # fmt: skip

        def pool(mine=mine, asked=asked) -> object:
            return sample_layerwise(mine, asked, [5000, 5000], batch=1000, method="keys", seed=1)

        report.row(f"layer-wise, {options.roots} roots", name, pool,
                   24 * sum(layer.eids.numel() for layer in pool().layers))  # fmt: skip


def subgraphs(report: DrawReport, options: Any, table: EdgeTable) -> None:
    """Frontiers, in ns a draw."""
    print("\nsubgraphs by a frontier (without the edges that they induce)")
    there = table_on(table, report.device)
    for frontier in options.frontiers:
        for count in options.counts:
            draws = options.draws
            what = f"m {frontier}, {count} of {draws} draws"
            if report.over(what):
                return
            replacement = frontier > table.num_nodes
            how = {"induced": False, "seed": 1, "replacement": replacement}
            one = max(1, min(count, 2))  # the CPU makes them one after the other
            right = sample_subgraph(table, frontier, draws, count=one, **how)
            took = report.median_seconds(
                lambda m=frontier, d=draws, c=one, h=how: sample_subgraph(
                    table, m, d, count=c, **h
                ),
                3,
            )  # fmt: skip
            report.add(f"{what:34}{'CPU':22}{1e9 * took / (one * draws):12.1f} ns a draw",
                       what=what, contender="CPU", seconds=took, draws=one * draws)  # fmt: skip
            if report.device != "cuda":
                continue
            found = sample_subgraph(there, frontier, draws, count=count, **how)
            stop = int(right.offsets[-1])
            if not report.check(what, torch.equal(found.vertices[:stop].cpu(), right.vertices)):
                continue
            took = report.median_seconds(
                lambda m=frontier, d=draws, c=count, h=how: sample_subgraph(
                    there, m, d, count=c, **h
                ),
                3,
            )  # fmt: skip
            report.add(
                f"{what:34}{'device':22}{1e9 * took / (count * draws):12.1f} ns a draw"
                f"{1e9 * took / draws:12.1f} ns a draw of one frontier",
                what=what, contender="device", seconds=took, draws=count * draws,
            )  # fmt: skip


def sums(report: DrawReport, options: Any) -> None:
    """Partners of an interval's edges, by both ends, and products of their rows."""
    print("\nsums over partners, products of rows")
    random = torch.Generator().manual_seed(3)
    large = (options.edges // 4, options.vertices // 4)
    for (edges, vertices), width, skew in (
        ((20_000, 5_000), 64, 2),
        (large, 64, 2),
        (large, 64, 6),
        (large, 16, 4),
    ):
        what = f"{edges} edges, {vertices} x {width}, {skew}"
        if report.over(what):
            return
        src, dst = (
            (vertices * torch.rand(edges, generator=random, dtype=torch.float64) ** skew).long()
            for _ in range(2)
        )
        x = torch.rand(vertices, width, generator=random)
        src, dst, x = (a.to(report.device) for a in (src, dst, x))
        by_src, by_dst = group_edges(src, vertices), group_edges(dst, vertices)
        if report.device == "cuda":
            found = partner_sums(src, dst, x, x, by_src=by_src, by_dst=by_dst)
            right = torch.zeros(vertices, width, dtype=torch.float64, device=report.device)
            right.index_add_(0, src, x[dst].double())
            error = float((found.sum_s - right).norm() / right.norm())
            if not report.check(what, error < 1e-6):
                continue
        moved = 2 * (edges * (16 + 4 * width) + vertices * (8 + 4 * width))
        report.row(what, "both ends",
                   lambda s=src, d=dst, x=x, a=by_src, b=by_dst: partner_sums(
                       s, d, x, x, by_src=a, by_dst=b), moved)  # fmt: skip
        report.row(what, "index_add by torch", lambda s=src, d=dst, x=x: (
            torch.zeros_like(x).index_add_(0, s, x[d]), torch.zeros_like(x).index_add_(0, d, x[s])
        ), moved)  # fmt: skip
        report.row(what, "groups", lambda s=src, v=vertices: group_edges(s, v), 16 * edges)
        both = edges * (20 + 8 * width)
        report.row(what, "products", lambda s=src, d=dst, x=x: edge_dots(s, d, x, x), both)
        report.row(what, "products by torch", lambda s=src, d=dst, x=x: (x[s] * x[d]).sum(1), both)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, help="file for the rows, one JSON a line")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--items", type=int, nargs="*", default=[10_000, 1_000_000, 100_000_000])
    parser.add_argument("--edges", type=int, default=10_000_000)
    parser.add_argument("--vertices", type=int, default=500_000)
    parser.add_argument("--roots", type=int, default=10_000)
    parser.add_argument("--frontiers", type=int, nargs="*", default=[1000, 10_000, 50_000])
    parser.add_argument("--counts", type=int, nargs="*", default=[1, 100, 500])
    parser.add_argument("--draws", type=int, default=20_000, help="of each subgraph")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=110, help="begin nothing after this long")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("torch sees no CUDA device; nothing to measure")
    report = DrawReport(options.out, options.device, options.seconds, options.rounds)
    report.copy = copy_rate(report, 512 if options.device == "cuda" else 64)
    if options.device == "cpu":
        print("on the CPU its own samplers run alone, beside torch")
    table: EdgeTable = graph(options)
    sums(report, options)
    subgraphs(report, options, table)
    samples(report, options, table)
    one_set(report, options)
    one_tree(report, options)
    sys.exit(1 if report.wrong else 0)


if __name__ == "__main__":
    main()
