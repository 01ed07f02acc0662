"""Metrics of scores of edges against those of negatives."""

from __future__ import annotations

import torch
from torch import Tensor

from dgbench.runtime.errors import InvalidInputError


def average_precision(scores: Tensor, label: Tensor) -> float:
    """Area under precision over recall: sum of (R_i - R_{i-1}) P_i over thresholds, falling.

    Equal scores are one threshold, so their order does not matter.

    Args:
        scores: floating [n], the higher the more likely; finite.
        label: [n], 0 or 1.

    Returns:
        In [0, 1]; NaN where no label is 1.

    Raises:
        InvalidInputError: lengths differ, or a score is not finite.
    """
    if scores.dim() != 1 or scores.shape != label.shape:
        raise InvalidInputError(
            f"scores {list(scores.shape)} and label {list(label.shape)} must be equally long [n]"
        )
    if not bool(scores.isfinite().all()):
        raise InvalidInputError(
            "scores hold a number that is not finite", hint="training has diverged: lower `lr`"
        )
    positives = int(label.sum())
    if positives == 0:
        return float("nan")
    falling, order = scores.detach().sort(descending=True)
    hits = label[order].to(torch.float64).cumsum(0)
    ends = torch.ones_like(falling, dtype=torch.bool)  # the last of each run of equal scores
    ends[:-1] = falling[1:] != falling[:-1]
    place = ends.nonzero().squeeze(1)
    found = hits[place]
    gained = torch.diff(found, prepend=found.new_zeros(1))
    return float((gained * found / (place + 1)).sum() / positives)
