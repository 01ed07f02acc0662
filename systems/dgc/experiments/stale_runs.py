"""Training runs of the experiments on stale aggregation, many in a process that is started once.

Accuracy is the mean over the last epochs, measured with fresh rows; a run's savings are of all its
epochs, the first, which sends everything, included.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import torch
from msgspec import structs
from torch import Tensor

from dgbench.lab.result_checks import ResultCheck, close, of_contender, summarised
from dgbench.runtime.collectives import Communicator
from dgbench.runtime.ranks import launch
from dgbench.runtime.threads import one_thread
from dgbench.systems.base import Measurement, Preset
from dgbench.systems.base.conditioning import MIN_TOLERANCE
from dgbench.systems.base.data import describe
from dgbench.systems.base.sequences import (
    SequenceWorkload,
    load_sequences,
    sequence_model,
    untrained_accuracy,
)
from dgbench.systems.dgc.experiments.partition import weighted
from dgbench.systems.dgc.experiments.settings import BY_NAME, place_of, workload
from dgbench.systems.dgc.partition import PAPER, partition_chunks
from dgbench.systems.dgc.placement import Placement
from dgbench.systems.dgc.recount import EdgeRecount, counted, drawn
from dgbench.systems.dgc.sequence_oracle import AGAINST, SequenceOracle, last_gradients
from dgbench.systems.dgc.stale import StaleSettings
from dgbench.systems.dgc.stale_audit import AuditedStaleWorkers
from dgbench.systems.dgc.stale_workers import StaleWorkers, Totals, Workers
from dgbench.systems.dgc.volumes import shape_of

if TYPE_CHECKING:
    from dgbench.datasets import SnapshotSequence
    from dgbench.kernels_cuda.supergraph import Supergraph

WORKERS: Final = 4
LEARNING_RATE: Final = 1e-2
"""Not printed. With the 1e-3 of our other runs a hundred epochs leave models half trained, and the
accuracy of most of them at chance; nothing could be said about a loss of it."""
LAST: Final = 5
"""Epochs whose accuracies are averaged."""

STALE: Final[dict[str, StaleSettings | None]] = {
    "without": None,
    "0.1D": StaleSettings(threshold=0.1),
    "0.3D": StaleSettings(threshold=0.3),
    "0.5D": StaleSettings(threshold=0.5),
    "0.7D": StaleSettings(threshold=0.7),
    "0.9D": StaleSettings(threshold=0.9),
    "adaptive": StaleSettings(),
    "past": StaleSettings(reach="past"),
    "printed": StaleSettings(sign="printed"),
    "previous": StaleSettings(cache="previous"),
    "global": StaleSettings(scope="global"),
    "fresh states": StaleSettings(states=False),
    "quantile": StaleSettings(quantile=0.9),
    "ten whole epochs": StaleSettings(whole_epochs=10),
}
"""Settings by their name in rows; `0.3D` is a fixed theta of 0.3 D."""
TITLES: Final = {
    "without": "all rows sent",
    "adaptive": "adaptive",
    "past": "adaptive, D of all epochs",
    "printed": "adaptive, sign as printed",
    "previous": "adaptive, last epoch's copy",
    "global": "adaptive, D over all workers",
    "fresh states": "adaptive, states always sent",
    "quantile": "adaptive, D the 90 % quantile",
    "ten whole epochs": "adaptive, ten epochs first",
}

EPOCHS: Final = {"smoke": 4, "quick": 12, "full": 100, "paper": 100, "quality": 100}
STEPS: Final[dict[str, tuple[int | None, int | None, int | None, int | None]]] = {
    # Smoke, quick, full, paper. Eight of the last nine windows of email-Eu are empty.
    "email-eu-core": (14, 20, None, None),
    "wikipedia": (3, 5, 16, None),
    "amazon-magazine": (6, 10, 24, None),
    "sx-mathoverflow": (2, 4, 16, None),
    "epinions-2011-ratings": (1, 2, 2, None),
    "amazon": (8, 24, 60, None),
    "epinions": (8, 48, 99, None),
    "movie": (8, 24, 60, None),
    "stack": (4, 6, 24, None),
}
"""Snapshots that a model runs over, the last ones."""
STEPS_OF_OTHERS: Final = (2, 4, 16, None)


@dataclass(frozen=True, slots=True)
class StaleJob:
    """Runs on one graph and model that share data and placement.

    Attributes:
        stale: names in `STALE`, run one after the other.
        epochs: None takes the preset's.
        changes: epochs whose change of embeddings is kept, of the first run.
        seed: of parameters and of what is held out.
        asked: ask one of the trainers after its last epoch, too.
    """

    dataset: str
    model: str
    stale: tuple[str, ...]
    preset: Preset
    epochs: int | None = None
    changes: tuple[int, ...] = ()
    seed: int = 1
    asked: bool = False

    @property
    def length(self) -> int:
        return EPOCHS[self.preset] if self.epochs is None else self.epochs

    @property
    def dims(self) -> dict[str, str]:
        """Dimensions of its observations."""
        return {"dataset": self.dataset, "model": self.model}

    def workload(self) -> SequenceWorkload:
        """Workload of the job."""
        steps = STEPS.get(self.dataset, STEPS_OF_OTHERS)[place_of(self.preset)]
        return workload(
            BY_NAME[self.dataset], self.model, self.preset, snapshots=steps, lr=LEARNING_RATE,
            seed=self.seed,
        )  # fmt: skip


@dataclass(slots=True)
class Learned:
    """One run.

    Attributes:
        accuracy, tested: mean of the last epochs with fresh rows, on so many vertex-steps.
        totals: traffic of all workers and epochs.
        shares: theta / D of every epoch, 1-based from the first; 0 where everything was sent.
        cache_bytes, cache_formula: copies of senders, measured and 4 W for each row.
    """

    accuracy: float
    tested: int
    totals: Totals
    losses: list[float]
    shares: list[float]
    cache_bytes: int
    cache_formula: int


@dataclass(slots=True)
class StaleJobResult:
    """Runs of a job by setting, and their checks.

    Attributes:
        changes: epoch -> distances between outputs of that epoch and the one before, [V].
        untrained: accuracy on the same vertex-steps of predictors that train nothing, by name.
        gap: relative difference of the first loss from the oracle's.
    """

    learned: dict[str, Learned]
    changes: dict[int, Tensor]
    data: dict[str, Any]
    untrained: dict[str, float]
    gap: float
    checks: list[ResultCheck]


def place_chunks(data: SnapshotSequence, task: SequenceWorkload) -> tuple[Supergraph, Placement]:
    """Vertex-steps and their chunks; the work of a chunk is its vertices and edges.

    No predictor decides, so that a run on another machine places the same.
    """
    graph, shape = weighted(data, task)
    return graph, partition_chunks(graph, shape.counts(), WORKERS, PAPER).placement


def run_job(job: StaleJob) -> StaleJobResult:
    """Train all settings of a job in this process, one thread."""
    task = job.workload()
    data = load_sequences(task)
    with one_thread():
        graph, placement = place_chunks(data, task)
        workers = Workers(task, data, graph, placement, attention=job.model == "dysat")
        learned: dict[str, Learned] = {}
        label = f"{job.dataset} {job.model}"
        steps = 2 if job.asked else 1  # the others are compared in their first epoch
        oracle, edges = SequenceOracle(task, data, label=label, steps=steps), EdgeRecount(data)
        checks = [edges.vertex_steps(graph), edges.partition(placement)]
        audited = drawn([name for name in job.stale if STALE[name] is not None], 1)
        asked = drawn(job.stale, 1) if job.asked else []
        first = record = _EpochRecord(job.changes, drawn(job.changes, 1))
        for name in job.stale:
            settings = STALE[name]
            if name in audited:
                trainer = AuditedStaleWorkers(workers, settings, edges, f"{label} {name}")
            else:
                trainer = StaleWorkers(workers, settings)
            learned[name] = _train(trainer, job, record)
            # The first epoch sends every row; without a threshold all do.
            losses = learned[name].losses[: 1 if settings else None]
            checks += oracle.check_start(record.output, record.gradients, losses, name)
            if name in audited:
                checks += of_contender(name, trainer.checks())
            if settings is None:
                plain = [_counted(learned[name], workers, edges, job.length)]
                checks += of_contender(name, [*plain, *_moved(record, oracle)])
            if name in asked:
                checks += oracle.check_used({name: trainer}, stale=[name] if settings else [])
            record = _EpochRecord()
        gap = abs(learned[job.stale[0]].losses[0] / oracle.losses[0] - 1)
    return StaleJobResult(
        learned=learned,
        changes=first.changes,
        data=describe(data),
        untrained=untrained_accuracy(data, workers.task, graph),
        gap=gap,
        checks=summarised(checks),
    )


@dataclass(slots=True)
class _EpochRecord:
    """Record of a run in progress: output and gradients of its first epoch, distances between
    outputs of the epochs `changing` and of those before each, and parameters before `epochs` and
    before the epoch that precedes each."""

    changing: Sequence[int] = ()
    epochs: Sequence[int] = ()
    changes: dict[int, Tensor] = field(default_factory=dict)
    output: Tensor | None = None
    gradients: dict[str, Tensor] = field(default_factory=dict)
    states: dict[int, dict[str, Tensor]] = field(default_factory=dict)


def _counted(run: Learned, workers: Workers, edges: EdgeRecount, epochs: int) -> ResultCheck:
    """A check of the counts of a run that sends everything."""
    shape = shape_of(sequence_model(workers.workload))
    rows = edges.rows(workers.placement, shape)
    wanted = {
        "rows": epochs * sum(int(matrix.sum()) for matrix in rows.values()),
        "bytes": epochs * sum(edges.bytes(workers.placement, shape).values()),
    }
    return counted({"rows": run.totals.rows, "bytes": run.totals.bytes}, wanted)


def _moved(record: _EpochRecord, oracle: SequenceOracle) -> list[ResultCheck]:
    """Checks of how far outputs moved in an epoch, against the oracle at both parameters."""
    found = []
    for epoch in record.epochs:
        after, before = (oracle.output(record.states[number]) for number in (epoch, epoch - 1))
        wanted = torch.linalg.vector_norm(after - before, dim=1)
        # What is left of two outputs has the rounding of both.
        share = float(after.norm() / wanted.norm().clamp(min=1e-300))
        check = close(
            "distances",
            record.changes[epoch],
            wanted,
            MIN_TOLERANCE * max(1.0, share),
            against=AGAINST,
        )
        found.append(structs.replace(check, part=f"epoch {epoch}"))
    return found


def _train(trainer: StaleWorkers, job: StaleJob, record: _EpochRecord) -> Learned:
    losses, fresh = [], []
    before: Tensor | None = None
    for epoch in range(1, job.length + 1):
        if epoch in record.epochs or epoch + 1 in record.epochs:
            record.states[epoch] = trainer.state()
        losses.append(trainer.train_epoch())
        if epoch == 1:
            record.output, record.gradients = trainer.hidden, last_gradients(trainer)
        if epoch in record.changing and before is not None:
            record.changes[epoch] = torch.linalg.vector_norm(trainer.hidden - before, dim=1)
        before = trainer.hidden
        if epoch > job.length - LAST:
            fresh.append(trainer.accuracy())
    return Learned(
        accuracy=sum(fresh) / len(fresh),
        tested=trainer.hits[1],
        totals=replace(trainer.totals),  # what is asked of a trainer later counts for nothing
        losses=losses,
        shares=[epoch.share or 0.0 for epoch in trainer.history],
        cache_bytes=trainer.cache_bytes,
        cache_formula=sum(4 * count * width for count, width in trainer.cache_rows().values()),
    )


def run_jobs(jobs: Sequence[StaleJob], *, timeout_s: float) -> list[StaleJobResult]:
    """Run jobs, the costliest first, in as many processes as there are cores, at most two, each
    started once."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    processes = min(2, cores or 1, len(jobs))
    (asked,) = drawn(range(len(jobs)), 1)
    jobs = [replace(job, asked=number == asked) for number, job in enumerate(jobs)]
    if processes < 2:
        return [run_job(job) for job in jobs]
    each = launch(_take, processes, (tuple(jobs),), timeout_s=timeout_s, threads=1)
    joined = {number: outcome for part in each for number, outcome in part.items()}
    return [joined[number] for number in range(len(jobs))]


def _take(comm: Communicator, jobs: tuple[StaleJob, ...]) -> dict[int, StaleJobResult]:
    """Every rank takes each P-th job, there and back, so that the first is not always the worst."""
    turns = (*range(comm.size), *reversed(range(comm.size)))
    mine = [n for n in range(len(jobs)) if turns[n % len(turns)] == comm.rank]
    return {number: run_job(jobs[number]) for number in mine}


def measured(jobs: Sequence[StaleJob], outcomes: Sequence[StaleJobResult]) -> Measurement:
    """All runs of a cell as one measurement."""
    found, idle = Measurement(), []
    for job, outcome in zip(jobs, outcomes, strict=True):
        observe = partial(found.observe, **job.dims)
        observe("epochs", job.length)
        for method, share in outcome.untrained.items():
            observe("accuracy", share, method=method)
        for name, run in outcome.learned.items():
            observe("accuracy", run.accuracy, setting=name)
            observe("scored", run.tested, setting=name)
            observe("rows_sent", run.totals.rows, setting=name)
            observe("rows_sent", run.totals.plain_rows, setting=name, of="plain")
            observe("exchanged", run.totals.bytes, setting=name)
            observe("exchanged", run.totals.plain_bytes, setting=name, of="plain")
        if not any(run.tested for run in outcome.learned.values()):
            idle.append(f"{job.dataset} {job.model}")
        found.checks += of_contender("", outcome.checks, **job.dims)
    notes = (outcome.data["note"] for outcome in outcomes)
    found.data = {
        **outcomes[0].data,
        "dataset": ", ".join(dict.fromkeys(job.dataset for job in jobs)),
        "twin": any(outcome.data["twin"] for outcome in outcomes),
        "note": "; ".join(dict.fromkeys(filter(None, notes))),
    }
    found.deviation = {"loss": max(outcome.gap for outcome in outcomes)}
    found.notes = [f"nothing is held out for testing: {', '.join(idle)}"] if idle else []
    return found
