"""Trainers of streams that do less than they should in timed rounds, and an honest one.

All train the first round as they should, which is not timed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from unittest import mock

import torch
from torch import Tensor

from dgbench.lab.experiment import Measurement, RunContext
from dgbench.runtime.meter import Meter
from dgbench.systems.base.plain_stream import PlainStream
from dgbench.systems.base.stream import StreamTrainer, StreamWorkload, load_stream
from dgbench.systems.gnnflow.experiments import round_race
from dgbench.systems.gnnflow.experiments.settings import BY_NAME
from tests.cheats import Cheat

TASK: Final = StreamWorkload(
    dataset="wikipedia", events=600, model="tgn", batch=10, fanouts=(3,), node_dim=0, edge_dim=0,
    hidden_dim=4, time_dim=4, memory_dim=4,
)  # fmt: skip


class HonestStream(StreamTrainer):
    """Trains as the plain path does; a cheat overrides what it skips."""

    inserts = taken = 0

    def insert(self, last: int) -> None:
        self.inserts += 1  # of the initial graph, then one a round
        super().insert(last)

    @property
    def late(self) -> bool:
        return self.inserts > 2


class SkippedBatches(HonestStream):
    """Takes every second batch and tells its loss twice."""

    told = torch.tensor(0.5)

    def enqueue_batch(self, events: Tensor, epoch: int) -> Tensor:
        self.taken += 1
        if not self.late or self.taken % 2 == 0:
            self.told = super().enqueue_batch(events, epoch)
        return self.told


class UnwrittenMemory(HonestStream):
    """Never writes the memory."""

    def _write(self, *given: Any) -> None:
        if not self.late:
            super()._write(*given)


class FrozenParameters(HonestStream):
    """Leaves its parameters as they are."""

    def enqueue_batch(self, events: Tensor, epoch: int) -> Tensor:
        self.optimiser.param_groups[0]["lr"] = 0.0 if self.late else self.workload.lr
        return super().enqueue_batch(events, epoch)


class AskedStream(HonestStream):
    """Puts batches off until somebody asks about the model."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.owed: list[tuple[Tensor, int]] = []

    def enqueue_batch(self, events: Tensor, epoch: int) -> Tensor:
        if not self.late:
            return super().enqueue_batch(events, epoch)
        self.owed.append((events, epoch))
        return torch.tensor(0.5)

    def state(self) -> dict[str, Tensor]:
        while self.owed:
            super().enqueue_batch(*self.owed.pop(0))
        return super().state()


def raced(trainer: type[HonestStream], context: RunContext) -> Measurement:
    """One process of a race of rounds by a trainer that stands in the place of GNNFlow's."""
    data, graph = load_stream(TASK), BY_NAME[TASK.dataset]

    def opened(*_: Any) -> StreamTrainer:
        return trainer(TASK, data, PlainStream(TASK, data), meter=Meter(timing=True))

    # A contender of its own: a wrong one falls in all cells of its workload.
    name = trainer.__name__
    with (
        mock.patch.object(round_race, "open_contender", opened),
        mock.patch.object(round_race, "GNNFLOW", name),
    ):
        length = round_race.Length(2, 2, 0.0)
        return round_race.race([name], TASK, data, graph, length, epochs=2)


HONEST: Final = Cheat(HonestStream.__name__, HonestStream, "", trains=raced)
LOSES: Final[Mapping[type[HonestStream], str]] = {
    SkippedBatches: "updates",
    UnwrittenMemory: "times of what is waiting",
    FrozenParameters: "updates",
    AskedStream: "updates",
}

LEDGER: Final = [
    Cheat(trainer.__name__, trainer, loses, trains=raced) for trainer, loses in LOSES.items()
]
