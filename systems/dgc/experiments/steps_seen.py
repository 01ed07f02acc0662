"""DySAT with attention to all steps of a sequence, as DGC says, and to those up to now alone."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any, ClassVar, Final

from msgspec import structs

from dgbench.lab.charts import failures, gap, mark, sweep
from dgbench.lab.grid import Grid
from dgbench.lab.result_checks import summarised
from dgbench.lab.table import Table, rows_of
from dgbench.runtime.threads import one_thread
from dgbench.systems.base import Cell, FigureSpec, Measurement, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.base.sequences import load_sequences
from dgbench.systems.dgc.experiments.settings import BY_NAME
from dgbench.systems.dgc.experiments.stale_base import HELD_NAMES, SEEDS
from dgbench.systems.dgc.experiments.stale_runs import EPOCHS, LAST, StaleJob, place_chunks
from dgbench.systems.dgc.sequence_oracle import SequenceOracle
from dgbench.systems.dgc.stale_workers import StaleWorkers, Workers

NAME: Final = "steps_seen"
ALL, EARLIER = "all steps", "steps up to now"
CAUSAL: Final = {ALL: False, EARLIER: True}
"""`causal` of the workload, by what a step attends to."""


class StepsSeen(Grid):
    paper = "dgc"
    name = NAME
    title = "Accuracy of DySAT with and without later steps"
    device = "cpu"
    question = "How much of DySAT's accuracy comes from steps after the one that is asked about?"
    reading = (
        "Section 7.2 has a temporal attention layer aggregate a vertex's counterparts in all "
        "snapshots and names no mask, so that every DySAT of DGC here sees later steps; the "
        "original DySAT hides them. A step is asked whether its vertex has an edge in the next "
        "snapshot, and the next step's degrees are among what attention to all steps sees. Both "
        "readings train alike, by chunks with all rows sent, with the sizes of Table 3."
    )
    axes: ClassVar = {
        "dataset": {"smoke": ("wikipedia",), None: HELD_NAMES},
        "seed": {"smoke": (1,), None: SEEDS},
    }
    presets: ClassVar = ("smoke", "full", "paper")  # it decides no claim, quick has no time
    group = "{dataset}/{seed}"
    timeout_s: ClassVar = {"smoke": 60, "paper": 18000, None: 1800}

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        job = StaleJob(
            str(cell.params["dataset"]), "dysat", (), context.preset, seed=int(cell.params["seed"])  # type: ignore[call-overload]
        )  # fmt: skip
        data = load_sequences(job.workload())
        found = Measurement(data=describe(data))
        with one_thread():
            for setting, causal in CAUSAL.items():
                task = structs.replace(job.workload(), causal=causal)
                graph, placement = place_chunks(data, task)
                workers = Workers(task, data, graph, placement, attention=True)
                trainer = StaleWorkers(workers, None)
                accuracies = []
                for epoch in range(EPOCHS[context.preset]):
                    loss = trainer.train_epoch()
                    if epoch >= EPOCHS[context.preset] - LAST:
                        accuracies.append(trainer.accuracy())
                found.observe("accuracy", fmean(accuracies), setting=setting)
                found.observe("loss", loss, setting=setting)
                found.observe("scored", trainer.hits[1], setting=setting)
                oracle = SequenceOracle(task, data, label=setting, steps=1)
                found.checks += oracle.check_used({setting: trainer})
        found.observe("vertex_steps", graph.num_vertices)
        found.observe("epochs", EPOCHS[context.preset])
        found.checks = summarised(found.checks)
        return found

    def figures(self) -> list[FigureSpec]:
        return [
            sweep(NAME, "Accuracy of DySAT by the steps that its attention sees", points,
                xlabel="graph", ylabel="accuracy", ylog=False, sort=False),
        ]  # fmt: skip

    def answer(self, rows: Sequence[Any]) -> str:
        words = []
        for dataset in _datasets(rows):
            gains = gains_on(rows, dataset)
            low, high = (100 * pick(gains) for pick in (min, max))
            title = BY_NAME[dataset].title
            words.append(f"{100 * fmean(gains):.1f} points on {title} ({low:.1f} to {high:.1f})")
        return f"Attention to later steps is worth {'; '.join(words)} of accuracy." if words else ""


def gains_on(rows: Sequence[Any], dataset: str) -> list[float]:
    """Accuracy of attention to all steps over that of the other, by seed."""
    table = Table.of(rows, experiment=NAME, dataset=dataset)
    by_seed = {
        setting: {one["seed"]: one.value for one in table.where("accuracy", setting=setting)}
        for setting in CAUSAL
    }
    shared = by_seed[ALL].keys() & by_seed[EARLIER].keys()
    return [by_seed[ALL][seed] - by_seed[EARLIER][seed] for seed in sorted(shared)]


def points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Points of `sweep`: a mark for each seed, by graph and by what a step attends to."""
    return [
        mark(
            row, panel="", series=one["setting"], x=BY_NAME[row.params["dataset"]].title,
            y=one.value,
        )
        for row in rows_of(rows, experiment=NAME)
        for one in Table.of([row]).where("accuracy")
    ] + [
        gap(row, panel="", series=ALL, x=row.params["dataset"]) for row in failures(rows, NAME)
    ]  # fmt: skip


def _datasets(rows: Sequence[Any]) -> list[str]:
    return list(dict.fromkeys(row.params["dataset"] for row in rows_of(rows, experiment=NAME)))
