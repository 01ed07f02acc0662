"""Samplers and graph updates of other packages beside ours: how right, and how fast."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from itertools import product
from typing import Any, ClassVar, Final

import torch
from torch import Tensor

from dgbench.lab import rule_combinations as combine
from dgbench.lab import rules
from dgbench.lab.charts import chart, failed, failures, gap, mark, ratio_mark
from dgbench.lab.compare import TURN_INTERVAL, observe_speedup, ratio_of, take_control, with_control
from dgbench.lab.grid import by_preset
from dgbench.lab.quantities import MeasuredQuantity, observed
from dgbench.lab.result_checks import ResultCheck, at_most, of_contender
from dgbench.lab.study import FormExperiment
from dgbench.lab.table import Table, rows_of
from dgbench.runtime.statistics import median
from dgbench.systems.base import Cell, Contender, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.gnnflow.contenders import (
    CONTENDERS,
    ContenderEvents,
    GraphStoreContender,
    ReferenceResult,
)
from dgbench.systems.gnnflow.contenders.stream import batch_roots, synthetic_events
from dgbench.systems.gnnflow.experiments.fig12 import in_turns
from dgbench.systems.gnnflow.experiments.sample_checks import (
    SCAN,
    by_subject,
    records_check,
    samples_check,
    sampling_task,
)
from dgbench.systems.gnnflow.experiments.settings import FORMS, PRESETS, graph_title

NAME: Final = "contenders"
OURS: Final = "blocks"
SYNTHETIC: Final = "power law"
STREAMS: Final = {
    "smoke": ("college-msg",),
    "quick": ("wikipedia",),
    None: (SYNTHETIC, "wikipedia", "sx-mathoverflow", "college-msg"),
}
SIZES: Final = ((1000, 20_000), (10_000, 200_000), (10_000, 1_000_000), (200_000, 10_000_000))
"""Vertices and edges of the synthetic stream, by preset."""
BATCHES: Final = (600, 4000)
"""Of TGAT and of TGN (section 6); each has three roots for an edge."""
_SHOWN: Final = ((1, 4000), (2, 600))
RACES: Final = {
    "smoke": ((1, 600), (2, 600)),
    "quick": _SHOWN,
    None: (*_SHOWN, (1, 600), (2, 4000)),
}
"""Hops and batch of the races, by preset; figures show those of TGN and of TGAT."""
FANOUT: Final = 10
NEW: Final = 0.01
"""Share of the edges that is added at the end."""
TURNS: Final = {"smoke": 2, "quick": 7, "full": 15, "paper": 31}
LEFT_OUT: Final = {"smoke": ("pyg-last", "dgl"), "quick": ("pyg-last",)}
"""Contenders whose import alone takes seconds, by preset."""
JUDGED: Final = 150
"""Roots that are held against the truth, of each batch."""
MARKS: Final = ("recall", "leaks", "duplicates")
PARTS: Final = ("sampling", "adding")
"""Parts of the race: calls that sample, and taking in new edges."""

Rows = Sequence[Any]


def portion(statistic: str, pooling: str) -> MeasuredQuantity:
    """Percent of the neighbours in all calls of a contender."""
    found = 100 * observed("portion", per="setting", statistic=statistic, policy=bool, batch=bool)
    return found.pooled(pooling)


GROWTH: Final = observed("speedup", per="dataset", setting=OURS, phase="add")
"""Time of a contender to take new edges in over ours."""


class Contenders(FormExperiment):
    forms, name = FORMS, NAME
    sources: ClassVar[Any] = {"portion": "counted"}
    device = "cpu"
    headline, unit = portion("recall", "min"), "%"
    claims = {
        "gnnflow-tab1-capabilities": combine.shown_beside(
            rules.not_measurable("the marks of Table 1 are lost in the text"),
            {
                **{f"percent of later edges by {one.title}": portion("leaks", "max")
                   .where(setting=name) for name, one in CONTENDERS.items()},
                **{f"growing by {one.title} over ours": GROWTH.where(baseline=name)
                   for name, one in CONTENDERS.items()},
            }, "",
        ),
    }  # fmt: skip

    timeout_s: ClassVar[Any] = {"smoke": 60, "quick": 90, "full": 600, "paper": 1800}

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        streams, left_out = by_preset(STREAMS, preset), LEFT_OUT.get(preset, ())
        absent = {one: one.absent() for one in CONTENDERS.values() if one.name not in left_out}
        return [
            self.cell({"dataset": name, "contenders": "all that are here"}, preset)
            for name in streams
        ] + [
            self.cell({"dataset": streams[0], "contenders": one.name}, preset, timeout_s=60.0,
                      unavailable=reason)
            for one, reason in absent.items() if reason
        ]  # fmt: skip

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        events, data = open_stream(
            str(cell.params["dataset"]), *SIZES[PRESETS.index(context.preset)]
        )
        part = cell.params.get("part")
        return measure(
            events, data, context, PARTS if part is None else (str(part),),
            control=self.controls(cell, context),
        )  # fmt: skip

    def figures(self) -> list[FigureSpec]:
        return [
            chart("correctness", "contenders",
                "Samplers beside one another: how right, and how fast, fan-out 10", checked_points,
                columns=(*MARKS, "repeats"), xlabel="time of a call",
                interval="that of the ratio to ours, turn by turn, at our median",
                checked="right: what stands strictly before a root's time"),
            chart("speedup", "contenders_add",
                "Adding 1 % of the edges in place over other ways to grow", add_points,
                baseline_label="the way of the row", xlabel="time of the other / time of ours",
                interval=TURN_INTERVAL, exact=False,
                contenders={name: Contender("", one.title) for name, one in CONTENDERS.items()}),
        ]  # fmt: skip


def open_stream(name: str, vertices: int, edges: int) -> tuple[ContenderEvents, dict[str, Any]]:
    """A stream by its name (a synthetic one with these sizes), and the `data` of its rows."""
    from dgbench import datasets

    if name == SYNTHETIC:
        note = f"ends by a power law, {vertices} vertices, {edges} edges"
        data = {"dataset": name, "twin": True, "scale": 1.0, "note": note}
        return synthetic_events(vertices, edges), data
    found = datasets.open_events(name)
    events = ContenderEvents(found.num_nodes, found.src, found.dst, found.t)
    return events, describe(found)


class Racers:
    """Contenders that take part, each until it raises something; ours may not.

    Attributes:
        here: classes by name. made: contenders that hold the graph, by name.
        reasons: why one does not take part any more, by name.
    """

    def __init__(self, here: dict[str, type[GraphStoreContender]]) -> None:
        self.here, self.made, self.reasons = here, {}, {}

    def ask(self, name: str, call: Callable[..., Any], *given: Any) -> Any:
        """The answer of a contender, or None where it fails: it is out then, and only it."""
        if name in self.reasons:
            return None
        try:
            return call(*given)
        except Exception as error:  # a package of others may fail in any way
            if self.here[name].ours:
                raise
            lines = str(error).splitlines()
            self.reasons[name] = f"{type(error).__name__}: {lines[0] if lines else ''}".rstrip(": ")
            self.made.pop(name, None)
            return None


def measure(
    events: ContenderEvents,
    data: dict[str, Any],
    context: RunContext,
    parts: Sequence[str] = PARTS,
    *,
    control: bool = False,
) -> Measurement:
    """Judge and time all contenders that are here, in turns; one that fails does so alone. With
    `control`, ours takes turns with itself, too."""
    left_out = LEFT_OUT.get(context.preset, ())
    racers = Racers(
        {n: one for n, one in CONTENDERS.items() if n not in left_out and not one.unavailable()}
    )
    told = Measurement(data=data)
    checks: list[ResultCheck] = []
    notes = [f"{CONTENDERS[name].title} is raced in the full preset" for name in left_out]
    first = len(events) // 2
    for name in racers.here:
        racers.ask(name, _open, racers, name, events, first, context.threads, notes)
    truth = ReferenceResult(events)
    for batch in BATCHES if "sampling" in parts else ():
        nodes, times = batch_roots(events, first, min(batch, len(events) - first))
        every = max(1, nodes.numel() // JUDGED)
        for name, one in list(racers.made.items()):
            for policy in one.policies:
                key = f"{name} {policy} {batch}"
                found = racers.ask(name, judged, one, truth, nodes, times, policy, key, every)
                if found:
                    for statistic, share in found[0].items():
                        which = {"policy": policy, "batch": batch, "statistic": statistic}
                        told.observe("portion", share, setting=name, **which)
                checks += of_contender(name, [found[1]]) if found and one.ours else []
        pairs = [hops for hops, size in by_preset(RACES, context.preset) if size == batch]
        for policy, hops in product(("recent", "uniform"), pairs):
            fanouts = [FANOUT] * hops
            racing = {
                n: o for n, o in racers.made.items() if policy in o.policies and hops <= o.hops
            }
            calls = {n: partial(o.sample, nodes, times, fanouts, policy) for n, o in racing.items()}
            which = {"policy": policy, "layers": hops, "batch": batch}
            asked = {name: partial(racers.ask, name, call) for name, call in calls.items()}
            sides = with_control(asked, on=control, pair=OURS)  # ours may not fail
            _compare(told, racers, in_turns(sides, TURNS[context.preset]), **which)
            task = sampling_task(fanouts, policy)
            checks += [  # by the very graphs that were timed
                check
                for name, one in racing.items()
                if one.ours and (answer := calls[name]()) is not None
                for check in of_contender(name, [samples_check(
                    task, events, nodes, times, one.draw, answer, most=6, part=name
                )])
            ]  # fmt: skip
    if "adding" in parts:
        checks += growth(told, racers, events, context, control=control)
    told.observations = [  # of one that failed, half of its numbers say nothing
        one
        for one in told.observations
        if not {one.dims["setting"], one.dims.get("baseline")} & set(racers.reasons)
    ]
    for name in racers.reasons:
        told.observe("portion", 1.0, setting=name, statistic="failed")
    told.deviation = {"missing": max(check.gap for check in checks)}
    failed_ones = racers.reasons.items()
    told.notes = notes + [f"{CONTENDERS[name].title} failed: {why}" for name, why in failed_ones]
    told.checks = by_subject(checks)
    return told


def _open(
    racers: Racers, name: str, events: ContenderEvents, first: int, threads: int, notes: list[str]
) -> None:
    """Let a contender build its graph, and note what it is."""
    one = racers.here[name]
    about = f"{one.title}: {one.origin()}. {one.note}".rstrip(". ")
    made = one(threads=threads)
    made.build(events if one.looks_back else events.first(first))
    racers.made[name] = made
    notes += [about, *(f"{one.title}: {remark}" for remark in made.remarks())]


def judged(
    one: GraphStoreContender,
    truth: ReferenceResult,
    nodes: Tensor,
    times: Tensor,
    policy: str,
    key: str,
    every: int,
) -> tuple[dict[str, float], ResultCheck]:
    """Quality of one call, whether a second one gives the very same edges, and a check of it."""
    answers = [
        one.first_hop(one.sample(nodes, times, [FANOUT], policy)) for _ in range(2)
    ]  # fmt: skip
    judgement = truth.judge(nodes, times, FANOUT, policy, *answers[0], every=every)
    quality = asdict(judgement)
    found = {mark: float(quality[mark]) for mark in MARKS}
    found["repeats"] = float(torch.equal(answers[0][1], answers[1][1]))
    gap = max(1 - quality["recall"], *(quality[mark] for mark in (*MARKS[1:], "foreign")))
    check = at_most("samples", gap, 0.0, against=SCAN, compared=quality["wanted"], part=key)
    return found, check


def _compare(
    told: Measurement, racers: Racers, seconds: dict[str, list[float]], **which: Any
) -> None:
    """Add the A/A pair, medians and speed-ups of those that did not fail."""
    take_control(told, seconds, pair=OURS, **which)
    for name, spent in seconds.items():
        if name in racers.reasons:
            continue
        told.observe("operation_time", median(spent), samples=spent, setting=name, **which)
        if name != OURS:
            observe_speedup(told, spent, seconds[OURS], setting=OURS, baseline=name, **which)


def growth(
    told: Measurement,
    racers: Racers,
    events: ContenderEvents,
    context: RunContext,
    *,
    control: bool = False,
) -> list[ResultCheck]:
    """Add the seconds in which each contender takes in the last edges, each time into a graph made
    anew; checks of what ours hold then."""
    old = len(events) - max(1, int(NEW * len(events)))
    sides = with_control({name: name for name in racers.made}, on=control, pair=OURS)
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    grown: dict[str, GraphStoreContender] = {}

    def grow(name: str) -> float:
        one = racers.here[name](threads=context.threads)
        if one.in_place:  # what is rebuilt does not care what was there
            one.build(events.first(old))
        start = time.perf_counter()
        one.add(events, old)
        spent = time.perf_counter() - start
        if one.ours:
            grown[name] = one
        return spent

    for turn in range(min(7, TURNS[context.preset])):
        for side in sides if turn % 2 else reversed(sides):
            spent = racers.ask(sides[side], grow, sides[side])
            seconds[side].append(0.0 if spent is None else spent)
    _compare(told, racers, seconds, phase="add")
    return [
        check
        for name, one in grown.items()
        for check in of_contender(
            name, [records_check(one.records(), events, True, part=f"{name}, grown")]
        )
    ]


def checked_points(rows: Rows) -> list[dict[str, Any]]:
    """Points of `correctness`: seconds of a call and what was wrong with it, by contender; a panel
    for each stream, rule and race. Those that were not raced say why."""
    points: list[dict[str, Any]] = []
    for row in rows_of(rows, experiment=NAME):
        absent = {
            r.params["contenders"]: failed(r) for r in failures(rows, NAME)
            if r.params["dataset"] == row.params["dataset"]
        }  # fmt: skip
        stream = graph_title(row.params["dataset"])
        for policy, (hops, batch) in product(("recent", "uniform"), _SHOWN):
            panel = f"{stream}: {policy}, {hops} hop{'s' * (hops > 1)} of {batch:,}"
            for name, one in CONTENDERS.items():
                point: dict[str, Any] = mark(
                    row, panel=panel, system="gnnflow" if name == OURS else one.title
                )
                points.append(point | _checked(row, name, policy, hops, batch, absent))
    if not points:
        points = [gap(row, system="gnnflow") for row in failures(rows, NAME)]
    return points


def _checked(
    row: Any, name: str, policy: str, hops: int, batch: int, absent: dict[str, str]
) -> dict[str, Any]:
    """Speed and checks of a contender, or why there are none."""
    here = Table.of([row]).where(policy=policy, batch=batch)
    found: dict[str, Any] = here.where("portion", setting=name).numbers("statistic")
    seconds = here.where("operation_time", layers=hops).numbers("setting")
    if name in seconds:
        found["seconds"] = seconds[name]
        for one in here.where("speedup", layers=hops, baseline=name):
            ends = {"low": one.of.low, "high": one.of.high}
            found |= {end: seconds[OURS] * x for end, x in ends.items() if x is not None}
        return found
    one = CONTENDERS[name]
    if policy not in one.policies or hops > one.hops:
        return {**found, "failed": "not-supported: it cannot"}
    if name in LEFT_OUT.get(row.preset, ()):
        return {**found, "failed": "skipped: full preset only"}
    if Table.of([row]).where("portion", setting=name, statistic="failed"):
        return {**found, "failed": "crash: the row's notes say how"}
    return {**found, "failed": absent.get(name, "skipped: not in this run")}


def add_points(rows: Rows) -> list[dict[str, Any]]:
    """Points of `speedup`: what growing costs every contender over ours."""
    points = []
    for row in rows_of(rows, experiment=NAME):
        for name, one in CONTENDERS.items():
            gain = ratio_of(Table.of([row]).where("speedup", baseline=name, phase="add"))
            if gain is not None:
                words = f"{one.title}, {graph_title(row.params['dataset'])}"
                points.append(ratio_mark(gain, row=words, system="gnnflow", baseline=name))
    for row in failures(rows, NAME):
        name = row.params["contenders"]
        title = CONTENDERS[name].title if name in CONTENDERS else "all"
        sides = {"system": "gnnflow", "baseline": name, "failed_system": name}
        points.append(gap(row, row=f"{title}, {graph_title(row.params['dataset'])}", **sides))
    return points
