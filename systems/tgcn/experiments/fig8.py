"""Figure 8: what one draw costs as the set that is drawn from grows (sections 3 and 6.3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from dgbench.lab.charts import chart, failed, failures, sweep
from dgbench.lab.compare import Ratio, ratio_of
from dgbench.lab.grid import Grid
from dgbench.lab.table import Table, rows_of
from dgbench.runtime.threads import one_thread
from dgbench.systems.base import Cell, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.tgcn.common import last_rows, mean_ratio
from dgbench.systems.tgcn.frontier import REPLACED
from dgbench.systems.tgcn.methods import BASE, LINEAR, TITLES, series_of
from dgbench.systems.tgcn.races import PROCESSES
from dgbench.systems.tgcn.single_draws import (
    HALF,
    READY,
    SIZES,
    measure,
)

NAME: Final = "fig8"
WEIGHTS: Final = {
    "smoke": ("equal",),
    "quick": ("equal",),
    "full": ("equal", "degrees"),
    "paper": ("equal", "degrees"),
}
"""Equal, as for node-wise and layer-wise sampling, or of a power law as degrees are."""
PANELS: Final = {
    READY: "one draw, its table or tree ready",
    HALF: "half of the set, building included",
    REPLACED: "one step of a frontier",
}

Rows = Sequence[Any]


class Fig8(Grid):
    paper = "tgcn"
    name = NAME
    title = "Figure 8: one draw as the set grows"
    device = "cpu"
    question = "Which samplers slow down as the set that they draw from grows?"
    reading = (
        "Processor time of one thread. With its table or tree ready, a draw is the difference "
        "between many draws and one, over their number. Half of the set is drawn with building in "
        "the time, so that a draw is the whole over the number drawn. A step of a frontier "
        "replaces the drawn vertex by a neighbour, whose degree enters the tree (SIS) or the "
        "prefix sums (BRS): only there does BRS cost time linear in the set. Methods that take "
        "all at once have no single draw. Counts of steps and of elements read are exact."
    )
    claims = (
        "tgcn-fig8-sis-flat",
        "tgcn-fig8-its-brs-grow",
        "tgcn-fig8-order",
        "tgcn-s2-brs-complexity",
        "tgcn-s2-its-complexity",
        "tgcn-s3-sis-query-complexity",
        "tgcn-s3-sis-modify-complexity",
        "tgcn-s3-sis-total-complexity",
        "tgcn-s3-sis-no-repeats",
        "tgcn-s3-tree-height-example",
    )
    control: ClassVar = {"weights": "equal"}
    axes: ClassVar = {"weights": WEIGHTS}
    repeats: ClassVar = PROCESSES
    group = "{weights}"
    timeout_s: ClassVar = {"smoke": 60, "quick": 120, "full": 1800, "paper": 3600}

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        return [self.cell(one, preset, interleaved=True) for one in self.points(preset, device)]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        with one_thread():
            kind = str(cell.params["weights"])
            return measure(kind, context.preset, control=self.controls(cell))

    def figures(self) -> list[FigureSpec]:
        return [
            sweep("fig8", "Time of one draw by the size of the set", time_points,
                xlabel="elements to draw from", ylabel="seconds of a draw", base=10,
                guide_slope=1.0, names=False),
            sweep("fig8_counts", "Steps and elements of one draw by the size of the set",
                count_points, xlabel="elements to draw from", ylabel="steps and elements read",
                base=10, guide_slope=1.0, names=False),
            chart("correctness", "fig8_checks",
                "Half of a set without repeats: time of a draw, and what was checked",
                checked_points, columns=("duplicates", "redraws"),
                xlabel="time of a draw, building included",
                interval="that of the ratio to SIS, turn by turn, at its median",
                checked="redraws: for each draw; whether draws are biased is not checked"),
        ]  # fmt: skip

    def answer(self, rows: Rows) -> str:
        found = rows_of(rows, experiment=NAME)
        if not found:
            return ""
        row = found[0]

        def grown(method: str, setting: str) -> tuple[float, int]:
            known = draw_times(row, method, setting)
            return known[max(known)] / known[min(known)], max(known)

        sizes = sizes_of(row)
        sis, bitmap, scan = (grown(m, READY)[0] for m in ("sis", "its_bitmap", "its_linear"))
        brs, largest = grown("brs", REPLACED)
        return (
            f"From {sizes[0]:,} to {sizes[-1]:,} elements a draw of SIS takes {sis:.1f}x as long, "
            f"of ITS with a bitmap {bitmap:.1f}x, of ITS with a scan {scan:.0f}x; a step of BRS on "
            f"a frontier of up to {largest:,} takes {brs:.0f}x."
        )


def sizes_of(row: Any) -> list[int]:
    """Sizes of the sets of a row, ascending."""
    return sorted(Table.of([row]).where("sampling_time", method=BASE).by("size"))


def draw_times(row: Any, method: str, setting: str) -> dict[int, float]:
    """Seconds of a draw by size."""
    return Table.of([row]).where("sampling_time", method=method, setting=setting).numbers("size")


def growth_of(rows: Rows, method: str, setting: str) -> dict[int, Ratio]:
    """Growth of a draw's time over the size before, by size, over all processes."""
    found = Table.of(rows).where("growth", method=method, setting=setting).by("size")
    return {size: ratio for size in sorted(found) if (ratio := ratio_of(found[size])) is not None}


def per_decade(rows: Rows, method: str, setting: str) -> Ratio | None:
    """Factor of a draw's time for ten times the set, geometric mean over the sizes."""
    return mean_ratio(Table.of(rows).where("growth", method=method, setting=setting), "size")


def counted(row: Any, method: str, what: str, setting: str = READY) -> dict[int, float]:
    """`steps`, `read`, `redraws` or `rebuilt` of one draw, by size."""
    found = Table.of([row]).where("draw_work", method=method, setting=setting)
    counts, draws = (found.where(of=of).numbers("size") for of in (what, "draws"))
    return {size: counts[size] / draws[size] for size in sizes_of(row) if draws.get(size)}


def time_points(rows: Rows) -> list[dict[str, Any]]:
    """Points of `sweep`: seconds of a draw by size, a panel for each way to count a draw."""
    points: list[dict[str, Any]] = []
    for row in last_rows(rows, NAME):
        weights = row.params["weights"]
        words = "" if weights == "equal" else f", weights like {weights}"
        for setting, title in PANELS.items():
            if setting == REPLACED and weights != "equal":
                continue  # degrees of the graph are the weights there
            based = draw_times(row, BASE, setting)
            for method in TITLES:
                times = draw_times(row, method, setting)
                for size in sizes_of(row):
                    common = {
                        "panel": title + (words if setting != REPLACED else ""),
                        "series": series_of(method),
                        "x": size,
                        "row_ids": [row.id],
                    }
                    if size in times:
                        points.append({"y": times[size], **common})
                    elif setting == HALF and method in LINEAR and size in based:
                        reason = f"skipped: {(size // 2) * size // 4:.0e} elements to read"
                        points.append({"failed": reason, **common})
    return points + [
        {"panel": PANELS[READY], "series": TITLES["sis"], "x": SIZES["smoke"][0],
         "failed": failed(row), "row_ids": [row.id]}
        for row in failures(rows, NAME)
    ]  # fmt: skip


def checked_points(rows: Rows) -> list[dict[str, Any]]:
    """Points of `correctness`: half of the largest set that every method drew from, a panel for
    each kind of weights. That no element came twice was checked as draws were counted."""
    points: list[dict[str, Any]] = []
    for row in last_rows(rows, NAME):
        drawn = draw_times(row, LINEAR[0], HALF)
        if not drawn:
            continue
        size = max(drawn)
        half = Table.of([row]).where(setting=HALF, size=size)
        seconds = half.where("sampling_time").numbers("method")
        slower = half.where("speedup").by("baseline")
        for method in (method for method in TITLES if method in seconds):
            point = {
                "panel": f"half of {size:,}, {row.params['weights']} weights",
                "system": "tgcn" if method == BASE else TITLES[method],
                "seconds": seconds[method],
                "row_ids": [row.id],
            }
            if method in slower and (ratio := slower[method].one().of).low is not None:
                point |= {"low": seconds[BASE] * ratio.low, "high": seconds[BASE] * ratio.high}
            if redraws := counted(row, method, "redraws", HALF):
                point["duplicates"] = row.deviation["repeats"]
                point["redraws"] = redraws[size]
            points.append(point)
    return points + [
        {"system": "tgcn", "failed": failed(row), "row_ids": [row.id]}
        for row in failures(rows, NAME)
    ]  # fmt: skip


def count_points(rows: Rows) -> list[dict[str, Any]]:
    """Points of `sweep`: what a draw touches, by size."""
    points: list[dict[str, Any]] = []
    for row in last_rows(rows, NAME):
        weights = row.params["weights"]
        for method in TITLES:
            steps, read = (counted(row, method, what) for what in ("steps", "read"))
            points += [
                {
                    "panel": f"{weights} weights",
                    "series": series_of(method),
                    "x": size,
                    "y": steps[size] + read[size],
                    "counted": True,
                    "row_ids": [row.id],
                }
                for size in steps
                if steps[size] + read[size] > 0
            ]
    return points + [
        {"panel": "equal weights", "series": TITLES["sis"], "x": SIZES["smoke"][0],
         "failed": failed(row), "row_ids": [row.id]}
        for row in failures(rows, NAME)
    ]  # fmt: skip
