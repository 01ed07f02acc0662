"""Table 1: sizes of the four graphs, and which rule of presence fits them (section 7.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from dgbench import datasets
from dgbench.lab.charts import failed, failures, mark, sweep
from dgbench.lab.compare import select
from dgbench.lab.grid import Grid
from dgbench.lab.printed import same_printed
from dgbench.lab.table import Table, number
from dgbench.systems.base import Cell, FigureSpec, Measurement, RunContext
from dgbench.systems.dgc.experiments.lifetimes import RULES, Lifetimes
from dgbench.systems.dgc.experiments.settings import ALL, BY_NAME, GRAPHS
from dgbench.systems.dgc.recount import recounted

SMOKE = ("amazon", "movie", "email-eu-core")
LARGEST = "epinions-2011-ratings"
"""Graph that takes as long as all others together; no claim of quick reads it."""
RULE_TITLES = {
    "edges": "with an edge in the snapshot",
    "span": "first to last edge",
    "tail": "first edge to the end",
    "all": "always",
}
DAY = 86_400.0


class SizesOfGraphs(Grid):
    """An experiment that counts each graph in a cell of its own."""

    paper = "dgc"
    device = "cpu"
    axes: ClassVar = {
        "dataset": {
            "smoke": SMOKE,
            "quick": tuple(graph.name for graph in ALL if graph.name != LARGEST),
            None: tuple(graph.name for graph in ALL),
        }
    }
    timeout_s: ClassVar = {"paper": 1800, None: 120}


class Table1(SizesOfGraphs):
    name = "table1"
    title = "Table 1: the graphs"
    claims = (
        "dgc-tab1-amazon",
        "dgc-tab1-epinion",
        "dgc-tab1-movie",
        "dgc-tab1-stack",
        "dgc-s71-windows",
    )
    question = "Are the graphs the ones that the paper describes, and when is a vertex present?"
    reading = (
        "The paper sums vertices over snapshots and does not say when one is present. We count by "
        "four rules: where it has an edge, from its first to its last edge, from its first edge to "
        "the end, and always. Edges are counted as events and as distinct edges of a snapshot, "
        "both without self loops. Sizes of a twin are fitted to published totals and decide "
        "nothing; its vertices by a rule follow from lifetimes that were assumed."
    )

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph = BY_NAME[str(cell.params["dataset"])]
        found = Lifetimes.of(graph, context.preset)
        second = datasets.card(graph.name).unit_s
        edges = int(found.edges.sum())
        out = _sizes(found, found.events, found.window, second)
        out.observe("edges", edges)
        out.observe("edges", found.pairs, of="pairs")
        for rule in RULES:
            vertices = found.vertices(rule)
            out.observe("vertex_steps", vertices, presence=rule)
            mean = edges / vertices if found.events else 0.0
            out.observe("estimate", mean, of="edges", presence=rule)
        out.observe("vertex_steps", found.nodes * found.steps, presence="all")
        recount = found.recount
        wanted = _sizes(found, recount.events, recount.window, second)
        if recount.all:
            wanted.observe("edges", int(recount.edges.sum()))
            wanted.observe("edges", recount.pairs, of="pairs")
        for rule in RULES:
            if recount.all or rule != "edges":
                wanted.observe("vertex_steps", int(recount.present(rule).sum()), presence=rule)
        out.data, out.checks = found.data, [found.check(), *recounted(out, wanted)]
        return out

    def figures(self) -> list[FigureSpec]:
        return [
            sweep("table1",
                "Vertices present in a snapshot, of all vertices, by when they are present",
                presence_points, ylabel="vertices in a mean snapshot, %", base=10),
        ]  # fmt: skip

    def answer(self, rows: Sequence[Any]) -> str:
        found = [
            r for r in select(rows, experiment="table1") if BY_NAME[r.params["dataset"]].printed
        ]
        if not found:
            return ""
        real = sum(not r.data.get("twin") for r in found)
        edges = ", ".join(f"{share(r, 'edges'):.1%}" for r in found)
        span = ", ".join(f"{share(r, 'span'):.0%}" for r in found)
        names = ", ".join(BY_NAME[r.params["dataset"]].title for r in found)
        held = "is real" if real == 1 else "are real"
        return (
            f"{real} of {len(GRAPHS)} graphs {held} here, the others are twins fitted to published "
            f"sizes. Of the vertices of {names}, {edges} have an edge in a mean snapshot, and "
            f"{span} lie between their first and last edge."
        )


def _sizes(found: Lifetimes, events: int, window: float, second: float | None) -> Measurement:
    """Snapshots, vertices and events of a graph, and its window in seconds where it has some."""
    out = Measurement()
    out.observe("snapshots", found.steps)
    out.observe("vertices", found.nodes)
    out.observe("edges", events, of="events")
    if second:
        out.observe("window", window * second)
    return out


def share(row: Any, rule: str) -> float:
    """Vertices present in a mean snapshot by a rule, of all vertices."""
    present, everyone = (number(row, "vertex_steps", presence=of) for of in (rule, "all"))
    return present / everyone if everyone else 0.0


def printed_share(name: str) -> float | None:
    """The same from Table 1, by the vertices that the card knows; None where it knows none."""
    graph = BY_NAME[name]
    nodes = datasets.card(name).published.nodes
    if not graph.printed or not nodes:
        return None
    return graph.printed["vertices"] / (graph.printed["snapshots"] * nodes)


def presence_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Share of the vertices that each rule keeps in a mean snapshot, and the printed one."""
    points: list[dict[str, Any]] = []
    for row in select(rows, experiment="table1"):
        name = row.params["dataset"]
        common = mark(row, x=BY_NAME[name].title)
        points += [
            {"series": RULE_TITLES[rule], "y": 100 * share(row, rule), "counted": True, **common}
            for rule in RULES
        ]
        printed = printed_share(name)
        if printed is not None:
            points.append({"series": "Table 1", "y": 100 * printed, "paper": True, **common})
    for row in failures(rows, "table1"):
        title = BY_NAME[row.params["dataset"]].title
        points += [
            {"series": RULE_TITLES[rule], "x": title, "failed": failed(row)} for rule in RULES
        ]
    return points


def agrees(row: Any) -> dict[str, bool]:
    """Compare a row's counts with the printed numbers, by its best rule and way to count edges."""
    printed, found = BY_NAME[row.params["dataset"]].printed, Table.of([row])
    counted = {
        "snapshots": found.where("snapshots").values,
        "vertices": found.where("vertex_steps").values,
        "edges": found.where("edges").values,
    }
    return {
        key: any(same_printed(number, printed[key]) for number in counted[key]) for key in printed
    }
