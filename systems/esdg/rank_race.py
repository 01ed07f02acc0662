"""ESDG's ways to deal a timeline out over ranks, in turns on one group: time, bytes and memory."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from dgbench.lab.compare import take_control, with_control
from dgbench.lab.experiment import Measurement, RunContext
from dgbench.runtime.collectives import Communicator
from dgbench.runtime.ranks import TRAINING, launch
from dgbench.runtime.threads import one_thread
from dgbench.systems.base.data import describe
from dgbench.systems.base.timeline import TimelineTask, TimelineWorkload, load_timeline
from dgbench.systems.esdg.experiments.rank_turns import take_rank_turns
from dgbench.systems.esdg.oracle import comparison, largest_gap
from dgbench.systems.esdg.partition_trainer import SnapshotRankTrainer, published
from dgbench.systems.esdg.vertex_parts import split_vertices

if TYPE_CHECKING:
    from dgbench.datasets import SnapshotSequence

MEMORY_EPOCHS: Final = 2
"""Epochs of a group whose memory is read."""

OURS: Final[Mapping[str, Any]] = {"fused": True, "prefetch": True}
"""Arguments that dgbench adds to the published form on any number of ranks."""
PLAIN: Final[Mapping[str, Any]] = {"checkpoint": False, "precompute": False}


def rank_contenders(
    workload: TimelineWorkload, data: SnapshotSequence, ranks: int
) -> dict[str, dict[str, Any]]:
    """Arguments of `SnapshotRankTrainer` by contender.

    `plain` deals out snapshots and uses no technique; `vertex` deals out vertices with all else the
    same; `esdg, the paper's` has checkpoints, differences and the product made once; `esdg` our
    compiled scans, the next block on its way and what spares it exchanges on top. One rank has
    nothing to deal out.
    """
    steps = len(data) - (workload.task != "class")
    paper = published(steps)
    moved = workload.model != "evolvegcn_o"  # it redistributes nothing that could be kept
    spared = {"reuse": True, "late": True, "scored": True} if moved and ranks > 1 else {}
    found: dict[str, dict[str, Any]] = {"plain": dict(PLAIN)}
    if ranks > 1:
        parts = split_vertices([data.topology[t] for t in range(steps)], ranks)
        found["vertex"] = {**PLAIN, "partition": "vertex", "parts": parts}
    return found | {"esdg, the paper's": paper, "esdg": {**paper, **OURS, **spared}}


@one_thread()  # as ranks have
def race_ranks(
    workload: TimelineWorkload,
    ranks: int,
    context: RunContext,
    *,
    least: int,
    timeout_s: float,
) -> Measurement:
    """Race the contenders; see `System.race_ranks`."""
    data = load_timeline(workload)
    oracle, kept = comparison(workload, data, ranks, context)
    contenders = rank_contenders(workload, data, ranks)
    turns = take_rank_turns(
        workload,
        data,
        ranks,
        with_control(contenders, on=bool(context.control)),
        least=least,
        budget_s=context.budget_s,
        timeout_s=timeout_s,
        device=context.device,
        request=None if oracle is None else oracle.request,
    )
    found = Measurement(data=describe(data), notes=[f"{ranks} processes over {turns.carrier}"])
    found.checks = turns.compared(workload, data, oracle, kept, context)
    if oracle is not None:
        found.deviation = {"output": largest_gap(found.checks, "outputs", "gradients")}
    take_control(found, turns.take_control())
    steps = TimelineTask(data, workload).steps
    for name, options in contenders.items():
        seconds = turns.seconds[name]
        found.observe("epoch_time", median(seconds), samples=seconds, setting=name)
        found.observe(
            "throughput", steps * data.num_nodes / median(seconds), of="vertex_steps", setting=name
        )
        found.observe("exchanged", turns.traffic[name].total("bytes"), setting=name)
        found.observe("preparation_time", turns.prepare_s[name], setting=name)
        if context.round == 1:
            peak = _peak_bytes(workload, data, ranks, options, context, timeout_s)
            found.observe("memory", peak, of="rank", setting=name)
    return found


def _peak_bytes(
    workload: TimelineWorkload,
    data: SnapshotSequence,
    ranks: int,
    options: Mapping[str, Any],
    context: RunContext,
    timeout_s: float,
) -> int:
    """Most private memory of a rank that trains by one contender alone, beyond its beginning."""
    found = launch(
        _train,
        ranks,
        (workload, data, dict(options)),
        timeout_s=timeout_s,
        device=context.device,
        threads=1,
        seed=workload.seed,
        preload=TRAINING,
    )
    return max(found.peak_bytes)


def _train(
    comm: Communicator, workload: TimelineWorkload, data: SnapshotSequence, options: dict[str, Any]
) -> None:
    """Be one rank of a group whose memory is read."""
    trainer = SnapshotRankTrainer(comm, workload, data, **options)
    for _ in range(MEMORY_EPOCHS):
        trainer.train_epoch()
    trainer.close()
