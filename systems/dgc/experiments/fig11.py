"""Figure 11: how far embeddings move between epochs (section 5.2)."""

from __future__ import annotations

from functools import partial
from typing import Any

from dgbench.lab import rules
from dgbench.lab.figure_forms import Sweep
from dgbench.lab.quantities import MeasuredQuantity, observed
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.dgc.experiments.settings import with_stand_ins
from dgbench.systems.dgc.experiments.stale_base import HELD_NAMES, SEEDED, StaleTable
from dgbench.systems.dgc.experiments.stale_runs import EPOCHS, StaleJob

AT = {"smoke": (2, 4), "quick": (2, 5, 10), "full": (2, 5, 10, 20, 50, 100)}
GRID = (0.001, 0.003, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0)
"""Distances at which the distribution is kept; 0.3 and 1 are named by the paper."""
NEARER = 100 * observed("cumulative_share", per=("dataset", "epoch", "limit"))
"""Percent of embeddings that moved less than a limit since the epoch before."""
MEDIAN = observed("distance", per=("dataset", "epoch"), quantile=0.5)


def nearer(dataset: str, epoch: int, limit: float) -> MeasuredQuantity:
    """The share of a printed graph, or of what stands in for it."""
    return NEARER.where(epoch=epoch, limit=limit).keep(with_stand_ins(dataset, any_graph=True))


class Fig11(StaleTable):
    name = "fig11"
    seeded = {"quick": (SEEDED,)}
    settings = dict.fromkeys(EPOCHS, ("without",))
    graphs = {
        "smoke": (("wikipedia",),),
        "quick": (("sx-mathoverflow", *SEEDED),),
        "full": (*((name,) for name in HELD_NAMES), ("stack", "movie")),
        "paper": (*((name,) for name in HELD_NAMES), ("stack",), ("movie",)),
    }
    headline = MEDIAN
    figure_forms = (
        Sweep(
            "fig11", "Share of embeddings that moved less than a distance since the last epoch",
            NEARER, panel="{dataset}", series="{epoch}", x="limit",
            xlabel="Euclidean distance", ylabel="share of embeddings (%)", ylog=False,
            marks="few", names=False,
        ),
    )  # fmt: skip
    claims = {
        "dgc-fig11-movie-10": rules.all_equal(
            nearer("movie", 10, 1.0), lambda value, at: value, near=5.0
        ),
        "dgc-fig11-stack-10": rules.all_equal(
            nearer("stack", 10, 1.0), lambda value, at: value, near=5.0
        ),
        "dgc-fig11-movie-100": rules.all_above(nearer("movie", 100, 0.3), 95.0),
        "dgc-s52-distance-shrinks": rules.rising(
            MEDIAN.where(dataset=HELD_NAMES).per("seed"), "epoch", falling=True, unit=""
        ),
    }

    def jobs(self, cell: Cell, preset: Preset, **fields: Any) -> list[StaleJob]:
        return super().jobs(cell, preset, changes=AT.get(preset, AT["full"]), **fields)

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        found, runs = self.train(cell, context)
        for job, outcome in runs:
            for epoch, distance in outcome.changes.items():
                observe = partial(found.observe, dataset=job.dataset, epoch=epoch)
                observe("distance", float(distance.median()), quantile=0.5)
                observe("distance", float(distance.max()), quantile=1.0)
                for limit in GRID:
                    share = float((distance < limit).double().mean())
                    observe("cumulative_share", share, limit=limit)
        return found
