"""Figure 10: T-GCN on 1, 4 and 8 GPUs, with P2P and without."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from dgbench.lab.charts import chart, failed, failures, gap, mark, sweep
from dgbench.lab.grid import Grid
from dgbench.lab.ranks import devices_lacking
from dgbench.lab.table import Table, number
from dgbench.runtime.threads import one_thread
from dgbench.systems.base import Cell, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.tgcn.common import last_rows
from dgbench.systems.tgcn.printed import values
from dgbench.systems.tgcn.scaling_cells import (
    ARITHMETIC,
    DEVICES,
    OFF,
    ON,
    PRINTED,
    PRINTED_FOR,
    PROCESSOR,
    PROJECTED,
    measure_ranks,
    measure_virtual,
    project_swaps,
    task_of_size,
)
from dgbench.systems.tgcn.settings import TWIN_NAMES, panel

if TYPE_CHECKING:
    pass

NAME: Final = "fig10"
VIRTUAL, RANKS, SWAPS = "virtual", "ranks", "swaps"
RANKED: Final = {"smoke": (1, 2), "quick": (1, 2), "full": (1, 2, 4), "paper": (1, 2, 4)}
TWINS: Final = {
    "smoke": ("reddit",),
    "quick": ("lastfm", "reddit", "twitter"),
    "full": TWIN_NAMES,
    "paper": TWIN_NAMES,
}
"""The paper's figure names the three; whether Flickr was drawn is lost."""
RANKED_ON: Final = "flickr"
SHOWN: Final = (
    ("equal width", "equal", ON, PRINTED),
    ("dealt", "dealt", ON, PRINTED),
    ("dealt at peak speed", "dealt", ON, ARITHMETIC),
    ("the same without P2P", "dealt", OFF, ARITHMETIC),
)
"""Series of the figure: title, cut, P2P and speed of a V100. At the speed of Table 2, which the
first two have, P2P changes nothing that shows."""

Rows = Sequence[Any]


class Fig10(Grid):
    paper = "tgcn"
    name = NAME
    title = "Figure 10: more GPUs, with P2P and without"
    own_data = "it projects to the sizes that the paper prints of its graphs"
    question = "What do 4 and 8 devices gain, and what does P2P have to do with it?"
    reading = (
        "Virtual devices of one process train alike, and what they pass on is counted. 4 and 8 "
        "V100 are projected: pairs, rows and visitors are timed here and scaled to Table 2 of the "
        "paper, or to a V100 by memory or by arithmetic; how many of them a device has is that of "
        "a small twin multiplied up to the printed sizes, in 11 intervals, cut into ranges of "
        "equal width (the paper's) or dealt out; links are the published ones of a DGX-1. What an "
        "interval costs whatever its size is left out. Ranks are processes of one CPU, timed by "
        "processor time. The paper does not print "
        "its number of intervals. So we also ask how many of them would make 4 GPUs without P2P "
        "as slow as one, where whole parts of one vector are swapped, and what P2P then gives."
    )
    claims = (
        "tgcn-fig10-8gpu",
        "tgcn-fig10-4gpu",
        "tgcn-s67-p2p-off-slowdown",
        "tgcn-s67-p2p-benefit",
        "tgcn-abs-8gpu-mean-scaling",
        "tgcn-fig6-8gpu-included",
    )
    group = ""
    timeout_s: ClassVar = {"smoke": 90, "quick": 90, None: 3600}

    def points(self, preset: Preset, device: str) -> Iterable[dict[str, Any]]:
        yield from ({"kind": VIRTUAL, "dataset": name} for name in TWINS[preset])
        yield {"kind": SWAPS}
        # One process on this CPU's two cores bounds no ratio, and no claim reads it.
        for ranks in () if (preset, device) == ("quick", "cpu") else RANKED[preset]:
            yield {"kind": RANKS, "dataset": RANKED_ON, "ranks": ranks}

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        return [
            self.cell(
                one,
                preset,
                group=f"{one['kind']}/{one.get('dataset', '')}",
                unavailable=devices_lacking(one.get("ranks", 1), device),
            )
            for one in self.points(preset, device)
        ]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        kind = cell.params["kind"]
        with one_thread():
            if kind == SWAPS:
                return project_swaps()
            task = task_of_size(str(cell.params["dataset"]), context.preset)
            if kind == RANKS:
                return measure_ranks(task, int(cell.params["ranks"]), context, cell.timeout_s)
            return measure_virtual(task, context)

    def figures(self) -> list[FigureSpec]:
        return [
            chart("scaling", "fig10",
                "Speed over one V100 as slow as Table 2, or at its peak (Figure 10)", scaled_points,
                xlabel="ranks or GPUs", ylabel="speed over one",
                topology="DGX-1, 8 V100, NVLink 2 between four and four, else PCIe",
                most=DEVICES[-1], here="processes of one CPU by processor time, one run"),
            sweep("fig10_bytes", "Bytes that devices pass on in an epoch", byte_points,
                xlabel="devices", ylabel="bytes", base=2),
        ]  # fmt: skip

    def answer(self, rows: Rows) -> str:
        found = last_rows(rows, NAME, kind=VIRTUAL)
        if not found:
            return ""
        words = []
        for cut, title in (("equal", "ranges of equal width"), ("dealt", "dealt vertices")):
            each = [speedup(row, 8, cut) for row in found]
            words.append(f"{title} {min(each):.1f} to {max(each):.1f}")
        said = f"Projected to 8 V100 with P2P: {', '.join(words)} times one."
        for row in last_rows(rows, NAME, kind=SWAPS):
            count = Table.of([row]).where("estimate", of="swaps").values
            said += (
                f" Without P2P 4 GPUs are slower than one only from {min(count):.0f} to "
                f"{max(count):.0f} swaps of all vertices an epoch."
            )
        return said


def rank_speedups(rows: Rows) -> list[tuple[Any, float]]:
    """The last row of each number of ranks, and its speed over one rank by processor time."""
    found = Table.of(rows, experiment=NAME, kind=RANKS).where("throughput", method=PROCESSOR)
    last = {one["ranks"]: one for one in found}
    alone = last.get(1)
    if alone is None:
        return []
    return [(one.row, one.value / alone.value) for _, one in sorted(last.items())]


def speedup(row: Any, devices: int, cut: str, p2p: str = ON, reading: str = PRINTED) -> float:
    """Projected speed over one device."""
    return number(row, "speedup", setting=reading, method=cut, ranks=devices, p2p=p2p)


def scaled_points(rows: Rows) -> list[dict[str, Any]]:
    """Points of `scaling`: projected and printed speed over one GPU, and ranks of one CPU over one
    rank; a panel for each graph. The model is held against an epoch on one device here."""
    points: list[dict[str, Any]] = []
    for row in last_rows(rows, NAME, kind=VIRTUAL):
        common = {"panel": panel(row), "row_ids": [row.id]}
        modelled = number(row, "speedup", None, baseline="pieces")
        off = None if modelled is None else abs(modelled - 1)
        for title, cut, p2p, reading in SHOWN:
            for count in PROJECTED:
                value = 1.0 if count == 1 else speedup(row, count, cut, p2p, reading)
                points.append(
                    {
                        **common,
                        "series": f"tgcn, {title}",
                        "x": count,
                        "y": value,
                        "projected": True,
                        "model_error": off,
                        "model_error_on": "an epoch on one device here",
                    }
                )
        for count in PRINTED_FOR:
            printed = values()[f"fig10-{count}gpu"]
            points += [
                {**common, "series": "tgcn", "x": count, "y": printed[end], "paper": True}
                for end in ("low", "high")
            ]  # fmt: skip
    points += [
        {"panel": panel(row), "series": "tgcn, dealt", "x": row.params["ranks"], "y": value,
         "row_ids": [row.id]}
        for row, value in rank_speedups(rows)
    ]  # fmt: skip
    return points + [
        {"panel": panel(r), "series": "tgcn, dealt", "x": r.params.get("ranks", DEVICES[-1]),
         "failed": failed(r), "projected": r.params["kind"] == VIRTUAL, "row_ids": [r.id]}
        for r in failures(rows, NAME)
        if r.params["kind"] != SWAPS
    ]  # fmt: skip


def byte_points(rows: Rows) -> list[dict[str, Any]]:
    """Bytes passed on by virtual devices."""
    points = [
        mark(
            row,
            series=panel(row),
            x=count,
            y=float(number(row, "swapped", ranks=count, method=None)),
            counted=True,
        )
        for row in last_rows(rows, NAME, kind=VIRTUAL)
        for count in DEVICES
        if count > 1
    ]
    return points + [gap(r, series=panel(r), x=2) for r in failures(rows, NAME, kind=VIRTUAL)]
