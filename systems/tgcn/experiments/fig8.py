"""Figure 8: what one draw costs as the set that is drawn from grows (sections 3 and 6.3)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from dgbench.lab import line_rules, outcomes, rules
from dgbench.lab import rule_combinations as combine
from dgbench.lab.figure_forms import Sweep
from dgbench.lab.quantities import MeasuredQuantity, observed
from dgbench.lab.study import FormExperiment
from dgbench.runtime.threads import one_thread
from dgbench.systems.base import Cell, Measurement, RunContext
from dgbench.systems.tgcn.frontier import REPLACED
from dgbench.systems.tgcn.methods import series_of
from dgbench.systems.tgcn.races import PROCESSES
from dgbench.systems.tgcn.settings import FORMS
from dgbench.systems.tgcn.single_draws import HALF, READY, SIZES, measure

LITTLE = 2.0
"""Factor of a draw's time for ten times the set, up to which it rises only a little."""
STRONG = 3.0
"""Factor from which it grows strongly; linear is 10, its root 3.2."""
NEAR = 2.0
"""Factor up to which counts are proportional to the set."""
ITS_FORMS = {
    "ITS scan": ("its_linear", READY),
    "ITS list": ("its_list", HALF),
    "ITS rebuild": ("its_rebuild", READY),
    "ITS bitmap": ("its_bitmap", READY),
}
"""Forms of ITS. A list of the taken is short until much of the set is drawn."""
BRS_FORMS = {"BRS on a frontier": ("brs", REPLACED), "BRS on a set": ("brs", READY)}
WHY = "which form of ITS is meant, and whether BRS draws from a set or a frontier, is not said"

TIME = observed("sampling_time", per=("weights", "method", "size"))
GROWTH = observed("growth", weights="equal")
"""Time of a draw over that from a tenth of the set."""
WORK = observed("draw_work", per="size")


def any_value(_: object) -> bool:
    return True


def per_decade(method: str, setting: str) -> MeasuredQuantity:
    """Factor of a draw's time for ten times the set, geometric mean over the sizes."""
    growth = GROWTH.where(method=method, setting=setting, size=any_value)
    return growth.pooled("workloads")


def per_draw(work: MeasuredQuantity, setting: str = READY) -> MeasuredQuantity:
    """Nodes and elements that a draw passes, by size."""
    of = {name: work.where(of=name, setting=setting) for name in ("steps", "read", "draws")}
    return (of["steps"] + of["read"]) / of["draws"]


def work_of(method: str, setting: str) -> MeasuredQuantity:
    """Nodes and elements that a draw of a method passes in a set of equal weights, by size."""
    return per_draw(WORK.where(weights="equal", method=method), setting)


def is_proportional(counts: Mapping[int, float]) -> bool:
    """Return True if counts for each element are alike at all sizes."""
    shares = [count / size for size, count in counts.items()]
    return min(shares) > 0 and max(shares) <= NEAR * min(shares)


def is_logarithmic(counts: Mapping[int, float], per_level: float = 1) -> bool:
    """Return True if counts are at most `per_level` per level of a binary tree and one more."""
    return all(count <= per_level * (math.ceil(math.log2(n)) + 1) for n, count in counts.items())


def linear(method: str, setting: str) -> outcomes.Rule:
    """Draws of a method pass as many items as are proportional to the set."""
    return line_rules.each_line(work_of(method, setting), "size", is_proportional)


def in_levels(of: str) -> outcomes.Rule:
    """Steps of a search or of a change are at most the levels of a binary tree."""
    return line_rules.each_line(WORK.where(weights="equal", of=of), "size", is_logarithmic)


def total(its: str, brs: str) -> outcomes.Rule:
    """A draw of SIS is logarithmic, those of forms of ITS and BRS are linear."""
    sis = WORK.where(weights="equal", method="sis", setting=READY)
    steps = sis.where(of="steps") / sis.where(of="draws")
    return combine.both(
        line_rules.each_line(steps, "size", lambda counts: is_logarithmic(counts, 2)),
        linear(*ITS_FORMS[its]), linear(*BRS_FORMS[brs]),
    )  # fmt: skip


READ, DRAWS = (
    WORK.where(weights="equal", method="brs", setting=REPLACED, of=of) for of in ("read", "draws")
)
_FRONTIER, _SET = BRS_FORMS


class Fig8(FormExperiment):
    forms = replace(FORMS, labels={**FORMS.labels, "method": series_of})
    name = "fig8"
    device = "cpu"
    control = {"weights": "equal"}
    axes = {"weights": {"smoke": ("equal",), "quick": ("equal",), None: ("equal", "degrees")}}
    """Equal, as for node-wise and layer-wise sampling, or of a power law as degrees are."""
    repeats, interleaved = PROCESSES, True
    group = "{weights}"
    timeout_s = {"smoke": 60, "quick": 120, "full": 1800, "paper": 3600}
    headline, unit = (
        GROWTH.where(setting=READY, size=any_value).per("method").pooled("workloads"),
        "x",
    )
    figure_forms = (
        Sweep(
            "fig8", "Time of one draw by the size of the set",
            {
                "one draw, its table or tree ready": TIME.where(setting=READY),
                "half of the set, building included": TIME.where(setting=HALF),
                "one step of a frontier": TIME.where(setting=REPLACED, weights=("equal",)),
            },
            panel="{of}, {weights} weights", series="{method}", x="size",
            without="skipped: too many elements to read", xlabel="elements to draw from",
            ylabel="seconds of a draw", base=10, guide_slope=1.0, names=False,
        ),
        Sweep(
            "fig8_counts", "Steps and elements of one draw by the size of the set",
            per_draw(WORK.per("weights", "method")).map(lambda count: count or math.nan),
            panel="{weights} weights", series="{method}", x="size",
            gaps={"series": "SIS", "x": SIZES["smoke"][0]}, xlabel="elements to draw from",
            ylabel="steps and elements read", base=10, guide_slope=1.0, names=False,
        ),
    )  # fmt: skip
    claims = {
        "tgcn-fig8-sis-flat": rules.all_below(
            GROWTH.where(method="sis", setting=(READY, HALF)).per("size"), LITTLE, unit="x"
        ),
        "tgcn-fig8-its-brs-grow": combine.interpretations(
            WHY,
            {
                words: rules.all_above(
                    per_decade(*form), STRONG, report=rules.largest
                )
                for words, form in {**ITS_FORMS, **BRS_FORMS}.items()
            },
        ),
        "tgcn-fig8-order": combine.interpretations(
            WHY,
            {
                words: line_rules.clearly_above(per_decade(*form), per_decade("sis", READY))
                for words, form in {**ITS_FORMS, **BRS_FORMS}.items()
            },
        ),
        "tgcn-s2-brs-complexity": line_rules.each_line(READ / DRAWS, "size", is_proportional),
        "tgcn-s2-its-complexity": combine.interpretations(
            WHY,
            {
                words: linear(*form)
                for words, form in {**ITS_FORMS, "alias tables": ("alias", READY)}.items()
            },
        ),
        "tgcn-s3-sis-query-complexity": in_levels("search"),
        "tgcn-s3-sis-modify-complexity": in_levels("modify"),
        "tgcn-s3-sis-total-complexity": combine.interpretations(
            WHY,
            {
                f"{its}, {brs}": total(its, brs)
                for its, brs in [*((its, _FRONTIER) for its in ITS_FORMS), ("ITS scan", _SET)]
            },
        ),
        "tgcn-s3-sis-no-repeats": rules.all_equal(
            observed(
                "draw_work", of="redraws", method="sis", setting=any_value, size=any_value
            ).pooled("sum"), 0,
        ),
        "tgcn-s3-tree-height-example": rules.all_equal(
            observed("draw_work", weights="equal", of=("changed", "path")), 4
        ),
    }  # fmt: skip

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        with one_thread():
            kind = str(cell.params["weights"])
            return measure(kind, context.preset, control=self.controls(cell))
