"""T-GCN as a plugin: its switches and its trainer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dgbench.runtime.meter import Meter
from dgbench.systems.base.interactions import (
    InteractionData,
    InteractionWorkload,
    load_interactions,
)
from dgbench.systems.base.system import System
from dgbench.systems.tgcn.techniques import TECHNIQUES
from dgbench.systems.tgcn.trainer import TgcnTrainer

if TYPE_CHECKING:
    from dgbench.systems.base.rank_training import RankTraining


class TgcnSystem(System):
    """T-GCN: samples, cuts into grids, and passes destinations round a ring of devices."""

    name = "tgcn"
    title = "T-GCN"
    kind = "paper"
    about = (
        "Trains DyGNN on half of every neighbourhood, cut by time, source and destination; sources "
        "stay on their device, destinations go round a ring."
    )
    provenance = "re-implemented from the paper"
    techniques = TECHNIQUES
    trains = (InteractionWorkload, "trains on interactions")

    def unsupported(self, workload: Any, device: str) -> list[str]:
        reasons = super().unsupported(workload, device)
        if isinstance(workload, InteractionWorkload):
            if workload.model != "dygnn":
                reasons.append(f"T-GCN trains dygnn, not '{workload.model}'")
            if workload.propagation:
                reasons.append("T-GCN has no propagation to neighbours: propagation=False")
        return reasons

    def rank_training(self) -> RankTraining:
        from dgbench.systems.tgcn.ranked import GridRanks

        return GridRanks()

    def open(
        self,
        workload: InteractionWorkload,
        *,
        device: str = "cpu",
        switches: Mapping[str, bool] | None = None,
        meter: Meter | None = None,
        data: InteractionData | None = None,
        **options: Any,
    ) -> TgcnTrainer:
        """As `System.open`.

        Args:
            data: the workload's, where it is loaded already.
            options: of `TgcnTrainer`: devices, resident, memory_bytes, program and others.
        """
        on = self.switches(switches)
        data = load_interactions(workload) if data is None else data
        return TgcnTrainer(workload, data, on, device=device, meter=meter, **options)
