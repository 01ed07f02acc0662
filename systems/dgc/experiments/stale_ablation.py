"""Ablation of stale aggregation: its formula, what it compares with, what D ranges over."""

from __future__ import annotations

from functools import partial
from typing import Final

from dgbench.lab import rule_combinations as combine
from dgbench.lab import rules
from dgbench.lab.figure_forms import Sweep
from dgbench.lab.grid import by_preset
from dgbench.lab.quantities import observed
from dgbench.lab.result_checks import close
from dgbench.runtime.collectives import Communicator
from dgbench.runtime.ranks import launch
from dgbench.runtime.threads import one_thread
from dgbench.systems.base import Cell, Measurement, RunContext
from dgbench.systems.base.sequences import load_sequences
from dgbench.systems.dgc.experiments import stale_base as stale
from dgbench.systems.dgc.experiments.settings import MODEL_TITLES, MODELS
from dgbench.systems.dgc.experiments.stale_base import StaleTable
from dgbench.systems.dgc.experiments.stale_runs import (
    WORKERS,
    StaleJob,
    StaleJobResult,
    place_chunks,
)
from dgbench.systems.dgc.sequence_oracle import SequenceOracle
from dgbench.systems.dgc.stale import StaleRows, StaleSettings
from dgbench.systems.dgc.stale_workers import StaleWorkers, Workers
from dgbench.systems.dgc.trainer import ChunkRankTrainer

_QUICK: Final = ("without", "adaptive", "printed", "previous", "past")
_FULL: Final = (*_QUICK, "global", "fresh states", "quantile", "ten whole epochs")
CHECKED_EPOCHS: Final = 4
MAX_LOSS_GAP: Final = 1e-3
"""Relative gap of losses between ranks and one process, above which they train something else.
Sums in another order may move a row across its threshold, and what it held then differs."""


CHECKED: Final = {"smoke": (), "quick": MODELS[:1], None: MODELS}
"""Models that ranks train beside one process."""

BYTES = observed("memory", per=(*stale.RUN, "method"))
THRESHOLD = observed("threshold", per=stale.RUN)
CHANGE = THRESHOLD.where(of="last") - THRESHOLD.where(of="first")
"""Change of theta / D over a training."""


class StaleAblation(StaleTable):
    name = "stale_ablation"
    seeds = (1,)
    models = {"smoke": MODELS[:1], "quick": MODELS[:1], None: MODELS}
    settings = {
        "smoke": ("without", "adaptive", "printed"), "quick": _QUICK, "full": _FULL, "paper": _FULL
    }  # fmt: skip
    graphs = {
        **dict.fromkeys(("smoke", "quick"), (("wikipedia",),)),
        **dict.fromkeys(("full", "paper"), tuple((name,) for name in stale.HELD_NAMES)),
    }
    headline = stale.ROWS.where(dataset=stale.HELD_NAMES, setting=_FULL[1:]).mean_over(
        "dataset", "model"
    )
    unit = "%"
    figure_forms = (
        Sweep(
            "stale_ablation", "Rows saved and accuracy lost by each choice",
            {stale.SAVED: stale.ROWS.where(setting=_FULL[1:]),
             stale.LOST: stale.DROP.where(setting=_FULL[1:])},
            panel="of", series="{dataset}, {model}", x="{setting}", xlabel="choice", ylabel="",
            ylog=False, sort=False,
        ),
        Sweep(
            "stale_threshold", "The adaptive threshold over D by epoch, by sign of equation 6",
            THRESHOLD.per("epoch").where(setting=("adaptive", "printed")),
            panel="{dataset}, {model}", series="{setting}", x="epoch", xlabel="epoch",
            ylabel="theta / D", xlog=False, ylog=False, from_zero=False, marks="few",
        ),
    )  # fmt: skip
    claims = {
        "dgc-s52-cache-memory": combine.shown_beside(
            rules.all_equal(BYTES.where(of="copies") / BYTES.where(of="formula"), 1),
            {"copies of receivers": BYTES.where(method="ranks", of="received")}, "bytes",
        ),
        "dgc-s52-eq6-direction": combine.shown_beside(
            rules.all_above(CHANGE.where(setting="printed"), 0.0),
            {"with exp(-norm)": CHANGE.where(setting="adaptive")}, "",
        ),
    }  # fmt: skip

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        found, runs = self.train(cell, context)
        for job, outcome in runs:
            _note(found, job, outcome)
        name = str(cell.params["graphs"]).split()[0]
        for model in by_preset(CHECKED, context.preset):
            _compare(found, StaleJob(name, model, (), "smoke", epochs=CHECKED_EPOCHS))
        return found


def _note(found: Measurement, job: StaleJob, outcome: StaleJobResult) -> None:
    """Add thresholds, copies and late savings of each run to a row."""
    for name, run in outcome.learned.items():
        if name == "without":
            continue
        observe = partial(found.observe, **job.dims, setting=name)
        shares = [share for share in run.shares if share]
        if name in ("adaptive", "printed") and shares:
            observe("threshold", shares[0], of="first")
            observe("threshold", shares[-1], of="last")
            for epoch, share in enumerate(run.shares, 1):
                if share and epoch in _shown(len(run.shares)):
                    observe("threshold", share, epoch=epoch)
        observe("memory", run.cache_bytes, of="copies")
        observe("memory", run.cache_formula, of="formula")


def _shown(epochs: int) -> set[int]:
    """Epochs whose threshold a row keeps: twenty at most."""
    return set(range(2, epochs + 1, max(1, epochs // 20))) | {epochs}


def _compare(found: Measurement, job: StaleJob) -> None:
    """Train on ranks and in one process, and compare their losses."""
    task = job.workload()
    data = load_sequences(task)
    with one_thread():
        graph, placement = place_chunks(data, task)
        workers = Workers(task, data, graph, placement, attention=job.model == "dysat")
        alone = StaleWorkers(workers, StaleSettings())
        losses = [alone.train_epoch() for _ in range(job.length)]
    ranks = launch(_be, WORKERS, (job,), timeout_s=120, threads=1)
    name = f"{WORKERS} ranks"
    found.checks += [
        close("losses", ranks[0][0], losses, MAX_LOSS_GAP, against="one process", system=name,
              part=MODEL_TITLES[job.model]),
        SequenceOracle(task, data).check_losses(ranks[0][0][:1], name),
    ]  # fmt: skip
    observe = partial(found.observe, **job.dims, method="ranks")
    observe("memory", sum(rank[1] for rank in ranks), of="copies")
    observe("memory", sum(rank[2] for rank in ranks), of="received")
    observe("memory", alone.cache_bytes, of="formula")


def _be(comm: Communicator, job: StaleJob) -> tuple[list[float], int, int]:
    """Be one rank: losses, and bytes of copies as a sender and as a receiver."""
    task = job.workload()
    data = load_sequences(task)
    graph, placement = place_chunks(data, task)
    rows = StaleRows(comm, StaleSettings())
    trainer = ChunkRankTrainer(comm, task, data, placement, exchange=rows, graph=graph)
    losses = [trainer.train_epoch() for _ in range(job.length)]
    return losses, rows.cache_bytes, rows.received_bytes
