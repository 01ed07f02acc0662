"""Ranks of predictions of a network with a state per vertex in a `RankingTask`."""

from __future__ import annotations

import torch
from torch import Tensor

from dgbench.systems.base.interaction_trainer import InteractionTrainer
from dgbench.systems.base.link_ranking import RankBlock, RankingTask, RankScores, rank_scores
from dgbench.systems.base.stream_ranking import PAIR_FLOATS


class InteractionRanker:
    """A trained network as a scorer of the blocks of a task, which come in the order of time.

    Both ends of a pair are read when the window opens, with the state of all events before it and
    of no others.
    """

    def __init__(self, trainer: InteractionTrainer, task: RankingTask) -> None:
        """
        Args:
            trainer: its state holds the events before the first window opens.
        """
        self._trainer = trainer
        self._task = task
        self.taken = int(task.windows.seen[0])
        """Events that the state holds."""

    def __call__(self, block: RankBlock) -> Tensor:
        """float[b, C] on the CPU: scores of the block's pairs."""
        if block.seen > self.taken:
            self._trainer.evaluate_range(self.taken, block.seen, remember=True)
            self.taken = block.seen
        model = self._trainer.model
        candidates = block.candidates[:1] if block.shared else block.candidates
        vertices, place = torch.unique(candidates, return_inverse=True)
        found: list[Tensor] = []
        with torch.no_grad():
            targets = self._refreshed(vertices)
            size = max(1, PAIR_FLOATS // (vertices.numel() * self._trainer.workload.hidden_dim))
            for part in block.src.split(size):
                found.append(model.pairs(self._refreshed(part), targets, block.opens).cpu())
        return torch.cat(found).gather(1, place.expand(block.src.numel(), -1))

    def _refreshed(self, vertices: Tensor) -> object:
        """State of vertices with what waits for them taken in; nothing is kept."""
        ids = vertices.to(self._trainer.device)
        return self._trainer.model.refresh(*self._trainer.read(ids))


def rank_interactions(
    trainer: InteractionTrainer, task: RankingTask, *, taken: int | None = None
) -> RankScores:
    """Rank the events of a task by a trained network.

    Events before the task's first window change the state in the order in which the trainer scores;
    afterwards it is that of the last window.

    Args:
        trainer: trained on events before the task's first.
        task: on the trainer's own events.
        taken: events that the state holds; None to build it anew from the first event on, by the
            present parameters.
    """
    if taken is None:
        trainer.reset_state()
        taken = 0
    trainer.evaluate_range(taken, int(task.windows.seen[0]), remember=True)
    return rank_scores(task, InteractionRanker(trainer, task))
