"""Compiled attention against plain torch in float64."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dgbench.kernels_cuda import attention
from dgbench.models import attention as models
from dgbench.runtime.errors import InvalidInputError


def random_rows(rows: int, columns: int, degree: float, seed: int) -> tuple[Tensor, Tensor]:
    """A matrix without loops whose degrees vary: many rows are empty, some long."""
    generator = torch.Generator().manual_seed(seed)
    rates = torch.rand(rows, generator=generator) ** 3 * 4 * degree
    counts = torch.poisson(rates, generator=generator).long() if columns > 1 else rates.long() * 0
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    owner = torch.repeat_interleave(torch.arange(rows), counts)
    indices = torch.randint(0, max(1, columns - 1), (int(indptr[-1]),), generator=generator)
    return indptr, (indices + (indices >= owner)).int()


def run(function, matrix, floats: list[Tensor], grad: Tensor, slope: float) -> list[Tensor]:
    leaves = [x.detach().requires_grad_() for x in floats]
    out = function(*matrix, *leaves, slope)
    return [out.detach(), *torch.autograd.grad(out, leaves, grad)]


def close(found: list[Tensor], exact: list[Tensor], tolerance: float) -> None:
    for ours, reference in zip(found, exact, strict=True):
        assert ours.shape == reference.shape
        scale = max(1.0, float(reference.abs().max()) if reference.numel() else 0.0)
        torch.testing.assert_close(ours.double(), reference, rtol=0, atol=tolerance * scale)


@given(
    rows=st.integers(0, 40),
    others=st.integers(0, 20),
    degree=st.sampled_from([0.0, 0.3, 2.0, 12.0, 90.0]),
    heads=st.integers(1, 5),
    width=st.sampled_from([1, 2, 3, 4, 5, 8, 9, 16, 17, 32, 40, 64, 70, 130]),
    slope=st.sampled_from([0.2, 0.0, 1.0, -0.5]),
    scale=st.sampled_from([1.0, 0.0, 30.0]),
    seed=st.integers(0, 2**20),
)
@settings(max_examples=60, deadline=None)
def test_rows_and_gradients_equal_plain_torch(
    rows, others, degree, heads, width, slope, scale, seed
):
    generator = torch.Generator().manual_seed(seed)
    matrix = random_rows(rows, rows + others, degree, seed)
    # What a model shows: values and scores side by side, so the rows of both lie apart.
    shown = torch.randn(rows + others, heads * (width + 1), generator=generator)
    values = shown[:, : heads * width].reshape(rows + others, heads, width)
    source = shown[:, heads * width :] * scale if seed % 2 else shown[:, heads * width :]
    target = torch.randn(rows, heads, generator=generator) * scale
    grad = torch.randn(rows, heads, width, generator=generator)
    found = run(attention.attend_rows, matrix, [values, source, target], grad, slope)
    exact = run(
        models.plain_attend_rows,
        matrix,
        [x.double() for x in (values, source, target)],
        grad.double(),
        slope,
    )
    close(found, exact, 2e-5)
    with torch.no_grad():
        plain = attention.attend_rows(*matrix, values, source, target, slope)
    close([plain], exact[:1], 2e-5)


@pytest.mark.parametrize("heads", [1, 3])
def test_the_number_of_threads_does_not_show(heads):
    matrix = random_rows(3000, 3500, 8.0, 1)
    generator = torch.Generator().manual_seed(2)
    floats = [torch.randn(3500, heads, 20, generator=generator)]
    floats += [torch.randn(n, heads, generator=generator) for n in (3500, 3000)]
    grad = torch.randn(3000, heads, 20, generator=generator)
    before = torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            results.append(run(attention.attend_rows, matrix, floats, grad, 0.2))
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_a_hub_with_more_neighbours_than_are_taken_at_a_time():
    rows = 3000
    indptr = torch.cat([torch.zeros(1), torch.full((rows,), rows - 1.0)]).long()
    indices = torch.arange(1, rows, dtype=torch.int32)
    generator = torch.Generator().manual_seed(3)
    values, grad = (torch.randn(rows, 1, 8, generator=generator) for _ in range(2))
    source, target = (torch.randn(rows, 1, generator=generator) for _ in range(2))
    floats = [values, source, target]
    found = run(attention.attend_rows, (indptr, indices), floats, grad, 0.2)
    exact = run(
        models.plain_attend_rows,
        (indptr, indices),
        [x.double() for x in floats],
        grad.double(),
        0.2,
    )
    close(found, exact, 2e-5)


def test_a_hub_of_alike_neighbours_keeps_most_digits():
    """Its shares add up in float64; rows are added one after the other."""
    n = 10**5
    indptr = torch.cat([torch.zeros(1), torch.full((n,), n - 1.0)]).long()
    ids = torch.arange(1, n, dtype=torch.int32)
    values, scores = torch.full((n, 1, 8), 0.1), torch.zeros(n, 1)
    out = attention.attend_rows(indptr, ids, values, scores, scores)
    assert (out[0].double() / 0.1 - 1).abs().max() < n * 2.0**-24


def test_scores_of_any_size_and_rows_that_do_not_matter():
    """Only differences of scores count, and a row that nobody reads spreads nothing."""
    indptr, indices = torch.tensor([0, 2, 2, 3]), torch.tensor([1, 3, 0], dtype=torch.int32)
    values = torch.eye(5).unsqueeze(1)
    values[4] = torch.nan
    source = torch.tensor([1e30, 1e30, 0.0, -1e30, torch.nan]).unsqueeze(1)
    target = torch.zeros(3, 1)
    out = attention.attend_rows(indptr, indices, values, source, target)
    expected = torch.tensor([[0.5, 0.5, 0, 0, 0], [0, 1, 0, 0, 0], [1, 0, 0, 0, 0]])
    assert torch.equal(out[:, 0], expected)


def test_doubled_entries_count_twice():
    indptr, indices = torch.tensor([0, 3]), torch.tensor([1, 1, 2], dtype=torch.int32)
    values = torch.eye(3).unsqueeze(1)
    zero = torch.zeros(3, 1)
    out = attention.attend_rows(indptr, indices, values, zero, zero[:1])
    torch.testing.assert_close(out[0, 0], torch.tensor([0.25, 0.5, 0.25]))


def test_the_model_takes_the_compiled_form_for_float32_only(monkeypatch):
    calls = []
    real = attention.attend_rows
    monkeypatch.setattr(attention, "attend_rows", lambda *a: calls.append(1) or real(*a))
    matrix = random_rows(5, 6, 2.0, 1)
    for dtype in (torch.float32, torch.float64):
        models.attend_rows(
            *matrix, *(torch.ones(s, dtype=dtype) for s in [(6, 1, 4), (6, 1), (5, 1)])
        )
    assert len(calls) == 1


def test_wrong_arguments_are_named():
    indptr, indices = torch.tensor([0, 1]), torch.tensor([1], dtype=torch.int32)
    values, source, target = torch.zeros(2, 1, 3), torch.zeros(2, 1), torch.zeros(1, 1)

    def attend(**changed):
        given = {"indptr": indptr, "indices": indices, "values": values, "source": source}
        return attention.attend_rows(**{**given, "target": target, **changed})

    assert attend().shape == (1, 1, 3)
    for name, wrong, found in [
        ("values", values.double(), "values is torch.float64"),
        ("values", values[0], "values has shape"),
        ("values", values[:0], "source has shape"),
        ("source", source[:1], "source has shape"),
        ("target", target.expand(2, 1), "target has shape"),
        ("indices", torch.tensor([2], dtype=torch.int32), "indices must satisfy"),
        ("indptr", torch.tensor([0, 2]), "indptr"),
    ]:
        with pytest.raises(InvalidInputError, match=found):
            attend(**{name: wrong})
