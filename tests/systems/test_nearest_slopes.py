"""Gradients at kinks of rectifiers: either slope is right only where rounding decides."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from dgbench.lab.result_checks import largest
from dgbench.systems.base.kinks import with_nearest_slopes

ROWS = 64
RECTIFIERS = {
    "relu": torch.relu,
    "leaky_relu": lambda x: functional.leaky_relu(x, 0.25),
    "leaky_relu in place": lambda x: functional.leaky_relu(x * 1.0, 0.25, inplace=True),
}


def gradients(x: Tensor, rectify, *, shift: float = 0.0) -> dict[str, Tensor]:
    """Of the sum of a rectified layer, with `shift` added to the first input of the rectifier."""
    weight = torch.ones(4, 3, dtype=torch.float64, requires_grad=True)
    inputs = x @ weight
    moved = torch.zeros_like(inputs)
    moved[0, 0] = shift
    rectify(inputs + moved).sum().backward()
    return {"weight": weight.grad}


def near_zero(size: float) -> Tensor:
    """float64[ROWS, 4] whose first row sums up to `size`, of terms around one."""
    x = torch.randn(ROWS, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    x[0] = torch.tensor([1.0, -1.0, 2.0, -2.0 + size], dtype=torch.float64)
    return x


@pytest.mark.parametrize("kind", RECTIFIERS)
def test_a_slope_that_rounding_decides_is_taken_as_the_trainer_has_it(kind):
    x, rectify = near_zero(1e-8), RECTIFIERS[kind]
    left = gradients(x, rectify, shift=-3e-8)  # the other side
    assert largest(left, gradients(x, rectify)) > 1e-3
    nearest = with_nearest_slopes(lambda: gradients(x, rectify), lambda found: largest(left, found))
    assert nearest is not None
    assert largest(left, nearest) < 1e-12


def test_a_wrong_sign_far_from_zero_stays_wrong():
    x = near_zero(1e-3)
    left = gradients(x, torch.relu, shift=-2e-3)
    nearest = with_nearest_slopes(
        lambda: gradients(x, torch.relu), lambda found: largest(left, found)
    )
    assert nearest is None


def test_rows_of_zeros_are_no_kinks():
    x = near_zero(1e-3)
    x[5:40] = 0.0
    seen = []

    def answer() -> dict[str, Tensor]:
        seen.append(1)
        return gradients(x, torch.relu)

    assert with_nearest_slopes(answer, lambda found: 1.0) is None
    assert len(seen) == 3  # the exact one, and two that measure rounding


def test_rows_that_are_alike_pass_zero_together():
    x = near_zero(1e-8)
    x = torch.cat([x, x[:1].expand(500, 4)])

    def many(shift: float) -> dict[str, Tensor]:
        weight = torch.ones(4, 3, dtype=torch.float64, requires_grad=True)
        inputs = x @ weight
        moved = torch.zeros_like(inputs)
        moved[ROWS:, 2] = moved[0, 2] = shift
        torch.relu(inputs + moved).sum().backward()
        return {"weight": weight.grad}

    left = many(-3e-8)
    nearest = with_nearest_slopes(lambda: many(0.0), lambda found: largest(left, found))
    assert nearest is not None
    assert largest(left, nearest) < 1e-12
