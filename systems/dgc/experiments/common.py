"""Helpers of DGC's experiments: cells on ranks, gains over rounds, trainers of all chunks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from dgbench.lab.compare import observe_speedup
from dgbench.lab.experiment import Measurement
from dgbench.lab.grid import Grid
from dgbench.lab.ranks import devices_lacking
from dgbench.runtime.collectives import LocalCommunicator
from dgbench.runtime.meter import Meter
from dgbench.systems.base import Cell, Preset
from dgbench.systems.dgc.loading import SETTINGS

if TYPE_CHECKING:
    from dgbench.datasets import SnapshotSequence
    from dgbench.systems.base.sequences import SequenceWorkload
    from dgbench.systems.dgc.dealing import WorkAssignment
    from dgbench.systems.dgc.trainer import ChunkRankTrainer


class RankGrid(Grid):
    """A grid with an axis `ranks`, whose cells run where there is a device for each rank."""

    paper = "dgc"

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        return [
            # Contenders take turns inside a process, so that no process has a time of its own.
            self.cell(
                point, preset, interleaved=True, unavailable=devices_lacking(point["ranks"], device)
            )
            for point in self.points(preset, device)
        ]


def observe_gains(
    found: Measurement, seconds: Mapping[str, Sequence[float]], baseline: str
) -> None:
    """Observe by how much each contender is faster than the baseline, from paired turns.

    Order statistics bound the median ratio, since single turns have outliers; fewer than six turns
    have no interval.
    """
    for name in seconds:
        if name != baseline:
            both = seconds[baseline], seconds[name]
            observe_speedup(found, *both, setting=name, baseline=baseline)


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
