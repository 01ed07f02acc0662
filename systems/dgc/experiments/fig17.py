"""Figure 17: what partition and fusion cost beside training (section 7.5)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import torch

from dgbench.lab.charts import failed, failures, mark, sweep
from dgbench.lab.compare import select
from dgbench.lab.evidence import some
from dgbench.lab.grid import Grid
from dgbench.lab.printed import ledger
from dgbench.lab.result_checks import ResultCheck, equal, summarised
from dgbench.lab.table import Table, number
from dgbench.runtime.threads import one_thread
from dgbench.systems.base import Cell, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.dgc.experiments.race_runs import kept
from dgbench.systems.dgc.experiments.settings import BY_NAME, GRAPHS, HELD, LEDGER, panel, workload
from dgbench.systems.dgc.partition import PAPER, ChunkSettings
from dgbench.systems.dgc.recount import EdgeRecount, recounted
from dgbench.systems.dgc.sequence_oracle import SequenceOracle

if TYPE_CHECKING:
    from dgbench.systems.dgc.plan import WorkerPlan

NAME: Final = "fig17"
MODEL: Final = "tgcn_2layer"
WORKERS: Final = 8
EPOCHS: Final = 100
"""Epochs of a training job (section 7.1)."""

PARTITIONING: Final = ("generation", "assignment")
PUBLISHED: Final = (*PARTITIONING, "fusion")
"""Parts of the time before training, as published."""
PARTS: Final = (*PARTITIONING, "refinement", "fusion")
"""The same with the refinement that dgbench adds."""
NAMES: Final[dict[Preset, tuple[str, ...]]] = {
    "smoke": ("amazon",),
    # A twin decides nothing of these claims, so that real graphs go first.
    "quick": ("sx-mathoverflow", "amazon-magazine", "wikipedia"),
    "full": tuple(graph.name for graph in (*HELD, *GRAPHS)),
    "paper": tuple(graph.name for graph in (*GRAPHS, *HELD)),
}
TIMED: Final = {"smoke": 2, "quick": 3, "full": 7, "paper": 7}
"""Epochs that are timed, after one that is not."""

Rows = Sequence[Any]


class Fig17(Grid):
    paper = "dgc"
    name = NAME
    title = "Figure 17: cost of partition and fusion"
    claims = (
        "dgc-fig17-overhead",
        "dgc-fig17-amazon-gen",
        "dgc-fig17-fusion-larger",
        "dgc-s75-partition-once",
    )
    device = "cpu"
    question = "How long do partition and fusion take beside 100 epochs of training?"
    reading = (
        "T-GCN's model, chunks for 8 workers; every part is processor time of one core, and so is "
        "an epoch of the whole graph in one process, which stands for the work of all workers "
        "together. Supergraph and chunks are generation, workload and Algorithm 1 assignment, our "
        "refinement is shown for itself. Fusion is what every worker does before its first epoch: "
        "fused groups, packed rows and their lists. The paper does not say whether its partition "
        "runs on a CPU, and its epochs run on 8 GPUs."
    )

    axes: ClassVar = {"dataset": NAMES}
    fixed: ClassVar = {"model": MODEL}
    timeout_s: ClassVar = {"full": 1800, "paper": 1800, None: 60}

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        from dgbench.systems.base.sequences import load_sequences

        graph = BY_NAME[str(cell.params["dataset"])]
        fewer = {"snapshots": kept(graph.name, "quick")} if context.preset == "quick" else {}
        task = workload(graph, MODEL, context.preset, **fewer)
        data = load_sequences(task)
        with one_thread():
            return measure(task, data, TIMED[context.preset])

    def figures(self) -> list[FigureSpec]:
        return [
            sweep(NAME, "Partition and fusion, % of 100 epochs of training (Figure 17)", points,
                xlabel="graph", ylabel="% of training"),
        ]  # fmt: skip

    def answer(self, rows: Rows) -> str:
        found = overheads(rows)
        if not found:
            return ""
        shares = [100 * overhead(row) for row in found]
        graphs = some(len(found), "graph")
        return (
            f"Partition and fusion take {min(shares):.2g} to {max(shares):.2g} % of the work of "
            f"{EPOCHS} epochs, {fmean(shares):.2g} % on average over {graphs} "
            f"(paper: about {ledger(LEDGER)['fig17-overhead']} %)."
        )


def measure(task: Any, data: Any, epochs: int) -> Measurement:
    """Processor seconds of each part and of an epoch in one process.

    Args:
        task: a `SequenceWorkload`. data: its snapshots. epochs: to time.
    """
    from dgbench.runtime.collectives import LocalCommunicator
    from dgbench.systems.dgc.dealing import deal, open_trainer
    from dgbench.systems.dgc.experiments.partition_rows import weighted
    from dgbench.systems.dgc.partition import partition_chunks, vertices_and_edges
    from dgbench.systems.dgc.plan import plan_worker, step_entries
    from dgbench.systems.dgc.settings_run import ChunkRankSettings

    seconds = {}
    begin = time.process_time()
    graph, shape = weighted(data, task)
    supergraph_s = time.process_time() - begin
    begin = time.process_time()
    made = partition_chunks(graph, shape.counts(), WORKERS, PAPER, vertices_and_edges, threads=1)
    whole = time.process_time() - begin
    begin = time.process_time()
    partition_chunks(graph, shape.counts(), WORKERS, ChunkSettings(), vertices_and_edges, threads=1)
    seconds["refinement"] = max(0.0, time.process_time() - begin - whole)
    # Parts are told by the clock of the wall; their shares divide the processor's time.
    wall = sum(made.seconds.values()) or 1.0
    parts = {name: whole * taken / wall for name, taken in made.seconds.items()}
    seconds["generation"] = supergraph_s + parts["supergraph"] + parts["generation"]
    seconds["assignment"] = parts["assignment"]
    entries = step_entries(data, graph, task.norm)
    plans, made_plans = {}, []
    for kind, fusion, temporal in (("fused", "spatial", "packed"), ("plain", "none", "padded")):
        begin = time.process_time()
        of_workers = [
            plan_worker(
                data,
                graph,
                made.placement,
                rank,
                attention=shape.attention,
                fusion=fusion,
                temporal=temporal,
                entries=entries,
            )
            for rank in range(WORKERS)
        ]
        plans[kind] = time.process_time() - begin
        made_plans.append(of_workers)
    seconds["fusion"] = plans["fused"]
    oracle = SequenceOracle(task, data)
    taken, gap = [], 0.0
    with counted_partitions() as partitions:
        # One worker gets all whatever work is, so nothing is measured for it.
        settings = ChunkRankSettings(chunks=replace(PAPER, workload="vertices"))
        dealt = deal(task, data, 1, settings)
        trainer = open_trainer(LocalCommunicator(), task, data, dealt, settings)
        for number in range(epochs + 1):
            begin = time.process_time()
            loss = float(trainer.train_epoch())
            taken.append(time.process_time() - begin)
            if number == 0:
                gap = abs(loss / oracle.losses[0] - 1)
        checks = oracle.check_used({"DGC": trainer})
    found = Measurement(warmup=1, deviation={"loss": gap}, data=describe(data))
    for part, spent in {**seconds, "lists": plans["plain"]}.items():
        found.observe("preparation_time", spent, phase=part)
    found.observe("epoch_time", median(taken[1:]), samples=taken[1:])
    found.observe("vertex_steps", graph.num_vertices)
    found.observe("edges", int(torch.count_nonzero(graph.directions() & 1)))
    found.observe("chunks", made.count)
    found.observe("partitions", len(partitions))
    found.observe("epochs", len(taken))
    edges = EdgeRecount(data)
    wanted = edges.sizes()
    wanted.observe("chunks", int(np.unique(made.chunk).size))
    wanted.observe("partitions", 1)
    wanted.observe("epochs", epochs + 1)
    checks += [
        edges.vertex_steps(graph),
        edges.partition(made.placement),
        *recounted(found, wanted),
        *(planned_once(of_workers, graph.num_vertices) for of_workers in made_plans),
    ]
    found.checks = summarised(checks)
    return found


def planned_once(plans: Sequence[WorkerPlan], vertices: int) -> ResultCheck:
    """A check that every vertex-step is in one group and one run of sequences of one worker."""
    structure, steps = [], []
    for plan in plans:
        rows = plan.structure.rows
        structure += [rows[group.rows] for group in plan.structure.groups]
        for run in (run for stage in plan.time.stages for run in stage.groups):
            steps.append(plan.time.rows[run.steps])
    found = {
        "structure": torch.cat(structure).sort().values,
        "time": torch.cat(steps).sort().values,
    }
    every = torch.arange(vertices)
    return equal("planned rows", found, dict.fromkeys(found, every), against="all vertex-steps")


@contextmanager
def counted_partitions() -> Iterator[list[int]]:
    """Partitions by chunks that are made inside: their numbers of workers, in order."""
    from dgbench.systems.dgc import partition

    made: list[int] = []
    make = partition.partition_chunks

    def counting(graph: Any, counts: Any, workers: int, *rest: Any, **named: Any) -> Any:
        made.append(workers)
        return make(graph, counts, workers, *rest, **named)

    partition.partition_chunks = counting
    try:
        yield made
    finally:
        partition.partition_chunks = make


def overheads(rows: Rows) -> list[Any]:
    """Rows of this experiment."""
    return select(rows, experiment=NAME)


def overhead(row: Any, parts: Sequence[str] = PUBLISHED) -> float:
    """Seconds of parts over those of a training job: all epochs and what the paper spends before
    them, and our refinement where it is among the parts."""
    seconds, training = parts_of(row), EPOCHS * number(row, "epoch_time")
    job = training + sum(seconds[part] for part in {*PUBLISHED, *parts})
    return sum(seconds[part] for part in parts) / job


def parts_of(row: Any) -> dict[str, float]:
    """Seconds of each part."""
    return Table.of([row]).where("preparation_time").numbers("phase")


def points(rows: Rows) -> list[dict[str, Any]]:
    """Shares of each part, and the paper's total."""
    found: list[dict[str, Any]] = []
    for row in overheads(rows):
        common = mark(row, x=panel(row))
        for part in PARTS:
            share = 100 * overhead(row, (part,))
            if share > 0:
                found.append({**common, "series": part, "y": share})
        found.append({**common, "series": "together", "y": 100 * overhead(row)})
        if not BY_NAME[row.params["dataset"]].real:
            found.append(
                {
                    **common,
                    "series": "Figure 17, about",
                    "y": float(ledger(LEDGER)["fig17-overhead"]),
                    "paper": True,
                }
            )
    for row in failures(rows, NAME):
        title = BY_NAME[row.params["dataset"]].title
        found.append({"x": title, "series": "together", "failed": failed(row)})
    return found
