"""Figure 3: how much snapshots and sequences of one graph differ (section 2.2.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dgbench.lab.compare import select
from dgbench.systems.base import Cell, Experiment, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.dgc.experiments.common import failed, failures
from dgbench.systems.dgc.experiments.lifetimes import Lifetimes, gini
from dgbench.systems.dgc.experiments.recount import computed, unevenness
from dgbench.systems.dgc.experiments.settings import ALL, BY_NAME
from dgbench.systems.dgc.experiments.table1 import SMOKE

EDGE_GRID = tuple(2.0 ** (k / 2) for k in range(-12, 11))
"""Edges of a snapshot, in means of the graph, at which its distribution is kept."""
LENGTH_GRID = tuple(k / 20 for k in range(1, 21))
"""Lengths of sequences, in lengths of the whole timeline."""
KINDS = {"edges": "edges per snapshot", "lengths": "steps per sequence"}


class Fig3(Experiment):
    paper = "dgc"
    name = "fig3"
    title = "Figure 3: non-uniformity of the graphs"
    claims = ("dgc-fig3-nonuniform",)
    device = "cpu"
    question = "Do snapshots differ in edges, and vertices in how long they are there?"
    reading = (
        "A sequence reaches from a vertex's first to its last edge. Edges are shown in means of "
        "each graph and sequences in shares of the timeline, so that graphs compare; the Gini "
        "index is 0 where all are equal. How edges and lifetimes vary in a twin was assumed when "
        "it was made, so only real graphs say anything."
    )

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        names = SMOKE if preset == "smoke" else [graph.name for graph in ALL]
        return [
            Cell(
                paper=self.paper,
                experiment=self.name,
                params={"dataset": name},
                group=name,
                timeout_s=1800 if preset == "paper" else 120,
            )
            for name in names
        ]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        found = Lifetimes.of(BY_NAME[str(cell.params["dataset"])], context.preset)
        values: dict[str, float] = {}
        for kind, numbers in (("edges", found.edges), ("lengths", found.lengths)):
            values |= {f"{kind} {key}": value for key, value in spread(numbers).items()}
        values |= {
            f"edges cdf {k}": value
            for k, value in enumerate(at_most(found.edges, found.edges.mean(), EDGE_GRID))
        }
        values |= {
            f"lengths cdf {k}": value
            for k, value in enumerate(at_most(found.lengths, found.steps, LENGTH_GRID))
        }
        counters = {"snapshots": found.steps, "sequences": int(found.first.size)}
        return Measurement(
            values=values, counters=counters, data=found.data,
            checks=[found.check(), computed(values, recomputed(found))],
        )  # fmt: skip

    def figures(self) -> list[FigureSpec]:
        return [
            FigureSpec(
                kind="sweep",
                name="fig3a",
                title="Edges per snapshot of each graph (Figure 3a)",
                points=edge_points,
                options={
                    "xlabel": "edges of a snapshot, in means of the graph",
                    "ylabel": "share of snapshots, %",
                    "ylog": False,
                    "marks": "few",
                    "names": False,
                },
            ),
            FigureSpec(
                kind="sweep",
                name="fig3b",
                title="Length of vertex sequences of each graph (Figure 3b)",
                points=length_points,
                options={
                    "xlabel": "first to last edge of a vertex, % of the timeline",
                    "ylabel": "share of vertices, %",
                    "xlog": False,
                    "ylog": False,
                    "marks": "few",
                    "names": False,
                },
            ),
        ]

    def answer(self, rows: Sequence[Any]) -> str:
        found = [r for r in select(rows, experiment="fig3") if not r.data.get("twin")]
        if not found:
            return ""
        parts = []
        for kind, words in KINDS.items():
            indices = [r.values[f"{kind} gini"] for r in found]
            parts.append(f"{min(indices):.2f} to {max(indices):.2f} for {words}")
        graphs = "graph" if len(found) == 1 else "graphs"
        return f"Over {len(found)} real {graphs} the Gini index is {' and '.join(parts)}."


def spread(numbers: np.ndarray) -> dict[str, float]:
    """How much numbers >= 0 differ: Gini index, largest and 90th percentile over the median.

    Where the median is 0 these are multiples of 1.
    """
    if not numbers.size:
        return {"gini": 0.0, "max over median": 1.0, "p90 over median": 1.0, "mean": 0.0}
    middle = max(float(np.median(numbers)), 1.0)
    return {
        "gini": gini(numbers),
        "max over median": float(numbers.max()) / middle,
        "p90 over median": float(np.quantile(numbers, 0.9)) / middle,
        "mean": float(numbers.mean()),
    }


def recomputed(found: Lifetimes) -> dict[str, float]:
    """What the values follow from by definition: a recount, value by value."""
    recount, values = found.recount, {}
    of = {"lengths": (recount.lengths, found.steps, LENGTH_GRID)}
    if recount.all:
        of["edges"] = (recount.edges, recount.edges.sum() / found.steps, EDGE_GRID)
    for kind, (numbers, unit, grid) in of.items():
        ordered = sorted(numbers.tolist())
        if not ordered:
            continue
        middle = max(1.0, (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2)
        values[f"{kind} gini"] = unevenness(numbers)
        values[f"{kind} max over median"] = ordered[-1] / middle
        values[f"{kind} mean"] = sum(ordered) / len(ordered)
        for k, limit in enumerate(grid):
            below = (numbers <= limit * unit * (1 + 1e-12)).sum()
            values[f"{kind} cdf {k}"] = int(below) / len(ordered)
    return values


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
                "y": 100 * row.values[f"{kind} cdf {k}"],
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
