"""The switch of multiply-add: products with parameters are rounded once, or twice."""

from __future__ import annotations

import torch
from fused import MultiplyAdd
from torch.nn import Parameter, functional


def test_a_product_with_parameters_is_rounded_once_or_twice() -> None:
    age, weight, bias = torch.tensor([[16777215.0]]), torch.tensor([[1.0000001]]), torch.ones(1)
    exact = age.double() * weight.double() + bias.double()
    with MultiplyAdd(fused=True):
        once = functional.linear(age, Parameter(weight), Parameter(bias))
    with MultiplyAdd(fused=False):
        twice = functional.linear(age, Parameter(weight), Parameter(bias))
    assert torch.equal(once, exact.float())
    assert torch.equal(twice, age * weight + bias)
