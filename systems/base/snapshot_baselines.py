"""Predictors of a vertex's next value that train nothing, and errors of predictions.

The value of a vertex in snapshot s is predicted from its values in snapshots before s alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from dgbench.runtime.errors import InvalidInputError


def last_value(targets: Tensor, first: int, last: int) -> Tensor:
    """float64[last - first, N]: values of the snapshot before each of first .. last - 1.

    Args:
        targets: float[T, N]. first: at least 1, as nothing is before snapshot 0.
    """
    _check_range(targets, first, last)
    return targets[first - 1 : last - 1].double()


def historical_mean(targets: Tensor, first: int, last: int) -> Tensor:
    """float64[last - first, N]: each vertex's mean over all snapshots before the predicted one."""
    _check_range(targets, first, last)
    sums = targets[: last - 1].double().cumsum(0)[first - 1 :]
    return sums / torch.arange(first, last, dtype=torch.float64).unsqueeze(1)


SNAPSHOT_BASELINES: Final[dict[str, Callable[[Tensor, int, int], Tensor]]] = {
    "last_value": last_value,
    "historical_mean": historical_mean,
}


@dataclass(frozen=True, slots=True)
class RegressionErrors:
    """Mean squared and mean absolute error over all vertices of all predicted snapshots."""

    squared: float
    absolute: float


def regression_errors(predicted: Tensor, true: Tensor) -> RegressionErrors:
    """Errors of predictions, summed in float64.

    Args:
        predicted, true: float[n, N], at least one value.

    Raises:
        InvalidInputError: shapes differ, are empty, or a value is not finite.
    """
    if predicted.shape != true.shape or not true.numel():
        raise InvalidInputError(
            f"predicted {list(predicted.shape)} and true {list(true.shape)} must be equal and hold "
            "at least one value"
        )
    gaps = predicted.double() - true.double()
    if not bool(gaps.isfinite().all()):
        raise InvalidInputError(
            "predictions or targets hold a number that is not finite",
            hint="training has diverged: lower `lr`",
        )
    return RegressionErrors(float(gaps.square().mean()), float(gaps.abs().mean()))


def _check_range(targets: Tensor, first: int, last: int) -> None:
    if not 1 <= first < last <= len(targets):
        raise InvalidInputError(
            f"snapshots {first} .. {last} cannot be predicted; there are {len(targets)}",
            hint="predict at least one snapshot, none before the second",
        )
