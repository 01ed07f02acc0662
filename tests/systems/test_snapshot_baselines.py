"""Predictors of snapshots that train nothing, against plain loops; errors at the edges."""

from __future__ import annotations

import pytest
import torch

from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.base.snapshot_baselines import (
    SNAPSHOT_BASELINES,
    historical_mean,
    last_value,
    regression_errors,
)


def plain(name: str, values: list[list[float]], first: int, last: int) -> list[list[float]]:
    found = []
    for snapshot in range(first, last):
        before = values[:snapshot]
        if name == "last_value":
            found.append(list(before[-1]))
        else:
            found.append([sum(column) / len(before) for column in zip(*before, strict=True)])
    return found


@pytest.mark.parametrize("name", SNAPSHOT_BASELINES)
@pytest.mark.parametrize(("first", "last"), [(1, 2), (1, 9), (4, 7), (8, 9)])
def test_predictions_are_those_of_a_loop(name, first, last):
    targets = torch.randn(9, 5, generator=torch.Generator().manual_seed(3))
    found = SNAPSHOT_BASELINES[name](targets, first, last)
    wanted = torch.tensor(plain(name, targets.double().tolist(), first, last), dtype=torch.float64)
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", SNAPSHOT_BASELINES)
def test_no_value_of_the_predicted_snapshot_or_later_is_read(name):
    targets = torch.randn(8, 3, generator=torch.Generator().manual_seed(4))
    for snapshot in range(1, 8):
        spoiled = targets.clone()
        spoiled[snapshot:] = torch.nan
        clean = SNAPSHOT_BASELINES[name](targets, snapshot, snapshot + 1)
        assert torch.equal(SNAPSHOT_BASELINES[name](spoiled, snapshot, snapshot + 1), clean)


@pytest.mark.parametrize("baseline", [last_value, historical_mean])
@pytest.mark.parametrize(("first", "last"), [(0, 3), (2, 2), (3, 2), (2, 5)])
def test_ranges_without_a_past_or_without_snapshots_are_refused(baseline, first, last):
    with pytest.raises(InvalidInputError):
        baseline(torch.zeros(4, 2), first, last)


def test_errors_are_means_over_all_values():
    found = regression_errors(torch.tensor([[1.0, 2.0], [0.0, -1.0]]), torch.zeros(2, 2))
    assert (found.squared, found.absolute) == (1.5, 1.0)


@pytest.mark.parametrize(
    ("predicted", "true"),
    [
        (torch.zeros(2, 3), torch.zeros(3, 2)),
        (torch.zeros(0, 3), torch.zeros(0, 3)),
        (torch.tensor([[torch.nan]]), torch.zeros(1, 1)),
        (torch.zeros(1, 1), torch.tensor([[torch.inf]])),
    ],
)
def test_errors_of_what_is_no_prediction_are_refused(predicted, true):
    with pytest.raises(InvalidInputError):
        regression_errors(predicted, true)
