"""Table 1: the graphs, their degrees, and what sampling leaves of these (section 6.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from dgbench.lab.charts import failed, failures, gap, mark, sweep
from dgbench.lab.grid import Grid
from dgbench.lab.laws import DECIDED
from dgbench.lab.metrics import STATED
from dgbench.lab.table import Table, rows_of
from dgbench.systems.base import Cell, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.tgcn.degrees import (
    GRID,
)
from dgbench.systems.tgcn.graph_runs import (
    DEFINITIONS,
    SIZES,
    WHOLE,
    checked_sizes,
    far,
    machine,
    measure_graph,
    sizes,
)
from dgbench.systems.tgcn.settings import (
    BY_NAME,
    GRAPHS,
    HELD_NAMES,
    TWIN_NAMES,
    graph_title,
    panel,
)

NAME: Final = "table1"
MACHINE: Final = "machine"
SHOWN: Final = {
    "smoke": ("lastfm", "college-msg"),
    "quick": (*TWIN_NAMES, *HELD_NAMES),
    "full": (*TWIN_NAMES, *HELD_NAMES),
    "paper": (*TWIN_NAMES, *HELD_NAMES),
}
SIDES: Final = ("all", "sources", "destinations")

Rows = Sequence[Any]


class Table1(Grid):
    paper = "tgcn"
    name = NAME
    title = "Table 1: the graphs and their degrees"
    device = "cpu"
    question = "Are the graphs as printed, and what does sampling half of them do to degrees?"
    reading = (
        "Sizes are the publishers', counted where their files are here: a twin was fitted to them. "
        "Both meanings of a mean degree stand beside the printed one. The tail of a distribution "
        "begins where a power law fits it best, and is held against an exponential law; graphs "
        "with two kinds of vertices are judged on each side. Sampling halves the mean degree, so "
        "only the shape can stay: we compare exponents, and degrees over their mean."
    )
    claims = (
        "tgcn-tab1-vertices",
        "tgcn-tab1-edges",
        "tgcn-tab1-avg-degree",
        "tgcn-tab1-feature",
        "tgcn-s1-twitter-edge-count",
        "tgcn-s61-power-law",
        "tgcn-s61-sampling-keeps-degree-dist",
        "tgcn-s61-testbed",
    )
    sources: ClassVar = {"portion": "counted"}
    group = ""
    timeout_s: ClassVar = {"smoke": 60, "quick": 90, "full": 600, "paper": 7200}

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        machine = self.cell({"part": MACHINE}, preset, group=MACHINE, timeout_s=60.0)
        return [machine, *(self.cell({"dataset": n}, preset, group=n) for n in SHOWN[preset])]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        if "dataset" not in cell.params:
            found = [*machine(), *sizes()]
            return Measurement(
                observations=found,
                data={
                    "dataset": "all",
                    "twin": False,
                    "scale": 1.0,
                    "note": "publishers' sizes, this machine",
                },
                notes=[f"{g.title}: no files here, sizes as published" for g in GRAPHS if far(g)],
                checks=checked_sizes(found),
            )
        graph = BY_NAME[str(cell.params["dataset"])]
        return measure_graph(graph, context)

    def figures(self) -> list[FigureSpec]:
        return [
            sweep("table1", "Mean degrees by either definition, and as printed (Table 1)",
                degree_points, xlabel="", ylabel="mean degree", sort=False),
            sweep("table1_half", "Degrees before and after half of every neighbourhood is sampled",
                half_points, xlabel="degree over the mean degree",
                ylabel="share of vertices with more, %", base=2, marks="few", names=False),
        ]  # fmt: skip

    def answer(self, rows: Rows) -> str:
        found = Table.of(rows, experiment=NAME)
        gaps = found.where("distribution_gap", method="halved").values
        if not gaps:
            return ""
        near = sum(z > DECIDED for z in found.where("likelihood_z", setting=WHOLE).values)
        return (
            f"A power law is nearer than an exponential one to the tail of {near} of {len(gaps)} "
            f"distributions. Halving neighbourhoods moves degrees over their mean by up to "
            f"{100 * max(gaps):.0f} % of the vertices."
        )


def sides_of(row: Any) -> list[str]:
    """`all`, or both sides of a graph with two kinds of vertices."""
    found = Table.of([row]).where("distribution_gap", method="halved").by("of")
    return [side for side in SIDES if side in found]


def graph_rows(rows: Rows) -> list[Any]:
    """Usable rows of one graph each."""
    return rows_of(rows, experiment=NAME, dataset=lambda name: name is not None)


def machine_row(rows: Rows) -> Any | None:
    """The row of this machine and of the graphs' published sizes."""
    found = rows_of(rows, experiment=NAME, part=MACHINE)
    return found[-1] if found else None


def size_of(row: Any, name: str, size: str) -> tuple[int, bool] | None:
    """A size and whether it was counted here; None where nobody states it."""
    known = Table.of([row]).where(size, dataset=name).by("method")
    for word in ("counted", STATED):
        if word in known:
            return known[word][-1].value, word == "counted"
    return None


def mean_degree(row: Any, name: str, ends: int) -> float | None:
    """Mean degree of a graph of the paper at its published size."""
    both = [size_of(row, name, size) for size in SIZES]
    if None in both:
        return None
    return ends * both[1][0] / both[0][0]  # type: ignore[index]


def degree_points(rows: Rows) -> list[dict[str, Any]]:
    """Points of `sweep`: mean degrees of the paper's graphs at their published sizes."""
    row = machine_row(rows)
    points: list[dict[str, Any]] = []
    for graph in GRAPHS if row is not None else ():
        common = {"x": graph.title, "counted": True, "row_ids": [row.id]}
        for word, ends in DEFINITIONS.items():
            degree = mean_degree(row, graph.name, ends)
            if degree is not None:
                points.append({"series": word, "y": degree, **common})
        points.append({"series": "printed", "y": graph.printed.degree, "paper": True, **common})
    return points + [
        gap(bad, series="E/V", x=GRAPHS[0].title)
        for bad in failures(rows, NAME)
        if "dataset" not in bad.params
    ]


def half_points(rows: Rows) -> list[dict[str, Any]]:
    """Points of `sweep`: how many vertices have more than so many mean degrees."""
    points: list[dict[str, Any]] = []
    found = graph_rows(rows)
    real = [row for row in found if not row.data.get("twin")]
    for row in real or found:  # a twin draws its degrees from a law
        for side in sides_of(row):
            words = "" if side == "all" else f", {side}"
            shares = Table.of([row]).where("portion", of=side, bin=lambda k: k is not None)
            points += [
                mark(
                    row,
                    panel=panel(row) + words,
                    series="whole graph" if one["setting"] == WHOLE else "half",
                    x=GRID[one["bin"]],
                    y=100 * one.value,
                    counted=True,
                )
                for one in shares
                if one.value > 0
            ]
    for bad in failures(rows, NAME):
        if "dataset" in bad.params:
            points.append(
                {"panel": graph_title(bad.params["dataset"]), "series": "whole graph", "x": 1.0,
                 "failed": failed(bad), "row_ids": [bad.id]}
            )  # fmt: skip
    return points
