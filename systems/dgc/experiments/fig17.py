"""Figure 17: what partition and fusion cost beside training (section 7.5)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from statistics import fmean, median
from typing import Any, ClassVar, Final

import torch

from dgbench.lab import rule_combinations as combine
from dgbench.lab import rules
from dgbench.lab.estimates import EvaluationContext
from dgbench.lab.figure_forms import Sweep
from dgbench.lab.printed import ledger
from dgbench.lab.quantities import observed, of_rows
from dgbench.lab.result_checks import ResultCheck, equal, summarised
from dgbench.lab.study import FormExperiment
from dgbench.lab.table import Entry
from dgbench.runtime.collectives import LocalCommunicator
from dgbench.runtime.threads import one_thread
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.base.sequences import load_sequences
from dgbench.systems.dgc.dealing import deal, open_trainer
from dgbench.systems.dgc.experiments.partition import weighted
from dgbench.systems.dgc.experiments.race_runs import kept
from dgbench.systems.dgc.experiments.settings import (
    BY_NAME,
    FORMS,
    GRAPHS,
    HELD,
    LEDGER,
    papers_first,
    with_stand_ins,
    workload,
)
from dgbench.systems.dgc.partition import PAPER, ChunkSettings, partition_chunks, vertices_and_edges
from dgbench.systems.dgc.plan import WorkerPlan, plan_worker, step_entries
from dgbench.systems.dgc.recount import EdgeRecount, counted
from dgbench.systems.dgc.sequence_oracle import SequenceOracle
from dgbench.systems.dgc.settings_run import ChunkRankSettings

NAME: Final = "fig17"
MODEL: Final = "tgcn_2layer"
WORKERS: Final = 8
EPOCHS: Final = 100
"""Epochs of a training job (section 7.1)."""

PARTS: Final = ("generation", "assignment", "refinement", "fusion")
"""Parts of the time before training; refinement is what dgbench adds."""
NAMES: Final[dict[Preset, tuple[str, ...]]] = {
    "smoke": ("amazon",),
    # A twin decides nothing of these claims, so that real graphs go first.
    "quick": ("sx-mathoverflow", "amazon-magazine", "wikipedia"),
    "full": tuple(graph.name for graph in (*HELD, *GRAPHS)),
    "paper": tuple(graph.name for graph in (*GRAPHS, *HELD)),
}
TIMED: Final = {"smoke": 2, "quick": 3, "full": 7, "paper": 7}
"""Epochs that are timed, after one that is not."""

FAR_BELOW: Final = 10.0
"""Percent of the training time below which a cost is far below it."""
SECONDS: Final = {part: observed("preparation_time", per="dataset", phase=part) for part in PARTS}
PARTITION: Final = SECONDS["generation"] + SECONDS["assignment"]
JOB: Final = EPOCHS * observed("epoch_time", per="dataset") + PARTITION + SECONDS["fusion"]
"""Seconds of a training job: all epochs and what the paper spends before them."""
SHARE: Final = 100 * (PARTITION + SECONDS["fusion"]) / JOB
PERCENT: Final = {
    **{part: 100 * of / JOB for part, of in SECONDS.items()},
    "refinement": 100 * SECONDS["refinement"] / (JOB + SECONDS["refinement"]),
}
"""Percent of a training job; of refinement with itself among it."""


def beside_others(entries: list[Entry], context: EvaluationContext) -> list[Entry]:
    """Filter: all entries where Amazon, or a graph of its site, stands beside two others."""
    graphs = {one["dataset"] for one in entries}
    return entries if len(graphs) > 2 and with_stand_ins("amazon")(entries, context) else []


def amazon_over(part: str, join: Any) -> Any:
    """Seconds of a part on Amazon, or a graph of its site, over those of all graphs."""
    every = SECONDS[part].keep(papers_first, beside_others)
    return every.keep(with_stand_ins("amazon")).over(every.joined_over(join, "dataset"))


class Fig17(FormExperiment):
    forms, name = FORMS, NAME
    device = "cpu"
    headline, unit = SHARE, "%"
    figure_forms = (
        Sweep(
            NAME, "Partition and fusion, % of 100 epochs of training (Figure 17)",
            {
                **PERCENT,
                "together": SHARE,
                "Figure 17, about": of_rows(
                    lambda row: float(ledger(LEDGER)["fig17-overhead"]),
                    dataset=tuple(graph.name for graph in GRAPHS),
                ),
            },
            series="of", x="{dataset}", gaps={"series": "together"},
            more=lambda _, dims, one: {"paper": True} if dims["of"] == "Figure 17, about" else {},
            xlabel="graph", ylabel="% of training",
        ),
    )  # fmt: skip
    claims = {
        "dgc-fig17-overhead": rules.near_claim(SHARE.keep(papers_first).mean_over("dataset")),
        "dgc-fig17-amazon-gen": combine.both(
            rules.at_most(amazon_over("generation", min), 1.0, unit="x"),
            rules.all_above(amazon_over("assignment", fmean), 1.0, unit="x"),
        ),
        "dgc-fig17-fusion-larger": combine.both(
            rules.all_above((SECONDS["fusion"] - PARTITION).keep(papers_first), 0.0, unit="s"),
            rules.all_below(PERCENT["fusion"].keep(papers_first), FAR_BELOW, unit="%"),
        ),
        "dgc-s75-partition-once": combine.both(
            rules.all_equal(observed("partitions", per="dataset"), 1),
            rules.all_above(observed("epochs", per="dataset"), 1),
        ),
    }

    axes: ClassVar = {"dataset": NAMES}
    fixed: ClassVar = {"model": MODEL}
    timeout_s: ClassVar = {"full": 1800, "paper": 1800, None: 60}

    @one_thread()
    def run(self, cell: Cell, context: RunContext) -> Measurement:
        """Measure processor seconds of each part and of an epoch in one process."""
        dataset = str(cell.params["dataset"])
        fewer = {"snapshots": kept(dataset, "quick")} if context.preset == "quick" else {}
        task = workload(BY_NAME[dataset], MODEL, context.preset, **fewer)
        data = load_sequences(task)
        seconds = {}
        begin = time.process_time()
        graph, shape = weighted(data, task)
        supergraph_s = time.process_time() - begin
        begin = time.process_time()
        made = partition_chunks(
            graph, shape.counts(), WORKERS, PAPER, vertices_and_edges, threads=1
        )
        whole = time.process_time() - begin
        begin = time.process_time()
        partition_chunks(
            graph, shape.counts(), WORKERS, ChunkSettings(), vertices_and_edges, threads=1
        )
        seconds["refinement"] = max(0.0, time.process_time() - begin - whole)
        # Parts are told by the clock of the wall; their shares divide the processor's time.
        wall = sum(made.seconds.values()) or 1.0
        parts = {name: whole * taken / wall for name, taken in made.seconds.items()}
        seconds["generation"] = supergraph_s + parts["supergraph"] + parts["generation"]
        seconds["assignment"] = parts["assignment"]
        entries = step_entries(data, graph, task.norm)
        begin = time.process_time()
        plans = [
            plan_worker(
                data, graph, made.placement, rank, attention=shape.attention, fusion="spatial",
                temporal="packed", entries=entries,
            )
            for rank in range(WORKERS)
        ]  # fmt: skip
        seconds["fusion"] = time.process_time() - begin
        oracle = SequenceOracle(task, data)
        taken, gap = [], 0.0
        with counted_partitions() as partitions:
            # One worker gets all whatever work is, so nothing is measured for it.
            settings = ChunkRankSettings(chunks=replace(PAPER, workload="vertices"))
            dealt = deal(task, data, 1, settings)
            trainer = open_trainer(LocalCommunicator(), task, data, dealt, settings)
            for number in range(TIMED[context.preset] + 1):
                begin = time.process_time()
                loss = float(trainer.train_epoch())
                taken.append(time.process_time() - begin)
                if number == 0:
                    gap = abs(loss / oracle.losses[0] - 1)
            checks = oracle.check_used({"DGC": trainer})
        found = Measurement(warmup=1, deviation={"loss": gap}, data=describe(data))
        for part, spent in seconds.items():
            found.observe("preparation_time", spent, phase=part)
        found.observe("epoch_time", median(taken[1:]), samples=taken[1:])
        found.observe("partitions", len(partitions))
        found.observe("epochs", len(taken))
        edges = EdgeRecount(data)
        checks += [
            counted({"partitions": len(partitions), "epochs": len(taken)},
                    {"partitions": 1, "epochs": TIMED[context.preset] + 1}),
            edges.vertex_steps(graph),
            edges.partition(made.placement),
            planned_once(plans, graph.num_vertices),
        ]  # fmt: skip
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
