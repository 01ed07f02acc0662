"""Table 1: sizes of the four graphs, raw and after both smoothings (section 6.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from dgbench.datasets.transforms import EdgeLives
from dgbench.lab.charts import chart, failures, mark
from dgbench.lab.grid import Grid
from dgbench.lab.result_checks import ResultCheck
from dgbench.lab.table import number, rows_of
from dgbench.systems.base import Cell, Measurement, RunContext
from dgbench.systems.esdg.experiments.common import Changes, Occurrences
from dgbench.systems.esdg.experiments.recount import (
    OVER_EDGES,
    RawEdges,
    agree,
    change_share,
    first_life,
)
from dgbench.systems.esdg.experiments.settings import BY_NAME, COUNTED, GRAPHS, SnapshotGraph

COLUMNS: Final[dict[str, tuple[str, dict[str, str]]]] = {
    "N": ("vertices", {}),
    "T": ("snapshots", {}),
    "nnz": ("edges", {"smoothing": "none"}),
    "M_product": ("edges", {"smoothing": "m_transform"}),
    "edge_life": ("edges", {"smoothing": "edge_life"}),
}
"""Columns of Table 1, as observations."""

SMOKE = ("amlsim", "youtube", "amlsim-20k-fanin200cycle200")
RATIOS = ("M_product", "edge_life")
"""Columns of smoothed edges."""


def _recounted(found: Occurrences, graph: SnapshotGraph, own: Measurement) -> list[ResultCheck]:
    """All counts of a row against those of a window that slides over the edges."""
    edges = RawEdges(found)
    wanted, shares = Measurement(), Measurement()
    # An id is a vertex, whether it has an edge or not; none may lie beyond them.
    ids = max(int(column.max()) + 1 for column in (found.events.src, found.events.dst))
    wanted.observe("vertices", max(number(own, "vertices"), ids))
    wanted.observe("snapshots", len(edges.snapshots))
    wanted.observe("events", found.bins.numel())
    wanted.observe("edges", edges.count, smoothing="none")
    for key, life in graph.lengths.items():
        changes, smoothing = edges.changes(life), COLUMNS[key][1]
        wanted.observe("edges", int(changes.entries.sum()), **smoothing)
        shares.observe("portion", change_share(changes), of="changed", **smoothing)
        if graph.printed:
            least = graph.printed[key] / graph.printed["nnz"] * edges.count
            shortest = {"of": "shortest", **smoothing}
            first = first_life(
                edges,
                lambda c, n=least: int(c.entries.sum()) >= n,
                number(own, "smoothing_length", **shortest),
                found.steps,
            )
            wanted.observe("smoothing_length", first, **shortest)
    return [
        agree(own, wanted, against=OVER_EDGES),
        agree(own, shares, against=OVER_EDGES, of="shares", tolerance=1e-12),
    ]


def smallest_life(lives: EdgeLives, ratio: float) -> int | None:
    """The smallest edge life or window with at least `ratio` times the raw entries, or None."""
    raw = lives.raw().sum()
    # Entries grow with the life, so halving finds it.
    low, high = 1, max(1, lives.steps)
    if lives.entries(high).sum() < ratio * raw:
        return None
    while low < high:
        middle = (low + high) // 2
        if lives.entries(middle).sum() >= ratio * raw:
            high = middle
        else:
            low = middle + 1
    return low


def printed(row: Any) -> dict[str, int]:
    """The line of Table 1 of a row's graph; empty for graphs of our own."""
    return BY_NAME[row.params["dataset"]].printed


def counted(row: Any) -> dict[str, int]:
    """The same line as it was counted."""
    return {key: number(row, metric, **dims) for key, (metric, dims) in COLUMNS.items()}


def ratio_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Ratio of smoothed to raw edges, printed and counted."""
    points: list[dict[str, Any]] = []
    for row in rows_of(rows, experiment="table1"):
        said, found = printed(row), counted(row)
        points += [
            mark(
                row,
                claim=f"{BY_NAME[row.params['dataset']].title} {key} / nnz",
                paper=said[key] / said["nnz"],
                measured=found[key] / found["nnz"],
            )
            for key in (RATIOS if said else ())
        ]
    points += [
        {
            "claim": f"{BY_NAME[row.params['dataset']].title} {key} / nnz",
            "failed": f"{row.status}: {row.reason}",
        }
        for row in failures(rows, "table1")
        for key in (RATIOS if printed(row) else ())
    ]
    return points


CHARTS = (
    chart(
        "paper_vs_measured",
        "table1",
        "Smoothed over raw edges, printed and of the fitted twins",
        ratio_points,
    ),
)


class Table1(Grid):
    paper = "esdg"
    name = "table1"
    title = "Table 1: the graphs"
    claims = (
        "esdg-tab1-epinions",
        "esdg-tab1-flickr",
        "esdg-tab1-youtube",
        "esdg-tab1-amlsim",
    )
    device = "cpu"
    sources: ClassVar = {"portion": "counted"}
    own_data = "it compares graphs with the sizes that the paper prints of them"
    question = "Are the graphs the ones that the paper describes, and how long must edges live?"
    reading = (
        "nnz are distinct edges of each snapshot without self loops, summed over snapshots. The "
        "paper prints neither the edge life nor the window. Ours are the smallest that reach its "
        "ratio of smoothed to raw edges, so the smoothed sizes of twins agree by construction and "
        "decide nothing, as do the sizes that a twin is made from. Everything is counted from how "
        "long edges wait between occurrences; no smoothed snapshot is made."
    )

    axes: ClassVar = {"dataset": {"smoke": SMOKE, None: [graph.name for graph in COUNTED]}}
    timeout_s: ClassVar = {"paper": 900, None: 120}
    charts = CHARTS

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph = BY_NAME[str(cell.params["dataset"])]
        found = Occurrences.of(graph, context.preset)
        lives = found.lives()
        counted = Measurement(data=found.data)
        counted.observe("vertices", found.events.num_nodes)
        counted.observe("snapshots", found.steps)
        counted.observe("events", len(found.events))
        counted.observe("edges", int(lives.raw().sum()), smoothing="none")
        for key, life in graph.lengths.items():
            changes, smoothing = Changes.of(lives, life), COLUMNS[key][1]
            counted.observe("edges", int(changes.entries.sum()), **smoothing)
            counted.observe("portion", changes.share, of="changed", **smoothing)
            counted.observe("smoothing_length", life, **smoothing)
            if graph.printed:
                shortest = smallest_life(lives, graph.printed[key] / graph.printed["nnz"]) or 0
                counted.observe("smoothing_length", shortest, of="shortest", **smoothing)
        counted.checks = _recounted(found, graph, counted)
        return counted

    def answer(self, rows: Sequence[Any]) -> str:
        found = [r for r in rows_of(rows, experiment="table1") if printed(r)]
        if not found:
            return ""

        def shortest(row: Any, key: str) -> int:
            return number(row, "smoothing_length", of="shortest", **COLUMNS[key][1])

        lives = ", ".join(
            f"{BY_NAME[r.params['dataset']].title} l = {shortest(r, 'edge_life')}, "
            f"w = {shortest(r, 'M_product')}"
            for r in found
        )
        real = sum(not r.data.get("twin") for r in found)
        return (
            f"{real} of {len(GRAPHS)} graphs are held as real data, the others are twins fitted to "
            f"published sizes. Here the printed ratios of smoothed to raw edges need {lives}."
        )
