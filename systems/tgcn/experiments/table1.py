"""Table 1: the graphs, their degrees, and what sampling leaves of these (section 6.1)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from dgbench.lab import outcomes, rules
from dgbench.lab import rule_combinations as combine
from dgbench.lab.estimates import EvaluationContext, gaps_of_failures, prefer, real_data
from dgbench.lab.figure_forms import Sweep
from dgbench.lab.grid import by_preset
from dgbench.lab.laws import DECIDED
from dgbench.lab.metrics import STATED
from dgbench.lab.printed import as_printed, plain, printed, same_printed
from dgbench.lab.quantities import MeasuredQuantity, observed
from dgbench.lab.study import FormExperiment
from dgbench.lab.table import Entry
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.tgcn.degrees import GRID
from dgbench.systems.tgcn.graph_runs import (
    DEFINITIONS,
    HALF,
    WHOLE,
    checked_sizes,
    far,
    machine,
    measure_graph,
    sizes,
)
from dgbench.systems.tgcn.printed import PRINTED_TITLE, table1
from dgbench.systems.tgcn.settings import (
    BY_NAME,
    FORMS,
    GRAPHS,
    HELD_NAMES,
    PAPERS_GRAPHS,
    TWIN_NAMES,
)

MACHINE = "machine"
SHOWN = {"smoke": ("lastfm", "college-msg"), None: (*TWIN_NAMES, *HELD_NAMES)}
NEEDS_FILES = "needs the publishers' files of the four graphs"
SAME = 0.05
"""Difference of exponents, and share of vertices out of place, that still is the same shape."""


def counted_first(entries: list[Entry], context: EvaluationContext) -> list[Entry]:
    """Sizes that were counted here; as their publisher states them where there are none."""
    here = [one for one in entries if one["part"] == MACHINE]
    counted = {one["dataset"] for one in here if one["method"] == "counted"}
    return [o for o in here if o["method"] == "counted" or o["dataset"] not in counted]


def size(metric: str) -> MeasuredQuantity:
    """A size of each of the paper's graphs."""
    either = lambda method: method in ("counted", STATED)  # noqa: E731
    known = observed(metric, part=MACHINE, dataset=TWIN_NAMES, method=either)
    return known.keep(counted_first).pooled("last")


def mean_degree(ends: int) -> MeasuredQuantity:
    """Mean degree by one definition, of the published sizes."""
    return ends * size("edges") / size("vertices")


def real_graphs(entries: list[Entry], context: EvaluationContext) -> list[Entry]:
    """Entries on real graphs: the paper's, if all are here; degrees of a twin are drawn."""
    real = real_data(entries, context)
    own = [one for one in real if one.row in PAPERS_GRAPHS]
    return own if {one["dataset"] for one in own} >= set(TWIN_NAMES) else real


def is_cut(found: float, text: float | str) -> bool:
    """Return True if a number, cut to the digits of a printed one, equals it."""
    value, half = printed(text)
    return value <= found < value + 2 * half


def as_in_table(
    quantity: MeasuredQuantity, *conventions: Callable[[float, Any], bool]
) -> outcomes.Rule:
    """The number of each of the paper's graphs is the printed one, all by one convention."""

    def rule(context: EvaluationContext) -> outcomes.RuleOutcome:
        numbers = quantity.estimates(context)
        if lacking := outcomes.lacking_words(quantity, numbers, context, {"dataset": TWIN_NAMES}):
            return outcomes.RuleOutcome(lacking=lacking)
        texts = [context.claim.value[PRINTED_TITLE[dict(at)["dataset"]]] for at in numbers]
        pairs = list(zip(numbers.values(), texts, strict=True))
        fits = max(
            ([same(one.value, text) for one, text in pairs] for same in conventions), key=sum
        )
        sides = zip(
            outcomes.labels(context, numbers), (1 if fit else -1 for fit in fits), strict=True
        )
        return replace(outcomes.outcome(context, numbers), sides=tuple(sides))

    return rule


def twitter_edges(same: Callable[[float, Any], bool]) -> outcomes.Rule:
    """Billion edges of Twitter, printed by one convention."""
    edges = 1e-9 * size("edges").where(dataset="twitter")
    return lambda context: rules.compare_all(
        edges, lambda one: 1 if same(one.value, context.claim.value) else -1,
        report=rules.largest,
    )(context)  # fmt: skip


def of_shape(metric: str, **where: Any) -> MeasuredQuantity:
    """A number of the degrees of real graphs, on each side where there are two."""
    return observed(metric, per=("dataset", "of"), **where).keep(real_graphs)


DEGREES = {
    **{words: mean_degree(ends) for words, ends in DEFINITIONS.items()},
    "printed": size("edges").printed(lambda at: table1(at["dataset"]).degree),
}
LARGER = observed(
    "portion", per=("dataset", "of", "setting", "bin"), bin=lambda number: number is not None
).keep(prefer(real_data), gaps_of_failures)
"""Share of the vertices with more than a degree, on real graphs where there are any."""
GAP = observed("distribution_gap", per=("dataset", "of"), method="halved")


def at_degree(context: EvaluationContext, dims: Mapping[str, Any], one: Any) -> dict[str, Any]:
    """The degree, in means of the graph, that a share of vertices lies above."""
    return {"x": GRID[dims["bin"]], "counted": True}


class Table1(FormExperiment):
    forms, name = FORMS, "table1"
    device = "cpu"
    sources = {"portion": "counted"}
    group = ""
    timeout_s = {"smoke": 60, "quick": 90, "full": 600, "paper": 7200}
    headline, unit = 100 * GAP, "%"
    figure_forms = (
        Sweep(
            "table1", "Mean degrees by either definition, and as printed (Table 1)", DEGREES,
            series="of", x="{dataset}", gaps={"series": "E/V", "x": GRAPHS[0].title},
            more=lambda context, dims, one: {
                "counted": True, **({"paper": True} if dims["of"] == "printed" else {})
            },
            xlabel="", ylabel="mean degree", sort=False,
        ),
        Sweep(
            "table1_half", "Degrees before and after half of every neighbourhood is sampled",
            100 * LARGER.map(lambda share: share or math.nan),
            panel="{dataset}, {of}", series="{setting}", x="bin", more=at_degree,
            gaps={"series": "whole graph", "x": 1.0},
            xlabel="degree over the mean degree", ylabel="share of vertices with more, %",
            base=2, marks="few", names=False,
        ),
    )  # fmt: skip
    claims = {
        "tgcn-tab1-vertices": as_in_table(size("vertices"), as_printed, is_cut),
        "tgcn-tab1-edges": as_in_table(size("edges"), as_printed, is_cut),
        "tgcn-tab1-avg-degree": combine.interpretations(
            "what a mean degree is changes from row to row",
            {
                words: as_in_table(
                    mean_degree(ends),
                    lambda found, text: same_printed(round(found, 1), plain(text)),
                )
                for words, ends in DEFINITIONS.items()
            },
        ),
        "tgcn-tab1-feature": combine.needs_gpu(
            as_in_table(
                observed("columns", part=MACHINE, of="edge features", method="counted",
                         dataset=TWIN_NAMES),
                lambda found, text: found == text,
            ), f"{NEEDS_FILES}; what the column means is not explained",
        ),
        "tgcn-s1-twitter-edge-count": combine.interpretations(
            "Table 1 prints 1.47",
            {
                "cut to three digits": twitter_edges(is_cut),
                "rounded, as in Table 1": twitter_edges(as_printed),
            },
        ),
        "tgcn-s61-power-law": rules.compare_all(
            of_shape("likelihood_z", setting=WHOLE),
            lambda one: (one.value > DECIDED) - (one.value < -DECIDED),
        ),
        "tgcn-s61-sampling-keeps-degree-dist": combine.interpretations(
            "the mean degree halves, so that only a shape can stay",
            {
                "degrees over their mean": rules.at_most(
                    of_shape("distribution_gap", method="halved"), SAME
                ),
                "exponent of the tail": rules.all_within(
                    of_shape("tail_exponent", setting=HALF)
                    / of_shape("tail_exponent", setting=WHOLE), 1 - SAME, 1 + SAME,
                ),
            },
        ),
        "tgcn-s61-testbed": rules.not_measurable("needs a DGX with eight V100"),
    }  # fmt: skip

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        machine = self.cell({"part": MACHINE}, preset, group=MACHINE, timeout_s=60.0)
        return [
            machine,
            *(self.cell({"dataset": n}, preset, group=n) for n in by_preset(SHOWN, preset)),
        ]

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
