"""Trainers of streams and of interactions that do less than they should, and honest ones.

All train the first round, or turn, as they should, which is not timed.
"""

from __future__ import annotations

from typing import Any, Final
from unittest import mock

import torch
from torch import Tensor

from dgbench.lab.experiment import Measurement, RunContext
from dgbench.runtime.meter import Meter
from dgbench.systems.base.interaction_trainer import InteractionTrainer
from dgbench.systems.base.interactions import InteractionData, InteractionWorkload
from dgbench.systems.base.plain_stream import PlainStream
from dgbench.systems.base.stream import StreamTrainer, StreamWorkload, load_stream
from dgbench.systems.gnnflow.experiments import round_race
from dgbench.systems.gnnflow.experiments.settings import BY_NAME
from dgbench.systems.tgcn import races
from dgbench.systems.tgcn.experiments import fig6
from tests.cheats import Cheat
from tests.cheats.late import (
    Groups,
    HalfGroups,
    LatePart,
    NoUpdate,
    PutOff,
    SkippedSteps,
    UnwrittenMemory,
    UnwrittenState,
)

EVENTS: Final = 240
"""Interactions of Figure 6's race."""
TASK: Final = StreamWorkload(
    dataset="wikipedia", events=600, model="tgn", batch=10, fanouts=(3,), node_dim=0, edge_dim=0,
    hidden_dim=4, time_dim=4, memory_dim=4,
)  # fmt: skip


class Rounds:
    """Part of a trainer whose rounds are timed after the first."""

    inserts = 0

    def insert(self, last: int) -> None:
        self.inserts += 1  # of the initial graph, then one a round
        super().insert(last)

    @property
    def late(self) -> bool:
        return self.inserts > 2

    def enqueue_batch(self, events: Tensor, epoch: int) -> Tensor:
        honest = super().enqueue_batch
        return self.timed(lambda: honest(events, epoch))


class Turns(Groups):
    """Part of a trainer whose epochs are timed after the first."""

    epochs = 0

    def reset_state(self) -> None:
        self.epochs += 1
        super().reset_state()

    @property
    def late(self) -> bool:
        return self.epochs > 1


class SkippedBatches(SkippedSteps):
    """Takes every second batch or group, and tells its loss twice."""

    told = torch.tensor(0.5)


def by_rounds(part: type[LatePart], context: RunContext) -> Measurement:
    """One process of a race of rounds by a trainer that stands in the place of GNNFlow's."""
    trainer: Any = type(part.__name__, (Rounds, part, StreamTrainer), {})
    data, graph = load_stream(TASK), BY_NAME[TASK.dataset]

    def opened(*_: Any) -> StreamTrainer:
        return trainer(TASK, data, PlainStream(TASK, data), meter=Meter(timing=True))

    with (
        mock.patch.object(round_race, "open_contender", opened),
        mock.patch.object(round_race, "GNNFLOW", part.__name__),  # a contender of its own
    ):
        length = round_race.Length(2, 2, 0.0)
        return round_race.race([part.__name__], TASK, data, graph, length, epochs=2)


def by_turns(part: type[LatePart], context: RunContext) -> Measurement:
    """One process of Figure 6's race by a trainer that stands in the place of T-GCN's."""
    trainer: Any = type(part.__name__, (Turns, part, InteractionTrainer), {})

    def opened(
        name: str, task: InteractionWorkload, data: InteractionData, device: str, **options: Any
    ) -> races.Runner:
        task = races.with_intervals(task, data)
        return races.epoch_runner(trainer(task, data, device=device, order="intervals"))

    with (
        mock.patch.dict(races.EVENTS, {"smoke": EVENTS}),
        mock.patch.dict(fig6.TURNS, {"smoke": 2}),
        mock.patch.object(races, "open_runner", opened),
        mock.patch.object(fig6, "TGCN", part.__name__),  # a contender of its own
    ):
        return fig6.race("wikipedia", context, {part.__name__: {}})


HONEST: Final = [
    Cheat("stream", LatePart, trains=by_rounds), Cheat("interactions", LatePart, trains=by_turns)
]  # fmt: skip
UPDATES: Final = "updates"
LEDGER: Final = [
    Cheat("stream, skipped batches", SkippedBatches, UPDATES, trains=by_rounds),
    Cheat("stream, no update", NoUpdate, UPDATES, trains=by_rounds),
    Cheat("stream, put off", PutOff, UPDATES, trains=by_rounds),
    Cheat("stream, unwritten memory", UnwrittenMemory, "times of what is waiting",
          trains=by_rounds),
    Cheat("interactions, skipped groups", SkippedBatches, UPDATES, trains=by_turns),
    Cheat("interactions, no update", NoUpdate, UPDATES, trains=by_turns),
    Cheat("interactions, half of each group", HalfGroups, "losses", trains=by_turns),
    Cheat("interactions, unwritten state", UnwrittenState,
          "times and counts of what was taken in", trains=by_turns),
]  # fmt: skip
