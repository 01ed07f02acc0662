"""Figure 4: Base against the graph difference, by model, graph and number of ranks (6.2)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from statistics import median
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from dgbench.lab.charts import chart, sweep
from dgbench.lab.compare import AGAIN, TURN_INTERVAL, observe_speedup, take_control, with_control
from dgbench.lab.result_checks import ResultCheck
from dgbench.runtime.meter import Meter
from dgbench.runtime.threads import one_thread
from dgbench.systems.base import Cell, Experiment, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.base.race import audited
from dgbench.systems.base.timeline import TimelineWorkload, load_timeline
from dgbench.systems.base.turns import turn_rounds, turns_of
from dgbench.systems.esdg.experiments.common import Changes, Occurrences
from dgbench.systems.esdg.experiments.fig4_rows import (
    BASE,
    GD,
    byte_rows,
    gain_of_bytes,
    gain_points,
    link_points,
    rank_points,
    split_points,
    timed_gains,
    timed_rows,
)
from dgbench.systems.esdg.experiments.main_races import DIFFERENCES
from dgbench.systems.esdg.experiments.recount import (
    OVER_EDGES,
    RawEdges,
    agree,
    entry_bytes,
    parted,
    sequence_bytes,
    sequence_changes,
)
from dgbench.systems.esdg.experiments.settings import (
    ALL,
    BY_NAME,
    GRAPHS,
    MODELS,
    RANKS,
    SMOOTHING,
    SnapshotGraph,
    snapshots,
    workload,
)
from dgbench.systems.esdg.oracle import TimelineOracle, largest_gap, later_checks
from dgbench.systems.esdg.partition import block_ranges, consecutive

if TYPE_CHECKING:
    from dgbench.datasets import SnapshotSequence

BLOCKS = (1, 4)
"""Blocks of the timeline that bytes are counted for."""
TIMED_BLOCKS = 2
PASSES = 2
"""An epoch runs every block forward, and again to record it."""
FLOATS = 2
"""Floats per vertex that travel beside each matrix."""
COUNTED_GRAPHS = {
    "smoke": ("flickr", "amlsim-20k-fanin200cycle200"),
    "quick": (*(graph.name for graph in GRAPHS), "amlsim-20k-fanin200cycle200", "sx-mathoverflow"),
}
TIMED_GRAPHS = {
    "smoke": ("flickr",),
    "quick": ("amlsim-20k-fanin200cycle200",),
}
TIMED_SNAPSHOTS = {"smoke": 9, "quick": 9}
SMOKE_MODELS = ("tm_gcn", "cd_gcn")
TURNS = {"smoke": 3, "quick": 3, "full": 6, "paper": 6}
"""Turns of a process at least; a timed cell has several processes."""
BUDGETS = {"smoke": 0.5, "quick": 0.2, "full": 2.0, "paper": 6.0}


class Fig4(Experiment):
    paper = "esdg"
    name = "fig4"
    title = "Figure 4: Base and graph difference"
    claims = (
        "esdg-abs-gd-transfer",
        "esdg-abs-gd-overall",
        "esdg-s62-gd-benefit-fraction",
        "esdg-s62-gd-gains-shrink",
        "esdg-s62-cdgcn-gd",
        "esdg-s62-gd-order-smoothing",
        "esdg-s61-settings",
        "esdg-fig4-components",
        "esdg-s32-transfer-important",
    )
    question = "How much sooner are snapshots on the device by difference, and an epoch done?"
    main_race = DIFFERENCES
    control: ClassVar = {
        "dataset": "amlsim-20k-fanin200cycle200", "model": "tm_gcn", "part": "timed",
    }  # fmt: skip
    reading = (
        "Bytes are counted exactly for up to 128 ranks: a rank's first snapshot of each block goes "
        "plain, and every input is brought twice an epoch. Times are of one rank: Base and "
        "difference take turns in each of five processes, copies are not hidden behind computing. "
        "Transfer is waiting for copies and rebuilding matrices, on both sides. A CPU has no link: "
        "inputs are copied at the speed of memory, far faster than PCIe, so rebuilding can cost "
        "more than is saved. Transfer over the paper's link is projected: counted bytes over 12 "
        "GB/s (PCIe 3, pinned), without rebuilding. Timed epochs send differences always, as the "
        "paper does, also where they are larger (CD-GCN where edges come once); bytes are counted "
        "so and, as ours, with such snapshots plain."
    )

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        everything = tuple(graph.name for graph in ALL)
        counted = [
            self._cell({"dataset": name, "part": "bytes"}, f"bytes/{name}", preset)
            for name in COUNTED_GRAPHS.get(preset, everything)
        ]
        models = SMOKE_MODELS if preset == "smoke" else MODELS
        timed = [
            self._cell(
                {"dataset": name, "model": model, "part": "timed"},
                f"{name}/{model}",
                preset,
                repeats=turn_rounds(preset),
                interleaved=True,
            )
            for name in TIMED_GRAPHS.get(preset, everything)
            for model in models
            # Its raw snapshots, hardly any with repeats, go plain either way.
            if preset != "quick" or model != "cd_gcn"
        ]
        return counted + timed

    def _cell(self, params: dict[str, Any], group: str, preset: Preset, **fields: Any) -> Cell:
        limit = 1800 if preset == "paper" else 600 if preset == "full" else 60
        return self.cell_of(params, group, timeout_s=limit, **fields)

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph = BY_NAME[str(cell.params["dataset"])]
        if cell.params["part"] == "bytes":
            return count_bytes(graph, context.preset)
        kept = TIMED_SNAPSHOTS.get(context.preset, snapshots(context.preset))
        task = workload(graph, str(cell.params["model"]), context.preset, snapshots=kept)
        control = self.controls(cell)
        if context.device != "cpu":
            return _time(task, context, control=control)
        with one_thread():  # so that the copying thread has a core of its own
            return _time(task, context, control=control)

    def figures(self) -> list[FigureSpec]:
        return [
            sweep("fig4", "Bytes of Base over bytes by difference, by ranks", rank_points,
                xlabel="ranks", ylabel="fewer bytes of matrices (x)", base=2, hline=1.0,
                hline_label="Base"),
            chart("time_split", "fig4_split", "An epoch of one rank: transfer and the rest",
                split_points, xlabel="time of one epoch, ms",
                phases_from="transfer timed in the same epochs, compute: the rest"),
            chart("time_split", "fig4_link",
                "Transfer of an epoch over PCIe 3 on one rank, projected from bytes", link_points),
            chart("speedup", "fig4_gain", "Gain of the difference over Base on one rank",
                gain_points, baseline_label="Base", xlabel="Base / difference",
                interval=TURN_INTERVAL),
        ]  # fmt: skip

    def answer(self, rows: Sequence[Any]) -> str:
        parts = []
        counted = [
            gain_of_bytes(row, model)
            for row in byte_rows(rows)
            for model in MODELS
            if SMOOTHING[model] != "none"
        ]
        if counted:
            raw = [gain_of_bytes(row, "cd_gcn", format_="forced") for row in byte_rows(rows)]
            parts.append(
                f"Of smoothed snapshots a difference sends {min(counted):.2g} to "
                f"{max(counted):.2g} times fewer bytes on one rank; of raw ones (CD-GCN) "
                + (
                    f"{1 / max(raw):.2g} to {1 / min(raw):.2g} times more"
                    if max(raw) < 1
                    else f"{min(raw):.2g} to {max(raw):.2g} times fewer"
                )
            )
        for kind, phase in (("transfer", "transfer"), ("epoch", None)):
            found = timed_gains(rows, phase)
            if found:
                sides = [sum(r.side == side for r in found.values()) for side in (1, 0, -1)]
                low, high = (pick(r.value for r in found.values()) for pick in (min, max))
                where = "" if any(r.device == "cuda" for r in timed_rows(rows)) else " on this CPU"
                ends = " to ".join(dict.fromkeys(f"{end:.2g}" for end in (low, high)))
                parts.append(
                    f"{kind} times of Base over those of the difference are {ends}{where} "
                    f"(faster {sides[0]}, undecided {sides[1]}, slower {sides[2]} of {len(found)})"
                )
        text = "; ".join(parts)
        return f"{text[0].upper()}{text[1:]}." if text else ""


def smoothing_length(graph: SnapshotGraph, model: str) -> int:
    """Snapshots that an edge stays in what this model reads; 1 without smoothing."""
    return {"none": 1, "edge_life": graph.edge_life, "m_transform": graph.window}[SMOOTHING[model]]


def runs_of(steps: int, blocks: int, ranks: int) -> list[list[range]]:
    """[rank][block]: the snapshots that a rank brings of a block, one after the other."""
    shares = [consecutive(block, ranks) for block in block_ranges(steps, blocks)]
    return [[block[rank] for block in shares] for rank in range(ranks)]


def count_bytes(graph: SnapshotGraph, preset: Preset) -> Measurement:
    """Bytes that one epoch brings in both its passes, for all models, blocks and ranks.

    Matrices (`topology_sent`) are plain, as differences (`forced`), or as whichever is less
    (`sent`); `host_to_device` adds inputs and is that of the rank that brings most. Snapshots
    `kept` are those of a pass that are not the first of a run.
    """
    found = Occurrences.of(graph, preset)
    lives, nodes = found.lives(), found.events.num_nodes
    steps = found.steps - 1  # the last snapshot is only predicted
    row = 4 * FLOATS * nodes
    counted = _sizes(nodes, steps, PASSES * steps * row)
    blocks = [count for count in BLOCKS if count <= steps]
    for count in blocks:
        for ranks in RANKS:
            runs = sum(bool(run) for own in runs_of(steps, count, ranks) for run in own)
            counted.observe("snapshots", steps - runs, of="kept", blocks=count, ranks=ranks)
    for model in MODELS:
        changes = Changes.of(lives, smoothing_length(graph, model)).first(steps)
        counted.observe("topology_sent", PASSES * changes.plain(), model=model, format="plain")
        for count in blocks:
            for ranks in RANKS:
                runs = runs_of(steps, count, ranks)
                where = {"model": model, "blocks": count, "ranks": ranks}
                _observe_ranks(counted, *_by_ranks(changes, runs, row), **where)
    counted.data = found.data
    counted.checks = [agree(counted, _recounted(found, graph, blocks, row), against=OVER_EDGES)]
    return counted


def _sizes(nodes: int, steps: int, features: int) -> Measurement:
    found = Measurement()
    found.observe("vertices", nodes)
    found.observe("snapshots", steps)
    found.observe("features_sent", features)
    return found


def _observe_ranks(
    found: Measurement, matrices: dict[str, int], busiest: dict[str, int], **where: Any
) -> None:
    """Bytes of one pass by format, of all matrices and of all that the busiest rank brings."""
    for format_, count in matrices.items():
        found.observe("topology_sent", PASSES * count, format=format_, **where)
    for format_, count in busiest.items():
        dims = {"of": "busiest_rank", "format": format_}
        found.observe("host_to_device", PASSES * count, **dims, **where)


def _recounted(
    found: Occurrences, graph: SnapshotGraph, blocks: list[int], row: int
) -> Measurement:
    """The counts again: edges of a window that slides, each rank's snapshots one by one."""
    edges, steps = RawEdges(found), len(range(1, found.steps))
    wanted = _sizes(row // 8, steps, 2 * steps * row)
    for model in MODELS:
        changes = edges.changes(smoothing_length(graph, model)).first(steps)
        whole = [entry_bytes(n) for n in changes.entries.tolist()]
        wanted.observe("topology_sent", 2 * sum(whole), model=model, format="plain")
        for count in blocks:
            for ranks in RANKS:
                # own[rank]: its snapshots, block by block.
                shares = [parted(block, ranks) for block in parted(range(steps), count)]
                own = [[block[rank] for block in shares] for rank in range(ranks)]
                starts = {part[0] for parts in own for part in parts if part}
                sent = sequence_bytes(changes, starts=starts)
                forced = sequence_bytes(changes, starts=starts, fallback=False)
                matrices = {"sent": sum(sent), "forced": sum(forced)}
                busiest = {
                    name: max(sum(each[t] + row for part in parts for t in part) for parts in own)
                    for name, each in (("plain", whole), ("sent", sent))
                }
                where = {"blocks": count, "ranks": ranks}
                _observe_ranks(wanted, matrices, busiest, model=model, **where)
                if model == MODELS[0]:
                    wanted.observe("snapshots", steps - len(starts), of="kept", **where)
    return wanted


def _by_ranks(
    changes: Changes, runs: Sequence[Sequence[range]], row: int
) -> tuple[dict[str, int], dict[str, int]]:
    """Bytes of one pass, see `_observe_ranks`; `row` are those of a snapshot's inputs."""
    plain = changes.each_plain()
    starts = [run.start for own in runs for run in own if run]
    sent = {"sent": changes.each(), "forced": changes.each(fallback=False)}
    for each in sent.values():
        each[starts] = plain[starts]

    def busiest(each: np.ndarray) -> int:
        return max(
            sum(int(each[run.start : run.stop].sum()) + row * len(run) for run in own)
            for own in runs
        )

    matrices = {name: int(each.sum()) for name, each in sent.items()}
    return matrices, {"plain": busiest(plain), "sent": busiest(sent["sent"])}


def _time(task: TimelineWorkload, context: RunContext, *, control: bool) -> Measurement:
    """Epochs of Base and of the difference in turns, both compared with the plain trainer."""
    from dgbench.systems.base.registry import get_system
    from dgbench.systems.esdg.system import EsdgTrainer

    data = load_timeline(task)
    # Processes of one cell stand for each other.
    oracle = TimelineOracle(task, data, device=context.device) if context.round == 1 else None
    system = get_system("esdg")
    with ExitStack() as stack:
        trainers = {}
        sides = with_control({BASE: False, GD: True}, on=control)
        for name, difference in sides.items():
            switches = {"difference": difference, "arena": context.device == "cpu"}
            trainers[name] = EsdgTrainer(
                task,
                data,
                system.switches(switches),
                nb=TIMED_BLOCKS,
                device=context.device,
                meter=Meter(timing=True, device=context.device),
            )
            stack.callback(trainers[name].close)
            trainers[name].prepare()
        before = oracle.first_results(trainers) if oracle is not None else {}
        found = turns_of(
            trainers,
            TURNS[context.preset],
            context.budget_s * BUDGETS[context.preset],
            most=10 * TURNS[context.preset],
        )
        timed = Measurement(data=describe(data))
        take_control(timed, found.seconds)
        if control:
            del trainers[AGAIN]
        for name, trainer in trainers.items():
            count, epochs = trainer.meter.counters, len(found.seconds[name])
            _observe_traffic(
                timed,
                name,
                matrices=count["bytes_topology"] // epochs,
                differences=count["snapshots_difference"] // epochs,
                everything=found.sent[name],
            )
            timed.notes += [note for note in trainer.notes if note not in timed.notes]
        if oracle is not None:
            timed.checks = oracle.checks_of(trainers, before)
        else:
            timed.checks = later_checks(task, data, trainers, context.device)
        timed.checks += audited(found, task, context, data)
    timed.checks.append(_traffic_check(data, timed))
    for name in trainers:
        timed.observe("epoch_time", median(found.seconds[name]), setting=name)
    observe_speedup(timed, found.seconds[BASE], found.seconds[GD], setting=GD, baseline=BASE)
    for phase, part in (("transfer", "transfer"), ("copy", "copy_busy")):
        taken = {name: found.parts[name][part] for name in trainers}
        for name, seconds in taken.items():
            timed.observe("phase_time", median(seconds), setting=name, phase=phase)
        observe_speedup(timed, taken[BASE], taken[GD], setting=GD, baseline=BASE, phase=phase)
    timed.observe("epoch_time", median(found.seconds[GD]), samples=found.seconds[GD])
    timed.observe("turns", len(found.seconds[GD]))
    timed.observe("columns", task.hidden_dim, of="hidden")
    timed.observe("columns", task.classes, of="classes")
    timed.observe("snapshots", len(data) - 1)
    timed.observe("timeline_blocks", TIMED_BLOCKS)
    if oracle is not None:
        timed.deviation = {"output": largest_gap(timed.checks, "outputs", "gradients")}
    return timed


def _observe_traffic(
    found: Measurement, setting: str, *, matrices: int, differences: int, everything: int
) -> None:
    found.observe("topology_sent", matrices, setting=setting)
    found.observe("snapshots", differences, setting=setting, format="difference")
    found.observe("host_to_device", everything, setting=setting)


def _traffic_check(data: SnapshotSequence, counted: Measurement) -> ResultCheck:
    """Bytes that the trainers' links counted against those of the snapshots, each brought twice."""
    steps = range(len(data) - 1)
    changes = sequence_changes([data.topology[t] for t in steps])
    starts = {block[0] for block in parted(steps, TIMED_BLOCKS)}
    inputs = sum(torch.as_tensor(data.features[t]).numpy().nbytes for t in steps)
    wanted = Measurement()
    for name, sent, differences in (
        (BASE, [entry_bytes(n) for n in changes.entries.tolist()], 0),
        (GD, sequence_bytes(changes, starts=starts, fallback=False), len(steps) - len(starts)),
    ):
        _observe_traffic(
            wanted,
            name,
            matrices=2 * sum(sent),
            differences=2 * differences,
            everything=2 * (sum(sent) + inputs),
        )
    return agree(counted, wanted, against="arrays of the snapshots")
