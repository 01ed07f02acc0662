"""Section 4.1: how evenly the three-dimensional cut fills its grids, and what it costs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dgbench.lab import outcomes, rules
from dgbench.lab import rule_combinations as combine
from dgbench.lab.figure_forms import Sweep
from dgbench.lab.grid import by_preset
from dgbench.lab.quantities import MeasuredQuantity, observed
from dgbench.lab.study import FormExperiment
from dgbench.runtime.threads import one_thread
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.tgcn.partition_runs import (
    SKEWS,
    SYNTHETIC,
    TRAINED,
    measure_degrees,
    measure_fill,
    measure_share,
    measure_sort,
)
from dgbench.systems.tgcn.races import PROCESSES
from dgbench.systems.tgcn.settings import FORMS, HELD_NAMES, TWIN_NAMES

FILL, DEGREES, SORT, SHARE = "fill", "degrees", "sort", "share"
SHOWN = {"smoke": ("lastfm", "college-msg"), None: (*TWIN_NAMES, *HELD_NAMES)}
EVEN = 1.5
"""Factor up to which the largest grid is as large as with uniform degrees."""

BUSY = observed("busy_devices", per="dataset", kind=FILL, ranks=8,
                method=("equal", "edges", "dealt"))  # fmt: skip


def sort_time(**skew: Any) -> MeasuredQuantity:
    """Time to sort over that with uniform degrees."""
    rate = observed("throughput", kind=SORT, per="skew")
    return rate.where(skew=SKEWS[0]) / rate.where(**skew)


def largest_grid(order: str, cut: str, **skew: Any) -> MeasuredQuantity:
    """Edges of the largest grid over those with uniform degrees."""
    of = {"of": "grid", "setting": order, "method": cut}
    grid = observed("imbalance", kind=DEGREES, per="skew", **of)
    return grid.where(**skew) / grid.where(skew=SKEWS[0])


def is_even(order: str) -> outcomes.Rule:
    """The largest grid with degrees of a power law is as large as with uniform ones."""
    return rules.at_most(largest_grid(order, "equal", skew=SKEWS[-1]), EVEN, report=rules.largest)


def part_of_epoch(phase: str) -> outcomes.Rule:
    """Percent of an epoch here that a part of partitioning takes."""
    share = observed("time_share", kind=SHARE, phase=phase, setting=None)
    return rules.near_claim(100 * share)


class Partition(FormExperiment):
    forms, name = FORMS, "partition"
    sources = {"portion": "counted"}
    control = {"kind": SORT}
    group = ""
    repeats, interleaved = PROCESSES, True
    timeout_s = {"smoke": 60, "quick": 60, None: 1800}
    headline = BUSY.where(method=("equal", "dealt"))
    figure_forms = (
        Sweep(
            "partition_busy", "Devices of 8 that train at a time, by the cut of the vertices", BUSY,
            series="{method}", x="{dataset}", gaps={"series": "equal width"},
            more=lambda *_: {"counted": True}, xlabel="graph", ylabel="devices", ylog=False,
            sort=False,
        ),
        Sweep(
            "partition_degrees",
            "What degrees change: edges of the largest grid, and time to sort",
            {
                "largest grid, ids by degree": largest_grid("rank", "equal"),
                "largest grid, ids mixed": largest_grid("mixed", "equal"),
                "largest grid, dealt": largest_grid("rank", "dealt"),
                "time": sort_time(),
            },
            series="of", x="skew", gaps={"series": "time", "x": 0.0},
            xlabel="exponent of Zipf's law", ylabel="over uniform degrees", xlog=False,
        ),
    )  # fmt: skip
    claims = {
        "tgcn-s41-partition-degree-independent": combine.interpretations(
            "what must not depend on degrees is not said",
            {
                "edges of a grid, ids by degree": is_even("rank"),
                "edges of a grid, ids mixed": is_even("mixed"),
                "time of the cut": rules.all_below(
                    sort_time(skew=SKEWS[-1]).pooled("workloads"), EVEN, report=rules.largest
                ),
            },
        ),
        "tgcn-s65-partition-share": combine.interpretations(
            "what belongs to the partition is not said",
            {
                "the sort alone": part_of_epoch("cut"),
                "with negatives, rows and counts of every interval": part_of_epoch("plan"),
            },
        ),
    }

    def points(self, preset: Preset, device: str) -> Iterable[dict[str, Any]]:
        yield from ({"kind": FILL, "dataset": n} for n in by_preset(SHOWN, preset))
        yield {"kind": SHARE, "dataset": TRAINED}
        yield {"kind": DEGREES}
        yield {"kind": SORT}

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        # Fill is counted; what is timed needs processes, where a claim can be decided.
        once = (FILL, DEGREES, SHARE) if preset == "quick" else (FILL, DEGREES)
        return [
            self.cell(
                one,
                preset,
                group="/".join(one.values()),
                **({"repeats": 1} if one["kind"] in once else {}),
            )
            for one in self.points(preset, device)
        ]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        kind = str(cell.params["kind"])
        with one_thread():
            if kind in (DEGREES, SORT):
                size = SYNTHETIC.get(context.preset, SYNTHETIC["full"])
                if kind == DEGREES:
                    return measure_degrees(*size)
                return measure_sort(*size, control=self.controls(cell))
            work = {FILL: measure_fill, SHARE: measure_share}[kind]
            return work(str(cell.params["dataset"]), context)
