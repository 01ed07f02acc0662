"""The distance from kinks, which tells inputs whose gradients depend on rounding."""

from __future__ import annotations

import math

import pytest
import torch
from kinks import NEAR, KinkDistance, away_from_kinks


def test_the_nearest_argument_is_told_relative_to_all():
    x = torch.tensor([3e-4, 0.0, -4.0, 4.0, 0.0]).double()  # the root mean square is 3.27
    for rectify in (torch.relu, torch.nn.functional.leaky_relu, lambda x: torch.relu_(x.clone())):
        with KinkDistance() as kinks:
            rectify(100 * x)
        assert kinks.nearest == pytest.approx(3e-4 / math.sqrt(32 / 3))
    with KinkDistance() as kinks:  # neither a rectifier nor an argument
        torch.tanh(torch.ones(3))
        torch.relu(torch.zeros(4))
        torch.relu(torch.ones(0))
    assert kinks.nearest == math.inf


def test_inputs_whose_gradients_differ_between_precisions_are_left_out():
    def program(x):
        return torch.relu(x + 1.0 - 1.0)

    def slope(x):
        leaf = x.clone().requires_grad_()
        return torch.autograd.grad(program(leaf).sum(), leaf)[0].tolist()

    for shift, same in ((1e-2 * NEAR, False), (10 * NEAR, True)):
        x = torch.tensor([shift, 1.0])
        assert (slope(x) == slope(x.double())) is same
        assert away_from_kinks(program, [x]) is same
