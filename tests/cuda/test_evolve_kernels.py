"""The device's weight evolution against torch's GRU cell in float64, values and gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from dgbench.kernels_cuda.scan import evolve_gru
from dgbench.runtime.errors import UnsupportedError

CASES = [  # steps, rows, width, shared memory, processors
    (1, 1, 1, None, 9),
    (16, 16, 32, None, 132),  # the first layer of PEMS08
    (3, 6, 33, None, 9),
    (2, 3, 70, None, 9),  # more columns of gates than threads
    (3, 33, 5, None, 1),  # four rows a block, blocks that take several tiles
    (2, 34, 33, 7000, 1),  # gates beyond shared memory, four rows a block
    (2, 9, 33, 2000, 9),  # the same, one row a block
    (40, 30, 3, None, 9),  # many parts of the weights' gradients
    (0, 4, 3, None, 9),
    (3, 0, 3, None, 9),
]


def inputs(rows: int, width: int) -> list[Tensor]:
    made = torch.Generator().manual_seed(rows * 7 + width)
    shapes = [(rows, width), (3 * width, width), (3 * width, width), (3 * width,), (3 * width,)]
    scales = [1.0, width**-0.5, width**-0.5, 0.5, 0.5]
    return [torch.randn(s, generator=made) * x for s, x in zip(shapes, scales, strict=True)]


def exact(tensors: list[Tensor], steps: int, grad: Tensor) -> list[Tensor]:
    """Weights of all steps and the gradients of every tensor, by `torch.nn.GRUCell`."""
    leaves = [t.double().requires_grad_() for t in tensors]
    cell = nn.GRUCell(tensors[0].shape[1], tensors[0].shape[1]).double()
    names = "weight_ih", "weight_hh", "bias_ih", "bias_hh"
    weight, weights = leaves[0], [leaves[0].new_empty(0, *leaves[0].shape)]
    for _ in range(steps):
        given = dict(zip(names, leaves[1:], strict=True))
        weight = torch.func.functional_call(cell, given, (weight, weight))
        weights.append(weight[None])
    every = torch.cat(weights)
    loss = (every * grad).sum()
    loss = loss + sum(0 * leaf.sum() for leaf in leaves)  # none is unused, also without a step
    return [every.detach(), *torch.autograd.grad(loss, leaves)]


def run(native, tensors: list[Tensor], steps: int, grad: Tensor) -> list[Tensor]:
    given, size = [native.put(t) for t in tensors], native.module.evolve_workspace_size
    shape = steps, *tensors[0].shape
    weights, grads = native.poisoned(*shape), [native.poisoned(*t.shape) for t in tensors]
    native.call("evolve_gru_forward", *given, weights, native.poisoned(size(*shape, False)))
    scratch = native.poisoned(size(*shape, True))
    native.call("evolve_gru_backward", *given, weights, native.put(grad), *grads, scratch)
    return [weights, *grads]


@pytest.mark.parametrize("case", CASES, ids=lambda c: "-".join(map(str, c)))
@pytest.mark.usefixtures("order")
def test_evolution_and_its_gradients(native, emulate, case):
    steps, rows, width, shared, processors = case
    emulate(shared=shared, processors=processors)
    tensors = inputs(rows, width)
    grad = torch.randn(steps, rows, width, generator=torch.Generator().manual_seed(1))
    first, second = (run(native, tensors, steps, grad) for _ in range(2))
    for one, again, right in zip(first, second, exact(tensors, steps, grad), strict=True):
        torch.testing.assert_close(one.cpu().double(), right, rtol=1e-4, atol=1e-4)
        assert torch.equal(one, again)


def test_launches_do_not_grow_with_the_steps(native, log):
    for steps in (1, 12):
        log.clear()
        run(native, inputs(4, 8), steps, torch.ones(steps, 4, 8))
        assert len(log.calls("launch")) == 1 + 4  # forward and backward


def test_a_workspace_that_is_too_small_is_refused(native):
    given = [native.put(t) for t in inputs(3, 4)]
    with pytest.raises(ValueError, match="workspace"):
        native.call("evolve_gru_forward", *given, native.poisoned(2, 3, 4), native.poisoned(5))


@pytest.mark.cuda
@pytest.mark.usefixtures("usable_device")
@pytest.mark.parametrize(("rows", "width"), [(16, 32), (32, 32), (1500, 40), (20, 256)])
def test_the_operator_replays_in_a_graph(graphed, rows, width):
    tensors = inputs(rows, width)
    grad = torch.randn(16, rows, width, generator=torch.Generator().manual_seed(1))
    leaves = [t.cuda().requires_grad_() for t in tensors]
    up = grad.cuda()

    def work() -> list[Tensor]:
        weights = evolve_gru(*leaves, 16)
        return [weights.detach(), *torch.autograd.grad(weights, leaves, up)]

    expected, results = graphed(work)
    assert all(torch.equal(a, b) for a, b in zip(results, expected, strict=True))
    for one, right in zip(results, exact(tensors, 16, grad), strict=True):
        scale = float(right.abs().max())
        torch.testing.assert_close(one.cpu().double(), right, rtol=1e-4, atol=1e-4 * scale)
    with pytest.raises(UnsupportedError, match="float32"):
        evolve_gru(*(t.double().cuda() for t in tensors), 2)
