"""Trainers of interactions that do less than they should in timed turns, and an honest one.

All train the first turn as they should, which is not timed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from unittest import mock

import torch
from torch import Tensor

from dgbench.lab.experiment import Measurement, RunContext
from dgbench.models.streaming import IntervalEdges
from dgbench.systems.base.interaction_layout import Group
from dgbench.systems.base.interaction_trainer import InteractionTrainer
from dgbench.systems.base.interactions import InteractionData, InteractionWorkload
from dgbench.systems.tgcn import races
from dgbench.systems.tgcn.experiments import fig6
from tests.cheats import Cheat

EVENTS: Final = 240


class HonestInteractions(InteractionTrainer):
    """Trains as the plain path does; a cheat overrides what it skips."""

    epochs = taken = 0

    def reset_state(self) -> None:
        self.epochs += 1
        super().reset_state()

    @property
    def late(self) -> bool:
        return self.epochs > 1


class UnwrittenState(HonestInteractions):
    """Never updates the state of vertices."""

    def commit(self, edges: IntervalEdges, now: Any) -> None:
        if not self.late:
            super().commit(edges, now)


class SkippedIntervals(HonestInteractions):
    """Takes every second interval and tells its loss twice."""

    told = torch.tensor(0.5)

    def group_loss(self, group: Group) -> Tensor:
        self.taken += 1
        if not self.late or self.taken % 2 == 0:
            self.told = super().group_loss(group)
        return self.told


class FrozenNetwork(HonestInteractions):
    """Leaves its parameters as they are."""

    def group_loss(self, group: Group) -> Tensor:
        self.optimiser.param_groups[0]["lr"] = 0.0 if self.late else self.workload.lr
        return super().group_loss(group)


class FewerInteractions(HonestInteractions):
    """Trains on the first half of each interval alone."""

    def group_loss(self, group: Group) -> Tensor:
        half = [events[: -(-len(events) // 2)] for events in group]
        return super().group_loss(half if self.late else group)


def raced(trainer: type[HonestInteractions], context: RunContext) -> Measurement:
    """One process of Figure 6's race by a trainer that stands in the place of T-GCN's."""

    def opened(
        name: str, task: InteractionWorkload, data: InteractionData, device: str, **options: Any
    ) -> races.Runner:
        task = races.with_intervals(task, data)
        return races.epoch_runner(trainer(task, data, device=device, order="intervals"))

    with (
        mock.patch.dict(races.EVENTS, {"smoke": EVENTS}),
        mock.patch.dict(fig6.TURNS, {"smoke": 2}),
        mock.patch.object(races, "open_runner", opened),
        mock.patch.object(fig6, "TGCN", trainer.__name__),  # a contender of its own
    ):
        return fig6.race("wikipedia", context, {trainer.__name__: {}})


HONEST: Final = Cheat(HonestInteractions.__name__, HonestInteractions, "", trains=raced)
LOSES: Final[Mapping[type[HonestInteractions], str]] = {
    UnwrittenState: "times and counts of what was taken in",
    SkippedIntervals: "updates",
    FrozenNetwork: "updates",
    FewerInteractions: "losses",
}

LEDGER: Final = [
    Cheat(trainer.__name__, trainer, loses, trains=raced) for trainer, loses in LOSES.items()
]
