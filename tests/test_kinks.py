"""The distance from kinks, which tells inputs whose gradients depend on rounding."""

from __future__ import annotations

import torch
from kinks import NEAR, away_from_kinks


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
