"""Helpers of DGC's experiments: gains over rounds, trainers of all chunks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from dgbench.lab.compare import observe_speedup
from dgbench.lab.experiment import Measurement
from dgbench.lab.table import Entry, Table
from dgbench.runtime.collectives import LocalCommunicator
from dgbench.runtime.meter import Meter
from dgbench.systems.dgc.loading import SETTINGS

if TYPE_CHECKING:
    from dgbench.datasets import SnapshotSequence
    from dgbench.systems.base.sequences import SequenceWorkload
    from dgbench.systems.dgc.dealing import WorkAssignment
    from dgbench.systems.dgc.trainer import ChunkRankTrainer


def by_row(found: Table) -> list[Table]:
    """The entries of each row, apart."""
    mine: dict[str, list[Entry]] = {}
    for one in found:
        mine.setdefault(one.row.id, []).append(one)
    return [Table(entries) for entries in mine.values()]


def observe_gains(
    found: Measurement, seconds: Mapping[str, Sequence[float]], baseline: str, key: str = "setting"
) -> None:
    """Observe by how much each contender is faster than the baseline, from paired turns.

    Order statistics bound the median ratio, since single turns have outliers; fewer than six turns
    have no interval. `key` is the dimension that tells contenders apart.
    """
    for name in seconds:
        if name != baseline:
            dims = {key: name, "baseline": baseline}
            observe_speedup(found, seconds[baseline], seconds[name], **dims)


def trainer_on_one(
    task: SequenceWorkload, data: SnapshotSequence, dealt: WorkAssignment, setting: str, device: str
) -> ChunkRankTrainer:
    """A trainer of the chunks of all workers on this one, fused as a setting says."""
    from dgbench.systems.dgc.trainer import ChunkRankTrainer

    fusion, temporal = SETTINGS[setting]
    alone = torch.zeros_like(dealt.placement.structure)
    trainer = ChunkRankTrainer(
        LocalCommunicator(device=torch.device(device), meter=Meter(device=device)), task, data,
        replace(dealt.placement, workers=1, structure=alone, time=alone),
        fusion=fusion, temporal=temporal, graph=dealt.graph, entries=dealt.entries,
    )  # fmt: skip
    trainer.prepare()
    return trainer
