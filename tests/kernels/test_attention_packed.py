"""Compiled attention over packed steps against plain torch in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dgbench.kernels_cuda import attention
from dgbench.models import attention as models
from dgbench.runtime.errors import InvalidInputError


def packed(steps: int, rows: int, longest: int, gaps: bool, seed: int) -> Tensor:
    """int64[T, N]: sequences of 1 .. longest steps, with steps of nothing behind some."""
    random = np.random.default_rng(seed)
    out, number = np.full((rows, steps), -1), 0
    for row in out:
        at = 0
        while at < steps:
            end = min(steps, at + int(random.integers(1, longest + 1)))
            row[at:end] = number
            number += 1
            at = end + int(random.integers(0, 3) if gaps else 0)
    return torch.from_numpy(out.T.copy())


def run(function, steps: list[Tensor], grad: Tensor, **given) -> list[Tensor]:
    leaves = [x.detach().requires_grad_() for x in steps]
    out = function(*leaves, **given)
    return [out.detach(), *torch.autograd.grad(out, leaves, grad)]


def exact(steps: list[Tensor], grad: Tensor, sequence: Tensor | None, **given) -> list[Tensor]:
    """The plain form, without what it writes where there is nothing."""
    real = torch.ones_like(grad[..., :1]) if sequence is None else (sequence >= 0).unsqueeze(-1)
    double = [x.double() for x in steps]
    found = run(
        models.plain_packed_attention, double, grad.double() * real, sequence=sequence, **given
    )
    return [found[0] * real, *found[1:]]


def close(found: list[Tensor], reference: list[Tensor]) -> None:
    for ours, right in zip(found, reference, strict=True):
        scale = max(1.0, float(right.abs().max()) if right.numel() else 0.0)
        torch.testing.assert_close(ours.double(), right, rtol=0, atol=2e-5 * scale)


@given(
    steps=st.sampled_from([1, 2, 5, 16, 17, 40, 130]),
    rows=st.integers(1, 6),
    longest=st.sampled_from([1, 3, 16, 200]),
    gaps=st.booleans(),
    heads=st.integers(1, 4),
    width=st.sampled_from([1, 3, 8, 16, 21, 32]),
    causal=st.booleans(),
    chosen=st.sampled_from([None, 0.0, 0.4, 1.0]),
    scale=st.sampled_from([1.0, 0.0, 20.0]),
    seed=st.integers(0, 2**20),
)
@settings(max_examples=60, deadline=None)
def test_steps_and_gradients_equal_plain_torch(
    steps, rows, longest, gaps, heads, width, causal, chosen, scale, seed
):
    generator = torch.Generator().manual_seed(seed)
    sequence = packed(steps, rows, longest, gaps, seed) if seed % 5 else None
    q, k, v, grad = (torch.randn(steps, rows, heads * width, generator=generator) for _ in range(4))
    q = q * scale
    if seed % 2:  # one product for all three, or rows before steps: no copies
        q, k, v = torch.cat([q, k, v], dim=-1).split(heads * width, dim=-1)
        grad = grad.transpose(0, 1).contiguous().transpose(0, 1)
    own = None if chosen is None else torch.rand(steps, rows, generator=generator) < chosen
    given_ = {"heads": heads, "causal": causal, "own": own}
    found = run(attention.packed_attention, [q, k, v], grad, sequence=sequence, **given_)
    close(found, exact([q, k, v], grad, sequence, **given_))
    if own is not None:
        assert all((t[~own] == 0).all() for t in found[:2])


@pytest.mark.parametrize("causal", [False, True])
def test_one_long_sequence(causal):
    """More scores than are held at a time."""
    generator = torch.Generator().manual_seed(4)
    steps = [torch.randn(2000, 1, 8, generator=generator) for _ in range(4)]
    own = torch.zeros(2000, 1, dtype=torch.bool)
    own[::7] = True
    given_ = {"causal": causal, "own": own}
    found = run(attention.packed_attention, steps[:3], steps[3], sequence=None, **given_)
    close(found, exact(steps[:3], steps[3], None, **given_))


def test_the_number_of_threads_does_not_show():
    generator = torch.Generator().manual_seed(5)
    sequence = packed(60, 70, 25, True, 6)
    steps = [torch.randn(60, 70, 24, generator=generator) for _ in range(4)]
    before = torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            results.append(
                run(attention.packed_attention, steps[:3], steps[3], sequence=sequence, heads=2)
            )
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_nothing_leaks_between_the_sequences_of_a_row():
    sequence = torch.tensor([[0], [0], [1], [-1], [2], [2]])
    generator = torch.Generator().manual_seed(7)
    q, k, v = (torch.randn(6, 1, 4, generator=generator) for _ in range(3))
    clean = attention.packed_attention(q, k, v, sequence)
    for tensor in (q, k, v):
        tensor[2] = torch.nan
        tensor[3] = torch.inf
    found = attention.packed_attention(q, k, v, sequence)
    others = [0, 1, 4, 5]
    assert torch.equal(found[others], clean[others])
    assert (found[3] == 0).all()


def test_scores_of_any_size():
    q = torch.tensor([[[1e20]], [[-1e20]], [[0.0]]])
    k = torch.tensor([[[1e10]], [[-1e10]], [[0.0]]])
    v = torch.tensor([[[1.0]], [[2.0]], [[6.0]]])
    out = attention.packed_attention(q, k, v)
    assert torch.equal(out.flatten(), torch.tensor([1.0, 2.0, 3.0]))


def test_spans_count_the_work():
    sequence = torch.tensor([[5, 5, 5, 9, -1, 7]]).t().expand(6, 2).contiguous()
    own = torch.tensor([[1, 0, 1, 0, 1, 1]]).bool().t().expand(6, 2).contiguous()
    spans = attention.spans_of(sequence, own, (6, 2), sequence.device)
    one_row = [[0, 3], [3, 1], [5, 1]]
    assert spans.sequence.tolist() == [[row, *span] for row in range(2) for span in one_row]
    assert spans.first.tolist() == [0, 2, 2, 3, 5, 5, 6]
    assert spans.wanted.tolist() == [0, 2, 0, 0, 2, 0]
    assert (spans.longest, spans.complete, spans.pairs) == (3, False, 2 * (3 * 2 + 1))
    assert attention.spans_of(sequence, own, (6, 2), sequence.device) is spans
    own[0] = False  # written to: worked out again
    assert attention.spans_of(sequence, own, (6, 2), sequence.device).pairs == 2 * (3 + 1)
    assert attention.spans_of(sequence, own.clone(), (6, 2), sequence.device).pairs == 2 * (3 + 1)
    assert attention.spans_of(sequence, None, (6, 2), sequence.device).pairs == 2 * (9 + 1 + 1)
    assert attention.spans_of(None, None, (6, 2), sequence.device).complete


def test_wrong_arguments_are_named():
    x = torch.zeros(4, 2, 6)
    sequence = torch.zeros(4, 2, dtype=torch.int64)
    assert attention.packed_attention(x, x, x, sequence).shape == x.shape
    assert attention.packed_attention(x[:0], x[:0], x[:0]).shape == (0, 2, 6)
    for name, wrong, found in [
        ("q", x.double(), "q is torch.float64"),
        ("k", x[:3], "k is"),
        ("v", x[0], "v is"),
        ("sequence", sequence.int(), "sequence is torch.int32"),
        ("sequence", sequence[:2], "sequence is"),
        ("own", sequence, "own is torch.int64"),
        ("heads", 4, "heads is 4"),
        ("heads", 0, "heads is 0"),
    ]:
        given_ = {"q": x, "k": x, "v": x, "sequence": sequence, name: wrong}
        with pytest.raises(InvalidInputError, match=found):
            attention.packed_attention(**given_)
