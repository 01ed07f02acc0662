"""Figure 9: accuracy over time, T-GCN on half of the edges against DyGNN and JODIE on all."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from dgbench.lab.charts import chart, failed, failures
from dgbench.lab.grid import Grid
from dgbench.lab.table import Table, rows_of
from dgbench.lab.time_to_quality import PROCESSOR
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
            for seed in range(1, (1 if name == LARGE else size.seeds) + 1)
        )

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        size, found = SIZES[context.preset], Measurement()
        name, seed = str(cell.params["dataset"]), int(cell.params["seed"])
        with threads(size.threads or context.threads):
            for kind in TASKS[: 2 if seed <= size.linked else 1]:
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
            if lead is None:
                continue
            means = ", ".join(
                f"{graph_title(row.params['dataset'])} {mean(row, kind, OURS):.2f} against "
                f"{mean(row, kind, DYGNN):.2f}"
                for row in found
                if row.params["seed"] == 1
            )
            words.append(f"{TITLES[kind]}: T-GCN comes out {lead} points from DyGNN ({means})")
        return "; ".join(words) + "."


TITLES: Final = {"classify": "accuracy of classes", "link": "average precision of links"}


# --- what rows say --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Lead:
    """A mean difference of two contenders, in points.

    Attributes:
        value: the mean over graphs of the means of their seeds.
        low, high: 95 % interval over seeds, infinite where a graph has a single one.
        seeds: of the graph that has the fewest.
        by_graph: mean of each graph.
    """

    value: float
    low: float
    high: float
    seeds: int
    by_graph: dict[str, float]

    @property
    def side(self) -> int:
        """1 if the whole interval lies above 0, -1 if below, else 0."""
        return 1 if self.low > 0 else -1 if self.high < 0 else 0

    def __str__(self) -> str:
        if math.isinf(self.low):
            return f"{self.value:+.1f} (one seed)"
        return f"{self.value:+.1f} [{self.low:+.1f}, {self.high:+.1f}]"


def lead(gaps: Mapping[tuple[str, Any], Sequence[float]]) -> Lead | None:
    """The lead from differences between 0 and 1 of each piece, by graph and seed; None without any.

    A seed is one observation: its pieces are averaged first. Graphs are those named, so that only
    what differs between seeds of one graph is noise; their variances add up as Welch and
    Satterthwaite do.
    """
    by_graph: dict[str, list[float]] = {}
    for (graph, _), each in gaps.items():
        if each:
            by_graph.setdefault(graph, []).append(100 * sum(each) / len(each))
    if not by_graph:
        return None
    means = {graph: sum(points) / len(points) for graph, points in by_graph.items()}
    middle, fewest = sum(means.values()) / len(means), min(map(len, by_graph.values()))
    if fewest < 2:
        return Lead(middle, -math.inf, math.inf, fewest, means)
    parts = [
        sum((one - means[graph]) ** 2 for one in points)
        / ((len(points) - 1) * len(points) * len(means) ** 2)
        for graph, points in by_graph.items()
    ]
    free = sum(p**2 / (len(x) - 1) for p, x in zip(parts, by_graph.values(), strict=True))
    total = sum(parts)
    half = t_quantile(total**2 / free, 0.95) * math.sqrt(total) if total else 0.0
    return Lead(middle, middle - half, middle + half, fewest, means)


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


def run_of(row: Any) -> tuple[str, Any]:
    """Graph and seed of a row."""
    return row.params["dataset"], row.params["seed"]


def over(rows: Sequence[Any], kind: str, high: str, low: str) -> Lead | None:
    """Lead of one contender over another on the same pieces of the same runs."""
    gaps: dict[tuple[str, Any], list[float]] = {}
    for row in rows:
        one, two = learned(row, kind, high), learned(row, kind, low)
        gaps.setdefault(run_of(row), []).extend(one[p] - two[p] for p in one if p in two)
    return lead(gaps)


def series_name(title: str) -> str:
    """A contender as figures know it: by its system's name, and its form behind a comma."""
    name = SYSTEMS[title][0]
    form = {WHOLE: ", states of all edges", PLAIN: ", no propagation"}.get(title, "")
    return name + form


def figure_points(rows: Sequence[Any], kind: str) -> list[dict[str, Any]]:
    """Points of `curves`: score by piece, of every seed, a panel for each graph.

    Seconds are the processor's for training on the pieces before, as accuracies may be measured
    beside other work; rows of older runs kept none.
    """
    points: list[dict[str, Any]] = []
    for row in ran(rows):
        for title in SYSTEMS:
            times = Table.of([row]).where("epoch_time", task=kind, setting=title, clock=PROCESSOR)
            spent = times.numbers("piece")
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
