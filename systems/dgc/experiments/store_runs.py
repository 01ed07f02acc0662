"""The store of section 6 beside direct exchange: what its one server carries, and what it costs."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Final

from dgbench.lab.result_checks import close
from dgbench.runtime.collectives import Communicator, stack
from dgbench.runtime.ranks import launch
from dgbench.systems.base import Measurement
from dgbench.systems.base.sequences import load_sequences, sequence_model
from dgbench.systems.dgc.dealing import open_exchange
from dgbench.systems.dgc.experiments.stale_runs import WORKERS, StaleJob, place_chunks
from dgbench.systems.dgc.sequence_oracle import STEPS, SequenceOracle
from dgbench.systems.dgc.settings_run import ChunkRankSettings
from dgbench.systems.dgc.stale import StaleSettings
from dgbench.systems.dgc.trainer import ChunkRankTrainer

WARM: Final = 2
MAX_LOSS_GAP: Final = 1e-4
"""Relative gap of losses; the server adds gradients of a row in another order."""
MAX_STALE_GAP: Final = 1e-3
"""The same where such an order may move a row across its threshold."""
COMPARED: Final = (("plain", "store"), ("stale", "store, stale"))
"""Direct exchange and the store: of all rows, and where those that hardly changed are held back, so
that the store is the cache of section 6."""
STALE: Final = COMPARED[1]


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
    """Train through the store and without it, all rows and stale ones, and note each (`method`).

    Observed are seconds of an epoch and those in which the server moved rows, and bytes of an
    epoch, all and through the busiest process.
    """
    observe = partial(found.observe, **job.dims)
    start = f"store {job.dataset} {job.model}"
    losses = {}
    for name in (name for pair in COMPARED for name in pair):
        server, stale = name.startswith("store"), name in STALE
        ranks = WORKERS + server
        parts = launch(_be, ranks, (job, server, stale), timeout_s=300, threads=1)
        matrix = stack([part.traffic for part in parts]).matrix("bytes", operation="all_to_all")
        observe("exchanged", int(matrix.sum()), method=name)
        through = matrix.sum(0) + matrix.sum(1)
        observe("exchanged", int(through.max()), method=name, of="busiest")
        slowest = [max(s) for s in zip(*(p.seconds for p in parts))]  # noqa: B905
        observe("epoch_time", median(slowest), method=name)
        losses[name] = parts[0].losses
        if name == "store":
            observe("phase_time", parts[-1].serve_s, phase="serve")
        if server:
            observe("rows_sent", sum(part.pushed for part in parts), method=name, of="pushed")
            observe("rows_sent", parts[-1].pulled, method=name, of="pulled")
    for direct, stored in COMPARED:
        pairs = zip(losses[stored], losses[direct], strict=True)
        observe("deviation", max(abs(a / b - 1) for a, b in pairs), method=stored)
        through = {"against": "direct exchange", "system": stored, "part": start}
        most = MAX_STALE_GAP if stored in STALE else MAX_LOSS_GAP
        found.checks.append(close("losses", losses[stored], losses[direct], most, **through))
    task = job.workload()
    oracle = SequenceOracle(task, load_sequences(task), label=start)
    # With stale rows the first epoch is exact, as it sends everything.
    found.checks += [
        oracle.check_losses(some[: 1 if name in STALE else STEPS], name)
        for name, some in losses.items()
    ]


def _be(comm: Communicator, job: StaleJob, server: bool, stale: bool) -> _StoreRankOutput:
    """Be one rank."""
    task = job.workload()
    data = load_sequences(task)
    graph, placement = place_chunks(data, task)
    if server:
        placement = replace(placement, workers=comm.size)
    settings = ChunkRankSettings(store=server, stale=StaleSettings() if stale else None)
    rows = open_exchange(comm, settings, attention=not sequence_model(task).state_dims)
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
