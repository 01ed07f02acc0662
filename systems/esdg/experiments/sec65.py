"""Section 6.5: snapshots that exceed a rank, and ranks in groups that share them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

import torch

from dgbench.kernels_cuda.csr import Csr
from dgbench.lab.charts import sweep
from dgbench.lab.ranks import devices_lacking
from dgbench.lab.result_checks import ResultCheck
from dgbench.lab.table import Table, number, rows_of
from dgbench.runtime.collectives import Communicator
from dgbench.runtime.errors import CheckFailed
from dgbench.runtime.ranks import launch
from dgbench.systems.base import Cell, Experiment, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.base.timeline import (
    PlainTimeline,
    TimelineTask,
    TimelineWorkload,
    load_timeline,
)
from dgbench.systems.esdg.experiments.rank_turns import take_rank_turns
from dgbench.systems.esdg.experiments.recount import (
    OVER_PAIRS,
    Widths,
    agree,
    parted,
    remote_ends,
    remote_readers,
)
from dgbench.systems.esdg.experiments.settings import BY_NAME, workload
from dgbench.systems.esdg.experiments.table2_runs import CUTS, SAMPLES
from dgbench.systems.esdg.hybrid_plan import least_group, most_bytes, row_blocks
from dgbench.systems.esdg.oracle import (
    ResultRequest,
    TimelineOracle,
    TimelineResult,
    largest_gap,
)
from dgbench.systems.esdg.partition_trainer import SnapshotRankTrainer

if TYPE_CHECKING:
    from dgbench.datasets import SnapshotSequence

MODEL: Final = "tm_gcn"
"""The model that the paper trains so."""

BALANCE: Final = "rows"
LR: Final = 0.05
BUDGET_SHARE: Final = 0.75
"""Of the bytes of the largest snapshot's matrix: a rank's memory for one."""

GROUPS: Final = (1, 2, 4)
RANKS: Final = 4

EPOCHS: Final = {"smoke": 2, "quick": 10, "full": 100, "paper": 200}
KEPT: Final = {"smoke": 3, "quick": 4, "full": 9, "paper": None}
TURNS: Final = {"smoke": 2, "quick": 5, "full": 20, "paper": 30}
BUDGETS_S: Final = {"smoke": 0.1, "quick": 0.3, "full": 10.0, "paper": 30.0}


class Sec65(Experiment):
    paper = "esdg"
    sources: ClassVar = {"relative_error": "learned"}
    name = "sec65"
    title = "Section 6.5: splitting a snapshot"
    question = "Can ranks share a snapshot that one of them cannot hold, and what does it cost?"
    reading = (
        "The paper's two large graphs were not published, nor how they were generated. Here a rank "
        "gets three quarters of the memory that the largest snapshot of the generator's small run "
        "takes, so that two must share it. Rows of a snapshot are split inside a group, snapshots "
        "between groups. Accuracy is that of this small graph, on edges that the loss does not "
        "score; it is not the paper's number."
    )
    claims = ("esdg-s65-large-1", "esdg-s65-large-2")

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        limit = 1200 if preset in ("full", "paper") else 60
        return [
            self.cell_of(
                {"part": part, "dataset": SAMPLES[0], "model": MODEL, "ranks": ranks},
                part,
                timeout_s=limit,
                unavailable=devices_lacking(ranks, device),
            )
            for part, ranks in (("split", 2), ("groups", RANKS))
        ]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        task = workload(
            BY_NAME[str(cell.params["dataset"])],
            str(cell.params["model"]),
            context.preset,
            **{**CUTS["dense"], "snapshots": KEPT[context.preset], "lr": LR},
        )
        ranks = int(cell.params["ranks"])  # type: ignore[arg-type]
        if cell.params["part"] == "split":
            return _split(task, ranks, context, cell.timeout_s)
        return _groups(task, ranks, context, cell.timeout_s)

    def figures(self) -> list[FigureSpec]:
        options = {"xlabel": "ranks that share a snapshot", "base": 2, "ylog": False}
        return [
            sweep("sec65", "Floats per vertex and step, by size of a group", volume_points,
                **options, ylabel="floats per vertex-step"),
            sweep("sec65_time", "Time of an epoch, by size of a group", time_points, **options,
                ylabel="seconds"),
        ]  # fmt: skip

    def answer(self, rows: Sequence[Any]) -> str:
        found = rows_of(rows, experiment="sec65", part="split")
        if not found:
            return ""
        row = found[0]
        largest, budget = (number(row, "memory", of=of) for of in ("largest", "budget"))
        return (
            f"A snapshot of {largest / 1e6:.2g} MB, more than the {budget / 1e6:.2g} MB of one "
            f"rank, is trained on by two, equal to one process up to "
            f"{row.deviation['output']:.1e}; accuracy {number(row, 'accuracy'):.0%} after "
            f"{number(row, 'epochs')} epochs on this small graph."
        )


def _split(
    task: TimelineWorkload, ranks: int, context: RunContext, timeout_s: float
) -> Measurement:
    """A snapshot that one rank may not hold and two may, trained on by a group of two."""
    data = load_timeline(task)
    steps = [data.topology[t] for t in range(len(data) - 1)]
    whole = most_bytes(steps, row_blocks(steps, data.num_nodes, 1, BALANCE))
    budget = int(BUDGET_SHARE * whole)
    group = least_group(steps, data.num_nodes, ranks, budget, BALANCE)
    if group < 2:
        raise CheckFailed(f"{whole} bytes fit into a budget of {budget}: nothing has to be split")
    oracle = TimelineOracle(task, data, device=context.device)
    epochs = EPOCHS[context.preset]
    losses, accuracy, before, after = launch(
        _train,
        ranks,
        (task, data, group, epochs, oracle.request),
        timeout_s=timeout_s,
        device=context.device,
        threads=1,
        seed=task.seed,
    )[0]
    checks = oracle.trained_checks({"": before}, {"": after}, {"": losses})
    plain = PlainTimeline(task, data)
    wanted = [plain.train_epoch() for _ in range(epochs)]
    gaps = [abs(a - b) / abs(b) for a, b in zip(losses, wanted, strict=True)]
    parts = most_bytes(steps, row_blocks(steps, data.num_nodes, group, BALANCE))
    found = _sizes(whole, parts, budget, sum(csr.nnz for csr in steps))
    checks.append(_bytes_check(steps, group, found))
    found.observe("epochs", epochs)
    found.observe("processes", group, of="group")
    found.observe("accuracy", accuracy)
    found.observe("loss", losses[-1])
    found.observe("relative_error", max(gaps), of="losses", statistic="largest")
    found.deviation = {"output": largest_gap(checks, "outputs", "gradients")}
    found.data = describe(data)
    found.notes = [f"{ranks} processes; the budget is of a snapshot's matrix"]
    found.checks = checks
    return found


def _sizes(largest: int, part: int, budget: int, edges: int) -> Measurement:
    """Bytes of the largest snapshot, of its largest part and of the budget; edges of all."""
    found = Measurement()
    for of, count in (("largest", largest), ("part", part), ("budget", budget)):
        found.observe("memory", count, of=of)
    found.observe("edges", edges)
    return found


def _train(
    comm: Communicator,
    task: TimelineWorkload,
    data: SnapshotSequence,
    group: int,
    epochs: int,
    request: ResultRequest,
) -> tuple[list[float], float, TimelineResult, TimelineResult]:
    """Be one rank: losses, accuracy at the end, and results before and after training."""
    trainer = SnapshotRankTrainer(comm, task, data, partition="hybrid", group=group)
    before = TimelineResult.of(trainer, request)
    losses = [trainer.train_epoch() for _ in range(epochs)]
    return losses, trainer.accuracy(), before, TimelineResult.of(trainer, request)


def _groups(
    task: TimelineWorkload, ranks: int, context: RunContext, timeout_s: float
) -> Measurement:
    """Groups of every size in turns on the same processes."""
    data = load_timeline(task)
    oracle = TimelineOracle(task, data, device=context.device)
    turns = take_rank_turns(
        task,
        data,
        ranks,
        {str(group): {"partition": "hybrid", "group": group} for group in GROUPS},
        least=TURNS[context.preset],
        budget_s=BUDGETS_S[context.preset],
        timeout_s=timeout_s,
        device=context.device,
        request=oracle.request,
    )
    checks = turns.checks(oracle)
    found = Measurement(data=describe(data), notes=[f"{ranks} processes over {turns.carrier}"])
    found.observe("vertices", (len(data) - 1) * data.num_nodes, of="steps")
    for name, traffic in turns.traffic.items():
        for metric in ("floats", "messages"):
            count = traffic.total(metric, operation="all_to_all")
            found.observe(metric, count, group_size=int(name))
    turns.observe_times(found, "group_size", int)
    found.checks = [*checks, _volume_check(task, data, ranks, found)]
    found.deviation = {"output": largest_gap(checks, "outputs", "gradients")}
    return found


def _bytes_check(steps: Sequence[Csr], group: int, own: Measurement) -> ResultCheck:
    """Bytes of the largest snapshot and of its largest part, from the arrays that hold them."""
    nodes = steps[0].num_rows

    def held(csr: Csr, rows: Sequence[int]) -> int:
        first, last = int(csr.indptr[rows[0]]), int(csr.indptr[rows[-1] + 1])
        arrays = [csr.indptr[rows[0] : rows[-1] + 2], csr.indices[first:last]]
        arrays += [] if csr.values is None else [csr.values[first:last]]
        return sum(array.numpy().nbytes for array in arrays)

    most = {
        parts: max(held(csr, rows) for csr in steps for rows in parted(range(nodes), parts))
        for parts in (1, group)
    }
    edges = sum(csr.indices.numel() for csr in steps)
    wanted = _sizes(most[1], most[group], 3 * most[1] // 4, edges)
    return agree(own, wanted, against="arrays of parts")


def _volume_check(
    task: TimelineWorkload, data: SnapshotSequence, ranks: int, own: Measurement
) -> ResultCheck:
    """Floats of every group size, pair by pair of ranks and edge by edge inside the groups."""
    todo = TimelineTask(data, task)
    steps = [data.topology[t] for t in range(todo.steps)]
    nodes, dims = data.num_nodes, Widths.of(task.model, window=task.window).redistributed
    wanted = Measurement()
    wanted.observe("vertices", len(steps) * nodes, of="steps")
    for group in GROUPS:
        rows = [set(part) for part in parted(range(nodes), group)]
        owned = [set(part) for part in parted(range(nodes), ranks)]
        held = parted(range(len(steps)), ranks // group)
        # A rank has some rows of its group's snapshots, and all steps of its vertices.
        stay = sum(
            len(held[rank // group]) * len(rows[rank % group] & owned[rank])
            for rank in range(ranks)
        )
        moved = 3 * sum(map(sum, dims)) * (len(steps) * nodes - stay)
        owner = torch.cat([torch.full((len(part),), i) for i, part in enumerate(rows)])
        ends = remote_ends((todo.pairs(t)[0] for t in range(todo.steps)), owner, group)
        sent = moved + 18 * remote_readers(steps, owner, group) + 12 * ends
        wanted.observe("floats", sent, group_size=group)
    return agree(own, wanted, against=OVER_PAIRS)


def _by_group(rows: Sequence[Any], metric: str) -> Table:
    return Table.of(rows, experiment="sec65", part="groups").where(metric)


def volume_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Counted floats of an epoch by size of a group."""
    return [
        {
            "series": f"{one['ranks']} ranks",
            "x": one["group_size"],
            "y": one.value / number(one.row, "vertices", of="steps"),
            "counted": True,
            "row_ids": [one.row.id],
        }
        for one in _by_group(rows, "floats")
    ]


def time_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Median epoch by size of a group."""
    return [
        {
            "series": f"{one['ranks']} ranks",
            "x": one["group_size"],
            "y": one.value,
            "row_ids": [one.row.id],
        }
        for one in _by_group(rows, "epoch_time")
    ]
