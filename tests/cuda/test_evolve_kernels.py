"""The device's weight evolution against torch's GRU cell in float64, values and gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from dgbench.kernels_cuda.scan import evolve_gru
from dgbench.runtime.errors import UnsupportedError

CASES = [  # steps, rows, width, shared memory, processors
    (1, 1, 1, None, 9),
    (5, 1, 4, None, 9),
    (16, 16, 32, None, 132),  # the first layer of PEMS08
    (3, 6, 33, None, 9),
    (2, 3, 70, None, 9),  # more columns of gates than threads
    (3, 33, 5, None, 1),  # four rows a block, blocks that take several tiles
    (3, 34, 33, 7000, 1),  # gates beyond shared memory, four rows a block
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
    weight, found = leaves[0], []
    for _ in range(steps):
        given = dict(zip(names, leaves[1:], strict=True))
        weight = torch.func.functional_call(cell, given, (weight, weight))
        found.append(weight)
    every = torch.stack(found) if found else leaves[0].new_empty(0, *leaves[0].shape)
    loss = (every * grad).sum()
    loss = loss + sum(0 * leaf.sum() for leaf in leaves)  # none is unused, also without a step
    return [every.detach(), *torch.autograd.grad(loss, leaves)]


@pytest.mark.parametrize("case", CASES, ids=lambda c: "-".join(map(str, c)))
@pytest.mark.parametrize("order", ["forward", "reverse"])
def test_evolution_and_its_gradients(native, case, order, monkeypatch):
    steps, rows, width, shared, processors = case
    if native.device == "cpu":
        monkeypatch.setenv("EMULATED_PROCESSORS", str(processors))
        if shared is not None:
            monkeypatch.setenv("EMULATED_SHARED", str(shared))
        if order == "reverse":
            monkeypatch.setenv("EMULATED_ORDER", "reverse")
    tensors = inputs(rows, width)
    grad = torch.randn(steps, rows, width, generator=torch.Generator().manual_seed(1))
    wanted = exact(tensors, steps, grad)
    given = [native.put(t) for t in tensors]
    size = native.module.evolve_workspace_size

    def run() -> list[Tensor]:
        weights = native.poisoned(steps, rows, width)
        scratch = native.poisoned(size(steps, rows, width, False))
        native.call("evolve_gru_forward", *given, weights, scratch)
        grads = [native.poisoned(*t.shape) for t in tensors]
        scratch = native.poisoned(size(steps, rows, width, True))
        native.call("evolve_gru_backward", *given, weights, native.put(grad), *grads, scratch)
        return [weights, *grads]

    first, second = run(), run()
    for found, again, right in zip(first, second, wanted, strict=True):
        torch.testing.assert_close(found.cpu().double(), right, rtol=1e-4, atol=1e-4)
        assert torch.equal(found, again)


def test_launches_do_not_grow_with_the_steps(native, log):
    counts = []
    for steps in (1, 40):
        given = [native.put(t) for t in inputs(16, 32)]
        weights = native.poisoned(steps, 16, 32)
        size = native.module.evolve_workspace_size
        log.clear()
        native.call(
            "evolve_gru_forward", *given, weights, native.poisoned(size(steps, 16, 32, False))
        )
        forward = len(log.calls("launch"))
        grads = [torch.empty_like(t) for t in given]
        scratch = native.poisoned(size(steps, 16, 32, True))
        native.call("evolve_gru_backward", *given, weights, weights, *grads, scratch)
        counts.append((forward, len(log.calls("launch")) - forward))
    assert counts == [(1, 4), (1, 4)]


def test_a_workspace_that_is_too_small_is_refused(native):
    given = [native.put(t) for t in inputs(3, 4)]
    with pytest.raises(ValueError, match="workspace"):
        native.call("evolve_gru_forward", *given, native.poisoned(2, 3, 4), native.poisoned(5))


@pytest.mark.cuda
@pytest.mark.usefixtures("usable_device")
@pytest.mark.parametrize(("rows", "width"), [(16, 32), (32, 32), (1500, 40), (20, 256)])
def test_the_operator_replays_in_a_graph(rows, width):
    tensors = inputs(rows, width)
    grad = torch.randn(16, rows, width, generator=torch.Generator().manual_seed(1))
    leaves = [t.cuda().requires_grad_() for t in tensors]
    up = grad.cuda()

    def work() -> list[Tensor]:
        weights = evolve_gru(*leaves, 16)
        return [weights.detach(), *torch.autograd.grad(weights, leaves, up)]

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        expected = work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = work()
    for result in results:
        result.fill_(float("nan"))
    graph.replay()
    torch.cuda.synchronize()
    assert all(torch.equal(a, b) for a, b in zip(results, expected, strict=True))
    for found, right in zip(results, exact(tensors, 16, grad), strict=True):
        scale = float(right.abs().max())
        torch.testing.assert_close(found.cpu().double(), right, rtol=1e-4, atol=1e-4 * scale)
    with pytest.raises(UnsupportedError, match="float32"):
        evolve_gru(*(t.double().cuda() for t in tensors), 2)
