"""Collectives between real ranks (Gloo), against the obvious references."""

from __future__ import annotations

import pytest
import ranks_workers as workers
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dgbench.runtime.ranks import launch

LIMIT_S = 240.0  # stops a hang; a busy machine may take a minute


@st.composite
def plan(draw: st.DrawFn, ranks: int) -> workers.Plan:
    """Unequal sizes, with empty parts, empty rows and rows of no width."""
    some = st.one_of(st.just(0), st.integers(0, 5))
    sizes = [[draw(some) for _ in range(ranks)] for _ in range(ranks)]
    shape = draw(st.sampled_from([(), (1,), (3,), (2, 2), (0,)]))
    return sizes, shape, draw(st.integers(0, 1000))


def reference(plan: workers.Plan) -> tuple[list[Tensor], list[Tensor]]:
    """Received rows and gradients of all ranks by slicing and concatenating, with autograd."""
    sizes, ranks = plan[0], len(plan[0])
    inputs = [workers.rows_of(plan, rank).requires_grad_() for rank in range(ranks)]
    received, loss = [], torch.zeros(())
    for to in range(ranks):
        parts = []
        for by in range(ranks):
            start = sum(sizes[by][:to])
            parts.append(inputs[by][start : start + sizes[by][to]])
        out = torch.cat(parts)
        received.append(out.detach())
        loss = loss + (out * workers.weights_of(plan, to)).sum()
    loss.backward()
    return received, [x.grad for x in inputs]


@pytest.mark.parametrize(
    ("ranks", "method"), [(1, "auto"), (2, "shared"), (2, "collective"), (3, "pairs"), (4, "auto")]
)
@settings(max_examples=2, deadline=None)
@given(data=st.data())
def test_exchange(ranks: int, method: str, data: st.DataObject) -> None:
    plans = data.draw(st.lists(plan(ranks), min_size=5, max_size=12))
    results = launch(workers.exchange_plans, ranks, (plans, method), timeout_s=LIMIT_S, threads=1)
    for number, one in enumerate(plans):
        sizes, shape, _ = one
        width = torch.Size(shape).numel()
        received, gradients = reference(one)
        for rank in range(ranks):
            out, gradient, counts, matrix = results[rank][number]
            assert torch.equal(out, received[rank])
            assert torch.equal(gradient, gradients[rank])
            sent = [n * width * (q != rank) for q, n in enumerate(sizes[rank])]
            back = [row[rank] * width * (q != rank) for q, row in enumerate(sizes)]
            for phase, floats in (("forward", [0] * ranks), ("rerun", sent), ("backward", back)):
                assert counts["floats", phase] == floats
                assert counts["bytes", phase] == [4 * n for n in floats]
                assert counts["messages", phase] == [int(n > 0) for n in floats]
            assert matrix == results[0][number][3]
            assert matrix[rank] == [a + b for a, b in zip(sent, back, strict=True)]


@pytest.mark.parametrize("ranks", [1, 3])
def test_two_exchanges_at_once(ranks: int) -> None:
    results = launch(workers.two_at_once, ranks, timeout_s=LIMIT_S, threads=1)
    a = [torch.arange(2.0 * ranks).reshape(ranks, 2) + 10 * r for r in range(ranks)]
    for rank, (x, y, grad_a, grad_b) in enumerate(results):
        assert torch.equal(y, 2 * torch.stack([part[rank] for part in a]))
        assert torch.equal(x, 3 * (torch.stack([part[rank] for part in a]) + 0.5))
        # d/da of (2a)^3 + a^2, and d/db of (3b)^2, wherever the rows were when they were squared.
        assert torch.allclose(grad_a, 24 * a[rank] ** 2 + 2 * a[rank])
        assert torch.allclose(grad_b, 18 * (a[rank] + 0.5))


@pytest.mark.parametrize("method", ["shared", "collective"])
def test_dtypes(method: str) -> None:
    ranks = 3
    results = launch(workers.every_dtype, ranks, (method,), timeout_s=LIMIT_S, threads=1)
    for name, _ in results[0].items():
        dtype = getattr(torch, name.removeprefix("torch."))
        x = [(torch.arange(ranks) + 10 * r).remainder(7).to(dtype) for r in range(ranks)]
        for rank in range(ranks):
            exchanged, gathered, sent = results[rank][name]
            assert torch.equal(exchanged, torch.stack([part[rank] for part in x]))
            assert torch.equal(gathered, torch.cat([x[r][:r] for r in range(ranks)]))
            assert torch.equal(sent, x[-1])


@pytest.mark.parametrize("method", ["shared", "collective"])
def test_other_operations(method: str) -> None:
    ranks = 4
    results = launch(workers.others, ranks, (method,), timeout_s=LIMIT_S, threads=1)
    x = torch.stack([torch.arange(5, dtype=torch.float64) + r for r in range(ranks)])
    for rank, found in enumerate(results):
        assert torch.equal(found["sum"], x.sum(0))
        assert torch.equal(found["mean"], x.mean(0))
        assert torch.equal(found["max"], x[-1])
        assert torch.equal(found["min"], x[0])
        assert torch.equal(found["untouched"], x[rank])
        assert found["sizes"] == [10 * q + rank for q in range(ranks)]
        assert sum(map(sum, found["reduced"])) == 4 * 2 * 5 * (ranks - 1)
        assert found["counters"]["sizes_bytes_forward"] == 8 * (ranks - 1)
        assert found["counters"].get("broadcast_floats_forward", 0) == 3 * 3 * (rank == 0)
        assert "all_gather_floats_forward" not in found["counters"]
        assert torch.equal(found["large"], torch.full((2**18,), 15.0, dtype=torch.float64))
        assert torch.equal(found["any"], torch.tensor([True, False]))
        assert torch.equal(found["whole"], torch.tensor([18], dtype=torch.int8))
        sums = {
            name: sum(n for link, n in found["links"].items() if link.startswith(name))
            for name in found["counters"]
        }
        assert sums == found["counters"]


def test_an_exchange_that_fails_is_an_error_whatever_it_says() -> None:
    texts = ("device lost: peer access is not supported", "Connection closed by peer")
    for text in texts:
        found = launch(workers.refused_exchange, 2, (text,), timeout_s=LIMIT_S, threads=1)
        assert list(found) == [("CommunicationError", "auto")] * 2
