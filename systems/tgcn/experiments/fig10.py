"""Figure 10: T-GCN on 1, 4 and 8 GPUs, with P2P and without."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from dgbench.lab.grid import Grid
from dgbench.lab.result_checks import close, equal
from dgbench.lab.table import Table
from dgbench.systems.base import Cell, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.tgcn.common import (
    devices_lacking,
    failed,
    failures,
    last_rows,
    number,
    one_thread,
    panel,
)
from dgbench.systems.tgcn.printed import table2, values
from dgbench.systems.tgcn.races import start_checks
from dgbench.systems.tgcn.scaling_checks import (
    checked_load,
    checked_projection,
    checked_ranks,
    checked_swap,
    drawn_events,
)
from dgbench.systems.tgcn.settings import BY_NAME, GRAPHS, TWIN_NAMES, workload

if TYPE_CHECKING:
    from dgbench.systems.tgcn.projection import Load, Pieces

NAME: Final = "fig10"
VIRTUAL, RANKS, SWAPS = "virtual", "ranks", "swaps"
DEVICES: Final = (1, 2, 4, 8)
PROJECTED: Final = (1, 4, 8)
RANKED: Final = {"smoke": (1, 2), "quick": (1, 2), "full": (1, 2, 4), "paper": (1, 2, 4)}
TWINS: Final = {
    "smoke": ("reddit",),
    "quick": ("lastfm", "reddit", "twitter"),
    "full": TWIN_NAMES,
    "paper": TWIN_NAMES,
}
"""The paper's figure names the three; whether Flickr was drawn is lost."""
RANKED_ON: Final = "flickr"
CHECKED: Final = (1_500, 3)
"""Events, and intervals, on which all numbers of devices are compared in double precision."""
EVENTS: Final = {"smoke": 10_000, "quick": 24_000, "full": 400_000, "paper": 4_000_000}
"""Events of a twin, about."""
SMALLEST: Final = 1 / 4096
"""Scale of a twin at least."""
INTERVALS: Final = 11
"""Of an epoch; the paper does not say, and cuts accuracy into as many pieces of time."""
CUTS: Final = ("equal", "dealt")
PRINTED, BANDWIDTH, ARITHMETIC = "printed", "bandwidth", "arithmetic"
READINGS: Final = (PRINTED, BANDWIDTH, ARITHMETIC)
"""How fast a V100 trains: as Table 2 prints, or as this machine by memory or by arithmetic."""
ON, OFF = "on", "off"
WALL, PROCESSOR = "wall clock", "processor time"
SHOWN: Final = (
    ("equal width", "equal", ON, PRINTED),
    ("dealt", "dealt", ON, PRINTED),
    ("dealt at peak speed", "dealt", ON, ARITHMETIC),
    ("the same without P2P", "dealt", OFF, ARITHMETIC),
)
"""Series of the figure: title, cut, P2P and speed of a V100. At the speed of Table 2, which the
first two have, P2P changes nothing that shows."""
PRINTED_FOR: Final = (4, 8)
"""Devices for which speedups with P2P are printed."""

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
        for ranks in RANKED[preset]:
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
                return _swaps()
            task = _task(str(cell.params["dataset"]), context.preset)
            if kind == RANKS:
                return _ranks(task, int(cell.params["ranks"]), context, cell.timeout_s)
            return _virtual(task, context)

    def figures(self) -> list[FigureSpec]:
        return [
            FigureSpec(
                kind="scaling",
                name="fig10",
                title="Speed over one V100 as slow as Table 2, or at its peak (Figure 10)",
                points=scaled_points,
                options={
                    "xlabel": "ranks or GPUs",
                    "ylabel": "speed over one",
                    "topology": "DGX-1, 8 V100, NVLink 2 between four and four, else PCIe",
                    "most": DEVICES[-1],
                    "here": "processes of one CPU by processor time, one run",
                },
            ),
            FigureSpec(
                kind="sweep",
                name="fig10_bytes",
                title="Bytes that devices pass on in an epoch",
                points=byte_points,
                options={"xlabel": "devices", "ylabel": "bytes", "base": 2},
            ),
        ]

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
            count = Table.of([row]).where("derived_number", of="swaps").values
            said += (
                f" Without P2P 4 GPUs are slower than one only from {min(count):.0f} to "
                f"{max(count):.0f} swaps of all vertices an epoch."
            )
        return said


def _task(name: str, preset: Preset, **fields: object) -> Any:
    """About so many events of a twin, all of its time."""
    graph = BY_NAME[name]
    wanted = EVENTS[preset]
    scale = min(1.0, max(SMALLEST, wanted / graph.printed.edges))
    settings = {"scale": scale, "events": wanted, "intervals": INTERVALS, **fields}
    return workload(graph, preset, **settings)


def _virtual(task: Any, context: RunContext) -> Measurement:
    """Equal losses and counted bytes on virtual devices; times here; projections."""
    import msgspec

    from dgbench.systems.base.interactions import interaction_data, load_interactions
    from dgbench.systems.tgcn.links import SOURCES
    from dgbench.systems.tgcn.recounts import VECTORS
    from dgbench.systems.tgcn.scaling_runs import time_pieces, train_alike

    data = load_interactions(task)
    count, intervals = CHECKED
    few = msgspec.structs.replace(task, events=count, intervals=intervals, share=1.0)
    # The last events: many a crawl begins with all that it finds, at one time.
    last = data.events.select(max(0, len(data.events) - count), len(data.events))
    alike = train_alike(few, interaction_data(last, few), DEVICES, "dealt")
    found = Measurement(data=data.describe(), notes=[SOURCES])
    for count, one in alike.items():
        found.observe("swapped", one.swapped, ranks=count)
        found.observe("swapped", one.expected, ranks=count, method="formula")
        found.observe("deviation", one.deviation, ranks=count)
    found.deviation = {"loss": max(one.deviation for one in alike.values())}
    counted = {str(n): one.swapped for n, one in alike.items()}
    wanted = {
        str(n): (n - 1) * VECTORS * 8 * few.hidden_dim * one.visiting for n, one in alike.items()
    }
    found.checks = [
        *start_checks(task, data, context.device),
        equal("bytes", counted, wanted, against="distinct destinations of every interval"),
        close(
            "outputs",
            [one.deviation for one in alike.values()],
            [0.0] * len(alike),
            1e-9,
            against="one device, itself compared with the float64 oracle",
        ),
    ]
    pieces = time_pieces(task, context.device)
    found.observe("part_time", pieces.pair_s, phase="pair")
    found.observe("part_time", pieces.row_s, phase="row")
    found.observe("part_time", pieces.visit_s, phase="visit")
    _project(found, task, data, pieces, context.device)
    return found


def _project(found: Measurement, task: Any, data: Any, pieces: Pieces, device: str) -> None:
    """Epochs on 1, 4 and 8 V100, by reading, cut and P2P."""
    from dgbench.systems.base.interaction_checks import check_now
    from dgbench.systems.tgcn.links import machine
    from dgbench.systems.tgcn.plan import Cut, Size, trained
    from dgbench.systems.tgcn.projection import measure_machine, project_epoch
    from dgbench.systems.tgcn.recounts import check_sample
    from dgbench.systems.tgcn.scaling_runs import (
        as_printed,
        load_of,
        open_on,
        time_epoch,
    )

    printed = BY_NAME[task.dataset].printed
    size = Size(printed.vertices, printed.edges, task.hidden_dim)
    loads: dict[tuple[int, str], Load] = {}
    for count in PROJECTED:
        for cut in CUTS if count > 1 else CUTS[:1]:
            trainer = open_on(task, data, count, cut, device=device)
            edges = sum(kept.numel() for kept in trainer.kept)
            load = load_of(trainer)
            if count == 1:
                here = project_epoch(load, pieces, machine(size=1), size=size)
                seconds = time_epoch(trainer)
                found.observe("edges", edges)
                found.observe("epoch_time", seconds)
                found.observe(
                    "speedup", here.seconds / seconds, setting="measured", baseline="pieces"
                )  # fmt: skip
                found.checks += check_now(trainer, "after timed epochs")
                found.checks += check_sample(trainer, "after timed epochs")
            found.checks.append(checked_load(trainer, load, f"{cut} on {count}"))
            loads[count, cut] = load.scaled(
                trained(size, Cut(share=task.share)) / edges,
                size.vertices / data.events.num_nodes,
            )
            trainer.close()
    alone = project_epoch(loads[1, CUTS[0]], pieces, machine(size=1), size=size)
    speed = measure_machine(device)
    by_reading = {
        PRINTED: as_printed(BY_NAME[task.dataset], pieces, alone),
        BANDWIDTH: pieces.scaled(1 / speed.bandwidth),
        ARITHMETIC: pieces.scaled(1 / speed.arithmetic),
    }
    for reading, scaled in by_reading.items():
        one = project_epoch(loads[1, CUTS[0]], scaled, machine(size=1), size=size)
        found.observe("epoch_time", one.seconds, setting=reading)
        for (count, cut), load in loads.items():
            for p2p in (ON, OFF) if count > 1 else ():
                epoch = project_epoch(load, scaled, machine(size=count), size=size, p2p=p2p == ON)
                about: dict[str, Any] = {
                    "setting": reading,
                    "method": cut,
                    "ranks": count,
                    "p2p": p2p,
                }
                exchanged = epoch.exchange_s / epoch.seconds
                found.observe("speedup", one.seconds / epoch.seconds, **about)
                found.observe("time_share", exchanged, phase="exchange", **about)
                part = " ".join(map(str, about.values()))
                found.checks.append(checked_projection(load, epoch, size, part))


def _swaps() -> Measurement:
    """How many swaps of all vertices make 4 GPUs without P2P as slow as one, at Table 2's times."""
    from dgbench.systems.tgcn.links import SOURCES
    from dgbench.systems.tgcn.scaling_runs import whole_swaps

    found = Measurement(
        data={"dataset": "all", "twin": False, "scale": 1.0, "note": "printed sizes alone"},
        notes=[SOURCES, "compute as printed, divided evenly, nothing overlaps"],
    )
    for graph in GRAPHS:
        compute = table2("tgcn", "compute")[graph.name]
        intervals = 0.75 * compute / whole_swaps(graph, 4, p2p=False)
        found.observe("derived_number", intervals, of="swaps", dataset=graph.name)
        for count in PRINTED_FOR:
            swaps = intervals * whole_swaps(graph, count, p2p=True)
            faster = compute / (compute / count + swaps)
            found.observe("speedup", faster, dataset=graph.name, ranks=count)
    found.checks = [checked_swap(count) for count in PRINTED_FOR]
    return found


def _ranks(task: Any, ranks: int, context: RunContext, timeout_s: float) -> Measurement:
    """Throughput of real ranks by processor time, and what they send."""
    from dgbench.systems.base.interactions import load_interactions
    from dgbench.systems.tgcn.ranked import train_ranked

    data = load_interactions(task)
    run = train_ranked(
        task,
        ranks,
        data=data,
        epochs=2,
        device=context.device,
        timeout_s=timeout_s,
        vertex_cut="dealt",
        probed=drawn_events(data),
    )
    swapped = sum(one.get("bytes_swapped", 0) for one in run.counters) // len(run.losses)
    found = Measurement(
        checks=checked_ranks(task, data, run, ranks, swapped, context, timeout_s, CHECKED),
        data=data.describe(),
        notes=run.notes,
    )
    found.observe("throughput", run.throughput, method=WALL)
    found.observe("throughput", run.own_throughput, method=PROCESSOR)
    found.observe("loss", run.losses[-1])
    found.observe("swapped", swapped)
    found.observe("edges", run.edges)
    return found


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
        modelled = number(row, "speedup", baseline="pieces")
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
        {
            "series": panel(row),
            "x": count,
            "y": float(number(row, "swapped", ranks=count, method=None)),
            "counted": True,
            "twin": bool(row.data.get("twin")),
            "row_ids": [row.id],
        }
        for row in last_rows(rows, NAME, kind=VIRTUAL)
        for count in DEVICES
        if count > 1
    ]
    return points + [
        {"series": panel(r), "x": 2, "failed": failed(r), "row_ids": [r.id]}
        for r in failures(rows, NAME, kind=VIRTUAL)
    ]
