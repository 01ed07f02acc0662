"""Section 4.1: how evenly the three-dimensional cut fills its grids, and what it costs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Final

from dgbench.lab.charts import failed, failures, mark
from dgbench.lab.grid import Grid
from dgbench.lab.table import Table, number
from dgbench.runtime.threads import one_thread
from dgbench.systems.base import Cell, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.tgcn.common import last_rows
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
from dgbench.systems.tgcn.settings import HELD_NAMES, TWIN_NAMES, panel

NAME: Final = "partition"
FILL, DEGREES, SORT, SHARE = "fill", "degrees", "sort", "share"
SHOWN: Final = {
    "smoke": ("lastfm", "college-msg"),
    "quick": (*TWIN_NAMES, *HELD_NAMES),
    "full": (*TWIN_NAMES, *HELD_NAMES),
}

Rows = Sequence[Any]


class Partition(Grid):
    paper = "tgcn"
    name = NAME
    title = "Section 4.1: the cut by time, source and destination"
    question = "How even are the grids, do degrees matter, and what does the cut cost?"
    reading = (
        "Edges that are trained on are cut into 11 intervals of equal width and into 4 x 4 and "
        "8 x 8 parts: of equal width as the paper cuts, with equally many edges by source, and "
        "dealt out in turns (ours). A phase of a round lasts as long as its fullest grid, so that "
        "grids say how many of the devices train at a time. Ids follow arrival in a twin, as in "
        "most crawls, and in a bipartite graph all sources come first. Streams with the same "
        "vertices and edges but other degrees show what degrees change. Partitioning is timed on "
        "one thread, and beside an epoch of training here."
    )
    claims = ("tgcn-s41-partition-degree-independent", "tgcn-s65-partition-share")
    sources: ClassVar = {"portion": "counted"}
    control: ClassVar = {"kind": SORT}
    group = ""
    repeats: ClassVar = PROCESSES
    timeout_s: ClassVar = {"smoke": 60, "quick": 60, None: 1800}

    def points(self, preset: Preset, device: str) -> Iterable[dict[str, Any]]:
        yield from ({"kind": FILL, "dataset": n} for n in SHOWN.get(preset, SHOWN["full"]))
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
                interleaved=True,
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

    def figures(self) -> list[FigureSpec]:
        return [
            FigureSpec(
                kind="sweep",
                name="partition_busy",
                title="Devices of 8 that train at a time, by the cut of the vertices",
                points=busy_points,
                options={"xlabel": "graph", "ylabel": "devices", "ylog": False, "sort": False},
            ),
            FigureSpec(
                kind="sweep",
                name="partition_degrees",
                title="What degrees change: edges of the largest grid, and time to sort",
                points=degree_points,
                options={"xlabel": "exponent of Zipf's law", "ylabel": "over uniform degrees",
                         "xlog": False},
            ),
        ]  # fmt: skip

    def answer(self, rows: Rows) -> str:
        words = []
        busy = Table.of(last_rows(rows, NAME, kind=FILL)).where("busy_devices", ranks=8)
        if busy:
            equal = busy.where(method="equal")
            least, most = (f(equal, key=lambda one: one.value) for f in (min, max))
            dealt = busy.where(method="dealt").values
            words.append(
                f"parts of equal width let {least.value:.1f} ({panel(least.row)}) to "
                f"{most.value:.1f} ({panel(most.row)}) of 8 "
                f"devices train at a time, dealt ones {min(dealt):.1f} to {max(dealt):.1f}"
            )
        for row in last_rows(rows, NAME, kind=SHARE):
            share = 100 * number(row, "time_share", phase="cut", setting=None)
            words.append(f"on {panel(row)} the cut takes {share:.2f} % of an epoch here")
        said = "; ".join(words)
        return f"{said[0].upper()}{said[1:]}." if said else ""


CUT_TITLES: Final = {"equal": "equal width", "edges": "equal edges", "dealt": "dealt (ours)"}


def busy_points(rows: Rows) -> list[dict[str, Any]]:
    """Devices of 8 that train at a time."""
    points = [
        mark(
            row,
            series=title,
            x=panel(row),
            y=number(row, "busy_devices", method=cut, ranks=8),
            counted=True,
        )
        for row in last_rows(rows, NAME, kind=FILL)
        for cut, title in CUT_TITLES.items()
    ]
    return points + [
        {"series": CUT_TITLES["equal"], "x": panel(row), "failed": failed(row)}
        for row in failures(rows, NAME, kind=FILL)
    ]


def largest_grid(row: Any, order: str, cut: str) -> dict[float, float]:
    """Edges of the largest grid by skew, over those with uniform degrees."""
    found = Table.of([row]).where("imbalance", of="grid", setting=order, method=cut)
    by_skew = found.numbers("skew")
    return {skew: value / by_skew[0.0] for skew, value in by_skew.items()}


def sort_time(row: Any, skew: float) -> float:
    """Time to sort at this skew, over that with uniform degrees."""
    by_skew = Table.of([row]).where("throughput").numbers("skew")
    return by_skew[0.0] / by_skew[skew]


def degree_points(rows: Rows) -> list[dict[str, Any]]:
    """The largest grid and the time to sort, over those of uniform degrees."""
    points: list[dict[str, Any]] = []
    for row in last_rows(rows, NAME, kind=DEGREES):
        largest = {
            "largest grid, ids by degree": largest_grid(row, "rank", "equal"),
            "largest grid, ids mixed": largest_grid(row, "mixed", "equal"),
            "largest grid, dealt": largest_grid(row, "rank", "dealt"),
        }
        for skew in SKEWS:
            for series, by_skew in largest.items():
                points.append(
                    {"series": series, "x": skew, "y": by_skew[skew], "counted": True,
                     "row_ids": [row.id]}
                )  # fmt: skip
    points += [
        {"series": "time", "x": skew, "y": sort_time(row, skew), "row_ids": [row.id]}
        for row in last_rows(rows, NAME, kind=SORT)
        for skew in SKEWS
    ]
    return points + [
        {"series": "time", "x": 0.0, "failed": failed(row)}
        for row in failures(rows, NAME, kind=DEGREES)
    ]
