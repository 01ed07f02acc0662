"""Figure 5(a, b): vertices and edges of four equal runs of snapshots (section 2.2.3)."""

from __future__ import annotations

from collections.abc import Sequence

from dgbench.lab import rule_combinations as combine
from dgbench.lab import rules
from dgbench.lab.estimates import real_data
from dgbench.lab.figure_forms import Sweep
from dgbench.lab.quantities import observed
from dgbench.systems.base import Cell, Measurement, RunContext
from dgbench.systems.dgc.experiments.fig3 import WIDE
from dgbench.systems.dgc.experiments.lifetimes import RULES, Lifetimes, quarters
from dgbench.systems.dgc.experiments.settings import BY_NAME, papers_first
from dgbench.systems.dgc.experiments.table1 import SizesOfGraphs

QUARTERS = (1, 2, 3, 4)
EDGES = {"of": "edges"}
KINDS = (EDGES, *({"of": "vertices", "presence": rule} for rule in RULES))
"""Dimensions of what is counted in each quarter."""


def spread(numbers: Sequence[float]) -> float:
    """Largest over smallest; infinite where one is 0 and another is not."""
    if not max(numbers):
        return 1.0
    return max(numbers) / min(numbers) if min(numbers) else float("inf")


MEANS = observed("estimate", per="quarter")
VERTICES = {rule: MEANS.where(of="vertices", presence=rule, dataset="movie") for rule in RULES}
ENDS = {rule: (of.where(quarter=1), of.where(quarter=4)) for rule, of in VERTICES.items()}
GROWTH = {rule: last / first for rule, (first, last) in ENDS.items()}
"""Vertices of Movie's last quarter over those of its first, by the rule of presence."""
SHOWN = MEANS.per("dataset", "of").where(presence=lambda rule: rule in (None, "span"))
APART = SHOWN.joined_over(spread, "quarter").joined_over(max, "of")
"""Fullest over emptiest quarter of a graph, in vertices or edges."""


class Fig5(SizesOfGraphs):
    name = "fig5"
    headline, unit = APART.keep(real_data), "x"
    figure_forms = (
        Sweep(
            "fig5ab", "Vertices and edges of each quarter of a timeline (Figure 5a, b)",
            SHOWN.per("origin").over(SHOWN.per("origin").mean_over("quarter")),
            panel="{of}, {origin}", series="{dataset}", x="quarter", gaps={"x": 1},
            xlabel="quarter of the timeline", ylabel="in means of the whole timeline",
            xlog=False, ylog=False,
        ),
    )  # fmt: skip
    claims = {
        "dgc-fig5a-vertices-parts": combine.shown_beside(
            rules.near_claim(GROWTH["span"], above=1.0),
            {"where vertices stay to the end": GROWTH["tail"]},
        ),
        "dgc-fig5b-edges-parts": combine.both(
            rules.largest_at(MEANS.where(of="edges", dataset="movie"), "quarter", 1),
            rules.all_within(ENDS["span"][0] / ENDS["span"][1], 0.4, 0.6),
        ),
        "dgc-s22-others-same": rules.at_least(
            APART.where(dataset=lambda name: name != "movie").keep(papers_first), WIDE
        ),
    }

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        found = Lifetimes.of(BY_NAME[str(cell.params["dataset"])], context.preset)
        out = Measurement(data=found.data)
        for of in KINDS:
            numbers = found.present(of["presence"]) if "presence" in of else found.edges
            for quarter, mean in zip(QUARTERS, quarters(numbers), strict=True):
                out.observe("estimate", mean, quarter=quarter, **of)
        out.checks = [found.check()]
        return out
