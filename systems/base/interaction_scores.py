"""Ranking quality of interactions against random negatives, by step and over a range."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dgbench.systems.base.scores import average_precision


@dataclass(frozen=True, slots=True)
class InteractionScores:
    """Ranking quality of some events against random negatives, or accuracy of classified ends.

    Attributes:
        ap: average precision over all events and their negatives; NaN in the `classify` task.
        accuracy: share of events whose score is above their negative's (half where equal); in the
            `classify` task of right classes among the ends that are held out, NaN where none is.
        loss: per event of the range.
        n: events scored.
    """

    ap: float
    accuracy: float
    loss: float
    n: int


@dataclass(slots=True, eq=False)
class StepResult:
    """Loss and scores of one step.

    Attributes:
        loss: summed over its events, without a graph.
        positives, negatives: scores [B] in the order of the step's events; empty in `classify`.
        correct, asked: held-out ends of events classified rightly, and all of them.
    """

    loss: Tensor
    positives: Tensor
    negatives: Tensor
    correct: Tensor
    asked: Tensor


def scores_of(found: list[StepResult], events: int, classify: bool) -> InteractionScores:
    """The scores of a range from those of its steps."""
    loss = sum(float(one.loss) for one in found) / max(1, events)
    if classify:
        asked = sum(float(one.asked) for one in found)
        correct = sum(float(one.correct) for one in found)
        return InteractionScores(
            float("nan"), correct / asked if asked else float("nan"), loss, events
        )
    none = torch.zeros(0)
    positives = torch.cat([none, *(one.positives.cpu().float() for one in found)])
    negatives = torch.cat([none, *(one.negatives.cpu().float() for one in found)])
    label = torch.cat([torch.ones_like(positives), torch.zeros_like(negatives)]).long()
    above = (positives > negatives).double() + 0.5 * (positives == negatives).double()
    return InteractionScores(
        average_precision(torch.cat([positives, negatives]), label),
        float(above.mean()) if positives.numel() else float("nan"),
        loss,
        positives.numel(),
    )
