"""Table 1: sizes of the four graphs, raw and after both smoothings (section 6.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dgbench.datasets.transforms import EdgeLives
from dgbench.lab.compare import select
from dgbench.lab.result_checks import ResultCheck, close, equal
from dgbench.systems.base import Cell, Experiment, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.esdg.experiments.common import Changes, Occurrences, failures
from dgbench.systems.esdg.experiments.recount import OVER_EDGES, RawEdges, change_share, first_life
from dgbench.systems.esdg.experiments.settings import BY_NAME, COUNTED, GRAPHS, Graph

KEYS = ("N", "T", "nnz", "M_product", "edge_life")
SMOKE = ("amlsim", "youtube", "amlsim-20k-fanin200cycle200")
RATIOS = ("M_product", "edge_life")


class Table1(Experiment):
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
    own_data = "it compares graphs with the sizes that the paper prints of them"
    question = "Are the graphs the ones that the paper describes, and how long must edges live?"
    reading = (
        "nnz are distinct edges of each snapshot without self loops, summed over snapshots. The "
        "paper prints neither the edge life nor the window. Ours are the smallest that reach its "
        "ratio of smoothed to raw edges, so the smoothed sizes of twins agree by construction and "
        "decide nothing, as do the sizes that a twin is made from. Everything is counted from how "
        "long edges wait between occurrences; no smoothed snapshot is made."
    )

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        names = SMOKE if preset == "smoke" else [graph.name for graph in COUNTED]
        return [
            Cell(
                paper=self.paper,
                experiment=self.name,
                params={"dataset": name},
                group=name,
                timeout_s=900 if preset == "paper" else 120,
            )
            for name in names
        ]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph = BY_NAME[str(cell.params["dataset"])]
        found = Occurrences.of(graph, context.preset)
        lives = found.lives()
        counters = {
            "N": found.events.num_nodes,
            "T": found.steps,
            "events": len(found.events),
            "nnz": int(lives.raw().sum()),
        }
        values = {}
        for key, life in (("M_product", graph.window), ("edge_life", graph.edge_life)):
            changes = Changes.of(lives, life)
            counters[key] = int(changes.entries.sum())
            values[f"delta {key}"] = changes.share
            if graph.printed:
                ratio = graph.printed[key] / graph.printed["nnz"]
                counters[f"found {key}"] = smallest_life(lives, ratio) or 0
        counters |= {"l": graph.edge_life, "w": graph.window}
        return Measurement(
            values=values,
            units=dict.fromkeys(values, "changed entries per entry"),
            counters=counters,
            data=found.data,
            checks=_recounted(found, graph, counters, values),
        )

    def figures(self) -> list[FigureSpec]:
        return [
            FigureSpec(
                kind="paper_vs_measured",
                name="table1",
                title="Smoothed over raw edges, printed and of the fitted twins",
                points=ratio_points,
            )
        ]

    def answer(self, rows: Sequence[Any]) -> str:
        found = [
            r for r in select(rows, experiment="table1") if BY_NAME[r.params["dataset"]].printed
        ]
        if not found:
            return ""
        lives = ", ".join(
            f"{BY_NAME[r.params['dataset']].title} l = {r.counters['found edge_life']}, "
            f"w = {r.counters['found M_product']}"
            for r in found
        )
        real = sum(not r.data.get("twin") for r in found)
        return (
            f"{real} of {len(GRAPHS)} graphs are held as real data, the others are twins fitted to "
            f"published sizes. Here the printed ratios of smoothed to raw edges need {lives}."
        )


def _recounted(
    found: Occurrences, graph: Graph, counters: dict[str, int], values: dict[str, float]
) -> list[ResultCheck]:
    """All counts of a row against those of a window that slides over the edges."""
    edges = RawEdges(found)
    # An id is a vertex, whether it has an edge or not; none may lie beyond them.
    ids = max(int(column.max()) + 1 for column in (found.events.src, found.events.dst))
    wanted = {"nnz": edges.count, "T": len(edges.snapshots), "events": found.bins.numel()}
    wanted["N"] = max(counters["N"], ids)
    shares = {}
    for key, life in (("M_product", graph.window), ("edge_life", graph.edge_life)):
        changes = edges.changes(life)
        wanted[key] = int(changes.entries.sum())
        shares[f"delta {key}"] = change_share(changes)
        if graph.printed:
            least = graph.printed[key] / graph.printed["nnz"] * edges.count
            wanted[f"found {key}"] = first_life(
                edges,
                lambda c, n=least: int(c.entries.sum()) >= n,
                counters[f"found {key}"],
                counters["T"],
            )
    own = {key: counters[key] for key in wanted}
    return [
        equal("counters", own, wanted, against=OVER_EDGES),
        close("shares", values, shares, 1e-12, against=OVER_EDGES),
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


def same_printed(counted: int, printed: int) -> bool:
    """Whether a count is rounded or cut to the printed number, at its digits (at least two).

    The paper cuts: the 13.67 M ratings of epinions are printed as 13 M.
    """
    digits = max(2, len(str(printed).rstrip("0")))
    unit = 10 ** max(0, len(str(printed)) - digits)
    return -unit <= 2 * (counted - printed) < 2 * unit if unit > 1 else counted == printed


def agrees(row: Any) -> dict[str, bool]:
    """Which printed numbers of Table 1 a counted row has."""
    printed = BY_NAME[row.params["dataset"]].printed
    return {key: same_printed(row.counters[key], printed[key]) for key in KEYS if key in printed}


def ratio_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Ratio of smoothed to raw edges, printed and counted."""
    points: list[dict[str, Any]] = []
    for row in select(rows, experiment="table1"):
        graph = BY_NAME[row.params["dataset"]]
        for key in RATIOS if graph.printed else ():
            points.append(
                {
                    "claim": f"{graph.title} {key} / nnz",
                    "paper": graph.printed[key] / graph.printed["nnz"],
                    "measured": row.counters[key] / row.counters["nnz"],
                    "evidence": "counted",
                    "twin": bool(row.data.get("twin")),
                    "row_ids": [row.id],
                }
            )
    for row in failures(rows, "table1"):
        graph = BY_NAME[row.params["dataset"]]
        points += [
            {"claim": f"{graph.title} {key} / nnz", "failed": f"{row.status}: {row.reason}"}
            for key in (RATIOS if graph.printed else ())
        ]
    return points
