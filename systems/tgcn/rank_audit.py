"""Audited intervals of T-GCN's ranks: those of all ranks together, taken again in float64.

As in `base.interaction_audit`, with the state dealt out: around drawn intervals of timed epochs
every rank copies the rows of its own vertices, off the clocks, and rank 0 the parameters and
moments that all of them have. The launching process puts the rows together, and the plain trainer
takes the whole interval again.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor

from dgbench.lab.result_checks import ResultCheck
from dgbench.runtime.collectives import Communicator
from dgbench.runtime.schedule import DrawnRounds
from dgbench.runtime.threads import one_thread
from dgbench.runtime.touched import comparing
from dgbench.systems.base.audit import adam_checks, counted_steps, taken_again_later
from dgbench.systems.base.interaction_audit import (
    AuditedGroup,
    GroupAudit,
    GroupOracle,
    GroupState,
)
from dgbench.systems.base.interaction_layout import Group
from dgbench.systems.base.interaction_trainer import InteractionTrainer
from dgbench.systems.base.ranked import WorkClock

WARM: Final = 1
"""Epochs before the first that is timed."""


@dataclass(frozen=True, slots=True)
class IntervalCopies:
    """Copies that a rank made around drawn intervals.

    Attributes:
        groups: intervals with the rows of the rank's own vertices. cut: see `GroupAudit.cut`.
        seed: of the draws.
    """

    groups: list[AuditedGroup]
    cut: ResultCheck
    seed: int


class RankGroupAudit(GroupAudit):
    """Audit of one rank; all ranks draw alike and wait for each other's copies, off the clock.

    Args:
        clock: of the rank's own work. seed: of the draws, equal on all ranks.
    """

    def __init__(
        self, comm: Communicator, trainer: InteractionTrainer, clock: WorkClock, seed: int
    ) -> None:
        super().__init__(trainer, turns=DrawnRounds(WARM, seed=seed))
        self._comm, self._clock = comm, clock

    def before(self, group: Group) -> None:
        with self._off_the_clock():
            super().before(group)

    def after(self, loss: Tensor | float) -> None:
        with self._off_the_clock():
            super().after(loss)

    def _copy(self, vertices: Tensor) -> GroupState:
        state = super()._copy(vertices)
        self._comm.barrier()
        return state

    @contextmanager
    def _off_the_clock(self) -> Iterator[None]:
        meter = self._comm.meter
        timing, meter.timing = meter.timing, False
        self._clock.pause()
        yield
        self._clock.resume()
        meter.timing = timing

    @property
    def copies(self) -> IntervalCopies:
        """Copies so far."""
        return IntervalCopies(self.groups, self.cut("ranks"), self._turns.seed)


@comparing()
def audited_intervals(
    ranks: Sequence[IntervalCopies], oracle: GroupOracle, part: str, *, first: bool = True
) -> list[ResultCheck]:
    """Checks of the intervals that were audited against Adam, and of a drawn one in float64.

    Args:
        ranks: copies of each. oracle: of their task. part: which ranks they are, in words.
        first: in the first process of a cell one is taken again, later in a share of them.
    """
    seed, checks = ranks[0].seed, [ranks[0].cut]
    groups = [
        (parts, parts[0].after.training)
        for parts in zip(*(rank.groups for rank in ranks), strict=True)
        if parts[0].after is not None
    ]  # fmt: skip
    if not groups:
        return checks
    steps = counted_steps((parts[0].before.training, after) for parts, after in groups)
    checks += adam_checks(steps, oracle.task.lr, seed=seed)
    if taken_again_later(first):
        parts, _ = random.SystemRandom().choice(groups)
        epoch, number = parts[0].number
        words = f"{part}, epoch {epoch + 1}, interval {number + 1}, drawn by {seed}"
        with one_thread():
            checks += oracle.checks(_whole(parts), words)
    return checks


def _whole(parts: Sequence[AuditedGroup]) -> AuditedGroup:
    """An interval as one of a trainer that holds all vertices."""
    vertices, order = torch.cat([one.vertices for one in parts]).sort()

    def state(own: Sequence[GroupState | None]) -> GroupState:
        states = [one for one in own if one is not None]
        rows = {
            name: torch.cat([one.rows[name] for one in states])[order] for name in states[0].rows
        }
        return replace(states[0], rows=rows)

    before, after = state([one.before for one in parts]), state([one.after for one in parts])
    return replace(parts[0], vertices=vertices, before=before, after=after)
