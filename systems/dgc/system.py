"""DGC on one process as a plugin: its switches and its trainer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dgbench.runtime.collectives import LocalCommunicator
from dgbench.runtime.errors import InvalidInputError
from dgbench.runtime.fields import check_count
from dgbench.runtime.meter import Meter
from dgbench.systems.base.sequences import SequenceTrainer, SequenceWorkload, load_sequences
from dgbench.systems.base.system import System
from dgbench.systems.dgc.dealing import WorkAssignment, deal, open_trainer
from dgbench.systems.dgc.partition import PAPER, ChunkSettings
from dgbench.systems.dgc.settings_run import ChunkRankSettings
from dgbench.systems.dgc.stale import StaleSettings
from dgbench.systems.dgc.techniques import TECHNIQUES
from dgbench.systems.dgc.trainer import ChunkRankTrainer
from dgbench.systems.dgc.volumes import count_traffic, shape_of

if TYPE_CHECKING:
    from dgbench.datasets import SnapshotSequence
    from dgbench.lab.experiment import Measurement, RunContext
    from dgbench.systems.base.rank_training import RankTraining
    from dgbench.systems.dgc.stale_workers import StaleWorkers

STALE_WORKERS = 4
"""Workers that stale aggregation is emulated for where their number is not said."""


class DgcTrainer(SequenceTrainer):
    """Trains all chunks in one process; with `stale` as several workers would.

    Losses and gradients are those of `PlainSequences` under every switch but `stale`, up to
    rounding: the partition decides what is computed together and what would be sent.

    Args:
        workload, data: the task and its snapshots, from `load_sequences`.
        switches: a truth value for each of `DgcSystem.techniques`.
        workers: that the partition is for; None: one, or with `stale` `STALE_WORKERS`.
        settings: further fields of `ChunkRankSettings`; switches come first.
        device, meter, dtype: as in `SequenceTrainer`.

    Attributes:
        dealt: vertex-steps, chunks and their workers.
    """

    def __init__(
        self,
        workload: SequenceWorkload,
        data: SnapshotSequence,
        switches: Mapping[str, bool],
        *,
        workers: int | None = None,
        settings: ChunkRankSettings | None = None,
        device: str = "cpu",
        meter: Meter | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.on = dict(switches)
        self._settings = run_settings(self.on, settings or ChunkRankSettings()).check()
        if self._settings.store:
            raise InvalidInputError(
                "'settings.store' is True, allowed in one process is False",
                hint="a store is a rank of its own: train_ranked",
            )
        count = (STALE_WORKERS if self.on["stale"] else 1) if workers is None else workers
        check_count("workers", count)
        self.dealt = deal(workload, data, count, self._settings, device=device)
        super().__init__(
            workload, data, device=device, meter=meter, dtype=dtype, graph=self.dealt.graph
        )
        self.notes.extend(self.dealt.notes)
        if self.on["stale"]:
            self.inner: ChunkRankTrainer | StaleWorkers = self._emulated(dtype)
        else:
            self.inner = self._together(dtype)
        self.model, self.task = self.inner.model, self.inner.task

    def accumulate(self) -> float:
        return self.inner.accumulate()

    def outputs(self) -> Tensor:
        return self.inner.outputs()

    def accuracy(self) -> float:
        return self.inner.accuracy()

    def gradients(self, frame: int = 0) -> dict[str, Tensor]:
        self._check(frame)
        return self.inner.gradients()

    def report(self) -> dict[str, float]:
        placement, shape = self.dealt.placement, shape_of(self.model)
        traffic = count_traffic(self.data, self.graph, placement, shape)
        loads = placement.loads().double()
        found = {
            "units": float(placement.units),
            "workers": float(placement.workers),
            "traffic_epoch_bytes": float(traffic.bytes()),
            "partition_s": self.dealt.seconds,
            "vertex_steps_max_over_mean": float(loads[0].max() / loads[0].mean().clamp(min=1)),
        }
        if isinstance(self.inner, ChunkRankTrainer):
            found["padded_steps"] = float(self.inner.plan.time.padding)
            found["loaded_rows"] = float(self.inner.plan.structure.loads)
        return found

    def _together(self, dtype: torch.dtype) -> ChunkRankTrainer:
        """One worker that has the chunks of all."""
        placement = self.dealt.placement
        alone = torch.zeros_like(placement.structure)
        whole = replace(placement, workers=1, structure=alone, time=alone)
        comm = LocalCommunicator(device=str(self.device), meter=self.meter)
        return open_trainer(
            comm,
            self.workload,
            self.data,
            WorkAssignment(self.graph, whole, self.dealt.entries, None, 0.0),
            replace(self._settings, stale=None),
            dtype=dtype,
        )

    def _emulated(self, dtype: torch.dtype) -> StaleWorkers:
        from dgbench.systems.dgc.stale_workers import StaleWorkers, Workers

        if self.device.type != "cpu" or dtype != torch.float32:
            raise InvalidInputError(
                f"stale workers are emulated in float32 on the CPU, not in {dtype} on "
                f"'{self.device}'",
                hint="switch stale off, or train_ranked with a rank for each worker",
            )
        self.notes.append(f"{self.dealt.placement.workers} workers emulated in one process")
        workers = Workers(
            self.workload,
            self.data,
            self.graph,
            self.dealt.placement,
            attention=not self.model.state_dims,
        )
        return StaleWorkers(workers, self._settings.stale, meter=self.meter)


def run_settings(switches: Mapping[str, bool], settings: ChunkRankSettings) -> ChunkRankSettings:
    """Settings of a run with these switches; what they do not decide is kept.

    Args:
        switches: a truth value for each of `DgcSystem.techniques`.
        settings: the rest.
    """
    chunks = settings.chunks
    if not switches["refine"]:
        chunks = replace(chunks, levels=PAPER.levels, refine=False)
    elif not chunks.refine:
        chunks = replace(chunks, levels=ChunkSettings().levels, refine=True)
    if not switches["predictor"]:
        chunks = replace(chunks, workload="vertices")
    stale = (settings.stale or StaleSettings()) if switches["stale"] else None
    return replace(
        settings,
        partition="chunks" if switches["pgc"] else "snapshots",
        chunks=chunks,
        spatial_fusion=switches["spatial_fusion"],
        temporal="packed" if switches["temporal_fusion"] else "padded",
        stale=stale,
        precompute=switches["precompute"],
    )


class DgcSystem(System):
    """DGC: full-batch training by chunks across snapshots and sequences."""

    name = "dgc"
    title = "DGC"
    kind = "paper"
    about = (
        "Full batch over vertex-steps: chunks across snapshots and sequences, fused where they "
        "load each other's rows, short sequences packed, rows that hardly changed not sent again."
    )
    provenance = "re-implemented from the paper (PACMMOD 2023), which names no code"
    techniques = TECHNIQUES
    trains = (SequenceWorkload, "trains vertex-steps of all snapshots")
    enters = ("timeline-training@1",)

    def race_ranks(
        self, workload: Any, ranks: int, context: RunContext, *, least: int, timeout_s: float
    ) -> Measurement:
        from dgbench.systems.dgc.rank_race import race_ranks

        return race_ranks(workload, ranks, context, least=least, timeout_s=timeout_s)

    def rank_training(self) -> RankTraining:
        from dgbench.systems.dgc.ranked import ChunkRanks

        return ChunkRanks()

    def open(
        self,
        workload: SequenceWorkload,
        *,
        device: str = "cpu",
        switches: Mapping[str, bool] | None = None,
        meter: Meter | None = None,
        **options: Any,
    ) -> DgcTrainer:
        """As `System.open`; `options` are `workers`, `settings` and `dtype` of `DgcTrainer`."""
        on = self.switches(switches)
        data = load_sequences(workload)
        return DgcTrainer(workload, data, on, device=device, meter=meter, **options)

    def calibrate(
        self,
        path: Path,
        *,
        device: str = "cpu",
        quick: bool = False,
        progress: Callable[[int, int, str], None] | None = None,
    ) -> dict[str, Any]:
        """Measure chunks and train the workload predictor (section 4.2), see `calibrated`."""
        from dgbench.systems.dgc.calibrated import calibrate

        return calibrate(path, device=device, quick=quick, progress=progress)
