"""A program of T-GCN's whose states take in every edge, sampled or not.

The paper says that half of the edges are trained on, and not whether the states of vertices see the
other half. Its own program (`program.Program`) reads it as no: an edge that is not sampled never
happened. Here it gives no loss, but still changes the state of its ends, as networks that are
trained on samples of a graph are usually applied to the whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.tgcn.intervals import TimeInterval
from dgbench.systems.tgcn.program import Edges, Program

if TYPE_CHECKING:
    from dgbench.systems.tgcn.feeding import StagedInterval
    from dgbench.systems.tgcn.trainer import TgcnTrainer


class WholeState(Program):
    """Trains on the sampled edges of an interval, then lets the state take in all of its edges.

    An interval's edges are those from its first sampled one to that of the next interval; so those
    before the first sampled edge of a range, and after its last, stay out. The state is the one
    before the interval, refreshed by the parameters after its step. Takes about half as long
    again as T-GCN's own program.
    """

    def bind(self, trainer: TgcnTrainer) -> None:
        super().bind(trainer)
        self._whole: dict[tuple[int, int, int], StagedInterval] = {}

    def partition(self, edges: Edges) -> list[TimeInterval]:
        found = list(super().partition(edges))
        if not found:
            return found
        starts = [int(one.events[0]) for one in found]
        bounds = [*starts, int(found[-1].events[-1]) + 1]
        whole = self.trainer.edges_of(torch.arange(bounds[0], bounds[-1]))
        cuts = torch.tensor(bounds) - bounds[0]
        # Without negatives, as nothing is scored.
        plan = self.trainer.planner.plan(
            whole.events, whole.src, whole.dst, whole.negative[:0], whole.t, cuts
        )
        loads = self.trainer.staged(plan)
        for interval, load in zip(found, loads, strict=True):
            load.following = None  # what comes after it is an interval to train on
            self._whole[_key(interval.events)] = load
        return found

    def train(self, grids: StagedInterval, devices: int) -> float:
        trainer = self.trainer
        if trainer.own_part is not None:
            raise InvalidInputError("`WholeState` trains in one process; ranks are not supported")
        rows = torch.cat(
            [
                share.ids[: share.ends].long() + int(trainer.parts.bounds[part])
                for part, (share, _) in grids.shares.items()
            ]
        ).to(trainer.vertices.embedding.device)
        state, pending = trainer.vertices[rows], trainer.pending[rows]
        loss = super().train(grids, devices)
        trainer.vertices.write(rows, state)
        trainer.pending.write(rows, pending)
        trainer.take_in(self._whole[_key(grids.events)])
        return loss


def _key(events: torch.Tensor) -> tuple[int, int, int]:
    return events.numel(), int(events[0]), int(events[-1])
