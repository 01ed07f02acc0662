"""Ablation of the one-process trainer: gain of each technique, and cost of each layout.

Settings of a cell take turns inside one process, epoch by epoch, so that what disturbs the machine
disturbs all of them. On a CPU inputs are copied into memory apart, so that bytes really move.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from itertools import pairwise
from math import sqrt
from statistics import median
from typing import Any, Final

from dgbench.lab.charts import chart, mark, sweep
from dgbench.lab.compare import Ratio, observe_control, observe_speedup, ratio_of
from dgbench.lab.ranks import devices_lacking
from dgbench.lab.result_checks import ResultCheck, equal, summarised
from dgbench.lab.table import Table, number, rows_of
from dgbench.lab.verbs import turns_gain
from dgbench.runtime.meter import Meter
from dgbench.systems.base import Cell, Experiment, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.base.race import audited
from dgbench.systems.base.timeline import TimelineWorkload, load_timeline
from dgbench.systems.base.turns import turn_rounds, turns_of
from dgbench.systems.esdg.experiments.recount import (
    OVER_PAIRS,
    Widths,
    agree,
    epoch_traffic,
    redistributed,
)
from dgbench.systems.esdg.experiments.settings import (
    BY_NAME,
    MODEL_TITLES,
    MODELS,
    SnapshotGraph,
    workload,
)
from dgbench.systems.esdg.oracle import TimelineOracle, largest_gap, later_checks
from dgbench.systems.esdg.ranked import SnapshotRankSettings, train_ranked
from dgbench.systems.esdg.system import EsdgSystem, EsdgTrainer

LADDER: Final = ("checkpoint", "precompute", "lean", "fused_scan", "difference", "fallback",
                 "asynchronous", "prefetch")  # fmt: skip
"""Techniques in the order in which they are added: `checkpoint` cuts the timeline into blocks and
costs time, then comes what makes it cheap in computing, then what does in copying."""

FORMS: Final = {
    "int32": {"int32": True},
    "no values": {"recompute_values": True},
    "loops sent": {"ship_loops": True},
    "coordinates": {"paper_layout": True},
    "scored while made": {"interleave": True},
}
"""Choices of what travels, how it lies and when it is scored, on top of everything on."""

BLOCKS: Final = 4
OFF, ON, AGAIN = "all off", "all on", "all on, again"
KINDS: Final = ("ladder", "removed", "precompute", "reuse")
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
REUSED: Final = {"smoke": (1, 2), "quick": (3, 4), "full": (8, 6), "paper": (8, 6)}
"""Pairs of runs on two ranks, and epochs of each."""

Setting = tuple[dict[str, bool], int | None]
"""Switches and number of blocks."""


class Ablation(Experiment):
    paper = "esdg"
    name = "ablation"
    title = "Ablation: what each technique brings"
    claims = ("esdg-s55-precompute",)
    question = "Which technique earns time, memory or bytes, and does any of them cost time?"
    reading = (
        "The paper separates only the graph difference. Techniques are added one after another to "
        "a trainer that records the whole timeline and sends every snapshot plain, and left out of "
        "everything on, which runs twice beside itself: that says how far equal things come out "
        "apart. Forms of what travels are tried on top of everything on. A CPU copies into memory "
        "apart, a proxy: its copies are a small part of an epoch, so techniques of the link "
        "show in bytes and in the time that is waited for copies. Blocks cost time and save memory "
        f"on purpose; all settings but 'all off' use {BLOCKS} of them. Each is compared with the "
        "plain trainer before it is timed."
    )

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        long = preset in ("full", "paper")
        return [
            self.cell_of(
                {"system": "esdg", "dataset": dataset, "model": model, "kind": kind},
                f"{dataset}/{model}/{kind}",
                timeout_s=1800 if long else 120,
                unavailable=devices_lacking(2, device) if kind == "reuse" else "",
                repeats=turn_rounds(preset) if kind == "precompute" else 1,
                interleaved=True,
            )
            for dataset, model, kind in _points(preset)
        ]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph, model = BY_NAME[str(cell.params["dataset"])], str(cell.params["model"])
        kind = str(cell.params["kind"])
        task = _task(graph, model, context.preset, kind)
        data = load_timeline(task)
        if kind == "reuse":
            return _reuse(task, data, context)
        return _turns(task, data, context, settings(kind), kind)

    def figures(self) -> list[FigureSpec]:
        over = {
            "xlabel": "time without it over time of all on",
            "ylabel": "time without it over time of all on",
            "hline": 1.0,
            "hline_label": "all on",
        }
        return [
            chart("ablation", "ablation", "Time of an epoch, techniques added one by one",
                step_points, system="esdg"),
            sweep("ablation_removed",
                "Epoch without one technique, or in another form, over everything on",
                removed_points, **over),
            sweep("ablation_bytes", "Bytes to the device in an epoch over those of everything on",
                byte_points, xlabel="bytes over bytes of all on",
                ylabel="bytes over bytes of all on", hline=1.0, hline_label="all on"),
        ]  # fmt: skip

    def answer(self, rows: Sequence[Any]) -> str:
        parts = []
        ladder = Table.of(rows, experiment=self.name, kind="ladder")
        steps = [one for step in LADDER for one in ladder.where("speedup", setting=step)]
        if steps:
            best = max(steps, key=lambda one: one.value)
            step, panel = best["setting"], _panel(best.row)
            parts.append(f"the largest single step is {step}: {best.value:.2g}x ({panel})")
        for row in rows_of(rows, experiment=self.name, kind="removed")[:1]:
            saved = _bytes(row, "difference") / max(1, _bytes(row, ON))
            parts.append(f"without the graph difference {saved:.2g} times the bytes travel")
        shares = [
            number(one.row, "floats", setting="reused") / one.value
            for one in Table.of(rows, experiment=self.name).where("floats", setting="repeated")
            if one.value
        ]
        if shares:
            parts.append(f"kept activations leave {100 * max(shares):.0f} % of the volume on ranks")
        text = "; ".join(parts)
        return f"{text[0].upper()}{text[1:]}." if text else ""


def _points(preset: Preset) -> list[tuple[str, str, str]]:
    """(dataset, model, kind) of a preset's cells."""
    if preset == "smoke":
        return [("amlsim", "evolvegcn_o", "ladder"), ("amlsim", "evolvegcn_o", "precompute")]
    every = [(name, model, kind) for name in GRAPHS[preset] for model in MODELS for kind in KINDS]
    if preset == "quick":
        # No claim needs these; the ladder keeps two models, what is removed and precomputed one.
        fewer = {
            ("tm_gcn", "ladder"), ("cd_gcn", "removed"), ("evolvegcn_o", "removed"),
            ("tm_gcn", "reuse"), ("cd_gcn", "reuse"), ("cd_gcn", "precompute"),
            ("evolvegcn_o", "precompute"),
        }  # fmt: skip
        every = [point for point in every if point[1:] not in fewer]
    # EvolveGCN exchanges no activations.
    return [point for point in every if point[1:] != ("evolvegcn_o", "reuse")]


def _task(graph: SnapshotGraph, model: str, preset: Preset, kind: str) -> TimelineWorkload:
    few = kind == "precompute" and preset == "quick"
    return workload(
        graph,
        model,
        preset,
        scale=graph.scale(preset) * (0.25 if few else SMALLER[preset]),
        snapshots=SNAPSHOTS[preset],
    )


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
    forms = {name: (on | form, BLOCKS) for name, form in FORMS.items()}
    return {ON: (on, BLOCKS), AGAIN: (dict(on), BLOCKS), **without, **forms}


def ratios_of(kind: str) -> dict[str, tuple[str, str]]:
    """Name of a gain -> settings whose times are its numerator and denominator."""
    names = list(settings(kind))
    if kind == "ladder":
        return {after: (before, after) for before, after in pairwise(names)}
    if kind == "precompute":
        return {"precompute": ("precompute", ON), "plain, precompute": (names[3], names[2])}
    return {name: (name, ON) for name in names if name != ON}


def _turns(
    task: TimelineWorkload, data: Any, context: RunContext, chosen: dict[str, Setting], kind: str
) -> Measurement:
    # Processes of one cell stand for each other: later ones compare an output.
    oracle = TimelineOracle(task, data, device=context.device) if context.round == 1 else None
    arena = {"arena": True} if context.device == "cpu" else {}
    opened: dict[str, EsdgTrainer] = {}
    wanted, row = Measurement(), Measurement(data=describe(data))
    with ExitStack() as stack:
        for name, (switches, blocks) in chosen.items():
            trainer = EsdgTrainer(
                task,
                data,
                EsdgSystem().switches(arena | switches),
                nb=min(blocks, len(data) - 1) if blocks else None,
                device=context.device,
                meter=Meter(device=context.device),
            )
            stack.callback(trainer.close)
            trainer.prepare()
            count = len(trainer.blocks)
            sent = epoch_traffic(data, task.model, task.window, trainer.on, count)
            wanted.observe("host_to_device", sent["bytes"], setting=name)
            row.observe("memory", int(trainer.planned_bytes()), of="planned", setting=name)
            opened[name] = trainer
        before = oracle.first_results(opened) if oracle is not None else {}
        processes = turn_rounds(context.preset) if kind == "precompute" else 1
        seconds_s = max(context.budget_s, SECONDS[context.preset]) / processes
        least = TURNS[context.preset] if processes == 1 else FEW_TURNS
        found = turns_of(opened, least, seconds_s)
        if oracle is not None:
            checks = oracle.checks_of(opened, before)
        else:
            checks = later_checks(task, data, opened, context.device)
        checks += audited(found, task, context, data)
    for name, count in found.sent.items():
        row.observe("host_to_device", count, setting=name)
    row.checks = [*checks, agree(row, wanted, against="arrays of the snapshots")]
    seconds = found.seconds
    for name, times in seconds.items():
        row.observe("epoch_time", median(times), setting=name)
        for phase in ("copy_busy", "copy_wait"):
            spent = median(found.parts[name].get(phase) or [0.0])
            row.observe("phase_time", spent, phase=phase, setting=name)
    for name, (slow, fast) in ratios_of(kind).items():
        base: Sequence[float] = seconds[fast]
        if kind == "removed" and name != AGAIN:  # both of the equal settings stand for it
            base = [sqrt(a * b) for a, b in zip(seconds[ON], seconds[AGAIN], strict=True)]
        observe_speedup(row, seconds[slow], base, setting=name)
    if AGAIN in seconds:
        observe_control(row, seconds[ON], seconds[AGAIN], setting=ON)
    main = seconds[ON if ON in seconds else OFF]
    row.observe("epoch_time", median(main), samples=main)
    row.observe("turns", len(main))
    if oracle is not None:
        row.deviation = {"output": largest_gap(row.checks, "outputs", "gradients")}
    row.notes = ["planned bytes are the plan's, see the experiment 'memory' for measured peaks"]
    return row


def _reuse(task: TimelineWorkload, data: Any, context: RunContext) -> Measurement:
    """Two ranks, with activations exchanged again in the re-run and kept from the first pass."""
    pairs, epochs = REUSED[context.preset]
    oracle = TimelineOracle(task, data, device=context.device)
    times: dict[bool, list[float]] = {False: [], True: []}
    floats: dict[bool, int] = {}
    losses = {}
    checks: list[ResultCheck] = []
    for turn in range(pairs):
        for reuse in (False, True) if turn % 2 == 0 else (True, False):
            chosen = SnapshotRankSettings(blocks=BLOCKS, reuse=reuse)
            run = train_ranked(
                task, 2, chosen, epochs=epochs + 1, data=data, timeout_s=60, device=context.device,
                compared=oracle.request if turn == pairs - 1 else None,
            )  # fmt: skip
            checks += run.checks(oracle, "kept" if reuse else "exchanged again")
            times[reuse].append(median(run.samples))
            floats[reuse] = int(run.traffic.matrix("floats", operation="all_to_all").sum())
            losses[reuse] = run.losses
    gaps = [abs(a - b) / abs(b) for a, b in zip(losses[True], losses[False], strict=True)]
    dims = Widths.of(task.model, window=task.window).redistributed
    wanted = {
        reuse: int(
            redistributed(
                dims, len(data) - 1, data.num_nodes, 2, blocks=BLOCKS, forward=2 - reuse
            ).sum()
        )
        for reuse in floats
    }
    checks = summarised([*checks, equal("counters", floats, wanted, against=OVER_PAIRS)])
    row = Measurement(data=describe(data), checks=checks, deviation={"loss": max(gaps)})
    for reuse, setting in ((False, "repeated"), (True, "reused")):
        row.observe("epoch_time", median(times[reuse]), setting=setting)
        row.observe("floats", floats[reuse], setting=setting)
    observe_speedup(row, times[False], times[True], setting="reuse")
    row.observe("epoch_time", median(times[True]), samples=times[True])
    row.observe("processes", 2)
    return row


def without(row: Any) -> dict[str, Ratio]:
    """Epoch without a technique or in another form over everything on, of a `removed` row."""
    found = Table.of([row]).where("speedup").by("setting")
    return {name: ratio_of(found[name]) for name in ratios_of("removed")}


def _bytes(row: Any, setting: str) -> int:
    return number(row, "host_to_device", setting=setting)


def _epoch(row: Any, setting: str) -> float:
    return number(row, "epoch_time", setting=setting)


def _panel(row: Any) -> str:
    graph = BY_NAME[row.params["dataset"]]
    arena = ", arena (CPU analogue)" if row.device == "cpu" else ""
    return f"{MODEL_TITLES[row.params['model']]}, {graph.title}{arena}"


def _rows(rows: Sequence[Any], kind: str) -> tuple[list[Any], list[Any]]:
    """Rows of a kind that ran, and those that did not."""
    mine = [r for r in rows if r.experiment == "ablation" and r.params.get("kind") == kind]
    return rows_of(mine), [row for row in mine if row.status != "ok"]


def step_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Seconds of an epoch after each step, its gain in order, and when left out of all."""
    ran, failed = _rows(rows, "ladder")
    removed = {
        (row.params["dataset"], row.params["model"]): without(row)
        for row in _rows(rows, "removed")[0]
    }
    points: list[dict[str, Any]] = [
        {"panel": _panel(row), "step": 0, "technique": "", "failed": f"{row.status}: {row.reason}"}
        for row in failed
    ]
    for row in ran:
        base = mark(row, panel=_panel(row), exact=True, deviation=row.deviation.get("output"))
        points.append({**base, "step": 0, "technique": "", "seconds": _epoch(row, OFF)})
        left_out = removed.get((row.params["dataset"], row.params["model"]), {})
        for step, name in enumerate(LADDER, 1):
            gain = turns_gain([row], setting=name)
            point = {
                **base,
                "step": step,
                "technique": name,
                "seconds": _epoch(row, name),
                "gain": gain.value,
                "gain_low": gain.low,
                "gain_high": gain.high,
                "same": gain.low is not None and gain.side == 0,
            }
            if name in left_out:
                point["removed"] = left_out[name].value
            points.append(point)
    return points


def removed_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Time without each technique, or in another form, over everything on."""
    ran, failed = _rows(rows, "removed")
    points: list[dict[str, Any]] = [
        {"series": "esdg", "panel": _panel(row), "failed": f"{row.status}: {row.reason}"}
        for row in failed
    ]
    for row in ran:
        for name, ratio in without(row).items():
            points.append(
                {
                    "series": "esdg",
                    "panel": _panel(row),
                    "x": _shown(name),
                    "y": ratio.value,
                    "low": ratio.low,
                    "high": ratio.high,
                    "twin": ratio.twin,
                    "row_ids": ratio.rows,
                }
            )
    return points


def byte_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Counted bytes of each setting over those of everything on."""
    return [
        mark(
            row,
            series="esdg",
            panel=_panel(row),
            x=_shown(name),
            y=_bytes(row, name) / _bytes(row, ON),
            counted=True,
        )
        for row in _rows(rows, "removed")[0]
        for name in ratios_of("removed")
        if name != AGAIN and _bytes(row, ON)
    ]


def _shown(name: str) -> str:
    return name if name in FORMS or name == AGAIN else f"without {name}"
