"""Figure 11: how far embeddings move between epochs (section 5.2)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

from dgbench.lab.charts import sweep
from dgbench.lab.experiment import Cell
from dgbench.lab.table import Table, rows_of
from dgbench.systems.base import FigureSpec, Measurement, RunContext
from dgbench.systems.dgc.experiments.settings import BY_NAME
from dgbench.systems.dgc.experiments.stale_base import (
    HELD_NAMES,
    SEEDED,
    SEEDS,
    StaleTable,
    missing_points,
)
from dgbench.systems.dgc.experiments.stale_runs import EPOCHS, StaleJob

AT = {"smoke": (2, 4), "quick": (2, 5, 10), "full": (2, 5, 10, 20, 50, 100)}
GRID = (0.001, 0.003, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0)
"""Distances at which the distribution is kept; 0.3 and 1 are named by the paper."""


class Fig11(StaleTable):
    name = "fig11"
    title = "Figure 11: change of embeddings between epochs"
    claims = (
        "dgc-fig11-movie-10",
        "dgc-fig11-stack-10",
        "dgc-fig11-movie-100",
        "dgc-s52-distance-shrinks",
    )
    question = "How far do embeddings move from one epoch to the next, and does it become less?"
    reading = (
        "Euclidean distance between a vertex-step's output in an epoch and in the one before, all "
        "vertex-steps of DySAT, everything sent. The paper's epoch is random, and its distances "
        "depend on a hidden width, a learning rate and a depth that it does not print; here 32, "
        "0.01 by Adam, and one block. So shapes compare, thresholds do not."
    )
    seeds: ClassVar = {"smoke": (1,), None: SEEDS}
    seeded: ClassVar = {"quick": (SEEDED,)}
    models: ClassVar = ("dysat",)
    settings: ClassVar = dict.fromkeys(EPOCHS, ("without",))
    graphs: ClassVar = {
        "smoke": (("wikipedia",),),
        "quick": (("sx-mathoverflow", *SEEDED),),
        "full": (*((name,) for name in HELD_NAMES), ("stack", "movie")),
        "paper": (*((name,) for name in HELD_NAMES), ("stack",), ("movie",)),
    }

    def jobs(self, cell: Cell, preset: Any) -> list[StaleJob]:
        at = AT.get(preset, AT["full"])
        return [
            StaleJob(
                dataset,
                "dysat",
                ("without",),
                preset,
                changes=at,
                seed=int(cell.params.get("seed", 1)),
            )
            for dataset in str(cell.params["graphs"]).split()
        ]

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

    def figures(self) -> list[FigureSpec]:
        return [
            sweep("fig11",
                "Share of embeddings that moved less than a distance since the last epoch",
                cdf_points, xlabel="Euclidean distance", ylabel="share of embeddings (%)",
                ylog=False, marks="few", names=False),
        ]  # fmt: skip

    def answer(self, rows: Sequence[Any]) -> str:
        words = []
        for row, name, median in medians(_shown(rows)):
            early, late = median[0], median[-1]
            words.append(
                f"{BY_NAME[name].title}{' (twin)' if row.data.get('twin') else ''} "
                f"{early[1]:.2g} in epoch {early[0]}, {late[1]:.2g} in epoch {late[0]}"
            )
        return f"The median move: {'; '.join(words)}." if words else ""


def _shown(rows: Sequence[Any]) -> list[Any]:
    """Rows of the first seed, which figures and the answer show."""
    return [row for row in rows if row.params.get("seed", 1) == 1]


def medians(rows: Sequence[Any]) -> list[tuple[Any, str, list[tuple[int, float]]]]:
    """(row, graph, (epoch, median distance) of all epochs that were kept, ascending)."""
    found = []
    for row in rows_of(rows, experiment="fig11"):
        distances = Table.of([row]).where("distance", quantile=0.5)
        by_graph = {name: mine.numbers("epoch") for name, mine in distances.by("dataset").items()}
        found += [
            (row, name, sorted(by_graph[name].items()))
            for name in str(row.params["graphs"]).split()
            if name in by_graph
        ]
    return found


def cdf_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Points of `sweep`: a panel for each graph, a line for each epoch."""
    found: list[dict[str, Any]] = []
    for row, name, median in medians(_shown(rows)):
        twin = bool(row.data.get("twin"))
        for epoch, _ in median:
            shares = Table.of([row]).where("cumulative_share", dataset=name, epoch=epoch)
            for limit, share in shares.numbers("limit").items():
                found.append(
                    {
                        "panel": BY_NAME[name].title + (" (twin)" if twin else ""),
                        "series": f"epoch {epoch}",
                        "x": limit,
                        "y": 100 * share,
                        "row_ids": [row.id],
                    }
                )
    return found + missing_points(rows, "fig11", "all graphs")
