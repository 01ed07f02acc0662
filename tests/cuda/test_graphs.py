"""Stages: pass-through on the CPU, and the book-keeping of captures with a stand-in for CUDA."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge as gradient_edge

from dgbench.runtime import graphs
from dgbench.runtime.errors import InvalidInputError, UnsupportedError
from dgbench.runtime.graphs import MAX_COPIES, MAX_GRAPHS, CapturedStage


def product(x: Tensor, w: Tensor) -> Tensor:
    return torch.tanh(x @ w)


def recording(function, samples: tuple[Tensor, ...]):
    """A stand-in for a capture with a graph's own habits.

    Inputs are copied to fixed places, results lie in a fixed place that the next replay overwrites.
    """
    places = [s.detach() for s in samples]
    wanted = [s.requires_grad for s in samples]
    results: list[Tensor] = []

    class Replay(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *inputs: Tensor) -> Tensor:
            for place, one in zip(places, inputs, strict=True):
                if place.data_ptr() != one.data_ptr():
                    place.data.copy_(one)
            fresh = function(*[p.detach() for p in places])
            if not results:
                results.append(fresh.clone())
            results[0].copy_(fresh)
            return results[0].detach()

        @staticmethod
        def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
            with torch.enable_grad():
                own = [p.detach().requires_grad_(w) for p, w in zip(places, wanted, strict=True)]
                inputs = [p for p in own if p.requires_grad]
                found = iter(torch.autograd.grad(function(*own), inputs, grad))
            return tuple(next(found) if w else None for w in wanted)

    return Replay.apply


@pytest.fixture
def device(monkeypatch) -> list[tuple[Tensor, ...]]:
    """CPU tensors count as a device's, and what a capture is given ends up in the list."""
    seen: list[tuple[Tensor, ...]] = []

    def capture(function, samples):
        recorded = recording(function, samples)
        function(*samples)
        seen.append(samples)
        return recorded

    monkeypatch.setattr(graphs, "capture", capture)
    monkeypatch.setattr(graphs, "on_device", lambda tensors: True)
    return seen


def draw(*shape: int, seed: int = 0, grad: bool = False) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).requires_grad_(grad)


@pytest.mark.parametrize(
    ("enabled", "reason"), [(True, "tensors on a CUDA"), (False, "switched off")]
)
@pytest.mark.parametrize("rows", [0, 4])
def test_a_cpu_stage_is_the_function_itself(enabled, reason, rows):
    stage = CapturedStage(product, enabled=enabled, name="dense")
    x, w = draw(rows, 3), draw(3, 2, seed=1, grad=True)
    plain = w.detach().clone().requires_grad_()
    result, expected = stage(x, w), product(x, plain)
    assert torch.equal(result, expected)
    result.sum().backward()
    expected.sum().backward()
    assert torch.equal(w.grad, plain.grad)
    assert stage.captures == stage.replays == 0
    assert reason in stage.reason


def test_one_capture_per_combination_of_shapes_and_parameters(device):
    stage, w = CapturedStage(product, name="dense"), draw(3, 2, seed=1, grad=True)
    for rows in (4, 4, 5, 4, 5):
        x = draw(rows, 3, seed=rows)
        assert torch.equal(stage(x, w), product(x, w))
        assert stage.reason == ""
    assert (stage.captures, stage.replays) == (2, 5)
    stage(draw(4, 3, grad=True), w)  # another set of wanted gradients is another graph
    assert stage.captures == 3
    other, kept = nn.Parameter(draw(3, 2, seed=2)), w.detach().clone()
    stage(draw(4, 3), other)  # parameters are read in place and never overwritten
    assert stage.captures == 4
    assert torch.equal(w, kept)
    assert device[-1][1].data_ptr() == other.data_ptr()
    stage.reset()
    stage(draw(4, 3), w)
    assert stage.captures == 5
    with torch.no_grad():  # nor is anything captured where no gradient is wanted
        assert torch.equal(stage(x, w), product(x, w))
    assert torch.equal(stage(x, w.detach()), product(x, w))
    assert (stage.captures, stage.reason) == (5, "")


def test_gradients_through_replays_are_the_functions(device):
    stage = CapturedStage(product)
    w, plain = nn.Parameter(draw(3, 2, seed=1)), nn.Parameter(draw(3, 2, seed=1))
    for seed in range(3):
        x = draw(4, 3, seed=seed, grad=True)
        y = x.detach().clone().requires_grad_()
        stage(x, w).square().sum().backward()
        product(y, plain).square().sum().backward()
        assert torch.allclose(x.grad, y.grad)
        assert torch.allclose(w.grad, plain.grad)
        with torch.no_grad():
            for parameter in (w, plain):
                parameter -= 0.1 * parameter.grad
                parameter.grad = None
    assert stage.captures == 1


def test_a_second_call_before_backward_has_a_graph_of_its_own(device):
    """Layers of one shape share a stage: the first one's results must outlive the second call."""
    stage = CapturedStage(product)
    w = draw(3, 3, seed=1, grad=True)
    x = draw(4, 3)
    for _ in range(3):
        first = stage(x, w)
        second = stage(first, w)
        expected = product(x, w)
        assert torch.equal(first, expected)
        assert torch.equal(second, product(expected, w))
        del first, second
    assert stage.captures == 2  # x wants no gradient, the first result does
    outputs = [stage(x, w) for _ in range(MAX_COPIES)]
    assert stage.captures == 1 + MAX_COPIES
    plain = stage(x, w)
    assert "wait for their backward pass" in stage.reason
    assert all(torch.equal(o, plain) for o in outputs)
    assert len({o.data_ptr() for o in outputs}) == MAX_COPIES
    del outputs
    stage(x, w)
    assert stage.reason == ""
    assert stage.captures == 1 + MAX_COPIES


def test_kept_graphs_are_bounded(device):
    stage = CapturedStage(product)
    w = draw(2, 2, seed=1, grad=True)
    for rows in range(1, MAX_GRAPHS + 3):
        x = draw(rows, 2)
        assert torch.equal(stage(x, w), product(x, w))
    assert stage.captures == MAX_GRAPHS
    assert f"{MAX_GRAPHS} graphs are kept" in stage.reason
    stage(draw(1, 2), w)
    assert stage.reason == ""


def test_a_capture_never_meets_the_gradient_of_an_earlier_graph(device):
    """Alive with another stage's graph, it belongs to a stream that no capture may touch."""
    stage = CapturedStage(product)
    w = nn.Parameter(draw(3, 3, seed=1))
    first = stage(draw(4, 3), w)
    node = gradient_edge(w).node
    assert node in {function for function, _ in first.grad_fn.next_functions}  # and so alive
    stage(first, w)
    for samples in device:
        assert gradient_edge(samples[1]).node is not node
    assert len(device) == 2


def test_a_failed_capture_is_an_error_and_leaves_nothing_behind(device, monkeypatch):
    works = graphs.capture

    def refuse(function, samples):
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(graphs, "capture", refuse)
    stage = CapturedStage(product, name="dense")
    x, w = draw(4, 3), draw(3, 2, seed=1, grad=True)
    with pytest.raises(UnsupportedError, match=r"'dense' could not be captured.*Error: oper"):
        stage(x, w)
    assert stage.captures == stage.replays == 0
    monkeypatch.setattr(graphs, "capture", works)
    assert torch.equal(stage(x, w), product(x, w))
    assert stage.captures == 1


class FakeGraph:
    """A CUDA graph whose replay computes nothing: results are those of the capture."""

    replays = 0

    def replay(self) -> None:
        self.replays += 1


@pytest.fixture
def driver(monkeypatch) -> list[dict[str, Any]]:
    """As much of `torch.cuda` as a capture calls; the list gets the options of each capture."""
    captures: list[dict[str, Any]] = []
    monkeypatch.setattr(graphs, "capture_stream", lambda device: Mock())

    @contextmanager
    def capturing(graph, **options):
        captures.append(options | {"graph": graph})
        yield

    for name, stand_in in {
        "CUDAGraph": FakeGraph,
        "graph": capturing,
        "graph_pool_handle": object,
        "device": lambda device: nullcontext(),
        "current_device": lambda: 0,
        "current_stream": Mock,
        "stream": lambda stream: nullcontext(),
    }.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    return captures


def test_a_capture_lets_other_threads_use_the_device(driver):
    x, w = draw(4, 3), draw(3, 2, seed=1, grad=True)
    graphed = graphs.capture(lambda x, w: (product(x, w), x.sum()), (x, w))
    forward, backward = driver
    assert {c["capture_error_mode"] for c in driver} == {"thread_local"}
    assert forward["pool"] is backward["pool"]
    assert forward["stream"] is backward["stream"]
    result, constant = graphed(x, w)
    assert torch.equal(result, product(x, w))
    assert result.requires_grad
    assert not constant.requires_grad
    result.sum().backward()
    assert (forward["graph"].replays, backward["graph"].replays) == (1, 1)
    assert w.grad.shape == w.shape
    assert x.grad is None


def test_the_callers_stream_comes_back_where_a_capture_ends_badly(driver, monkeypatch):
    """As `torch.cuda.graph` itself does not: it would leave all later work on the wrong stream."""
    current = ["caller's"]

    @contextmanager
    def stream(other):
        before, current[0] = current[0], "capture's"
        try:
            yield
        finally:
            current[0] = before

    @contextmanager
    def broken(graph, **options):
        current[0] = "lost"
        yield
        raise RuntimeError("operation failed due to a previous error during capture")

    monkeypatch.setattr(torch.cuda, "stream", stream)
    monkeypatch.setattr(torch.cuda, "graph", broken)
    with pytest.raises(RuntimeError, match="previous error during capture"):
        graphs.capture(product, (draw(4, 3), draw(3, 2, grad=True)))
    assert current == ["caller's"]


def test_what_cannot_be_captured_is_named(driver):
    with pytest.raises(InvalidInputError, match="argument 1"):
        CapturedStage(product)(draw(2, 2), 3)
    for result in (None, 1.0):
        with pytest.raises(InvalidInputError, match="result 1"):
            graphs.capture(lambda x, y=result: (x * 2, y), (draw(2, 2, grad=True),))
