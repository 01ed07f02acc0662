"""Section 6.5: snapshots that exceed a rank, and ranks in groups that share them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dgbench.lab import rules
from dgbench.lab.figure_forms import Sweep
from dgbench.lab.quantities import observed
from dgbench.lab.ranks import devices_lacking
from dgbench.lab.result_checks import ResultCheck
from dgbench.lab.study import FormExperiment
from dgbench.runtime.collectives import Communicator
from dgbench.runtime.errors import CheckFailed
from dgbench.runtime.ranks import launch
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.base.timeline import TimelineTask, TimelineWorkload, load_timeline
from dgbench.systems.esdg.experiments.rank_turns import take_rank_turns
from dgbench.systems.esdg.experiments.recount import agree
from dgbench.systems.esdg.experiments.settings import BY_NAME, FORMS, workload
from dgbench.systems.esdg.experiments.table2_runs import CUTS, SAMPLES
from dgbench.systems.esdg.hybrid_plan import least_group, most_bytes, parts_of, row_blocks
from dgbench.systems.esdg.oracle import ResultRequest, TimelineOracle, TimelineResult, largest_gap
from dgbench.systems.esdg.partition import block_ranges
from dgbench.systems.esdg.partition_trainer import SnapshotRankTrainer
from dgbench.systems.esdg.vertex_plan import needs
from dgbench.systems.esdg.volumes import hybrid_floats, timeline

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


PAPERS_GRAPH = rules.not_measurable(
    "needs the paper's graph, which was not published, nor the settings of its generator; the "
    "experiment 'sec65' trains a smaller graph so"
)
BY_GROUP = {"part": "groups", "per": ("ranks", "group_size")}
STYLE = {
    "series": "{ranks} ranks", "x": "group_size", "gaps": {"x": 1},
    "xlabel": "ranks that share a snapshot", "base": 2, "ylog": False,
}  # fmt: skip


class Sec65(FormExperiment):
    forms, name = FORMS, "sec65"
    group = "{part}"
    timeout_s = {"full": 1200, "paper": 1200, None: 60}
    headline, unit = 100 * observed("accuracy", part="split"), "%"
    figure_forms = (
        Sweep(
            "sec65", "Floats per vertex and step, by size of a group",
            observed("floats", **BY_GROUP) / observed("vertices", part="groups", of="steps"),
            **STYLE, ylabel="floats per vertex-step",
        ),
        Sweep(
            "sec65_time", "Time of an epoch, by size of a group",
            observed("epoch_time", **BY_GROUP), **STYLE, ylabel="seconds",
        ),
    )  # fmt: skip
    claims = dict.fromkeys(("esdg-s65-large-1", "esdg-s65-large-2"), PAPERS_GRAPH)

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        return [
            self.cell(
                {"part": part, "dataset": SAMPLES[0], "model": MODEL, "ranks": ranks}, preset,
                unavailable=devices_lacking(ranks, device),
            )
            for part, ranks in (("split", 2), ("groups", RANKS))
        ]  # fmt: skip

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
    found = Measurement(data=describe(data), checks=checks)
    found.observe("accuracy", accuracy)
    found.deviation = {"output": largest_gap(checks, "outputs", "gradients")}
    found.notes = [f"{ranks} processes; the budget is of a snapshot's matrix"]
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
        sent = traffic.total("floats", operation="all_to_all")
        found.observe("floats", sent, group_size=int(name))
    turns.observe_times(found, "group_size", int)
    found.checks = [*checks, _volume_check(task, data, ranks, found)]
    found.deviation = {"output": largest_gap(checks, "outputs", "gradients")}
    return found


def _volume_check(
    task: TimelineWorkload, data: SnapshotSequence, ranks: int, own: Measurement
) -> ResultCheck:
    """Floats of every group size against closed forms."""
    todo, net = TimelineTask(data, task), timeline(task.model, window=task.window)
    steps, nodes = [data.topology[t] for t in range(todo.steps)], data.num_nodes
    wanted = Measurement()
    for group in GROUPS:
        parts = parts_of(row_blocks(steps, nodes, group, BALANCE))
        ends = [todo.pairs(t)[0] for t in range(todo.steps)]
        pairs = sum(needs(target, source, parts).shape[1] for source, target in ends)
        blocks = block_ranges(todo.steps, 1)
        sent = hybrid_floats(net, steps, nodes, blocks, ranks, group, remote_pairs=pairs)
        wanted.observe("floats", sent, group_size=group)
    return agree(own, wanted, against="closed forms")
