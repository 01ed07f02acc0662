"""The device's attention, forward and backward, against plain torch in float64."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from dgbench.kernels_cuda.attention import spans_of
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.transpose import transpose_unchecked
from dgbench.models import attention as models

ROWS = [  # rows, columns, degree, heads, width, rows of values lie apart
    (1, 1, 0.0, 1, 1, False),
    (40, 55, 3.0, 1, 32, True),
    (40, 55, 3.0, 1, 32, False),
    (30, 30, 9.0, 3, 5, True),
    (37, 60, 0.4, 2, 8, False),
    (9, 20, 4.0, 1, 70, True),
    (9, 20, 4.0, 1, 100, False),
    (12, 15, 2.0, 4, 3, False),
]


def random_rows(rows: int, columns: int, degree: float) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(rows + columns)
    counts = torch.poisson(torch.full((rows,), degree), generator=generator).long()
    if degree > 2 and rows > 20:
        counts[3] = 1300  # shared out among the groups of a block
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    owner = torch.repeat_interleave(torch.arange(rows), counts)
    indices = torch.randint(0, max(1, columns - 1), (int(indptr[-1]),), generator=generator)
    return indptr, (indices + (indices >= owner)).int()


def agree(found: Tensor, exact: Tensor) -> None:
    scale = max(1.0, float(exact.abs().max())) if exact.numel() else 1.0
    torch.testing.assert_close(found.cpu().double(), exact, rtol=0, atol=3e-5 * scale)


@pytest.mark.parametrize("case", ROWS, ids=lambda c: "-".join(map(str, c)))
@pytest.mark.parametrize("order", ["forward", "reverse"])
def test_rows_and_their_gradients(native, case, order, monkeypatch):
    rows, columns, degree, heads, width, apart = case
    if native.device == "cpu" and order == "reverse":
        monkeypatch.setenv("EMULATED_ORDER", "reverse")
    indptr, indices = random_rows(rows, columns, degree)
    generator = torch.Generator().manual_seed(9)
    shown = torch.randn(columns, heads * (width + 1), generator=generator)
    values, source = shown[:, : heads * width].view(columns, heads, width), shown[:, -heads:]
    target = torch.randn(rows, heads, generator=generator)
    grad = torch.randn(rows, heads, width, generator=generator)
    slope = 0.2
    leaves = [x.double().requires_grad_() for x in (values, source, target)]
    exact = models.plain_attend_rows(indptr, indices, *leaves, slope)
    exact_grads = torch.autograd.grad(exact, leaves, grad.double())

    if not apart:
        values, source = values.contiguous(), source.contiguous()
    busy = indptr.diff() > 0
    place = native.put((busy.cumsum(0) - 1).int())
    given = (native.put(indptr), native.put(indices), native.put(values), native.put(source))
    given += (native.put(target), slope, place)
    out, stats = native.poisoned(rows, heads, width), native.poisoned(rows, heads, 3)
    positive = native.poisoned(int(busy.sum()), heads, width)
    native.call("attend_rows_forward", *given, out, None, None)
    agree(out, exact.detach())
    out.fill_(math.nan)
    native.call("attend_rows_forward", *given, out, stats, positive)
    agree(out, exact.detach())

    back = transpose_unchecked(Csr(indptr, indices, columns))
    entry = native.poisoned(rows, heads, 4)
    grads = [native.poisoned(*x.shape) for x in (values, source, target)]
    receivers = (native.put(back.indptr), native.put(back.indices))
    native.call(
        "attend_rows_backward", *given, *receivers, native.put(grad), out, stats, positive, entry,
        *grads,
    )  # fmt: skip
    for found, right in zip(grads, exact_grads, strict=True):
        agree(found, right)


STEPS = [  # steps, rows, longest, heads, width, causal, share wanted, dense
    (1, 1, 1, 1, 1, False, 1.0, True),
    (12, 5, 6, 1, 32, False, 1.0, True),
    (12, 5, 6, 2, 6, True, 0.5, False),
    (30, 4, 30, 1, 40, False, 0.3, True),
    (9, 7, 4, 3, 3, True, 1.0, False),
    (8, 3, 5, 2, 16, False, 0.0, True),
]


@pytest.mark.parametrize("case", STEPS, ids=lambda c: "-".join(map(str, c)))
def test_packed_steps_and_their_gradients(native, case):
    steps, rows, longest, heads, width, causal, share, dense = case
    generator = torch.Generator().manual_seed(steps + rows)
    sequence = torch.full((rows, steps), -1)
    number = 0
    for row in sequence:
        at = 0
        while at < steps:
            length = int(torch.randint(1, longest + 1, (), generator=generator))
            row[at : at + length] = number
            at += length + int(number % 3 == 0)
            number += 1
    sequence = sequence.t().contiguous()
    own = torch.rand(steps, rows, generator=generator) < share
    real = (sequence >= 0).unsqueeze(-1)
    q, k, v, grad = (torch.randn(steps, rows, heads * width, generator=generator) for _ in range(4))
    leaves = [x.double().requires_grad_() for x in (q, k, v)]
    exact = real * models.plain_packed_attention(
        *leaves, sequence, heads=heads, causal=causal, own=own
    )
    exact_grads = torch.autograd.grad(exact, leaves, grad.double())

    spans = spans_of(sequence, own, (steps, rows), sequence.device)
    if not dense:
        q, k, v = torch.cat([q, k, v], dim=-1).split(heads * width, dim=-1)
    tables = (native.put(spans.sequence), native.put(spans.first), native.put(spans.wanted))
    given = (*tables, native.put(q), native.put(k), native.put(v), heads, causal)
    out = torch.zeros_like(native.put(grad))
    native.call("packed_attention_forward", *given, out)
    agree(out, exact.detach())
    stats = native.poisoned(spans.wanted.numel(), heads, 3) if spans.wanted.numel() else None
    grads = [torch.zeros_like(out), torch.full_like(out, math.nan), torch.full_like(out, math.nan)]
    native.call("packed_attention_backward", *given, native.put(grad), stats, *grads)
    for found, right in zip(grads, exact_grads, strict=True):
        agree(found, right)


def test_sizes_that_contradict_each_other_are_refused(native):
    indptr, indices = native.put([0, 1], torch.int64), native.put([1], torch.int32)
    values, source, target = (torch.zeros_like(native.put(torch.empty(s))) for s in
                              [(2, 1, 4), (2, 1), (1, 1)])  # fmt: skip
    place, out = native.put([0], torch.int32), native.poisoned(1, 1, 4)
    given = [indptr, indices, values, source, target, 0.2, place, out, None, None]
    native.call("attend_rows_forward", *given)
    for at, wrong, found in [
        (2, values[:0], "fewer rows"),
        (2, native.poisoned(2, 1, 200), "200 columns"),
        (4, target[:0], "target"),
        (7, out[:0], "out"),
    ]:
        with pytest.raises(ValueError, match=found):
            native.call("attend_rows_forward", *given[:at], wrong, *given[at + 1 :])
    table, first = native.put([[0, 0, 2]], torch.int32), native.put([0, 1], torch.int64)
    x = native.poisoned(2, 1, 4)
    with pytest.raises(ValueError, match="heads must divide"):
        native.call("packed_attention_forward", table, first, place, x, x, x, 3, False, x)
    with pytest.raises(ValueError, match="stats is None"):
        native.call(
            "packed_attention_backward", table, first, place, x, x, x, 1, False, x, None, x, x, x
        )
