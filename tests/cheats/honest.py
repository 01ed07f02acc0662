"""The system that cheats are made of, and its honest form."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from dgbench.systems.base import Trainer, Workload
from dgbench.systems.base import data as workload_data
from dgbench.systems.base.moments import AdamMoments
from dgbench.systems.reference.system import ReferenceSystem, ReferenceTrainer


class HonestTrainer(ReferenceTrainer):
    """Trains as the reference does; a cheat overrides what it skips."""


class CopiesTrainer(Trainer):
    """Trains so, and hands out copies of its parameters and moments alone."""

    trainer: ClassVar[type[HonestTrainer]] = HonestTrainer

    def __init__(self, workload: Workload, data: Any, **options: Any) -> None:
        self.inner = self.trainer(workload, data, **options)
        self.data, self.meter = data, self.inner.meter
        self.num_frames = self.inner.num_frames

    def step(self, frame: int) -> float:
        return self.inner.step(frame)

    def evaluate(self, frame: int) -> Tensor:
        return self.inner.evaluate(frame)

    def gradients(self, frame: int) -> dict[str, Tensor]:
        return self.inner.gradients(frame)

    def state(self) -> dict[str, Tensor]:
        return self.inner.state()

    def moments(self) -> dict[str, AdamMoments]:
        found = self.inner.moments().items()
        return {name: AdamMoments(one.first.clone(), one.second.clone()) for name, one in found}


class HonestSystem(ReferenceSystem):
    """A plugin whose rows stand."""

    name, title, kind = "honest", "Honest", "paper"
    provenance = "written for a test"
    trainer: ClassVar[type[Trainer]] = HonestTrainer

    def open(self, workload: Any, **options: Any) -> Trainer:
        options.pop("switches", None)
        return self.trainer(workload, workload_data.load(workload), **options)


def system_of(trainer: type[Trainer]) -> type[HonestSystem]:
    """The honest system with another trainer, a plugin of its own."""
    named = {"trainer": trainer, "name": trainer.__name__.lower(), "title": trainer.__name__}
    return type(trainer.__name__ + "System", (HonestSystem,), named)
