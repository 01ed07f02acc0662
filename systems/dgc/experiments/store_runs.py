"""The store of section 6 beside direct exchange: what its one server carries, and what it costs."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Final

from dgbench.lab.result_checks import close
from dgbench.lab.table import Table
from dgbench.runtime.collectives import Communicator, stack
from dgbench.runtime.ranks import launch
from dgbench.systems.base import Measurement
from dgbench.systems.base.sequences import load_sequences
from dgbench.systems.dgc.exchange import PlainRows
from dgbench.systems.dgc.experiments.stale_runs import WORKERS, StaleJob, place_chunks
from dgbench.systems.dgc.sequence_oracle import STEPS, SequenceOracle
from dgbench.systems.dgc.store import StoreRows
from dgbench.systems.dgc.trainer import ChunkRankTrainer

WARM: Final = 2
MAX_LOSS_GAP: Final = 1e-4
"""Relative gap of losses; the server adds gradients of a row in another order."""


@dataclass(slots=True)
class _StoreRankOutput:
    """Results of one rank: losses of all epochs, seconds of those that count, the rest of one."""

    losses: list[float]
    seconds: list[float]
    traffic: object
    serve_s: float
    pushed: int
    pulled: int


def compare_store(found: Measurement, job: StaleJob) -> None:
    """Train through the store and without it, and note both in a row (`method`).

    Observed are seconds of an epoch and those in which the server moved rows, and bytes of an
    epoch, all and through the busiest process.
    """
    observe = partial(found.observe, **job.dims)
    start = f"store {job.dataset} {job.model}"
    losses = {}
    for name, ranks in (("plain", WORKERS), ("store", WORKERS + 1)):
        parts = launch(_be, ranks, (job, name == "store"), timeout_s=300, threads=1)
        matrix = stack([part.traffic for part in parts]).matrix("bytes", operation="all_to_all")
        observe("exchanged", int(matrix.sum()), method=name)
        through = matrix.sum(0) + matrix.sum(1)
        observe("exchanged", int(through.max()), method=name, of="busiest")
        slowest = [max(s) for s in zip(*(p.seconds for p in parts))]  # noqa: B905
        observe("epoch_time", median(slowest), method=name)
        losses[name] = parts[0].losses
        if name == "store":
            observe("phase_time", parts[-1].serve_s, phase="serve")
            observe("rows_sent", sum(part.pushed for part in parts), method=name, of="pushed")
            observe("rows_sent", parts[-1].pulled, method=name, of="pulled")
    gap = max(abs(a / b - 1) for a, b in zip(losses["store"], losses["plain"], strict=True))
    observe("deviation", gap, method="store")
    through = {"against": "direct exchange", "system": "store", "part": start}
    task = job.workload()
    oracle = SequenceOracle(task, load_sequences(task), label=start)
    found.checks.append(close("losses", losses["store"], losses["plain"], MAX_LOSS_GAP, **through))
    found.checks += [oracle.check_losses(some[:STEPS], name) for name, some in losses.items()]


def _be(comm: Communicator, job: StaleJob, server: bool) -> _StoreRankOutput:
    """Be one rank."""
    task = job.workload()
    data = load_sequences(task)
    graph, placement = place_chunks(data, task)
    if server:
        placement = replace(placement, workers=comm.size)
    rows = StoreRows(comm) if server else PlainRows(comm)
    trainer = ChunkRankTrainer(comm, task, data, placement, exchange=rows, graph=graph)
    losses = [trainer.train_epoch() for _ in range(WARM)]
    comm.traffic.clear()
    comm.meter.reset()
    seconds: list[float] = []
    for _ in range(job.length):
        comm.barrier()
        begin = time.perf_counter()
        losses.append(trainer.train_epoch())
        seconds.append(time.perf_counter() - begin)
        if len(seconds) == 1:
            traffic, counters = comm.traffic.copy(), dict(comm.meter.counters)
    return _StoreRankOutput(
        losses=losses,
        seconds=seconds,
        traffic=traffic,
        serve_s=comm.meter.spent["store_serve"] / job.length,
        pushed=counters.get("store_rows_pushed", 0),
        pulled=counters.get("store_rows_pulled", 0),
    )


def store_words(row: object) -> list[str]:
    """Describe each comparison of a row in words."""
    words = []
    compared = Table.of([row]).where(("exchanged", "epoch_time"), method=("store", "plain"))
    for (dataset, model), mine in compared.by("dataset", "model").items():
        sent = mine.where("exchanged").numbers("method", "of")
        total, busiest = (
            sent["store", what] / max(1, sent["plain", what]) for what in (None, "busiest")
        )
        seconds = mine.where("epoch_time").numbers("method")
        words.append(
            f"{model} on {dataset}: {total:.2f} times the bytes, {busiest:.1f} times as many "
            f"through the busiest process, {seconds['store'] / seconds['plain']:.2f} times "
            "the epoch"
        )
    return words
