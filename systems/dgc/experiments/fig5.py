"""Figure 5(a, b): vertices and edges of four equal runs of snapshots (section 2.2.3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dgbench.lab.compare import select
from dgbench.systems.base import Cell, Experiment, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.dgc.experiments.common import failed, failures
from dgbench.systems.dgc.experiments.lifetimes import RULES, Lifetimes, quarters
from dgbench.systems.dgc.experiments.recount import computed
from dgbench.systems.dgc.experiments.settings import ALL, BY_NAME
from dgbench.systems.dgc.experiments.table1 import SMOKE

QUARTERS = (1, 2, 3, 4)


class Fig5(Experiment):
    paper = "dgc"
    name = "fig5"
    title = "Figure 5(a, b): one graph in four quarters"
    claims = (
        "dgc-fig5a-vertices-parts",
        "dgc-fig5b-edges-parts",
        "dgc-s22-others-same",
    )
    device = "cpu"
    question = "Do parts of one timeline differ as much as graphs do?"
    reading = (
        "Four runs of equally many snapshots; counts are means of a run's snapshots. Figure 5 "
        "shows Movie only, and the text says that the other graphs are alike. A vertex is present "
        "from its first to its last edge; by other rules of presence the counts are in the rows. "
        "How a twin grows over time was assumed."
    )

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        names = SMOKE if preset == "smoke" else [graph.name for graph in ALL]
        return [
            Cell(
                paper=self.paper,
                experiment=self.name,
                params={"dataset": name},
                group=name,
                timeout_s=1800 if preset == "paper" else 120,
            )
            for name in names
        ]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        found = Lifetimes.of(BY_NAME[str(cell.params["dataset"])], context.preset)
        counted = {"edges": found.edges}
        counted |= {f"vertices {rule}": found.present(rule) for rule in RULES}
        values = {
            f"{key} {quarter}": mean
            for key, numbers in counted.items()
            for quarter, mean in zip(QUARTERS, quarters(numbers), strict=True)
        }
        return Measurement(
            values=values,
            units=dict.fromkeys(values, "per snapshot"),
            counters={"snapshots": found.steps},
            data=found.data,
            checks=[found.check(), computed(values, recomputed(found))],
        )

    def figures(self) -> list[FigureSpec]:
        return [
            FigureSpec(
                kind="sweep",
                name="fig5ab",
                title="Vertices and edges of each quarter of a timeline (Figure 5a, b)",
                points=quarter_points,
                options={
                    "xlabel": "quarter of the timeline",
                    "ylabel": "in means of the whole timeline",
                    "xlog": False,
                    "ylog": False,
                },
            )
        ]

    def answer(self, rows: Sequence[Any]) -> str:
        found = [r for r in select(rows, experiment="fig5") if not r.data.get("twin")]
        if not found:
            return ""
        apart = [max(spans(r, "vertices span"), spans(r, "edges")) for r in found]
        graphs = "graph" if len(found) == 1 else "graphs"
        return (
            f"In {len(found)} real {graphs} the fullest quarter has {min(apart):.1f} to "
            f"{max(apart):.1f} times what the emptiest has, in vertices or edges."
        )


def recomputed(found: Lifetimes) -> dict[str, float]:
    """Means of quarters from a recount; the first quarters take what is left over."""
    recount, values = found.recount, {}
    of = {f"vertices {rule}": recount.present(rule).tolist() for rule in RULES}
    of["edges"] = recount.edges.tolist()
    for key, numbers in of.items():
        size, more = divmod(len(numbers), len(QUARTERS))
        begin = 0
        for quarter in QUARTERS:
            part = numbers[begin : begin + size + (quarter <= more)]
            begin += len(part)
            if min(part, default=0) >= 0:  # else there is a snapshot that was not recounted
                values[f"{key} {quarter}"] = sum(part) / max(1, len(part))
    return values


def of_quarters(row: Any, key: str) -> list[float]:
    """Means of the four quarters: `edges`, or `vertices` and a rule of presence."""
    return [row.values[f"{key} {quarter}"] for quarter in QUARTERS]


def spans(row: Any, key: str) -> float:
    """Largest over smallest quarter; infinite where a quarter is empty and another is not."""
    numbers = of_quarters(row, key)
    if not max(numbers):
        return 1.0
    return max(numbers) / min(numbers) if min(numbers) else float("inf")


def quarter_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Each quarter of each graph, in means of the graph."""
    points: list[dict[str, Any]] = []
    panels = {"vertices": "vertices span", "edges": "edges"}
    for row in select(rows, experiment="fig5"):
        twin = bool(row.data.get("twin"))
        for word, key in panels.items():
            numbers = of_quarters(row, key)
            mean = sum(numbers) / len(numbers) or 1.0
            points += [
                {
                    "panel": f"{word}, {'twins of the paper' if twin else 'real graphs'}",
                    "series": BY_NAME[row.params["dataset"]].title,
                    "x": quarter,
                    "y": number / mean,
                    "counted": True,
                    "twin": twin,
                    "row_ids": [row.id],
                }
                for quarter, number in zip(QUARTERS, numbers, strict=True)
            ]
    for row in failures(rows, "fig5"):
        graph = BY_NAME[row.params["dataset"]]
        group = "real graphs" if graph.real else "twins of the paper"
        points += [
            {"panel": f"{word}, {group}", "series": graph.title, "x": 1, "failed": failed(row)}
            for word in panels
        ]
    return points
