"""Predictors of snapshots that train nothing, against plain loops; errors at the edges."""

from __future__ import annotations

import pytest
import torch

from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.base.snapshot_baselines import SNAPSHOT_BASELINES, regression_errors

PLAIN = {
    "last_value": lambda before: before[-1],
    "historical_mean": lambda before: [sum(c) / len(before) for c in zip(*before, strict=True)],
}


@pytest.mark.parametrize("name", SNAPSHOT_BASELINES)
@pytest.mark.parametrize(("first", "last"), [(1, 2), (1, 9), (4, 7), (8, 9)])
def test_predictions_are_those_of_a_loop_over_the_past(name, first, last):
    targets = torch.randn(9, 5, generator=torch.Generator().manual_seed(3))
    values = targets.double().tolist()
    wanted = [PLAIN[name](values[:snapshot]) for snapshot in range(first, last)]
    wanted = torch.tensor(wanted, dtype=torch.float64)
    targets[last - 1 :] = torch.nan  # neither the last snapshot that is predicted nor a later one
    found = SNAPSHOT_BASELINES[name](targets, first, last)
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", SNAPSHOT_BASELINES)
@pytest.mark.parametrize(("first", "last"), [(0, 3), (2, 2), (3, 2), (2, 5)])
def test_ranges_without_a_past_or_without_snapshots_are_refused(name, first, last):
    with pytest.raises(InvalidInputError):
        SNAPSHOT_BASELINES[name](torch.zeros(4, 2), first, last)


def test_errors_are_means_over_all_values():
    found = regression_errors(torch.tensor([[1.0, 2.0], [0.0, -1.0]]), torch.zeros(2, 2))
    assert (found.squared, found.absolute) == (1.5, 1.0)
    one, nan, inf = (torch.tensor([[value]]) for value in (0.0, torch.nan, torch.inf))
    for predicted, true in (
        (torch.zeros(2, 3), torch.zeros(3, 2)), (torch.zeros(0, 3),) * 2, (nan, one), (one, inf)
    ):  # fmt: skip
        with pytest.raises(InvalidInputError):
            regression_errors(predicted, true)
