"""Cost of a day of new edges: appended in place, or rebuilt as TGL does (section 6.1).

No model runs here. After every few days both graphs are compared, neighbour by neighbour.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from statistics import fmean
from typing import Any, Final

import torch

from dgbench.lab import outcomes, rules
from dgbench.lab import rule_combinations as combine
from dgbench.lab.compare import observe_speedup
from dgbench.lab.entry_rules import in_order_of_entries, near_entries
from dgbench.lab.estimates import Estimate
from dgbench.lab.figure_forms import SpeedupBars, Sweep
from dgbench.lab.quantities import observed
from dgbench.lab.result_checks import ResultCheck, equal
from dgbench.lab.study import FormExperiment
from dgbench.lab.table import number
from dgbench.runtime.statistics import median
from dgbench.systems.base import Cell, Contender, Measurement, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.gnnflow.contenders.ours import records_of_rows
from dgbench.systems.gnnflow.experiments.sample_checks import by_subject, drawn, records_check
from dgbench.systems.gnnflow.experiments.settings import (
    BY_NAME,
    FORMS,
    GROWTH,
    HELD_NAMES,
    INITIAL,
    ONE,
    PRESETS,
    at_full_size,
    by_dataset,
    by_graph,
    turn_count,
)
from dgbench.systems.gnnflow.rounds import rounds_by_time

PAPERS: Final = ("gdelt", "netflix")
"""Graphs of which the paper prints times."""
SCALES: Final = {
    "gdelt": (1 / 4096, 1 / 128, 1 / 8, 1.0),
    "netflix": (1 / 4096, 1 / 256, 1 / 8, 1.0),
}
"""Larger than where models are trained: edges alone take little memory."""
GRAPHS: Final = {"smoke": ("gdelt", "college-msg"), "quick": PAPERS, None: (*PAPERS, *HELD_NAMES)}
REBUILDS: Final = {"smoke": 2, "quick": 8, "full": 16, "paper": 30}
"""Days after which the rebuild is timed beside the update, evenly over the stream."""
COMPARED: Final = 64
"""Vertices whose neighbours are compared after each of these days."""
NEAR: Final = 9
"""Days up to the one of a rebuild whose median update stands beside it: one takes microseconds."""

SPEEDUP: Final = observed("speedup", per="dataset", setting="update", baseline="rebuild")
TURNS: Final = observed(
    "operation_time", per=("dataset", "setting", "turn"), setting=("update", "rebuild"),
    turn=lambda turn: turn is not None,
)  # fmt: skip
EDGES: Final = at_full_size(observed("estimate", per="dataset", of="events"))
PRINTED: Final = {
    name: by_dataset("s61-tgl-rebuild-time")[name] / seconds
    for name, seconds in by_dataset("s61-update-time").items()
}


def printed_factor(context: Any, dims: Mapping[str, Any], one: Estimate) -> dict[str, Any]:
    """Turns, and the printed rebuild over the printed update, beside a mark."""
    return {**turn_count(context, dims, one), "paper": PRINTED.get(dims["dataset"])}


def seconds_of(setting: str) -> outcomes.Rule:
    """Seconds of a round at full size; the direction is which graph takes longer."""
    times = at_full_size(observed("operation_time", per="dataset", setting=setting))
    entries = by_graph(times, PAPERS)
    rule = rules.entries_near_claim(entries, in_order_of_entries(entries, times=True))
    return combine.by_model(rule, GROWTH, of_parts_only=True)


class Update(FormExperiment):
    forms, name = FORMS, "update"
    device = "cpu"
    axes = {"dataset": GRAPHS}
    timeout_s = {"smoke": 60, "quick": 120, "full": 1800, "paper": 36000}
    headline, unit = SPEEDUP, "x"
    figure_forms = (
        SpeedupBars(
            "update", "Appending a round's edges over rebuilding the graph", SPEEDUP,
            row="{dataset}", system="gnnflow", baseline="rebuild", more=printed_factor,
            baseline_label="temporal CSR rebuilt from all edges",
            xlabel="rebuild time / update time", interval="95 % interval of the median over days",
            contenders={"rebuild": Contender("", "Rebuilding")},
        ),
        Sweep(
            "update_growth", "Time of a round as the graph grows", TURNS, panel="{dataset}",
            series="{setting}", x="turn",
            more=lambda _, dims, one: {"x": number(one.rows[0], "edges", turn=dims["turn"])},
            gaps={"series": "Updating in place", "x": 1}, xlabel="edges in the graph",
            ylabel="time of a round, s", xlog=True, guide_slope=1.0,
        ),
    )  # fmt: skip
    claims = {
        "gnnflow-s61-tgl-rebuild-time": seconds_of("rebuild"),
        "gnnflow-s61-update-time": seconds_of("update"),
        "gnnflow-s61-insert-size": near_entries(by_graph(EDGES, PAPERS), share=0.05),
    }

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        from dgbench import datasets
        from dgbench.kernels_cuda.tcsr import build_tcsr
        from dgbench.kernels_cuda.temporal_store import BlockPolicy, TemporalStore

        graph = BY_NAME[str(cell.params["dataset"])]
        scale = SCALES.get(graph.name, ONE)[PRESETS.index(context.preset)]
        events = datasets.open_events(graph.name, scale=scale)
        rounds = rounds_by_time(events.t, graph.round, initial=INITIAL)
        store = TemporalStore(
            events.num_nodes, policy=BlockPolicy("adaptive", graph.tau),
            undirected=graph.undirected, origin=float(events.t[0]),
        )  # fmt: skip

        def edges(first: int, last: int) -> list[torch.Tensor]:
            columns = (column[first:last] for column in (events.src, events.dst, events.t))
            return [*columns, torch.arange(first, last)]

        def append(first: int, last: int) -> float:
            added = edges(first, last)
            start = time.perf_counter()
            store.insert(*added)
            return time.perf_counter() - start

        def rebuild(last: int) -> tuple[float, Any]:
            every, how = edges(0, last), {"undirected": graph.undirected}
            start = time.perf_counter()
            made = build_tcsr(events.num_nodes, *every, **how, threads=context.threads)
            return time.perf_counter() - start, made

        begin = rounds[0].first
        append(0, begin)
        rebuild(begin)  # takes the pages that all later ones use again
        count = min(REBUILDS[context.preset], len(rounds))
        days = sorted({round((i + 1) * (len(rounds) - 1) / count) for i in range(count)})
        scanned = {days[i] for i in drawn(len(days), 2).tolist()}
        checks: list[ResultCheck] = []
        updates: list[float] = []
        turns: list[tuple[int, float, float]] = []  # edges, update and rebuild seconds
        for one in rounds:
            updates.append(append(one.first, one.last))
            if one.number not in days:
                continue
            seconds, tcsr = rebuild(one.last)
            finders = {"store": store.neighbours, "rebuilt": records_of_rows(tcsr)}
            checks.append(compare(*finders.values(), store.num_vertices, one.number))
            checks += [
                records_check(find, events, graph.undirected, inserted=one.last,
                              part=f"{name}, day {one.number}")
                for name, find in finders.items() if one.number in scanned
            ]  # fmt: skip
            turns.append((one.last, median(updates[-NEAR:]), seconds))
            del tcsr, finders
        _, beside, rebuilds = map(list, zip(*turns, strict=True))
        streamed = sum(one.events for one in rounds)
        found = Measurement(
            deviation={"neighbours": max(check.gap for check in checks)},
            data=describe(events), checks=by_subject(checks),
        )  # fmt: skip
        for setting, times in (("update", updates), ("rebuild", rebuilds)):
            found.observe("operation_time", fmean(times), setting=setting)
        found.observe("estimate", streamed / len(rounds), of="events")
        observe_speedup(found, rebuilds, beside, setting="update", baseline="rebuild")
        for turn, (last, update, seconds) in enumerate(turns):
            found.observe("edges", last, turn=turn)
            found.observe("operation_time", update, setting="update", turn=turn)
            found.observe("operation_time", seconds, setting="rebuild", turn=turn)
        found.observe("turns", len(turns))
        return found


def compare(find: Any, find_rebuilt: Any, vertices: int, day: int) -> ResultCheck:
    """Check that vertices spread over all ids have the same edges in both graphs."""
    some = torch.linspace(0, vertices - 1, COMPARED).long().unique().tolist()
    own, wanted = (
        {f"{name} of vertex {vertex} after day {day}": column
         for vertex in some
         for name, column in zip(("neighbours", "edges", "times"), of(vertex), strict=True)}
        for of in (find, find_rebuilt)
    )  # fmt: skip
    return equal("records", own, wanted, against="rebuilt graph")
