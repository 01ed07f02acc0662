"""Cost of a day of new edges: appended in place, or rebuilt as TGL does (section 6.1).

No model runs here. After every few days both graphs are compared, neighbour by neighbour.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, ClassVar, Final

import torch

from dgbench.lab.charts import chart, failures, gap, mark, ratio_mark, sweep
from dgbench.lab.compare import Ratio, observe_speedup, ratio_of
from dgbench.lab.grid import Grid
from dgbench.lab.result_checks import ResultCheck, equal
from dgbench.lab.table import Table, number, rows_of
from dgbench.runtime.statistics import median
from dgbench.systems.base import Cell, Contender, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.gnnflow.contenders.ours import records_of_rows
from dgbench.systems.gnnflow.experiments.sample_checks import (
    by_subject,
    drawn,
    records_check,
)
from dgbench.systems.gnnflow.experiments.settings import (
    BY_NAME,
    HELD_NAMES,
    INITIAL,
    PRESETS,
    StreamGraph,
    by_dataset,
    graph_title,
    panel,
)
from dgbench.systems.gnnflow.rounds import rounds_by_time

NAME: Final = "update"
PAPERS: Final = ("gdelt", "netflix")
"""Graphs of which the paper prints times."""
SCALES: Final = {
    "gdelt": (1 / 4096, 1 / 128, 1 / 8, 1.0),
    "netflix": (1 / 4096, 1 / 256, 1 / 8, 1.0),
}
"""Larger than where models are trained: edges alone take little memory."""
GRAPHS: Final = {
    "smoke": ("gdelt", "college-msg"),
    "quick": PAPERS,
    "full": (*PAPERS, *HELD_NAMES),
    "paper": (*PAPERS, *HELD_NAMES),
}
REBUILDS: Final = {"smoke": 2, "quick": 8, "full": 16, "paper": 30}
"""Days after which the rebuild is timed beside the update, evenly over the stream."""
UPDATED, REBUILT = "Updating in place", "Rebuilding"
"""Names of both ways in figures."""
COMPARED: Final = 64
"""Vertices whose neighbours are compared after each of these days."""
NEAR: Final = 9
"""Days up to the one of a rebuild whose median update stands beside it: one takes microseconds."""

Rows = Sequence[Any]


class Update(Grid):
    paper = "gnnflow"
    name = NAME
    title = "Section 6.1: updating the graph against rebuilding it"
    device = "cpu"
    question = "How much cheaper is it to append a round's edges than to rebuild the graph?"
    reading = (
        "A round is a day, an hour on Wikipedia, which spans a month; the first 30 % are there "
        "from the begin. The rebuild is TGL's: a temporal CSR of all edges so far, sorted per "
        "vertex, on all threads that we have; the update appends on one. Both are timed on the "
        "same days (an update as the median of nine) and hold the same neighbours. A twin at a "
        "fraction of its size has rounds at the same fraction, so the ratio hardly hangs on it; "
        "seconds do, and are scaled to the full size where they are compared with printed ones."
    )
    claims = (
        "gnnflow-s61-tgl-rebuild-time",
        "gnnflow-s61-update-time",
        "gnnflow-s61-insert-size",
    )

    axes: ClassVar[Any] = {"dataset": GRAPHS}
    timeout_s: ClassVar[Any] = {"smoke": 60, "quick": 120, "full": 1800, "paper": 36000}

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph = BY_NAME[str(cell.params["dataset"])]
        return measure(graph, context.preset, context.threads)

    def figures(self) -> list[FigureSpec]:
        return [
            chart("speedup", "update", "Appending a round's edges over rebuilding the graph",
                gain_points, baseline_label="temporal CSR rebuilt from all edges",
                xlabel="rebuild time / update time",
                interval="95 % interval of the median over days",
                contenders={"rebuild": Contender("", REBUILT)}),
            sweep("update_growth", "Time of a round as the graph grows", growth_points,
                xlabel="edges in the graph", ylabel="time of a round, s", xlog=True,
                guide_slope=1.0),
        ]  # fmt: skip

    def answer(self, rows: Rows) -> str:
        found = update_rows(rows)
        if not found:
            return ""
        over = {panel(row): gain([row]).value for row in found}
        return (
            "A round's edges are appended "
            + ", ".join(f"{ratio:.0f}x as fast ({name})" for name, ratio in over.items())
            + " as the graph is rebuilt from all edges."
        )


def update_rows(rows: Rows) -> list[Any]:
    """Usable rows of this experiment."""
    return rows_of(rows, experiment=NAME)


def gain(rows: Rows) -> Ratio:
    """Speedup of appending over rebuilding."""
    return ratio_of(Table.of(rows).where("speedup"))


def events_of(graph: StreamGraph, preset: Preset) -> Any:
    """The stream that a cell inserts."""
    from dgbench import datasets

    scale = SCALES[graph.name][PRESETS.index(preset)] if graph.name in SCALES else 1.0
    return datasets.open_events(graph.name, scale=scale)


def measure(graph: StreamGraph, preset: Preset, threads: int) -> Measurement:
    """Append round after round; on some days rebuild as well, and compare."""
    from dgbench.kernels_cuda.tcsr import build_tcsr
    from dgbench.kernels_cuda.temporal_store import BlockPolicy, TemporalStore

    events = events_of(graph, preset)
    rounds = rounds_by_time(events.t, graph.round, initial=INITIAL)
    store = TemporalStore(
        events.num_nodes,
        policy=BlockPolicy("adaptive", graph.tau),
        undirected=graph.undirected,
        origin=float(events.t[0]),
    )

    def append(first: int, last: int) -> float:
        src, dst, t = (x[first:last] for x in (events.src, events.dst, events.t))
        eid = torch.arange(first, last)
        start = time.perf_counter()
        store.insert(src, dst, t, eid)
        return time.perf_counter() - start

    def rebuild(last: int) -> tuple[float, Any]:
        src, dst, t = (x[:last] for x in (events.src, events.dst, events.t))
        eid = torch.arange(last)
        start = time.perf_counter()
        found = build_tcsr(
            events.num_nodes, src, dst, t, eid, undirected=graph.undirected, threads=threads
        )
        return time.perf_counter() - start, found

    begin = rounds[0].first
    initial_s = append(0, begin)
    rebuild(begin)  # takes the pages that all later ones use again
    count = min(REBUILDS[preset], len(rounds))
    days = {round((i + 1) * (len(rounds) - 1) / count) for i in range(count)}
    scanned = {sorted(days)[i] for i in drawn(len(days), 2).tolist()}
    checks: list[ResultCheck] = []
    updates: list[float] = []
    pairs: list[tuple[int, float, float]] = []
    for one in rounds:
        updates.append(append(one.first, one.last))
        if one.number in days:
            seconds, tcsr = rebuild(one.last)
            checks += compare(store, tcsr, one.number)
            if one.number in scanned:
                for name, find in (("store", store.neighbours), ("rebuilt", records_of_rows(tcsr))):
                    checks.append(
                        records_check(find, events, graph.undirected, inserted=one.last,
                                      part=f"{name}, day {one.number}")
                    )  # fmt: skip
            pairs.append((one.last, median(updates[-NEAR:]), seconds))
            del tcsr
    sizes = torch.tensor([one.events for one in rounds], dtype=torch.float64)
    edges = [last for last, _, _ in pairs]
    rebuilds = [seconds for _, _, seconds in pairs]
    found = Measurement(
        deviation={"neighbours": max(check.gap for check in checks)},
        data=describe(events),
        checks=by_subject(checks),
    )
    found.observe("operation_time", sum(updates) / len(updates), setting="update")
    found.observe("operation_time", sum(rebuilds) / len(rebuilds), setting="rebuild")
    found.observe("operation_time", sum(rebuilds) / sum(edges), setting="rebuild", of="edge")
    found.observe("operation_time", sum(updates) / float(sizes.sum()), setting="update", of="edge")
    found.observe("operation_time", initial_s, setting="initial")
    found.observe("estimate", float(sizes.mean()), of="events")
    beside = [seconds for _, seconds, _ in pairs]
    observe_speedup(found, rebuilds, beside, setting="update", baseline="rebuild")
    for turn, (last, update, seconds) in enumerate(pairs):
        found.observe("edges", last, turn=turn)
        found.observe("operation_time", update, setting="update", turn=turn)
        found.observe("operation_time", seconds, setting="rebuild", turn=turn)
    found.observe("events", int(events.src.numel()))
    found.observe("events", begin, of="initial")
    found.observe("rounds", len(rounds))
    found.observe("turns", len(pairs))
    found.observe("threads", threads)
    return found


def compare(store: Any, tcsr: Any, day: int) -> list[ResultCheck]:
    """Checks that vertices spread over all ids have the same edges in both graphs."""
    rows, found, wanted = records_of_rows(tcsr), {}, {}
    for vertex in torch.linspace(0, store.num_vertices - 1, COMPARED).long().unique().tolist():
        for name, own, other in zip(
            ("neighbours", "edges", "times"), store.neighbours(vertex), rows(vertex), strict=True
        ):
            found[f"{name} of vertex {vertex} after day {day}"] = own
            wanted[f"{name} of vertex {vertex} after day {day}"] = other
    return [equal("records", found, wanted, against="rebuilt graph")]


def growth(row: Any) -> list[tuple[int, float, float]]:
    """(edges, update seconds, rebuild seconds) of the days on which both were timed."""
    found = Table.of([row])
    seconds = found.where("operation_time").numbers("setting", "turn")
    return [
        (edges, seconds["update", turn], seconds["rebuild", turn])
        for turn, edges in found.where("edges").numbers("turn").items()
    ]


def gain_points(rows: Rows) -> list[dict[str, Any]]:
    """Rebuild over update, a row per graph."""
    sides = {"system": "gnnflow", "baseline": "rebuild"}
    rebuild, update = map(by_dataset, ("s61-tgl-rebuild-time", "s61-update-time"))
    points = []
    for row in update_rows(rows):
        found, name = gain([row]), row.params["dataset"]
        points.append(
            ratio_mark(
                found, row=graph_title(name), **sides, n=number(row, "turns"),
                deviation=found.deviation,
                paper=rebuild[name] / update[name] if name in update else None,
            )
        )  # fmt: skip
    return points + [
        gap(row, row=graph_title(row.params["dataset"]), **sides) for row in failures(rows, NAME)
    ]


def growth_points(rows: Rows) -> list[dict[str, Any]]:
    """Both times against the edges in the graph, a panel per graph."""
    return [
        mark(row, panel=panel(row), series=series, x=day[0], y=day[which])
        for row in update_rows(rows)
        for which, series in ((1, UPDATED), (2, REBUILT))
        for day in growth(row)
    ] + [
        gap(row, panel=graph_title(row.params["dataset"]), series=UPDATED, x=1)
        for row in failures(rows, NAME)
    ]
