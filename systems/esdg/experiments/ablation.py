"""Ablation of the one-process trainer: gain of each technique, and cost of each layout.

Settings of a cell take turns inside one process, epoch by epoch, so that what disturbs the machine
disturbs all of them. On a CPU inputs are copied into memory apart, so that bytes really move.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise, product
from math import sqrt
from statistics import median
from typing import Any, Final

from dgbench.lab import rules
from dgbench.lab.compare import observe_control, observe_speedup
from dgbench.lab.estimates import Estimate, EvaluationContext
from dgbench.lab.figure_forms import FigureForm, Sweep
from dgbench.lab.quantities import observed
from dgbench.lab.ranks import devices_lacking
from dgbench.lab.result_checks import equal
from dgbench.lab.study import FormExperiment
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.base.timeline import TimelineWorkload, load_timeline
from dgbench.systems.base.turns import turn_rounds
from dgbench.systems.esdg.experiments.rank_turns import take_rank_turns
from dgbench.systems.esdg.experiments.recount import (
    OVER_PAIRS,
    Widths,
    agree,
    epoch_traffic,
    redistributed,
)
from dgbench.systems.esdg.experiments.settings import BY_NAME, FORMS, MODELS, workload
from dgbench.systems.esdg.experiments.trainer_race import TrainerRace
from dgbench.systems.esdg.oracle import TimelineOracle, largest_gap

LADDER: Final = ("checkpoint", "precompute", "lean", "fused_scan", "difference", "fallback",
                 "asynchronous", "prefetch")  # fmt: skip
"""Techniques in the order in which they are added: `checkpoint` cuts the timeline into blocks and
costs time, then comes what makes it cheap in computing, then what does in copying."""

TRAVELLING: Final = {
    "int32": {"int32": True},
    "no values": {"recompute_values": True},
    "loops sent": {"ship_loops": True},
    "coordinates": {"paper_layout": True},
    "scored while made": {"interleave": True},
}
"""Choices of what travels, how it lies and when it is scored, on top of everything on."""

BLOCKS: Final = 4
PANEL: Final = "{model}, {dataset}{device}"
OFF, ON, AGAIN = "all off", "all on", "all on, again"
KINDS: Final = ("ladder", "removed", "precompute", "reuse")
UNNEEDED: Final = {
    ("tm_gcn", "ladder"), ("cd_gcn", "removed"), ("evolvegcn_o", "removed"), ("tm_gcn", "reuse"),
    ("cd_gcn", "reuse"), ("cd_gcn", "precompute"), ("evolvegcn_o", "precompute"),
}  # fmt: skip
"""Models and kinds that a `quick` run leaves out: no claim needs them."""
TURNS: Final = {"smoke": 3, "quick": 6, "full": 10, "paper": 10}
"""Turns at least; six are the fewest whose extremes bound a median with 95 %."""
FEW_TURNS: Final = 3
"""The same where a cell has several processes, whose ratios give the interval."""
SECONDS: Final = {"smoke": 0.0, "quick": 0.3, "full": 10.0, "paper": 10.0}
"""For more turns, which narrow the intervals."""
SMALLER: Final = {"smoke": 1.0, "quick": 0.125, "full": 1.0, "paper": 1.0}
"""Of a preset's graphs where many settings share a cell."""
SNAPSHOTS: Final = {"smoke": 9, "quick": 9, "full": 97, "paper": 97}
GRAPHS: Final = {
    "smoke": ("amlsim",),
    "quick": ("amlsim",),
    "full": ("amlsim", "youtube"),
    "paper": ("amlsim", "youtube", "flickr", "epinions"),
}
REUSED: Final = {"smoke": 2, "quick": 12, "full": 48, "paper": 48}
"""Turns on two ranks."""

Setting = tuple[dict[str, bool], int | None]
"""Switches and number of blocks."""


WORKLOAD = ("dataset", "model", "device")
GAIN = observed("speedup", per=(*WORKLOAD, "setting"))
"""Epoch without a technique, or in another form, over the epoch that it is compared with."""
LEFT_OUT = GAIN.where(kind="removed")
BYTES = observed("host_to_device", per=(*WORKLOAD, "setting"), kind="removed")
ADDED = observed("epoch_time", per=WORKLOAD, kind="ladder", setting=(OFF, *LADDER))


def step(context: EvaluationContext, dims: Mapping[str, Any], one: Estimate) -> dict[str, Any]:
    """Place of a technique in the ladder and its gains, added to others and left out of all."""
    name, here = dims["setting"], {dim: dims[dim] for dim in (*WORKLOAD, "setting")}
    place = {"step": (OFF, *LADDER).index(name), "technique": "" if name == OFF else name}
    for gain in GAIN.where(kind="ladder", **here).estimates(context).values():
        place |= {"gain": gain.value, "gain_low": gain.low, "gain_high": gain.high,
                  "same": gain.low is not None and gain.side(1.0) == 0}  # fmt: skip
    for gain in LEFT_OUT.where(**here).estimates(context).values():
        place["removed"] = gain.value
    return {**place, "exact": True, "deviation": one.rows[-1].deviation.get("output")}


class Ablation(FormExperiment):
    forms, name = FORMS, "ablation"
    group = "{dataset}/{model}/{kind}"
    timeout_s = {"full": 1800, "paper": 1800, None: 120}
    headline, unit = LEFT_OUT, "x"
    figure_forms = (
        FigureForm(
            "ablation", "ablation", "Time of an epoch, techniques added one by one", ADDED,
            {"panel": PANEL}, value="seconds", more=step, gaps={"step": 0, "technique": ""},
            options={"system": "esdg"},
        ),
        Sweep(
            "ablation_removed",
            "Epoch without one technique, or in another form, over everything on", LEFT_OUT,
            series="esdg", panel=PANEL, x="{setting}", gaps={"x": None},
            xlabel="time without it over time of all on",
            ylabel="time without it over time of all on", hline=1.0, hline_label="all on",
        ),
        Sweep(
            "ablation_bytes", "Bytes to the device in an epoch over those of everything on",
            BYTES.where(setting=lambda name: name not in (ON, AGAIN)) / BYTES.where(setting=ON),
            series="esdg", panel=PANEL, x="{setting}", gaps={"x": None},
            xlabel="bytes over bytes of all on", ylabel="bytes over bytes of all on", hline=1.0,
            hline_label="all on",
        ),
    )  # fmt: skip
    claims = {
        "esdg-s55-precompute": rules.all_above(
            observed("speedup", per=("dataset", "model"), kind="precompute",
                     setting=("precompute", "plain, precompute")), 1.0, unit="x",
        ),
    }  # fmt: skip

    def points(self, preset: Preset, device: str) -> list[dict[str, Any]]:
        if preset == "smoke":
            chosen = [("amlsim", "evolvegcn_o", kind) for kind in ("ladder", "precompute")]
        else:
            # EvolveGCN exchanges no activations.
            left_out = {("evolvegcn_o", "reuse")} | (UNNEEDED if preset == "quick" else set())
            every = product(GRAPHS[preset], MODELS, KINDS)
            chosen = [point for point in every if point[1:] not in left_out]
        names = ("dataset", "model", "kind")
        return [{"system": "esdg", **dict(zip(names, point, strict=True))} for point in chosen]

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        return [
            self.cell(
                point, preset, interleaved=True,
                repeats=turn_rounds(preset) if point["kind"] == "precompute" else 1,
                unavailable=devices_lacking(2, device) if point["kind"] == "reuse" else "",
            )
            for point in self.points(preset, device)
        ]  # fmt: skip

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph, kind = BY_NAME[str(cell.params["dataset"])], str(cell.params["kind"])
        preset = context.preset
        few = kind == "precompute" and preset == "quick"
        task = workload(
            graph,
            str(cell.params["model"]),
            preset,
            scale=graph.scale(preset) * (0.25 if few else SMALLER[preset]),
            snapshots=SNAPSHOTS[preset],
        )
        data = load_timeline(task)
        if kind == "reuse":
            return _reuse(task, data, context)
        return _turns(task, data, context, kind)


def settings(kind: str) -> dict[str, Setting]:
    """Settings of a cell by name, in the order in which they take turns.

    ladder: `all off`, then with each technique added, by its name. removed: `all on`, the same
    again, without each technique, and in each form. precompute: with and without it, everything
    else on or, as `plain`, off, and `all on` again.
    """
    off = dict.fromkeys(LADDER, False)
    on = dict.fromkeys(LADDER, True)
    if kind == "ladder":
        steps = [off | dict.fromkeys(LADDER[: i + 1], True) for i in range(len(LADDER))]
        return {OFF: (off, None)} | {
            name: (switches, BLOCKS) for name, switches in zip(LADDER, steps, strict=True)
        }
    if kind == "precompute":
        return {
            ON: (on, BLOCKS),
            "precompute": (on | {"precompute": False}, BLOCKS),
            "plain": (off | {"precompute": True}, None),
            "plain, precompute": (off, None),
            AGAIN: (dict(on), BLOCKS),
        }
    # Without checkpoint there are no blocks: that is the memory experiment's question.
    without = {name: (on | {name: False}, BLOCKS) for name in LADDER if name != "checkpoint"}
    forms = {name: (on | form, BLOCKS) for name, form in TRAVELLING.items()}
    return {ON: (on, BLOCKS), AGAIN: (dict(on), BLOCKS), **without, **forms}


def ratios_of(kind: str) -> dict[str, tuple[str, str]]:
    """Name of a gain -> settings whose times are its numerator and denominator."""
    names = list(settings(kind))
    if kind == "ladder":
        return {after: (before, after) for before, after in pairwise(names)}
    if kind == "precompute":
        return {"precompute": ("precompute", ON), "plain, precompute": (names[3], names[2])}
    return {name: (name, ON) for name in names if name != ON}


def _turns(task: TimelineWorkload, data: Any, context: RunContext, kind: str) -> Measurement:
    wanted, row = Measurement(), Measurement(data=describe(data))
    with TrainerRace(task, data, context) as race:
        for name, (switches, blocks) in settings(kind).items():
            nb = min(blocks, len(data) - 1) if blocks else None
            trainer = race.open(name, switches, nb=nb)
            sent = epoch_traffic(data, task.model, task.window, trainer.on, len(trainer.blocks))
            wanted.observe("host_to_device", sent["bytes"], setting=name)
        processes = turn_rounds(context.preset) if kind == "precompute" else 1
        seconds_s = max(context.budget_s, SECONDS[context.preset]) / processes
        found = race.take_turns(TURNS[context.preset] if processes == 1 else FEW_TURNS, seconds_s)
        checks = race.checks(found)
    for name, count in found.sent.items():
        row.observe("host_to_device", count, setting=name)
    row.checks = [*checks, agree(row, wanted, against="arrays of the snapshots")]
    seconds = found.seconds
    for name, times in seconds.items():
        row.observe("epoch_time", median(times), setting=name)
    for name, (slow, fast) in ratios_of(kind).items():
        base: Sequence[float] = seconds[fast]
        if kind == "removed" and name != AGAIN:  # both of the equal settings stand for it
            base = [sqrt(a * b) for a, b in zip(seconds[ON], seconds[AGAIN], strict=True)]
        observe_speedup(row, seconds[slow], base, setting=name)
    if AGAIN in seconds:
        observe_control(row, seconds[ON], seconds[AGAIN], setting=ON)
    main = seconds[ON if ON in seconds else OFF]
    row.observe("epoch_time", median(main), samples=main)
    row.deviation = race.deviation(row.checks)
    return row


def _reuse(task: TimelineWorkload, data: Any, context: RunContext) -> Measurement:
    """Two ranks, with activations exchanged again in the re-run and kept from the first pass."""
    oracle = TimelineOracle(task, data, device=context.device)
    turns = take_rank_turns(
        task,
        data,
        2,
        {name: {"blocks": BLOCKS, "reuse": name == "reused"} for name in ("repeated", "reused")},
        least=REUSED[context.preset],
        budget_s=0.0,
        device=context.device,
        request=oracle.request,
    )
    dims = Widths.of(task.model, window=task.window).redistributed
    steps, nodes = len(data) - 1, data.num_nodes
    sent, wanted = {}, {}
    row = Measurement(data=describe(data))
    for name, passes in (("repeated", 2), ("reused", 1)):
        sent[name] = turns.traffic[name].total("floats", operation="all_to_all")
        moved = redistributed(dims, steps, nodes, 2, blocks=BLOCKS, forward=passes)
        wanted[name] = int(moved.sum())
        row.observe("epoch_time", median(turns.seconds[name]), setting=name)
        row.observe("floats", sent[name], setting=name)
    observe_speedup(row, turns.seconds["repeated"], turns.seconds["reused"], setting="reuse")
    samples = turns.seconds["reused"]
    row.observe("epoch_time", median(samples), samples=samples)
    checks = turns.checks(oracle)
    row.deviation = {"loss": largest_gap(checks, "losses")}
    row.checks = [*checks, equal("counters", sent, wanted, against=OVER_PAIRS)]
    return row
