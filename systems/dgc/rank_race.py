"""DGC's ways to place vertex-steps on ranks, in turns on one group: time, bytes and memory."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Final

from dgbench.lab.compare import CONTROL_RATIO
from dgbench.lab.experiment import Measurement, RunContext
from dgbench.runtime.threads import one_thread
from dgbench.systems.base.sequences import SequenceWorkload, load_sequences, vertex_steps
from dgbench.systems.dgc.experiments.race_runs import RaceJob, race
from dgbench.systems.dgc.ranked import train_ranked
from dgbench.systems.dgc.settings_run import (
    BASELINES,
    LADDER,
    REFINED,
    ChunkRankSettings,
)

CONTENDERS: Final[Mapping[str, ChunkRankSettings]] = {
    "pss": BASELINES["PyGT-PSS"],
    "pss, contiguous": BASELINES["PyGT-PSS contiguous"],
    "pts": BASELINES["PyGT-PTS"],
    "pss-ts": BASELINES["PyGT-PSS-TS"],
    "dgc, exact, the paper's": LADDER["DGC w/o SG"],
    "dgc, the paper's": LADDER["DGC"],
    "dgc": REFINED,
}
MEMORY_EPOCHS: Final = 2
"""Epochs of a group whose memory is read."""


@one_thread()  # as ranks have
def race_ranks(
    workload: SequenceWorkload,
    ranks: int,
    context: RunContext,
    *,
    least: int,
    timeout_s: float,
) -> Measurement:
    """Race the contenders; see `System.race_ranks`."""
    data = load_sequences(workload)
    job = RaceJob(workload.dataset, workload, data, CONTENDERS)
    raced = race(
        [job],
        ranks,
        context,
        least=least,
        budget_s=context.budget_s,
        timeout_s=timeout_s,
        control=bool(context.control),
        clocked=0,
    )
    rows = vertex_steps(data, workload).num_vertices
    found = Measurement(
        deviation=raced.deviation, data=raced.data, notes=raced.notes, checks=raced.checks
    )
    found.observations = [one for one in raced.observations if one.metric == CONTROL_RATIO]
    for name, settings in CONTENDERS.items():
        told = [one for one in raced.observations if one.dims.get("setting") == name]
        turns = {one.dims["turn"]: one.value for one in told if one.metric == "epoch_time"}
        seconds = [turns[turn] for turn in sorted(turns)]
        found.observe("epoch_time", median(seconds), samples=seconds, setting=name)
        found.observe("throughput", rows / median(seconds), of="vertex_steps", setting=name)
        for one in told:
            if one.metric in ("exchanged", "preparation_time") and "phase" not in one.dims:
                found.observe(one.metric, one.value, setting=name)
        if context.round == 1:
            run = train_ranked(
                workload, ranks, settings, epochs=MEMORY_EPOCHS, timeout_s=timeout_s,
                device=context.device, data=data,
            )  # fmt: skip
            found.observe("memory", max(run.peak_rss_bytes), of="rank", setting=name)
    return found
