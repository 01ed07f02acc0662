"""Parts of trainers that are honest while they warm up and cheat in what is timed.

A race puts a part between what it times (epochs, batches or groups) and its own trainer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from dgbench.systems.base.interaction_layout import Group


class LatePart:
    """Part of a trainer that calls `cheat` in place of what is timed; this one is honest.

    Attributes:
        warm: epochs before, of a trainer of batches or groups these. taken: so far.
    """

    warm, taken = 2, 0

    def timed(self, honest: Callable[[], Any]) -> Any:
        """One of them; its loss."""
        self.taken += 1
        return self.cheat(honest) if self.late else honest()

    @property
    def late(self) -> bool:
        return self.taken > self.warm

    def cheat(self, honest: Callable[[], Any]) -> Any:
        """A timed one."""
        return honest()


class Groups:
    """Part of a trainer whose groups of events are timed."""

    def group_loss(self, group: Group) -> Tensor:
        honest = super().group_loss
        return self.timed(lambda: honest(group))


class NoUpdate(LatePart):
    """Takes every update back."""

    def cheat(self, honest: Callable[[], Any]) -> Any:
        before = self.state()
        loss = honest()
        for name, leaf in self.trained().items():
            leaf.data.copy_(before[name])
        return loss


class SkippedSteps(LatePart):
    """Takes every second batch or group, and tells its loss twice."""

    told: Any = 0.5

    def cheat(self, honest: Callable[[], Any]) -> Any:
        if self.taken % 2:
            self.told = honest()
        return self.told


class PutOff(LatePart):
    """Puts batches off until somebody asks about the model."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.owed: list[Callable[[], Any]] = []

    def cheat(self, honest: Callable[[], Any]) -> Any:
        self.owed.append(honest)
        return torch.tensor(0.5)

    def state(self) -> dict[str, Tensor]:
        while self.owed:
            self.owed.pop(0)()
        return super().state()


class HalfGroups(LatePart):
    """Trains on the first half of each group alone."""

    def group_loss(self, group: Group) -> Tensor:
        half = [events[: -(-len(events) // 2)] for events in group]
        return super().group_loss(half if self.late else group)


class UnwrittenMemory(LatePart):
    """Never writes the memories of vertices."""

    def _write(self, *given: Any) -> None:
        if not self.late:
            super()._write(*given)


class UnwrittenState(LatePart):
    """Never writes the state of vertices."""

    def commit(self, *given: Any) -> None:
        if not self.late:
            super().commit(*given)
