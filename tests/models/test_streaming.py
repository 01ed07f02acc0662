"""Networks with a state per vertex: cells, refreshing, what waits, and the builder."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from torch.nn import functional

from dgbench.models.streaming import DECAYS, Dygnn, Jodie, build_interaction_model
from dgbench.systems.base.interactions import InteractionWorkload


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(1)


def fused(a: float, b: float, c: float) -> float:
    """a b + c, rounded once."""
    return float(Fraction(a) * Fraction(b) + Fraction(c))


def unfused(a: float, b: float, c: float) -> float:
    """a b + c, rounded twice."""
    return a * b + c


@pytest.mark.parametrize("multiply_add", [fused, unfused])
@pytest.mark.parametrize("decay", DECAYS)
def test_a_decay_is_right_at_any_age(decay, multiply_add):
    work = InteractionWorkload(dataset="tiny", model="dygnn", hidden_dim=4, decay=decay)
    network = build_interaction_model(work)
    cell = network.update_s
    rate = float(functional.softplus(cell.rate.detach().double()))
    # Ages of 1e-3 to 1e9 units; those that `exp` does not round to nothing.
    ages = [k * 10.0**power for power in range(-3, 10) for k in (1.0, 1 / 3, 0.7)]
    ages = [age for age in ages if decay != "exp" or age < 80]
    exact = {
        "log": lambda age: 1 / math.log(multiply_add(rate, age, math.e)),
        "exp": lambda age: math.exp(multiply_add(-rate, age, 0.0)),
        "inverse": lambda age: 1 / multiply_add(rate, age, 1.0),
    }[decay]
    found = cell.weight(torch.tensor(ages, dtype=torch.float64)).detach()
    wanted = torch.tensor([exact(age) for age in ages], dtype=torch.float64)
    assert ((found.double() / wanted - 1).abs() < 2.0**-22).all()
    # A cell takes ages as they are: the network does not round them first.
    c, h, x = torch.randn(3, len(ages), 4)
    c_found, _ = cell(c, h, torch.tensor(ages, dtype=torch.float64), x)
    assert c_found.dtype == torch.float32


@pytest.mark.parametrize("multiply_add", [fused, unfused])
@pytest.mark.parametrize("unit", [1e-9, 1.0, 86_400.0, 31_557_600.0])
def test_a_drift_of_jodie_is_right_at_any_age(unit, multiply_add):
    """1 + W log1p(age), ages of 1e-3 to 1e9 units, at times as large as a stream has them."""
    network = Jodie(4, unit=unit)
    age = torch.tensor([k * 10.0**power for power in range(-3, 10) for k in (1.0, 0.7)]) * unit
    sources, _ = network.new_state(age.numel(), seed=1)
    targets, _ = network.new_state(1, seed=2)
    sources.user.fill_(1.0)
    time = 1.7e9 if unit >= 1 else 1.7
    sources.last_s.copy_(time - age.double())
    with torch.no_grad():
        network.predict.weight.zero_()
        network.predict.weight[0, 0] = 1  # the first number of what drifted
        network.predict.bias.zero_()
        found = -network.pairs(sources, targets, time)[:, 0]
    weight, item = network.drift.weight[0, 0].item(), torch.cat([targets.item, targets.code], 1)[0]
    for row, last in zip(found.tolist(), sources.last_s.tolist(), strict=True):
        drifted = multiply_add(weight, math.log1p((time - last) / unit), 1.0)
        wanted = (drifted - float(item[0])) ** 2 + float(item[1:].double().square().sum())
        assert row == pytest.approx(wanted, rel=2.0**-20)


@pytest.mark.parametrize("rows", [1, 15, 16, 2**16 + 3, 2**17 + 16])
def test_rows_of_some_vertices_are_those_of_all(rows):
    model = Dygnn(16)
    whole, _ = model.new_state(rows, seed=3)
    for kept in (torch.arange(1, rows, 3), torch.arange(rows)):
        some, waiting = model.new_state(rows, kept, seed=3)
        assert len(waiting) == kept.numel()
        for name, column in whole.columns().items():
            assert torch.equal(getattr(some, name), column[kept]), name
