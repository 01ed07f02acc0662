"""Ablation of stale aggregation: its formula, what it compares with, what D ranges over."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, Final

from dgbench.lab.charts import sweep
from dgbench.lab.compare import select
from dgbench.lab.result_checks import close
from dgbench.lab.table import Table
from dgbench.runtime.collectives import Communicator
from dgbench.runtime.ranks import launch
from dgbench.runtime.threads import one_thread
from dgbench.systems.base import Cell, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.base.sequences import load_sequences
from dgbench.systems.dgc.experiments.settings import MODEL_TITLES, MODELS
from dgbench.systems.dgc.experiments.stale_base import (
    COMMON_READING,
    HELD_NAMES,
    LOST,
    SAVED,
    StaleTable,
    missing_points,
    said,
    title,
)
from dgbench.systems.dgc.experiments.stale_points import points
from dgbench.systems.dgc.experiments.stale_runs import (
    LAST,
    TITLES,
    WORKERS,
    StaleJob,
    StaleJobResult,
    place_chunks,
)
from dgbench.systems.dgc.experiments.store_runs import compare_store, store_words
from dgbench.systems.dgc.sequence_oracle import SequenceOracle
from dgbench.systems.dgc.stale import StaleRows, StaleSettings, summed
from dgbench.systems.dgc.stale_workers import StaleWorkers, Workers
from dgbench.systems.dgc.trainer import ChunkRankTrainer

_QUICK: Final = ("without", "adaptive", "printed", "previous", "past")
_FULL: Final = (*_QUICK, "global", "fresh states", "quantile", "ten whole epochs")
CHECKED_EPOCHS: Final = 4
STORE_EPOCHS: Final = 7
MAX_LOSS_GAP: Final = 1e-3
"""Relative gap of losses between ranks and one process, above which they train something else.
Sums in another order may move a row across its threshold, and what it held then differs."""


class StaleAblation(StaleTable):
    name = "stale_ablation"
    title = "Stale aggregation: what its parts do"
    claims = (
        "dgc-s52-cache-memory",
        "dgc-s52-eq6-direction",
    )
    question = "Which choices of stale aggregation matter, and does one process train as ranks do?"
    reading = COMMON_READING + (
        " Equation 6 as printed makes theta fall with the loss, the text wants it to rise; with "
        "the other sign of the exponent it does. Whether states that a cut sequence hands on "
        "are embeddings is not said; by default they may be stale. Ranks run a few epochs of each "
        "model beside one process; losses must agree and rows sent are compared. From preset full "
        "on rows also go through the store of section 6, one server for all workers."
    )
    models: ClassVar = ("dysat",)
    settings: ClassVar = {
        "smoke": ("without", "adaptive", "printed"),
        "quick": _QUICK,
        "full": _FULL,
        "paper": _FULL,
    }
    graphs: ClassVar = {
        "smoke": (("wikipedia",),),
        "quick": (("wikipedia",),),
        "full": tuple((name,) for name in HELD_NAMES),
        "paper": tuple((name,) for name in HELD_NAMES),
    }

    seeds: ClassVar = {None: (1,)}

    def jobs(self, cell: Cell, preset: Preset) -> list[StaleJob]:
        models = ("tgcn_2layer",) if preset in ("smoke", "quick") else MODELS
        return [
            StaleJob(dataset, model, self.settings[preset], preset)
            for dataset in str(cell.params["graphs"]).split()
            for model in models
        ]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        found, runs = self.train(cell, context)
        for job, outcome in runs:
            _note(found, job, outcome)
        name = str(cell.params["graphs"]).split()[0]
        if context.preset != "smoke":
            checked = ("tgcn_2layer",) if context.preset == "quick" else MODELS
            for model in checked:
                _compare(found, StaleJob(name, model, (), "smoke", epochs=CHECKED_EPOCHS))
        if context.preset in ("full", "paper"):
            for model in MODELS:
                compare_store(found, StaleJob(name, model, (), "quick", epochs=STORE_EPOCHS))
        return found

    def figures(self) -> list[FigureSpec]:
        return [
            sweep("stale_ablation", "Rows saved and accuracy lost by each choice", choice_points,
                xlabel="choice", ylabel="", ylog=False, sort=False),
            sweep("stale_threshold",
                "The adaptive threshold over D by epoch, by sign of equation 6", share_points,
                xlabel="epoch", ylabel="theta / D", xlog=False, ylog=False, from_zero=False,
                marks="few"),
        ]  # fmt: skip

    def answer(self, rows: Sequence[Any]) -> str:
        found = select(rows, experiment=self.name)
        words = [
            f"{TITLES[setting]}: {text}"
            for setting in _FULL[1:]
            if (text := said(found, self.name, setting))
        ]
        text = f"Saved on held graphs: {'; '.join(words)}." if words else ""
        through = [text for row in found for text in store_words(row)]
        return f"{text} Through one server: {'; '.join(through)}." if through else text


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
        observe("row_share", sum(run.held[-LAST:]) / LAST, of="held")
        observe("memory", run.cache_bytes, of="copies")
        observe("memory", run.cache_formula, of="formula")
        observe("memory", run.owned_bytes, of="owned")


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
    gap = max(abs(a / b - 1) for a, b in zip(ranks[0][0], losses, strict=True))
    name = f"{WORKERS} ranks"
    found.checks += [
        close("losses", ranks[0][0], losses, MAX_LOSS_GAP, against="one process", system=name,
              part=MODEL_TITLES[job.model]),
        SequenceOracle(task, data).check_losses(ranks[0][0][:1], name),
    ]  # fmt: skip
    history = summed([rank[1] for rank in ranks])
    observe = partial(found.observe, **job.dims)
    observe("deviation", gap, method="ranks")
    for name, epochs in (("ranks", history), ("alone", alone.history)):
        observe("rows_sent", sum(epoch.sent for epoch in epochs), method=name)
        index = sum(epoch.index_bytes for epoch in epochs)
        observe("exchanged", index, method=name, of="index")
    observe("memory", sum(rank[2] for rank in ranks), method="ranks", of="copies")
    observe("memory", sum(rank[3] for rank in ranks), method="ranks", of="received")
    observe("memory", alone.cache_bytes, method="ranks", of="formula")


def _be(comm: Communicator, job: StaleJob) -> tuple[list[float], list[Any], int, int]:
    """Be one rank: losses, history, bytes of copies as a sender and as a receiver."""
    task = job.workload()
    data = load_sequences(task)
    graph, placement = place_chunks(data, task)
    rows = StaleRows(comm, StaleSettings())
    trainer = ChunkRankTrainer(comm, task, data, placement, exchange=rows, graph=graph)
    losses = [trainer.train_epoch() for _ in range(job.length)]
    return losses, rows.history, rows.cache_bytes, rows.received_bytes


def choice_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Points of `sweep`: savings and losses by choice, a mark for each graph and model."""
    found: list[dict[str, Any]] = []
    runs = points(select(rows, experiment="stale_ablation"))
    for panel in (SAVED, LOST):
        for p in runs:
            found.append(
                {
                    "panel": panel,
                    "series": f"{title(p)}, {MODEL_TITLES[p.model]}",
                    "x": TITLES.get(p.setting, p.setting),
                    "y": p.saved_rows if panel == SAVED else p.drop,
                    "counted": panel == SAVED,
                    "row_ids": [p.row.id],
                }
            )
    return found + missing_points(rows, "stale_ablation", SAVED)


def share_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Points of `sweep`: theta / D by epoch, a panel for each graph and model."""
    found: list[dict[str, Any]] = []
    usable = select(rows, experiment="stale_ablation")
    for p in points(usable, where=lambda d, m, s: s in ("adaptive", "printed")):
        run = {"dataset": p.dataset, "model": p.model, "setting": p.setting}
        shares = Table.of([p.row]).where("threshold", of=None, **run)
        found += [
            {
                "panel": f"{title(p)}, {MODEL_TITLES[p.model]}",
                "series": "corrected" if p.setting == "adaptive" else "as printed",
                "x": one["epoch"],
                "y": one.value,
                "row_ids": [p.row.id],
            }
            for one in shares
        ]
    return found + missing_points(rows, "stale_ablation", "all graphs")
