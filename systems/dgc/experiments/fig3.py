"""Figure 3: how much snapshots and sequences of one graph differ (section 2.2.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dgbench.lab.charts import failed, failures, sweep
from dgbench.lab.compare import select
from dgbench.lab.table import number
from dgbench.systems.base import Cell, FigureSpec, Measurement, RunContext
from dgbench.systems.dgc.experiments.lifetimes import Lifetimes, gini
from dgbench.systems.dgc.experiments.settings import BY_NAME
from dgbench.systems.dgc.experiments.table1 import SizesOfGraphs
from dgbench.systems.dgc.recount import recounted, unevenness

EDGE_GRID = tuple(2.0 ** (k / 2) for k in range(-12, 11))
"""Edges of a snapshot, in means of the graph, at which its distribution is kept."""
LENGTH_GRID = tuple(k / 20 for k in range(1, 21))
"""Lengths of sequences, in lengths of the whole timeline."""
KINDS = {"edges": "edges per snapshot", "lengths": "steps per sequence"}


class Fig3(SizesOfGraphs):
    name = "fig3"
    title = "Figure 3: non-uniformity of the graphs"
    claims = ("dgc-fig3-nonuniform",)
    question = "Do snapshots differ in edges, and vertices in how long they are there?"
    reading = (
        "A sequence reaches from a vertex's first to its last edge. Edges are shown in means of "
        "each graph and sequences in shares of the timeline, so that graphs compare; the Gini "
        "index is 0 where all are equal. How edges and lifetimes vary in a twin was assumed when "
        "it was made, so only real graphs say anything."
    )

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        found = Lifetimes.of(BY_NAME[str(cell.params["dataset"])], context.preset)
        out = Measurement(data=found.data)
        for kind, numbers, unit, grid in (
            ("edges", found.edges, found.edges.mean(), EDGE_GRID),
            ("lengths", found.lengths, found.steps, LENGTH_GRID),
        ):
            observe_spread(out, kind, numbers)
            for k, share in enumerate(at_most(numbers, unit, grid)):
                out.observe("cumulative_share", share, of=kind, bin=k)
        out.observe("snapshots", found.steps)
        out.observe("vertices", int(found.first.size), of="present")
        out.checks = [found.check(), *recounted(out, recomputed(found))]
        return out

    def figures(self) -> list[FigureSpec]:
        return [
            sweep("fig3a", "Edges per snapshot of each graph (Figure 3a)", edge_points,
                xlabel="edges of a snapshot, in means of the graph", ylabel="share of snapshots, %",
                ylog=False, marks="few", names=False),
            sweep("fig3b", "Length of vertex sequences of each graph (Figure 3b)", length_points,
                xlabel="first to last edge of a vertex, % of the timeline",
                ylabel="share of vertices, %", xlog=False, ylog=False, marks="few", names=False),
        ]  # fmt: skip

    def answer(self, rows: Sequence[Any]) -> str:
        found = [r for r in select(rows, experiment="fig3") if not r.data.get("twin")]
        if not found:
            return ""
        parts = []
        for kind, words in KINDS.items():
            indices = [number(r, "gini_index", of=kind) for r in found]
            parts.append(f"{min(indices):.2f} to {max(indices):.2f} for {words}")
        graphs = "graph" if len(found) == 1 else "graphs"
        return f"Over {len(found)} real {graphs} the Gini index is {' and '.join(parts)}."


def observe_spread(out: Measurement, kind: str, numbers: np.ndarray) -> None:
    """Observe the spread of numbers >= 0: Gini index, mean, largest and 90th percentile over the
    median.

    Where the median is 0 these are multiples of 1.
    """
    size = numbers.size
    out.observe("gini_index", gini(numbers) if size else 0.0, of=kind)
    middle = max(float(np.median(numbers)), 1.0) if size else 1.0
    for quantile in (1.0, 0.9):
        top = float(np.quantile(numbers, quantile)) if size else 1.0
        out.observe("quantile_ratio", top / middle, of=kind, quantile=quantile)
    out.observe("estimate", float(numbers.mean()) if size else 0.0, of=kind)


def recomputed(found: Lifetimes) -> Measurement:
    """Recompute the values from their definition, by a recount."""
    recount, out = found.recount, Measurement()
    of = {"lengths": (recount.lengths, found.steps, LENGTH_GRID)}
    if recount.all:
        of["edges"] = (recount.edges, recount.edges.sum() / found.steps, EDGE_GRID)
    for kind, (numbers, unit, grid) in of.items():
        ordered = sorted(numbers.tolist())
        if not ordered:
            continue
        middle = max(1.0, (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2)
        out.observe("gini_index", unevenness(numbers), of=kind)
        out.observe("quantile_ratio", ordered[-1] / middle, of=kind, quantile=1.0)
        out.observe("estimate", sum(ordered) / len(ordered), of=kind)
        for k, limit in enumerate(grid):
            below = (numbers <= limit * unit * (1 + 1e-12)).sum()
            out.observe("cumulative_share", int(below) / len(ordered), of=kind, bin=k)
    return out


def at_most(numbers: np.ndarray, unit: float, grid: Sequence[float]) -> list[float]:
    """Share of the numbers that are at most each multiple of `unit`."""
    ordered = np.sort(numbers)
    limits = np.asarray(grid) * unit * (1 + 1e-12)
    return (np.searchsorted(ordered, limits, side="right") / max(1, ordered.size)).tolist()


def edge_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """The distribution of edges per snapshot, in means."""
    return _points(rows, "edges", EDGE_GRID)


def length_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """The distribution of lengths of sequences, in percent of the timeline."""
    return _points(rows, "lengths", [100 * x for x in LENGTH_GRID])


def _points(rows: Sequence[Any], kind: str, grid: Sequence[float]) -> list[dict[str, Any]]:
    points: list[dict[str, Any]] = []
    for row in select(rows, experiment="fig3"):
        twin = bool(row.data.get("twin"))
        points += [
            {
                "panel": "twins of the paper's graphs" if twin else "real graphs",
                "series": BY_NAME[row.params["dataset"]].title,
                "x": x,
                "y": 100 * number(row, "cumulative_share", of=kind, bin=k),
                "counted": True,
                "twin": twin,
                "row_ids": [row.id],
            }
            for k, x in enumerate(grid)
        ]
    for row in failures(rows, "fig3"):
        graph = BY_NAME[row.params["dataset"]]
        group = "real graphs" if graph.real else "twins of the paper's graphs"
        points.append({"panel": group, "series": graph.title, "x": 1.0, "failed": failed(row)})
    return points
