"""Ranks of a stream trainer's predictions in a `RankingTask`."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.base.link_ranking import RankBlock, RankingTask, RankScores, rank_scores
from dgbench.systems.base.stream import StreamTrainer, batch_draw

ROOTS: Final = 4096
"""Vertices that are embedded in one call."""
PAIR_FLOATS: Final = 1 << 22
"""Floats of hidden layers of pairs that are scored in one call."""


class StreamRanker:
    """A trained network as a scorer of the blocks of a task, which come in the order of time.

    Both ends of a pair are asked for when the window opens: neighbours are those of events before
    it, and memories have taken in these and no others.
    """

    def __init__(self, trainer: StreamTrainer, task: RankingTask) -> None:
        """
        Args:
            trainer: trained on events before the task's first; its memories hold these.
        """
        self._trainer = trainer
        self._task = task
        self._window = -1
        self._taken = task.first
        self._embedded: dict[str, tuple[Tensor, Tensor]] = {}
        if trainer.workload.closed:
            raise InvalidInputError(
                "a workload with `closed` sees events of the time it predicts, so it is not ranked"
            )

    def __call__(self, block: RankBlock) -> Tensor:
        """float32[b, C] on the CPU: logits of the block's pairs."""
        if block.window != self._window:
            self._open(block)
        candidates = block.candidates[:1] if block.shared else block.candidates
        sources = self._embeddings("src", block.src, block)
        targets = self._embeddings("dst", candidates, block)
        head = self._trainer.model.head
        size = max(1, PAIR_FLOATS // max(1, block.candidates.shape[1] * sources.shape[-1]))
        found: list[Tensor] = []
        with torch.no_grad():
            for at in range(0, sources.shape[0], size):
                to = targets if block.shared else targets[at : at + size]
                found.append(head.pairs(sources[at : at + size].unsqueeze(1), to).cpu())
        return torch.cat(found)

    def _open(self, block: RankBlock) -> None:
        """Let memories and the graph take in all events before the window."""
        begin = int(self._task.windows.cuts[block.window])
        if begin > self._taken:
            self._trainer.evaluate_range(self._taken, begin, remember=True)
        self._trainer.insert(block.seen)
        self._window, self._taken = block.window, begin
        self._embedded.clear()

    def _embeddings(self, side: str, nodes: Tensor, block: RankBlock) -> Tensor:
        """Embeddings [..., H] of vertices, each embedded once; kept while the window is open."""
        vertices, place = torch.unique(nodes, return_inverse=True)
        known, rows = self._embedded.get(side, (vertices[:0], torch.zeros(0)))
        if not torch.equal(known, vertices):
            draw = batch_draw(self._trainer.workload, int(block.events[0]), 0, scored=True)
            rows = torch.cat(
                [
                    self._trainer.embed(part, block.opens, draw=draw)
                    for part in vertices.split(ROOTS)
                ]
            )
            self._embedded[side] = vertices, rows
        return rows[place.to(rows.device)]


def rank_stream(trainer: StreamTrainer, task: RankingTask) -> RankScores:
    """Rank the events of a task by a trained network; memories are afterwards as before.

    Args:
        trainer: trained on events before the task's first, with `reset_memory` before.
        task: on the trainer's own stream.
    """
    before = trainer.mark_memory()
    trainer.insert(int(task.windows.seen[0]))
    try:
        return rank_scores(task, StreamRanker(trainer, task))
    finally:
        trainer.restore_memory(before)
