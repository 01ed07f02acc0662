"""Figure 11: how far embeddings move between epochs (section 5.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from dgbench.lab.compare import select
from dgbench.lab.experiment import Cell
from dgbench.systems.base import FigureSpec, Measurement, RunContext
from dgbench.systems.dgc.experiments.settings import BY_NAME
from dgbench.systems.dgc.experiments.stale_base import HELD_NAMES, StaleTable, missing_points
from dgbench.systems.dgc.experiments.stale_runs import EPOCHS, Job

AT = {"smoke": (2, 4), "quick": (2, 5, 10, 20), "full": (2, 5, 10, 20, 50, 100)}
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
    models: ClassVar = ("dysat",)
    settings: ClassVar = dict.fromkeys(EPOCHS, ("without",))
    graphs: ClassVar = {
        "smoke": (("wikipedia",),),
        "quick": (("email-eu-core", "wikipedia"), ("stack", "movie")),
        "full": (*((name,) for name in HELD_NAMES), ("stack", "movie")),
        "paper": (*((name,) for name in HELD_NAMES), ("stack",), ("movie",)),
    }

    def jobs(self, cell: Cell, preset: Any) -> list[Job]:
        at = AT.get(preset, AT["full"])
        return [
            Job(dataset, "dysat", ("without",), preset, changes=at)
            for dataset in str(cell.params["graphs"]).split()
        ]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        found, runs = self.train(cell, context)
        for job, outcome in runs:
            for epoch, distance in outcome.changes.items():
                start = f"{job.dataset} epoch {epoch}"
                found.values[f"{start} median"] = float(distance.median())
                found.values[f"{start} largest"] = float(distance.max())
                for limit in GRID:
                    share = float((distance < limit).double().mean())
                    found.values[f"{start} below {limit:g}"] = share
        return found

    def figures(self) -> list[FigureSpec]:
        return [
            FigureSpec(
                kind="sweep",
                name="fig11",
                title="Share of embeddings that moved less than a distance since the last epoch",
                points=cdf_points,
                options={
                    "xlabel": "Euclidean distance",
                    "ylabel": "share of embeddings (%)",
                    "ylog": False,
                    "marks": "few",
                    "names": False,
                },
            )
        ]

    def answer(self, rows: Sequence[Any]) -> str:
        words = []
        for row, name in found_graphs(rows):
            early, late = (end(row, name, last) for last in (False, True))
            words.append(
                f"{BY_NAME[name].title}{' (twin)' if row.data.get('twin') else ''} "
                f"{early[1]:.2g} in epoch {early[0]}, {late[1]:.2g} in epoch {late[0]}"
            )
        return f"The median move: {'; '.join(words)}." if words else ""


def found_graphs(rows: Sequence[Any]) -> list[tuple[Any, str]]:
    """(row, graph) of all that ran."""
    return [
        (row, name)
        for row in select(rows, experiment="fig11")
        for name in str(row.params["graphs"]).split()
        if epochs_of(row, name)
    ]


def epochs_of(row: Any, name: str) -> list[int]:
    """Epochs whose changes a row keeps of a graph, ascending."""
    start = f"{name} epoch "
    return sorted(
        int(key.removeprefix(start).split()[0])
        for key in row.values
        if key.startswith(start) and key.endswith(" median")
    )


def end(row: Any, name: str, last: bool) -> tuple[int, float]:
    """The first or last epoch that was kept, and its median distance."""
    epoch = epochs_of(row, name)[-1 if last else 0]
    return epoch, row.values[f"{name} epoch {epoch} median"]


def cdf_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Points of `sweep`: a panel for each graph, a line for each epoch."""
    found: list[dict[str, Any]] = []
    for row, name in found_graphs(rows):
        twin = bool(row.data.get("twin"))
        for epoch in epochs_of(row, name):
            for limit in GRID:
                found.append(
                    {
                        "panel": BY_NAME[name].title + (" (twin)" if twin else ""),
                        "series": f"epoch {epoch}",
                        "x": limit,
                        "y": 100 * row.values[f"{name} epoch {epoch} below {limit:g}"],
                        "row_ids": [row.id],
                    }
                )
    return found + missing_points(rows, "fig11", "all graphs")
