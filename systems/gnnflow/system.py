"""GNNFlow on one process as a plugin: its switches and its trainer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import torch
from torch import Tensor

from dgbench.runtime.meter import Meter
from dgbench.systems.base.stream import (
    BatchWatch,
    StreamData,
    StreamTrainer,
    StreamWorkload,
    load_stream,
)
from dgbench.systems.base.stream_batches import batches
from dgbench.systems.base.system import System
from dgbench.systems.gnnflow.access import AccessSettings, StoreAccess
from dgbench.systems.gnnflow.device_access import DeviceAccess
from dgbench.systems.gnnflow.recorded import RecordedBatches, why_not
from dgbench.systems.gnnflow.replay import Replay
from dgbench.systems.gnnflow.rounds import Continuous, Round
from dgbench.systems.gnnflow.techniques import TECHNIQUES

if TYPE_CHECKING:
    from dgbench.systems.base.rank_training import RankTraining


class GnnflowTrainer(StreamTrainer):
    """Trains on a stream over GNNFlow's store and caches; on a GPU it samples there, too.

    Losses are those of `PlainStream` under every switch but `chunk_scheduling` and `replay`; those
    of `recorded_steps` up to the order of sums.

    Args:
        workload, data: the task and its events, from `load_stream`.
        switches: a truth value for each of `GnnflowSystem.techniques`.
        settings: sizes of blocks and caches.
        replay: old events per new one where `replay` is on.
        device, meter, dtype: as in `StreamTrainer`.
    """

    def __init__(
        self,
        workload: StreamWorkload,
        data: StreamData,
        switches: Mapping[str, bool],
        *,
        settings: AccessSettings | None = None,
        replay: float = 1.0,
        device: str = "cpu",
        meter: Meter | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.on = dict(switches)
        if not self.on["chunk_scheduling"]:
            workload = msgspec.structs.replace(workload, chunks=1)
        meter = meter if meter is not None else Meter(device=device)
        kind = DeviceAccess if torch.device(device).type == "cuda" else StoreAccess
        access = kind(workload, data, switches, settings=settings, meter=meter, device=device)
        self.replay = Replay(replay, workload.seed) if self.on["replay"] else None
        super().__init__(workload, data, access, device=device, meter=meter, dtype=dtype)
        self._recorded: RecordedBatches | None = None
        self._records = self.on["recorded_steps"]
        if self._records and (reason := why_not(self.workload, access)):
            self._records = False
            self.notes.append(f"steps are not recorded: {reason}")

    @property
    def recorded(self) -> bool:
        """As there: where `recorded_steps` is on and nothing speaks against it."""
        return self._records

    @property
    def optimiser(self) -> torch.optim.Adam:
        """As there; one that a CUDA graph may hold where steps are recorded."""
        if self._optimiser is None and self._records:
            self._optimiser = torch.optim.Adam(
                self.model.parameters(), lr=self.workload.lr, fused=True,
                capturable=self.device.type == "cuda",
            )  # fmt: skip
        return super().optimiser

    def train_on(self, events: Tensor, *, epoch: int = 0, watch: BatchWatch | None = None) -> float:
        if not self._records or not events.numel():
            return super().train_on(events, epoch=epoch, watch=watch)
        parts = batches(self.workload, events, self.data.events.t[events], epoch)
        return self._steps().train_on(parts, epoch, watch)

    def step(self, frame: int) -> float:
        if not self._records:
            return super().step(frame)
        return self._steps().train_on([self._frame(frame)], 0)

    def _steps(self) -> RecordedBatches:
        if self._recorded is None or not self._recorded.fits():
            self._recorded = None  # its memory is free before there is another
            self._recorded = RecordedBatches(self)
        return self._recorded

    def load_training_state(self, state: dict[str, Any]) -> None:
        super().load_training_state(state)
        self._recorded = None  # the optimiser's state lies elsewhere
        if self._records:  # also what another trainer has kept
            for group in self.optimiser.param_groups:
                group["capturable"] = self.device.type == "cuda"

    def close(self) -> None:
        self._recorded = None
        super().close()

    def follow(self, rounds: list[Round], **options: Any) -> Continuous:
        """Continuous training over rounds, see `Continuous`; with `replay` where that is on."""
        return Continuous(self, rounds, **{"replay": self.replay, **options})

    def report(self) -> dict[str, float]:
        return {**super().report(), **self.access.report()}


class GnnflowSystem(System):
    """GNNFlow: continuous training on a graph that grows in place."""

    name = "gnnflow"
    title = "GNNFlow"
    kind = "paper"
    about = (
        "Appends edges to blocks in place, samples neighbours by time from them, and keeps "
        "features in caches that last from round to round."
    )
    provenance = "re-implemented from the paper (PVLDB 17)"
    techniques = TECHNIQUES
    trains = (StreamWorkload, "trains on streams of events")

    def rank_training(self) -> RankTraining:
        from dgbench.systems.gnnflow.ranked import StreamRanks

        return StreamRanks()

    def open(
        self,
        workload: StreamWorkload,
        *,
        device: str = "cpu",
        switches: Mapping[str, bool] | None = None,
        meter: Meter | None = None,
        data: StreamData | None = None,
        **options: Any,
    ) -> GnnflowTrainer:
        """As `System.open`.

        Args:
            data: the workload's, where it is loaded already.
            options: `settings`, `replay` and `dtype` of `GnnflowTrainer`.
        """
        on = self.switches(switches)
        data = load_stream(workload) if data is None else data
        return GnnflowTrainer(workload, data, on, device=device, meter=meter, **options)
