"""Figure 9: accuracy over time, T-GCN on half of the edges against DyGNN and JODIE on all."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from dgbench.lab.charts import chart, failed, failures
from dgbench.lab.grid import Grid
from dgbench.lab.table import Table, rows_of
from dgbench.runtime.errors import UnsupportedError
from dgbench.runtime.statistics import t_quantile
from dgbench.runtime.threads import threads
from dgbench.systems.base import (
    Cell,
    FigureSpec,
    Measurement,
    Preset,
    RunContext,
)
from dgbench.systems.tgcn.accuracy_runs import (
    DYGNN,
    LARGE,
    OURS,
    PLAIN,
    SCORES,
    SIZES,
    SYSTEMS,
    TASKS,
    WHOLE,
    observe_memory,
    run_pieces,
)
from dgbench.systems.tgcn.settings import (
    PIECES,
    graph_title,
    panel,
)

NAME: Final = "fig9"
TOLERANCE: Final = 1.0
"""Points of accuracy or average precision that count as a loss."""


class Fig9(Grid):
    paper = "tgcn"
    name = NAME
    title = "Figure 9: accuracy over time"
    question = "What does training on half of the edges, in intervals, cost in accuracy?"
    reading = (
        "The events are cut into 11 pieces; each is scored before it is trained on, so nothing is "
        "seen too early, and once. The paper names no classes: where vertices have none, they are "
        "quartiles of a vertex's number of events, of a tenth of the vertices that are never "
        "taught; average precision of links stands beside. DyGNN and JODIE train edge by edge in "
        "t-batches on all edges, T-GCN in intervals on half of them; all are scored in t-batches. "
        "The paper does not say whether states see the other half: as T-GCN they do not, beside it "
        "they take it in without a loss. "
        "On Twitter only T-GCN runs, and the memory of the baselines is counted at the printed "
        "size. The paper's times are drawn at random, so that little of its curves lies in time."
    )
    claims = (
        "tgcn-fig9-no-accuracy-loss",
        "tgcn-fig9-twitter",
        "tgcn-fig9-stable-over-time",
        "tgcn-s64-dygnn-over-jodie",
    )
    group = "{dataset}/{seed}"
    timeout_s: ClassVar = {"smoke": 60, "quick": 120, "full": 3600, "paper": 86400}

    def points(self, preset: Preset, device: str) -> Iterable[dict[str, Any]]:
        size = SIZES[preset]
        return (
            {"dataset": name, "seed": seed}
            for name in size.graphs
            for seed in range(1, size.seeds + 1)
        )

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        size, found = SIZES[context.preset], Measurement()
        name, seed = str(cell.params["dataset"]), int(cell.params["seed"])
        with threads(size.threads or context.threads):
            for kind in TASKS:
                rivals = () if name == LARGE else size.rivals[kind]
                run_pieces(name, seed, kind, (OURS, *rivals), context, found)
        found.observe("edges", size.width, of="step")
        found.observe("parts", PIECES, of="pieces")
        if name == LARGE:
            observe_memory(found)
        return found

    def figures(self) -> list[FigureSpec]:
        return [
            chart(
                "curves",
                f"{NAME}_{kind}",
                f"{TITLES[kind]} by piece of time, each scored before it is trained on",
                lambda rows, kind=kind: figure_points(rows, kind),
                xlabel="piece of time",
                ylabel=TITLES[kind],
                start="same seeds, and parameters that each model draws from them",
            )
            for kind in TASKS
        ]

    def answer(self, rows: Sequence[Any]) -> str:
        found = [row for row in ran(rows) if row.params["dataset"] != LARGE]
        if not found:
            return ""
        words = []
        for kind in TASKS:
            lead = over(found, kind, OURS, DYGNN)
            means = ", ".join(
                f"{graph_title(row.params['dataset'])} {mean(row, kind, OURS):.2f} against "
                f"{mean(row, kind, DYGNN):.2f}"
                for row in found
                if row.params["seed"] == 1
            )
            words.append(f"{TITLES[kind]}: T-GCN leads by {lead} points ({means})")
        return "; ".join(words) + "."


TITLES: Final = {"classify": "accuracy of classes", "link": "average precision of links"}


# --- what rows say --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Lead:
    """A mean of paired differences, in points.

    Attributes:
        value: the mean; error: its standard error, infinite for a single pair; n: pairs.
    """

    value: float
    error: float
    n: int

    @property
    def half(self) -> float:
        """Half of the 95 % interval."""
        return math.inf if self.n < 2 else t_quantile(self.n - 1, 0.95) * self.error

    @property
    def low(self) -> float:
        """Lower end of the 95 % interval."""
        return self.value - self.half

    @property
    def high(self) -> float:
        """Upper end of it."""
        return self.value + self.half

    def __str__(self) -> str:
        return f"{self.value:+.1f} [{self.low:+.1f}, {self.high:+.1f}]"


def lead(gaps: Sequence[float]) -> Lead:
    """Of differences between 0 and 1, in points."""
    n = len(gaps)
    if n == 0:
        raise UnsupportedError("no pieces to compare")
    points = [100 * gap for gap in gaps]
    mid = sum(points) / n
    spread = sum((gap - mid) ** 2 for gap in points) / (n - 1) if n > 1 else math.inf
    return Lead(mid, math.sqrt(spread / n), n)


def ran(rows: Sequence[Any]) -> list[Any]:
    """Rows of this experiment that ran."""
    return rows_of(rows, experiment=NAME)


def series(row: Any, kind: str, title: str) -> dict[int, float]:
    """Score by piece, of those that could be scored; the first is that of an untrained network."""
    return Table.of([row]).where(SCORES[kind], setting=title).numbers("piece")


def learned(row: Any, kind: str, title: str) -> dict[int, float]:
    """`series` without the piece before which nothing was trained."""
    return {piece: value for piece, value in series(row, kind, title).items() if piece}


def mean(row: Any, kind: str, title: str) -> float:
    """Mean score of the pieces after the first; NaN where there is none."""
    found = learned(row, kind, title).values()
    return sum(found) / len(found) if found else float("nan")


def over(rows: Sequence[Any], kind: str, high: str, low: str) -> Lead:
    """Lead of one contender over another on the same pieces of the same runs."""
    gaps = []
    for row in rows:
        one, two = learned(row, kind, high), learned(row, kind, low)
        gaps += [one[piece] - two[piece] for piece in one if piece in two]
    return lead(gaps)


def series_name(title: str) -> str:
    """A contender as figures know it: by its system's name, and its form behind a comma."""
    name = SYSTEMS[title][0]
    form = {WHOLE: ", states of all edges", PLAIN: ", no propagation"}.get(title, "")
    return name + form


def figure_points(rows: Sequence[Any], kind: str) -> list[dict[str, Any]]:
    """Points of `curves`: score by piece, of every seed, a panel for each graph.

    Seconds are those of training on the pieces before; rows of older runs kept none.
    """
    points: list[dict[str, Any]] = []
    for row in ran(rows):
        for title in SYSTEMS:
            spent = Table.of([row]).where("epoch_time", task=kind, setting=title).numbers("piece")
            points += [
                {"panel": panel(row), "series": series_name(title), "x": piece + 1, "y": value,
                 "seed": row.params["seed"], "row_ids": [row.id]}
                | ({"seconds": sum(s for p, s in spent.items() if p < piece)} if spent else {})
                for piece, value in series(row, kind, title).items()
            ]  # fmt: skip
    return points + [
        {"panel": panel(row), "series": series_name(OURS), "x": 1, "failed": failed(row)}
        for row in failures(rows, NAME)
    ]
