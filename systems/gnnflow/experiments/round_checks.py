"""Checks of rounds of continuous training: the last one again on the plain path.

Rounds are followed in float32: after a step, weights of ages differ by rounding from those of any
other precision, and long ages enlarge that. Where the last round left a trainer is compared with
float64.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from dgbench.lab.result_checks import ResultCheck, close, of_contender
from dgbench.runtime.threads import one_thread
from dgbench.runtime.touched import comparing
from dgbench.systems.base.stream import StreamData, StreamTrainer, StreamWorkload
from dgbench.systems.base.stream_recount import recount_batches
from dgbench.systems.gnnflow.experiments.sample_checks import NearbyStream
from dgbench.systems.gnnflow.experiments.trainer_checks import (
    PLAIN,
    ROUNDING,
    SCORED,
    StreamOracle,
    taken_over,
)
from dgbench.systems.gnnflow.rounds import Continuous, RoundResult


class _ScoredTrainer(StreamTrainer):
    """A plain trainer that keeps the scores of what it evaluates.

    Attributes:
        scores: [events, 2] of each batch, of the true pair and of the random one.
    """

    def gathered(self, rows: Tensor, count: int | None = None) -> Tensor:
        if count is not None:
            self.scores.append(rows)
        return rows


class RoundReplay:
    """A stream as it stands before a round, to be played again on the plain path."""

    @comparing()
    def __init__(self, task: StreamWorkload, data: StreamData, stream: Continuous) -> None:
        trainer = stream.trainer
        plain = _ScoredTrainer(task, data, NearbyStream(task, data), device=str(trainer.device))
        plain.scores = []
        plain.insert(trainer.inserted)
        taken_over(plain, trainer)
        self._stream = Continuous(
            plain, stream.rounds, epochs=stream.epochs, every=stream.every, replay=stream.replay,
            evaluate=stream.evaluate,
        )  # fmt: skip
        self._stream.played, self._stream._pending = stream.played, stream._pending
        self._stream._memory = stream._memory

    @comparing()
    def checks(self, name: str, outcome: RoundResult) -> list[ResultCheck]:
        """Losses of the epochs of a round, and the average precision before it.

        Args:
            name: of the stream in the row.
            outcome: of the round.
        """
        with one_thread():
            trainer, exact = self._stream.trainer, self._stream.play()
        part = f"{name}, round {self._stream.played}"
        found = []
        if exact.losses:
            found.append(
                close("losses", outcome.losses, exact.losses, ROUNDING, against=PLAIN, part=part)
            )
        if outcome.ap is not None:
            scores = torch.cat(trainer.scores).cpu()  # type: ignore[attr-defined]
            precision = plain_average_precision(scores[:, 0], scores[:, 1])
            found.append(
                close("scores", outcome.ap, precision, SCORED, against=PLAIN, part=part)
            )  # fmt: skip
        return found


def plain_average_precision(positive: Tensor, negative: Tensor) -> float:
    """Mean over positives of the share of positives among all that are scored as high."""
    above = (positive[None, :] >= positive[:, None]).sum(1).double()
    wrong = (negative[None, :] >= positive[:, None]).sum(1).double()
    return float((above / (above + wrong)).mean()) if positive.numel() else 0.0


@comparing()
def stream_checks(
    task: StreamWorkload,
    data: StreamData,
    streams: Mapping[str | int, Continuous],
    replays: Mapping[str | int, RoundReplay],
    outcomes: Mapping[str | int, RoundResult],
) -> list[ResultCheck]:
    """Checks of streams after their last round.

    Args:
        task, data: of all of them.
        streams: by name, all rounds played; a number names no contender.
        replays: of some, made before their last round.
        outcomes: of that round.
    """
    first = next(iter(streams.values())).trainer
    oracle = StreamOracle(task, data, first.inserted, device=str(first.device))
    found: list[ResultCheck] = []
    for name, stream in streams.items():
        own = replays[name].checks(name, outcomes[name]) if name in replays else []
        # One that never trains takes no step: Adam's first follows signs of gradients alone.
        if stream.every is not None:
            own += oracle.checks(name, stream.trainer)
            own += recount_batches(str(name), stream.trainer, task)
        found += of_contender(name, own) if isinstance(name, str) else own
    return found
