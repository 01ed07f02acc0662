"""Cosines of ages against decimal arithmetic, whatever the unit of time."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import pytest
import torch
from kernel_checks import refuses
from torch import Tensor

from dgbench.kernels_cuda.time_encoding import encode_ages, op

TURN = Decimal("6.28318530717958647692528676655900576839433879875021164194988918461563281257")
UNITS = {"ns": 1e9, "ms": 1e3, "s": 1.0, "day": 1 / 86400}
CENTURY = 3.2e9
"""Seconds."""

SERVED = (op,)


def problem(span: float, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Ages up to `span`, frequencies as they begin, phases that training moved."""
    draw = torch.Generator().manual_seed(3)
    ages = span * torch.rand(30, generator=draw, dtype=torch.float64)
    ages[:2] = torch.tensor([0.0, span], dtype=torch.float64)
    weight = (10.0 ** -torch.linspace(0, 9, 21)).unsqueeze(1)
    return ages, weight.to(dtype), 3 * torch.randn(21, generator=draw).to(dtype)


def exact(ages: Tensor, weight: Tensor, bias: Tensor, turn: str) -> Tensor:
    """One number after the other: angles in 80 digits, less whole turns."""
    rows = []
    with localcontext() as context:
        context.prec = 80
        for age in ages.tolist():
            row = []
            for w, b in zip(weight.flatten().tolist(), bias.tolist(), strict=True):
                angle = Decimal(w) * Decimal(age) + Decimal(b)
                rest = angle - (angle / TURN).to_integral_value() * TURN
                row.append(getattr(math, turn)(float(rest)))
            rows.append(row)
    return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-7), (torch.float64, 1e-13)])
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("part", [1e-12, 1e-4, 0.1])
def test_cosines_are_right_in_every_unit(place, unit, part, dtype, bound) -> None:
    given = problem(part * CENTURY * UNITS[unit], dtype)
    for turn, sines in (("cos", False), ("sin", True)):
        found = encode_ages(*map(place.put, given), sines=sines).cpu()
        assert float((found.double() - exact(*given, turn)).abs().max()) < bound


def test_angles_beyond_what_is_reduced_are_cosines_all_the_same(place) -> None:
    out = encode_ages(*map(place.put, problem(1e300, torch.float32)))
    assert bool((out.abs() <= 1.000001).all())
    ages = torch.tensor([math.inf, math.nan], dtype=torch.float64)
    given = map(place.put, (ages, torch.ones(1, 1), torch.zeros(1)))
    assert bool(encode_ages(*given).isnan().all())


@pytest.mark.parametrize("sines", [False, True])
def test_derivatives(sines) -> None:
    ages, weight, bias = problem(50.0, torch.float64)
    weight, bias = weight.requires_grad_(), bias.requires_grad_()
    assert torch.autograd.gradcheck(
        lambda w, b: encode_ages(ages, w, b, sines=sines), (weight, bias)
    )


def test_refusals_name_the_argument() -> None:
    ages, weight, bias = problem(1.0, torch.float32)
    assert encode_ages(ages[:0], weight, bias).shape == (0, 21)
    assert encode_ages(ages, weight[:0], bias[:0]).shape == (30, 0)
    refuses(
        encode_ages, {"ages": ages, "weight": weight, "bias": bias}, ("ages", ages.float()),
        ("ages", ages.unsqueeze(1)), ("weight", weight[:4]), ("weight", weight.flatten()),
        ("weight", weight.long()), ("bias", bias.double()),
    )  # fmt: skip
