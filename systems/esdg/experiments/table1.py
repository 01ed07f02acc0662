"""Table 1: sizes of the four graphs, raw and after both smoothings (section 6.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dgbench.datasets.transforms import EdgeLives
from dgbench.lab import outcomes
from dgbench.lab.estimates import Estimate, EvaluationContext
from dgbench.lab.evidence import uses_twin
from dgbench.lab.figure_forms import FigureForm
from dgbench.lab.printed import same_printed
from dgbench.lab.quantities import observed
from dgbench.lab.study import FormExperiment
from dgbench.lab.table import Entry
from dgbench.systems.base import Cell, Measurement, RunContext
from dgbench.systems.esdg.experiments.common import Changes, Occurrences, smallest_length
from dgbench.systems.esdg.experiments.recount import RawEdges, changes_check
from dgbench.systems.esdg.experiments.settings import BY_NAME, COUNTED, FORMS, GRAPHS, SnapshotGraph

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


def smallest_life(lives: EdgeLives, ratio: float) -> int | None:
    """The smallest edge life or window with at least `ratio` times the raw entries, or None."""
    least = ratio * lives.raw().sum()
    return smallest_length(lambda life: lives.entries(life).sum() >= least, max(1, lives.steps))


SIZES = {key: observed(metric, per="dataset", **dims) for key, (metric, dims) in COLUMNS.items()}


def has_printed_sizes(entries: list[Entry], context: EvaluationContext) -> list[Entry]:
    """Entries on the graphs of Table 1."""
    return [one for one in entries if BY_NAME[one["dataset"]].printed]


def printed_ratio(
    context: EvaluationContext, dims: Mapping[str, Any], one: Estimate
) -> Mapping[str, Any]:
    """The ratio as printed, beside its mark."""
    printed = BY_NAME[dims["dataset"]].printed
    return {"paper": printed[dims["of"]] / printed["nnz"], "twin": uses_twin(one.rows)}


def printed_sizes(graph: SnapshotGraph) -> outcomes.Rule:
    """Every printed number of one graph, at its printed digits."""

    def rule(context: EvaluationContext) -> outcomes.RuleOutcome:
        found = {
            key: one
            for key, quantity in SIZES.items()
            for one in quantity.where(dataset=graph.name).estimates(context).values()
        }
        if not found:
            return outcomes.RuleOutcome(lacking="the graph was not opened in this run")
        counts = {key: int(one.value) for key, one in found.items()}
        sides = tuple(
            (key, 1 if same_printed(count, graph.printed[key]) else -1)
            for key, count in counts.items()
        )
        return outcomes.RuleOutcome(sides, found["N"].rows, counts)

    return rule


class Table1(FormExperiment):
    forms, name = FORMS, "table1"
    device = "cpu"
    axes = {"dataset": {"smoke": SMOKE, None: [graph.name for graph in COUNTED]}}
    timeout_s = {"paper": 900, None: 120}
    headline = observed("smoothing_length", per=("dataset", "smoothing"), of="shortest")
    unit = "snapshots"
    figure_forms = (
        FigureForm(
            "paper_vs_measured", "table1",
            "Smoothed over raw edges, printed and of the fitted twins",
            {key: (SIZES[key] / SIZES["nnz"]).keep(has_printed_sizes) for key in RATIOS},
            {"claim": "{dataset} {of} / nnz"}, value="measured", more=printed_ratio, gaps={},
        ),
    )  # fmt: skip
    claims = {f"esdg-tab1-{graph.name}": printed_sizes(graph) for graph in GRAPHS}

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph = BY_NAME[str(cell.params["dataset"])]
        found = Occurrences.of(graph, context.preset)
        lives, edges = found.lives(), RawEdges(found)
        counted = Measurement(data=found.data)
        counted.observe("vertices", found.events.num_nodes)
        counted.observe("snapshots", found.steps)
        counted.observe("edges", int(lives.raw().sum()), smoothing="none")
        for key, life in graph.lengths.items():
            changes, smoothing = Changes.of(lives, life), COLUMNS[key][1]
            counted.observe("edges", int(changes.entries.sum()), **smoothing)
            if graph.printed:
                shortest = smallest_life(lives, graph.printed[key] / graph.printed["nnz"]) or 0
                counted.observe("smoothing_length", shortest, of="shortest", **smoothing)
        counted.checks = [
            changes_check(Changes.of(lives, life), edges.changes(life))
            for life in (1, *graph.lengths.values())
        ]
        return counted
