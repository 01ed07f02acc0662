"""Table 1: sizes of the four graphs, and which rule of presence fits them (section 7.1)."""

from __future__ import annotations

from math import nan
from typing import Any, ClassVar

from dgbench import datasets
from dgbench.lab import outcomes, rules
from dgbench.lab.estimates import EvaluationContext
from dgbench.lab.figure_forms import Sweep
from dgbench.lab.printed import same_printed
from dgbench.lab.quantities import observed, of_rows
from dgbench.lab.study import FormExperiment
from dgbench.systems.base import Cell, Measurement, RunContext
from dgbench.systems.dgc.experiments.lifetimes import RULES, Lifetimes
from dgbench.systems.dgc.experiments.settings import ALL, BY_NAME, DATASET_OF, FORMS, GRAPHS

SMOKE = ("amazon", "movie", "email-eu-core")
LARGEST = "epinions-2011-ratings"
"""Graph that takes as long as all others together; no claim of quick reads it."""
DAY = 86_400.0
PRINTED = tuple(graph.name for graph in GRAPHS)

STEPS = observed("vertex_steps", per="dataset")
SHARE = {rule: 100 * STEPS.where(presence=rule) / STEPS.where(presence="all") for rule in RULES}
"""Percent of the vertices that are present in a mean snapshot, by the rule of presence."""
COUNTED = {
    "snapshots": observed("snapshots"),
    "vertices": observed("vertex_steps", per="presence"),
    "edges": observed("edges", per="of"),
}
"""Column of the table -> what it may be a count of."""
WINDOW = of_rows(lambda row: float(BY_NAME[row.params["dataset"]].window), dataset=PRINTED)
"""Days of a window, as printed."""


def printed_share(row: Any) -> float:
    """Percent of the vertices that Table 1 has in a mean snapshot, by those that the card knows."""
    graph = BY_NAME[row.params["dataset"]]
    nodes = datasets.card(graph.name).published.nodes
    snapshots, vertices = (graph.printed[key] for key in ("snapshots", "vertices"))
    return 100 * vertices / (snapshots * nodes) if nodes else nan


def sizes_as_printed(dataset: str) -> outcomes.Rule:
    """Every printed number of a graph is one of the counts of its column, at the printed digits."""

    def rule(context: EvaluationContext) -> outcomes.RuleOutcome:
        printed = context.claim.value["expanded"]
        found = {key: COUNTED[key].where(dataset=dataset).estimates(context) for key in printed}
        if not all(found.values()):
            return outcomes.RuleOutcome(lacking="the graph was not opened in this run")
        counts = [(key, at, one) for key, of in found.items() for at, one in of.items()]
        same = {key for key, _, one in counts if same_printed(one.value, printed[key])}
        return outcomes.RuleOutcome(
            tuple((key, 1 if key in same else -1) for key in printed),
            outcomes.rows_of_all(*(one for *_, one in counts)),
            {f"{key} {outcomes.words(context, at)}".strip(): one.value for key, at, one in counts},
        )

    return rule


class SizesOfGraphs(FormExperiment):
    """An experiment that counts each graph in a cell of its own."""

    forms = FORMS
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
    headline, unit = SHARE["edges"].where(dataset=PRINTED), "%"
    figure_forms = (
        Sweep(
            "table1", "Vertices present in a snapshot, of all vertices, by when they are present",
            {
                "with an edge in the snapshot": SHARE["edges"],
                "first to last edge": SHARE["span"],
                "first edge to the end": SHARE["tail"],
                "Table 1": of_rows(printed_share, dataset=PRINTED),
            },
            series="of", x="{dataset}", gaps={"series": "Table 1"},
            more=lambda context, dims, _: {"paper": True} if dims["of"] == "Table 1" else {},
            ylabel="vertices in a mean snapshot, %", base=10,
        ),
    )  # fmt: skip
    claims = {
        **{f"dgc-tab1-{title.lower()}": sizes_as_printed(name)
           for title, name in DATASET_OF.items()},
        "dgc-s71-windows": rules.all_within(
            observed("window", dataset=PRINTED) / DAY / WINDOW, 0.98, 1.02
        ),
    }  # fmt: skip

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph = BY_NAME[str(cell.params["dataset"])]
        found = Lifetimes.of(graph, context.preset)
        out = Measurement(data=found.data, checks=[found.check()])
        out.observe("snapshots", found.steps)
        out.observe("edges", found.events, of="events")
        if second := datasets.card(graph.name).unit_s:
            out.observe("window", found.window * second)
        out.observe("edges", int(found.edges.sum()))
        out.observe("edges", found.pairs, of="pairs")
        for rule in RULES:
            out.observe("vertex_steps", found.vertices(rule), presence=rule)
        out.observe("vertex_steps", found.nodes * found.steps, presence="all")
        return out
