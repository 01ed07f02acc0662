"""Figure 5(a, b): vertices and edges of four equal runs of snapshots (section 2.2.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dgbench.lab.charts import failed, failures, sweep
from dgbench.lab.compare import select
from dgbench.lab.table import number
from dgbench.systems.base import Cell, FigureSpec, Measurement, RunContext
from dgbench.systems.dgc.experiments.lifetimes import RULES, Lifetimes, quarters
from dgbench.systems.dgc.experiments.settings import BY_NAME
from dgbench.systems.dgc.experiments.table1 import SizesOfGraphs
from dgbench.systems.dgc.recount import recounted

QUARTERS = (1, 2, 3, 4)
EDGES = {"of": "edges"}
KINDS = (EDGES, *({"of": "vertices", "presence": rule} for rule in RULES))
"""Dimensions of what is counted in each quarter."""
_, _, SPAN, TAIL = KINDS


class Fig5(SizesOfGraphs):
    name = "fig5"
    title = "Figure 5(a, b): one graph in four quarters"
    claims = (
        "dgc-fig5a-vertices-parts",
        "dgc-fig5b-edges-parts",
        "dgc-s22-others-same",
    )
    question = "Do parts of one timeline differ as much as graphs do?"
    reading = (
        "Four runs of equally many snapshots; counts are means of a run's snapshots. Figure 5 "
        "shows Movie only, and the text says that the other graphs are alike. A vertex is present "
        "from its first to its last edge; by other rules of presence the counts are in the rows. "
        "How a twin grows over time was assumed."
    )

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        found = Lifetimes.of(BY_NAME[str(cell.params["dataset"])], context.preset)
        out = Measurement(data=found.data)
        for of in KINDS:
            numbers = found.present(of["presence"]) if "presence" in of else found.edges
            for quarter, mean in zip(QUARTERS, quarters(numbers), strict=True):
                out.observe("estimate", mean, quarter=quarter, **of)
        out.observe("snapshots", found.steps)
        out.checks = [found.check(), *recounted(out, recomputed(found))]
        return out

    def figures(self) -> list[FigureSpec]:
        return [
            sweep("fig5ab", "Vertices and edges of each quarter of a timeline (Figure 5a, b)",
                quarter_points, xlabel="quarter of the timeline",
                ylabel="in means of the whole timeline", xlog=False, ylog=False),
        ]  # fmt: skip

    def answer(self, rows: Sequence[Any]) -> str:
        found = [r for r in select(rows, experiment="fig5") if not r.data.get("twin")]
        if not found:
            return ""
        apart = [max(spans(r, SPAN), spans(r, EDGES)) for r in found]
        graphs = "graph" if len(found) == 1 else "graphs"
        return (
            f"In {len(found)} real {graphs} the fullest quarter has {min(apart):.1f} to "
            f"{max(apart):.1f} times what the emptiest has, in vertices or edges."
        )


def recomputed(found: Lifetimes) -> Measurement:
    """Means of quarters from a recount; the first quarters take what is left over."""
    recount, out = found.recount, Measurement()
    for of in KINDS:
        numbers = (recount.present(of["presence"]) if "presence" in of else recount.edges).tolist()
        size, more = divmod(len(numbers), len(QUARTERS))
        begin = 0
        for quarter in QUARTERS:
            part = numbers[begin : begin + size + (quarter <= more)]
            begin += len(part)
            if min(part, default=0) >= 0:  # else there is a snapshot that was not recounted
                out.observe("estimate", sum(part) / max(1, len(part)), quarter=quarter, **of)
    return out


def of_quarters(row: Any, of: Mapping[str, str]) -> list[float]:
    """Means of the four quarters of one of `KINDS`."""
    return [number(row, "estimate", quarter=quarter, **of) for quarter in QUARTERS]


def spans(row: Any, of: Mapping[str, str]) -> float:
    """Largest over smallest quarter; infinite where a quarter is empty and another is not."""
    numbers = of_quarters(row, of)
    if not max(numbers):
        return 1.0
    return max(numbers) / min(numbers) if min(numbers) else float("inf")


def quarter_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Each quarter of each graph, in means of the graph."""
    points: list[dict[str, Any]] = []
    panels = {"vertices": SPAN, "edges": EDGES}
    for row in select(rows, experiment="fig5"):
        twin = bool(row.data.get("twin"))
        for word, of in panels.items():
            numbers = of_quarters(row, of)
            mean = sum(numbers) / len(numbers) or 1.0
            points += [
                {
                    "panel": f"{word}, {'twins of the paper' if twin else 'real graphs'}",
                    "series": BY_NAME[row.params["dataset"]].title,
                    "x": quarter,
                    "y": height / mean,
                    "counted": True,
                    "twin": twin,
                    "row_ids": [row.id],
                }
                for quarter, height in zip(QUARTERS, numbers, strict=True)
            ]
    for row in failures(rows, "fig5"):
        graph = BY_NAME[row.params["dataset"]]
        group = "real graphs" if graph.real else "twins of the paper"
        points += [
            {"panel": f"{word}, {group}", "series": graph.title, "x": 1, "failed": failed(row)}
            for word in panels
        ]
    return points
