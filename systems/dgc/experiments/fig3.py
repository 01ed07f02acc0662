"""Figure 3: how much snapshots and sequences of one graph differ (section 2.2.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dgbench.lab import rule_combinations as combine
from dgbench.lab import rules
from dgbench.lab.estimates import real_data
from dgbench.lab.figure_forms import More, Sweep
from dgbench.lab.quantities import observed
from dgbench.systems.base import Cell, Measurement, RunContext
from dgbench.systems.dgc.experiments.lifetimes import Lifetimes, gini
from dgbench.systems.dgc.experiments.settings import BY_NAME, papers_first
from dgbench.systems.dgc.experiments.table1 import SizesOfGraphs

EDGE_GRID = tuple(2.0 ** (k / 2) for k in range(-12, 11))
"""Edges of a snapshot, in means of the graph, at which its distribution is kept."""
LENGTH_GRID = tuple(k / 20 for k in range(1, 21))
"""Lengths of sequences, in lengths of the whole timeline."""
WIDE = 2.0
"""Largest over smallest from which on we call numbers widely different."""
SPREAD = 0.2
"""Gini index from which on: that of numbers spread evenly between half and twice some number."""

GINI = observed("gini_index", per=("dataset", "of"))
BELOW = 100 * observed("cumulative_share", per=("dataset", "origin", "bin"))
"""Percent of the numbers that are at most a point of their grid."""
OPTIONS: Mapping[str, Any] = {
    "panel": "{origin}", "series": "{dataset}", "x": "bin", "gaps": {"x": 1.0}, "ylog": False,
    "marks": "few", "names": False,
}  # fmt: skip


def on_grid(grid: Sequence[float]) -> More:
    """The point of a grid in place of its number."""
    return lambda context, dims, _: {"x": grid[dims["bin"]]}


class Fig3(SizesOfGraphs):
    name = "fig3"
    headline = GINI.keep(real_data)
    figure_forms = (
        Sweep("fig3a", "Edges per snapshot of each graph (Figure 3a)", BELOW.where(of="edges"),
              more=on_grid(EDGE_GRID), xlabel="edges of a snapshot, in means of the graph",
              ylabel="share of snapshots, %", **OPTIONS),
        Sweep("fig3b", "Length of vertex sequences of each graph (Figure 3b)",
              BELOW.where(of="lengths"), more=on_grid([100 * x for x in LENGTH_GRID]),
              xlabel="first to last edge of a vertex, % of the timeline",
              ylabel="share of vertices, %", xlog=False, **OPTIONS),
    )  # fmt: skip
    claims = {
        "dgc-fig3-nonuniform": combine.both(
            rules.at_least(GINI.keep(papers_first), SPREAD),
            rules.at_least(
                observed("quantile_ratio", per=("dataset", "of"), of="edges", quantile=1.0)
                .keep(papers_first).pooled("mean"), WIDE,
            ),
        ),
    }  # fmt: skip

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        found = Lifetimes.of(BY_NAME[str(cell.params["dataset"])], context.preset)
        out = Measurement(data=found.data)
        for kind, numbers, unit, grid in (
            ("edges", found.edges, found.edges.mean(), EDGE_GRID),
            ("lengths", found.lengths, found.steps, LENGTH_GRID),
        ):
            size, ordered = numbers.size, np.sort(numbers)
            out.observe("gini_index", gini(numbers) if size else 0.0, of=kind)
            limits = np.asarray(grid) * unit * (1 + 1e-12)
            for k, below in enumerate(np.searchsorted(ordered, limits, side="right")):
                out.observe("cumulative_share", below / max(1, size), of=kind, bin=k)
        middle = max(float(np.median(found.edges)), 1.0)
        out.observe("quantile_ratio", float(found.edges.max()) / middle, of="edges", quantile=1.0)
        out.checks = [found.check()]
        return out
