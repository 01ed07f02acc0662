"""Sections 3.1 and 6.2: memory of blocks and borders, what fits on how many devices, time by nb.

The formula of section 3.1 is evaluated three ways at the paper's own sizes, without any data: as
the paper's figures give it, for this implementation, and with what torch's LSTM records. Over 500
lines: all three, and what is measured beside them, are read from one set of cells.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from statistics import median
from typing import Any, Final

from dgbench.lab.charts import chart, sweep
from dgbench.lab.compare import observe_control, observe_speedup
from dgbench.lab.result_checks import ResultCheck, at_most, equal, summarised
from dgbench.lab.table import Table, number, rows_of
from dgbench.lab.verbs import turns_gain
from dgbench.models import TimelineModel, build_model
from dgbench.runtime.meter import Meter
from dgbench.runtime.touched import comparing
from dgbench.systems.base import Cell, Experiment, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.base.race import audited
from dgbench.systems.base.timeline import TimelineWorkload, load_timeline, smooth
from dgbench.systems.base.turns import turn_rounds, turns_of
from dgbench.systems.esdg.experiments.memory_points import (
    block_counts,
    peak_points,
    rate_points,
    time_points,
    weighed,
)
from dgbench.systems.esdg.experiments.random_graphs import DATASET, random_graphs
from dgbench.systems.esdg.experiments.recount import Widths, agree, epoch_traffic
from dgbench.systems.esdg.experiments.settings import (
    BY_NAME,
    GRAPHS,
    MODEL_TITLES,
    MODELS,
    RANKS,
    SnapshotGraph,
    workload,
)
from dgbench.systems.esdg.oracle import (
    TimelineOracle,
    TimelineResult,
    largest_gap,
    later_checks,
)
from dgbench.systems.esdg.plan import StepCost, border_bytes, device_cost, paper_cost
from dgbench.systems.esdg.system import EsdgSystem, EsdgTrainer
from dgbench.systems.esdg.techniques import ADDITIONS

DEVICE_BYTES: Final = 32 * 2**30
"""Of a V100 with 32 GB, all of it (6.1)."""

SPARSE: Final = {"tm_gcn": "M_product", "cd_gcn": "nnz", "evolvegcn_o": "edge_life"}
"""Size of Table 1 that a model's matrices have."""

COSTS: Final = ("formula", "ours", "torch")
COST_TITLES: Final = {
    "formula": "20 nnz + 4 N (widths)",
    "ours": "this implementation",
    "torch": "torch's LSTM, int64 coordinates",
}

BLOCKS: Final = {
    "smoke": (1, 4),
    "quick": (1, 4, 8),
    "full": (1, 2, 4, 8, 16, 32),
    "paper": (1, 2, 4, 8, 16, 32, 64),
}
SWEPT: Final = {
    "smoke": ("amlsim",),
    "quick": ("amlsim",),
    "full": ("amlsim", "youtube"),
    "paper": tuple(graph.name for graph in GRAPHS),
}
REAL_GRAPH: Final = "amlsim-20k-fanin200cycle200"
SHARES: Final = (0.5, 0.1)
"""Budgets, as shares of the way from the least that any number of blocks takes to one block."""
TURNS: Final = {"smoke": 3, "quick": 2, "full": 4, "paper": 3}
"""Turns of a process at least; a sweep has several processes."""
SMALL: Final = (1024, 9, 6)
"""N, T and edge life of a graph whose tensors are measured."""

PEAK_WITHIN: Final = 0.15
"""Relative tolerance of a plan against the peak of a small graph, with a snapshot on its way."""

AGAIN: Final = "paper 1, again"
"""Name of the paper's way in one block where it races itself."""


class Memory(Experiment):
    paper = "esdg"
    name = "memory"
    title = "Sections 3.1 and 6.2: what fits, and what checkpoints cost"
    claims = (
        "esdg-s31-oom-below-8",
        "esdg-s62-baseline-oom-node",
        "esdg-s31-block-memory",
        "esdg-s31-fewer-blocks-faster",
        "esdg-s32-transfer-twice",
        "esdg-s62-bsize-tuned",
    )
    question = (
        "How much memory do blocks save, what fits on how many devices, and what does it cost?"
    )
    reading = (
        "The paper prints neither numbers of blocks nor bytes. Bytes per step are 20 for an entry "
        "(two int64 indices and a float) and 4 for a float of every activation; a border keeps "
        "what the recurrences need. Feasibility is counted at the sizes of Table 1, for 32 GiB a "
        "device, with everything split evenly over the ranks and nothing else on the device. On a "
        "CPU memory is that of all tensors at their peak, and blocks are copied into memory "
        "apart. In the paper's way every block is brought and run twice; ours brings and runs "
        "in the first pass only what borders need, and copies the next block meanwhile."
    )

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        long = preset in ("full", "paper")
        swept = [("sweep", name, model) for name in SWEPT[preset] for model in MODELS]
        tuned = [("budget", REAL_GRAPH, model) for model in MODELS]
        if preset == "smoke":
            swept, tuned = swept[1:2], tuned[2:]
        if preset == "quick":
            swept = swept[:2]
        return [
            *(self._cell({"part": "sizes", "model": model}) for model in MODELS),
            *(
                self._cell(
                    {"part": part, "dataset": name, "model": model},
                    1800 if long else 120,
                    repeats=turn_rounds(preset) if part == "sweep" else 1,
                    interleaved=part == "sweep",
                )
                for part, name, model in (*swept, *tuned)
            ),
        ]

    def _cell(self, params: dict[str, Any], timeout_s: float = 60.0, **fields: Any) -> Cell:
        group = "/".join(map(str, params.values()))
        return self.cell_of({"system": "esdg", **params}, group, timeout_s=timeout_s, **fields)

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        part, model = str(cell.params["part"]), str(cell.params["model"])
        if part == "sizes":
            return sizes(model)
        graph = BY_NAME[str(cell.params["dataset"])]
        task = _task(graph, model, context.preset)
        return (_sweep if part == "sweep" else _budgets)(task, context)

    def figures(self) -> list[FigureSpec]:
        bytes_of = {"xlabel": "blocks", "ylabel": "bytes at the peak", "base": 2}
        return [
            sweep("memory_blocks",
                "Peak memory by the number of blocks: measured, planned, by the formula",
                peak_points, **bytes_of),
            sweep("memory_time", "Time of an epoch over that with one block", time_points,
                xlabel="blocks", ylabel="time over one block", base=2, hline=1.0,
                hline_label="one block"),
            chart("frontier", "memory_buys",
                "What memory buys: peak and speed by the number of blocks", rate_points,
                ylabel="snapshots/s"),
            sweep("memory_sizes", "Bytes on each device without checkpoint, at the paper's sizes",
                size_points, xlabel="GPUs", ylabel="bytes a GPU", base=2, hline=float(DEVICE_BYTES),
                hline_label="32 GiB"),
        ]  # fmt: skip

    def answer(self, rows: Sequence[Any]) -> str:
        parts = []
        found = rows_of(rows, experiment=self.name, part="sweep")
        if weighed(rows):
            most = max(block_counts(found[0]))
            saved = [peak(row, "ours", 1) / peak(row, "ours", most) for row in weighed(rows)]
            slower = [
                ratio.value
                for row in found
                if (ratio := turns_gain([row], baseline="paper", blocks=most))
            ]
            parts.append(
                f"{most} blocks take {min(saved):.2g} to {max(saved):.2g} times less memory than "
                f"one at {min(slower):.2g} to {max(slower):.2g} times its epoch (the paper's way)"
            )
        counted = rows_of(rows, experiment=self.name, part="sizes")
        if counted:
            least = [p for row in counted for p in least_ranks(row, "formula", "whole").values()]
            fit = sum(p is not None and p < 8 for p in least)
            parts.append(
                f"counted by the paper's figures, {fit} of {len(least)} configurations fit on "
                "fewer than 8 GPUs without checkpoint"
            )
        text = "; ".join(parts)
        return f"{text[0].upper()}{text[1:]}." if text else ""


def _task(graph: SnapshotGraph, model: str, preset: Preset) -> TimelineWorkload:
    if preset in ("smoke", "quick"):  # every setting of a cell is trained in turns
        small = 1.0 if graph.real else graph.scale(preset) / 4
        return workload(graph, model, preset, scale=small, snapshots=9)
    return workload(graph, model, preset)


def _open(
    task: TimelineWorkload, data: Any, context: RunContext, switches: dict[str, bool], **more: Any
) -> EsdgTrainer:
    arena = {"arena": True} if context.device == "cpu" else {}
    on = EsdgSystem().switches(arena | switches)
    meter = Meter(device=context.device)
    trainer = EsdgTrainer(task, data, on, device=context.device, meter=meter, **more)
    trainer.prepare()
    return trainer


def _sweep(task: TimelineWorkload, context: RunContext) -> Measurement:
    """Peaks and epochs by the number of blocks, the paper's way and ours."""
    data = load_timeline(task)
    # Processes of one cell stand for each other.
    oracle = TimelineOracle(task, data, device=context.device) if context.round == 1 else None
    steps = len(data) - 1
    found = Measurement(data=describe(data))
    checks: list[ResultCheck] = []

    def weigh(trainer: EsdgTrainer, **where: Any) -> None:
        """Peak, plan and formula, before anything is trained: what a link has taken it keeps."""
        found.observe("memory", trainer.measure_peak(), of="peak", **where)
        for method, size in (
            ("planned", trainer.planned_bytes()), ("formula", trainer.paper_bytes())
        ):  # fmt: skip
            found.observe("estimate", size, of="memory", method=method, **where)

    with ExitStack() as stack:
        opened: dict[str, EsdgTrainer] = {}
        ways: dict[str, dict[str, Any]] = {}
        for n in (n for n in BLOCKS[context.preset] if n <= steps):
            for setting, switches in (("paper", {}), ("ours", ADDITIONS)):
                trainer = _open(task, data, context, switches, nb=n)
                stack.callback(trainer.close)
                name = f"{setting} {n}"
                opened[name], ways[name] = trainer, {"setting": setting, "blocks": n}
        before = {}
        if oracle is not None:  # bytes of tensors are the same in every process
            for name, trainer in opened.items():
                weigh(trainer, **ways[name])
            layout = _open(task, data, context, {"paper_layout": True}, nb=1)
            weigh(layout, setting="layout")
            checks += oracle.checks({"layout": TimelineResult.of(layout, oracle.request)}, "")
            layout.close()
            before = oracle.first_results(opened)
        budget_s = context.budget_s / turn_rounds(context.preset)
        again = _open(task, data, context, {}, nb=1)
        stack.callback(again.close)
        turns = turns_of({**opened, AGAIN: again}, TURNS[context.preset], budget_s)
        seconds, sent = turns.seconds, turns.sent
        observe_control(found, seconds["paper 1"], seconds.pop(AGAIN), setting="paper")
        wanted = Measurement()
        for name, trainer in opened.items():
            came = trainer.meter.counters
            brought = came["snapshots_plain"] + came["snapshots_difference"]
            brought //= len(seconds[name])
            _observe_traffic(found, {"brought": brought, "bytes": sent[name]}, **ways[name])
        if oracle is not None:
            checks += oracle.checks_of(opened, before)
        else:
            checks += later_checks(task, data, opened, context.device)
        checks += audited(turns, task, context, data)
        for name, trainer in opened.items():
            count = len(trainer.blocks)
            traffic = epoch_traffic(data, task.model, task.window, trainer.on, count)
            _observe_traffic(wanted, traffic, **ways[name])
    checks.append(agree(found, wanted, against="arrays of the snapshots"))
    for name, times in seconds.items():
        setting, blocks = ways[name].values()
        found.observe("epoch_time", median(times), **ways[name])
        if blocks > 1:  # how much longer it takes than in one block
            one = seconds[f"{setting} 1"]
            observe_speedup(found, times, one, baseline=setting, blocks=blocks)
    found.observe("epoch_time", median(seconds["ours 1"]), samples=seconds["ours 1"])
    found.observe("snapshots", steps)
    found.observe("turns", len(seconds["ours 1"]))
    if oracle is not None:
        found.deviation = {"output": largest_gap(checks, "outputs", "gradients")}
    found.checks = summarised(checks)
    return found


def _observe_traffic(found: Measurement, traffic: Mapping[str, int], **where: Any) -> None:
    """Matrices and bytes that an epoch brings, see `epoch_traffic`."""
    found.observe("snapshots", traffic["brought"], of="brought", **where)
    found.observe("host_to_device", traffic["bytes"], **where)


def _budgets(task: TimelineWorkload, context: RunContext) -> Measurement:
    """Observe the number of blocks planned for each budget, and if the budget is kept."""
    data = load_timeline(task)
    steps = len(data) - 1
    whole = _open(task, data, context, ADDITIONS, nb=1)
    needs = {n: whole.bytes_with(n) for n in range(1, steps + 1)}
    whole.close()
    most, least = needs[1], min(needs.values())
    oracle = TimelineOracle(task, data, device=context.device)
    checks: list[ResultCheck] = []
    before: dict[str, TimelineResult] = {}
    after: dict[str, TimelineResult] = {}
    losses: dict[str, list[float]] = {}
    found = Measurement(data=describe(data))
    found.observe("snapshots", steps)
    found.observe("memory", int(most), of="whole")
    found.observe("memory", int(least), of="least")
    for share in SHARES:
        budget = int(least + share * (most - least))
        trainer = _open(task, data, context, ADDITIONS, memory_bytes=budget)
        blocks = len(trainer.blocks)
        sizes_of = {
            "budget": budget,
            "peak": trainer.measure_peak(),
            "planned": int(trainer.planned_bytes()),
        }
        if blocks > 1:
            sizes_of["fewer"] = int(trainer.bytes_with(blocks - 1))
        for of, count in sizes_of.items():
            found.observe("memory", count, of=of, budget_share=share)
        found.observe("timeline_blocks", blocks, budget_share=share)
        for of in ("prefetching", "interleaving"):
            found.observe("switches", int(getattr(trainer, of)), of=of, budget_share=share)
        found.notes += [note for note in trainer.notes if note not in found.notes]
        name = f"{share:g}"
        with comparing():
            before[name] = TimelineResult.of(trainer, oracle.request)
            trainer.train_epoch()
            trainer.train_epoch()
            losses[name] = list(trainer.losses)
            # The parameters of one serve all, and so does a single result of the oracle.
            state = after[next(iter(after))].state if after else trainer.state()
            after[name] = TimelineResult.of(trainer, oracle.request, state)
        # One of the numbers of blocks that fit, and the first of them.
        fits = [n for n, need in needs.items() if need <= budget]
        wanted = {"blocks": fits[0], "steps": sum(len(block) for block in trainer.blocks)}
        own = {"blocks": blocks, "steps": steps}
        checks.append(equal("counters", own, wanted, against="all numbers of blocks"))
        trainer.close()
    checks += oracle.trained_checks(before, after, losses)
    found.deviation = {"output": largest_gap(checks, "outputs", "gradients")}
    found.checks = summarised(checks)
    return found


def sizes(model_name: str) -> Measurement:
    """Bytes on each of P devices at the sizes of Table 1, by each way to count them (`COSTS`).

    Memory is that of the `whole` timeline without checkpoint, and that of the `best` number of
    blocks; `fewest` blocks are the smallest number that fits into 32 GiB, 0 where none does.
    """
    found = Measurement()
    for graph in GRAPHS:
        model = build_model(
            model_name, feature_dim=2, hidden_dim=6, task="link", window=graph.window
        )
        n, t = graph.printed["N"], graph.printed["T"]
        entries = graph.printed[SPARSE[model_name]]
        for method in COSTS:
            cost = cost_of(method, model)
            for ranks in RANKS:
                where = {"method": method, "dataset": graph.name, "ranks": ranks}
                whole = need(cost, model, n, t, entries, 1, ranks, checkpoint=False)
                needs = {nb: need(cost, model, n, t, entries, nb, ranks) for nb in range(1, t + 1)}
                best = min(needs, key=lambda nb: (needs[nb], nb))
                fitting = [nb for nb, count in needs.items() if count <= DEVICE_BYTES]
                found.observe("memory", int(whole), of="whole", **where)
                found.observe("memory", int(needs[best]), of="best", **where)
                found.observe("timeline_blocks", best, of="best", **where)
                found.observe("timeline_blocks", min(fitting, default=0), of="fewest", **where)
    found.checks = _size_checks(model_name, found)
    return found


def _size_checks(model: str, own: Measurement) -> list[ResultCheck]:
    """Bytes by the paper's figures again, from widths of real tensors.

    What this implementation and torch hold has no such formula: their plans are compared with
    peaks that are measured on a small graph.
    """
    numbers, gaps, fitting = Measurement(), [], {}
    for graph in GRAPHS:
        n, t = graph.printed["N"], graph.printed["T"]
        widths = Widths.of(model, window=graph.window)
        step = 20 * graph.printed[SPARSE[model]] / t + 4 * n * widths.activations
        for ranks in RANKS:
            where = {"method": "formula", "dataset": graph.name, "ranks": ranks}
            needs = []
            for blocks in range(1, t + 1):
                longest = math.ceil(math.ceil(t / blocks) / ranks)
                needs.append(longest * step + blocks * 4 * n * widths.border / ranks)
            for of, value in (("whole", math.ceil(t / ranks) * step), ("best", min(needs))):
                gaps.append(abs(number(own, "memory", of=of, **where) - value))
            fits = [b for b, need in enumerate(needs, 1) if need <= 32 * 2**30]
            best = needs.index(min(needs)) + 1
            numbers.observe("timeline_blocks", best, of="best", **where)
            numbers.observe("timeline_blocks", fits[0] if fits else 0, of="fewest", **where)
            for cost in COSTS:
                here = {**where, "method": cost}
                # Some number of blocks fits exactly where the best one does.
                fitting[f"{cost} {graph.name} {ranks}"] = (
                    number(own, "memory", of="best", **here) <= 32 * 2**30
                ) == (number(own, "timeline_blocks", of="fewest", **here) > 0)
    yes = dict.fromkeys(fitting, True)
    return [
        # Bytes are cut to whole numbers.
        at_most("bytes", max(gaps), 1.01, against="widths of tensors", compared=len(gaps)),
        agree(own, numbers, against="widths of tensors"),
        equal("counters", fitting, yes, against="limit of the device"),
        *_peak_checks(model),
    ]


def _peak_checks(model: str) -> list[ResultCheck]:
    """Planned bytes of both implementations against the tensors of a small random graph."""
    task = TimelineWorkload(
        dataset=DATASET, model=model, smoothing="edge_life", edge_life=SMALL[2], window=SMALL[2]
    )
    data = smooth(random_graphs(SMALL[0], steps=SMALL[1]), task)
    steps = len(data) - 1
    entries = sum(data.topology[t].nnz for t in range(steps))
    ways = {
        "ours": {**ADDITIONS, "interleave": True},
        "torch": {**ADDITIONS, "fused_scan": False, "paper_layout": True},
    }
    found = []
    for name, way in ways.items():
        switches = EsdgSystem().switches({**way, "prefetch": False, "arena": True})
        trainer = EsdgTrainer(task, data, switches, nb=1)
        peak, net = trainer.measure_peak(), trainer.model
        trainer.close()
        planned = need(
            cost_of(name, net), net, data.num_nodes, steps, entries, 1, 1, checkpoint=False
        )
        found.append(
            at_most("bytes", abs(planned / peak - 1), PEAK_WITHIN, against="peak of all tensors",
                    compared=1, part=name)
        )  # fmt: skip
    return found


def cost_of(name: str, model: TimelineModel) -> StepCost:
    """m_step by the paper's figures, of this implementation, or as torch alone would record it."""
    if name == "formula":
        return paper_cost(model)
    if name == "ours":
        return device_cost(model, pairs=0.2)
    return device_cost(model, fused=False, interleave=False, coordinates=True, pairs=0.2)


def need(
    cost: StepCost,
    model: TimelineModel,
    nodes: int,
    steps: int,
    entries: int,
    blocks: int,
    ranks: int,
    *,
    checkpoint: bool = True,
) -> float:
    """Bytes on the fullest of `ranks` devices; entries are spread evenly over the steps.

    In a block a rank has whole snapshots for one half of a layer and whole vertices for the other,
    1 / P of the block either way, rounded up to snapshots; borders are split by vertices.
    """
    size = -(-steps // blocks)
    mine = -(-size // ranks)
    per_step = cost.of(entries / steps, nodes)
    each = border_bytes(model, nodes)
    last = not checkpoint or blocks == 1
    around = 0.0 if last else each / max(1, nodes)
    once = cost.once(size, around, around, last=last) * nodes
    once = max(once, cost.scoring_entry * entries / steps)
    held = mine * per_step + cost.working_entry * entries / steps
    return held + (once + (blocks * each if checkpoint else 0)) / ranks


def least_ranks(row: Any, method: str, of: str) -> dict[str, int | None]:
    """The fewest ranks (of `RANKS`) that hold each graph `whole` or in blocks (`best`)."""
    found = Table.of([row]).where("memory", method=method, of=of).numbers("dataset", "ranks")
    return {
        graph.title: next((p for p in RANKS if found[graph.name, p] <= DEVICE_BYTES), None)
        for graph in GRAPHS
    }


def peak(row: Any, setting: str, blocks: int) -> int:
    """Bytes of all tensors at their peak."""
    return number(row, "memory", of="peak", setting=setting, blocks=blocks)


def size_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Bytes per device without checkpoint by the number of devices, one panel per reading."""
    points = []
    for row in rows_of(rows, experiment="memory", part="sizes"):
        found = Table.of([row]).where("memory", of="whole").numbers("method", "dataset", "ranks")
        points += [
            {
                "series": graph.title,
                "panel": f"{MODEL_TITLES[row.params['model']]}, {COST_TITLES[cost]}",
                "x": ranks,
                "y": found[cost, graph.name, ranks],
                "counted": True,
                "row_ids": [row.id],
            }
            for cost in COSTS
            if cost != "torch" or row.params["model"] == "cd_gcn"
            for graph in GRAPHS
            for ranks in RANKS
        ]
    return points
