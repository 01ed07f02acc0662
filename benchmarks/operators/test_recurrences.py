"""Recurrences of a frame in one call: products bound them."""

from __future__ import annotations

import pytest
import torch
from graphs import million
from work import Work

from dgbench.kernels_cuda.scan import gru_scan, lstm_scan, packed_gru_scan

STEPS, ROWS, WIDTH, HIDDEN = 16, 10_000, 16, 32
GATES = {gru_scan: 3, lstm_scan: 4}


def inputs(gates: int, grad: bool = False) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(3)
    shapes = ((STEPS, ROWS, WIDTH), (WIDTH, gates * HIDDEN), (HIDDEN, gates * HIDDEN))
    made = [torch.randn(shape, generator=draw) * 0.1 for shape in (*shapes, (gates * HIDDEN,))]
    return [tensor.requires_grad_(grad) for tensor in made]


def work(gates: int, passes: int = 1) -> Work:
    """A backward pass multiplies twice as often as a forward pass."""
    products = 2 * STEPS * ROWS * (WIDTH + HIDDEN) * gates * HIDDEN
    moved = 4 * STEPS * ROWS * (WIDTH + HIDDEN)
    return Work(f"{STEPS} x {million(ROWS)}, {WIDTH} to {HIDDEN}", passes * moved,
                products=passes * products)  # fmt: skip


@pytest.mark.parametrize("scan", GATES)
def test_forward(timed, scan):
    with torch.no_grad():
        found = timed(work(GATES[scan]), scan, *inputs(GATES[scan]), all_steps=True)
    assert found[1].shape == (ROWS, HIDDEN)


@pytest.mark.parametrize("scan", GATES)
def test_forward_and_backward(timed, scan):
    tensors = inputs(GATES[scan], grad=True)

    def step():
        for tensor in tensors:
            tensor.grad = None
        scan(*tensors, all_steps=True)[0].sum().backward()
        return tensors[0].grad

    assert timed(work(GATES[scan], 3), step).shape == tensors[0].shape


def test_packed(timed):
    begins = torch.rand(STEPS, ROWS, generator=torch.Generator().manual_seed(4)) < 0.2
    with torch.no_grad():
        found = timed(work(3), packed_gru_scan, *inputs(3), begins)
    assert found.shape == (STEPS, ROWS, HIDDEN)
