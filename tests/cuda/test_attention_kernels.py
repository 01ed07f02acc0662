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
@pytest.mark.usefixtures("order")
def test_rows_and_their_gradients(native, case):
    rows, columns, degree, heads, width, apart = case
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


def check_packed(
    native,
    sequence: Tensor,
    own: Tensor | None,
    heads: int,
    width: int,
    causal: bool,
    dense: bool,
    scale: float = 1.0,
    shift: float = 0.0,
) -> None:
    """Compare both directions with plain torch; numbers are drawn by the shape of `sequence`.

    Queries are multiplied by `scale`; `shift` is added to values, and a tenth of it to keys.
    """
    steps, rows = sequence.shape
    generator = torch.Generator().manual_seed(steps + rows)
    real = (sequence >= 0).unsqueeze(-1)
    q, k, v, grad = (torch.randn(steps, rows, heads * width, generator=generator) for _ in range(4))
    q, k, v = q * scale, k + shift / 10, v + shift
    leaves = [x.double().requires_grad_() for x in (q, k, v)]
    exact = real * models.plain_packed_attention(
        *leaves, sequence, heads=heads, causal=causal, own=own
    )
    exact_grads = torch.autograd.grad(exact, leaves, grad.double())

    spans = spans_of(sequence, own, (steps, rows), sequence.device)
    if not dense:
        q, k, v = torch.cat([q, k, v], dim=-1).split(heads * width, dim=-1)
    given = (*tables_of(native, spans), *(native.put(x) for x in (q, k, v)), heads, causal)
    out = torch.zeros_like(native.put(grad))
    native.call("packed_attention_forward", *given, out)
    agree(out, exact.detach())
    stats = native.poisoned(spans.wanted.numel(), heads, 3) if spans.wanted.numel() else None
    grads = [torch.zeros_like(out), torch.full_like(out, math.nan), torch.full_like(out, math.nan)]
    native.call("packed_attention_backward", *given, native.put(grad), stats, *grads)
    for found, right in zip(grads, exact_grads, strict=True):
        agree(found, right)


def tables_of(native, spans) -> tuple[Tensor, Tensor, Tensor]:
    return native.put(spans.sequence), native.put(spans.first), native.put(spans.wanted)


def rows_of_lengths(*rows: list[int]) -> Tensor:
    """Sequences of these lengths one behind the other in each row; a negative one is a gap."""
    steps = max(1, *(sum(map(abs, lengths)) for lengths in rows))
    sequence, number = torch.full((len(rows), steps), -1), 0
    for row, lengths in zip(sequence, rows, strict=True):
        at = 0
        for length in lengths:
            if length > 0:
                row[at : at + length] = number
                number += 1
            at += abs(length)
    return sequence.t().contiguous()


# Around the rows of a tile (8, 16, 32), the owners of a group (2) and of a warp (8, 16, 32).
EDGES = rows_of_lengths([1], [], [1, 1, 1, 33], [9, -1, 16, 2, 7], [35], [-30, 5], [32, 1])
SHORT = rows_of_lengths(*[[1, 2]] * 70)
PAIRS = torch.arange(4 * 90).view(90, 4) // 2
PACKED = [  # sequence, one step in so many is wanted, heads, width, causal, dense
    (rows_of_lengths([1]), 1, 1, 1, False, True),
    (rows_of_lengths([6, 3], [1, 2], [-2, 5, 1]), 0, 2, 16, False, True),  # none is wanted
    *[(EDGES, 1, 3 if w < 10 else 1, w, w % 2 == 1, w % 4 != 0)
      for w in (1, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 36, 48, 63, 64)],
    *[(EDGES, 7, 2, w, causal, True) for w in (8, 16, 32, 64) for causal in (False, True)],
    (PAIRS[:1], 1, 2, 4, False, True),  # rows of one step
    (PAIRS, 1, 2, 4, True, True),
    (SHORT, 1, 1, 33, False, True),
    (rows_of_lengths([517], [3, 500]), 3, 1, 5, True, True),
    (rows_of_lengths([260]), 9, 1, 64, False, True),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(PACKED)))
@pytest.mark.usefixtures("order")
def test_packed_steps_and_their_gradients(native, number):
    sequence, every, heads, width, causal, dense = PACKED[number]
    own = None
    if every != 1:
        own = torch.zeros_like(sequence, dtype=torch.bool)
        if every:
            own[1::every] = True
        own[:, 4:5] = False  # a sequence that nobody asks
    check_packed(native, sequence, own, heads, width, causal, dense)


def test_packed_scores_that_grow_and_shares_of_one(native):
    check_packed(native, rows_of_lengths([40], [40]), None, 2, 20, False, True, scale=30.0)
    sequence = rows_of_lengths([9])
    k = torch.arange(9.0).view(9, 1, 1).expand(9, 1, 64) * 1e3
    q, v = torch.ones(9, 1, 64), torch.arange(9.0).view(9, 1, 1) + torch.zeros(9, 1, 64)
    tables = tables_of(native, spans_of(sequence, None, (9, 1), sequence.device))
    for keys, last in ((k, 8.0), (k.flip(0), 0.0)):
        out = native.poisoned(9, 1, 64)
        given = (native.put(q), native.put(keys.contiguous()), native.put(v))
        native.call("packed_attention_forward", *tables, *given, 1, False, out)
        assert (out == last).all()


def test_packed_gradients_keep_their_digits_under_a_shift(native):
    # The mean pull, which is taken off, is some hundred times what is left.
    check_packed(native, rows_of_lengths([64], [9, 40]), None, 1, 32, False, True, shift=50.0)


def test_nothing_leaks_between_packed_sequences(native):
    sequence = rows_of_lengths([3, 5, 2], [1, 20])
    steps, rows = sequence.shape
    tables = tables_of(native, spans_of(sequence, None, (steps, rows), sequence.device))
    generator = torch.Generator().manual_seed(3)
    clean = [torch.randn(steps, rows, 20, generator=generator) for _ in range(4)]
    results = []
    for value in (None, math.nan, math.inf):
        q, k, v, grad = (x.clone() for x in clean)
        if value is not None:
            for x in (q, k, v, grad):
                x[3:8, 0] = value  # the second sequence of the first row
                x[10:, 0] = value  # no sequence
        given = (*tables, native.put(q), native.put(k), native.put(v), 2, False)
        outputs = [torch.zeros_like(native.put(q)) for _ in range(4)]
        stats = native.poisoned(int((sequence >= 0).sum()), 2, 3)
        native.call("packed_attention_forward", *given, outputs[0])
        native.call("packed_attention_backward", *given, native.put(grad), stats, *outputs[1:])
        for x in outputs:
            x[3:8, 0] = 0.0
            assert not x[10:, 0].any()
        results.append(outputs)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_packed_sequences_without_steps(native):
    # As the second, fourth and last of the table; `spans_of` makes none.
    spans = [[0, 0, 3], [0, 3, 0], [0, 3, 2], [1, 0, 0], [1, 1, 4], [2, 0, 0]]
    table = native.put(spans, torch.int32)
    first = native.put([0, 3, 3, 5, 5, 9, 9], torch.int64)
    wanted = native.put([0, 1, 2, 0, 1, 0, 1, 2, 3], torch.int32)
    sequence = rows_of_lengths([3, 2], [-1, 4], [])
    spans = spans_of(sequence, None, (5, 3), sequence.device)
    generator = torch.Generator().manual_seed(2)
    q, k, v, grad = (native.put(torch.randn(5, 3, 6, generator=generator)) for _ in range(4))
    results = []
    for tables in (tables_of(native, spans), (table, first, wanted)):
        outputs = [torch.zeros_like(q) for _ in range(4)]
        stats = native.poisoned(9, 1, 3)
        native.call("packed_attention_forward", *tables, q, k, v, 1, False, outputs[0])
        native.call(
            "packed_attention_backward", *tables, q, k, v, 1, False, grad, stats, *outputs[1:]
        )
        results.append(outputs)
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_sizes_that_contradict_each_other_are_refused(native):
    indptr, indices = native.put([0, 1], torch.int64), native.put([1], torch.int32)
    values, source, target = (torch.zeros_like(native.put(torch.empty(s))) for s in
                              [(2, 1, 4), (2, 1), (1, 1)])  # fmt: skip
    place, out = native.put([0], torch.int32), native.poisoned(1, 1, 4)
    given = [indptr, indices, values, source, target, 0.2, place, out, None, None]
    native.call("attend_rows_forward", *given)
    for at, wrong, name in [
        (2, values[:0], "values"),
        (2, native.poisoned(2, 1, 200), None),
        (4, target[:0], "target"),
        (7, out[:0], "out"),
    ]:
        with pytest.raises(ValueError, match=name):
            native.call("attend_rows_forward", *given[:at], wrong, *given[at + 1 :])
    table, first = native.put([[0, 0, 2]], torch.int32), native.put([0, 1], torch.int64)
    x = native.poisoned(2, 1, 4)
    with pytest.raises(ValueError, match="heads"):
        native.call("packed_attention_forward", table, first, place, x, x, x, 3, False, x)
    with pytest.raises(ValueError, match="stats"):
        native.call(
            "packed_attention_backward", table, first, place, x, x, x, 1, False, x, None, x, x, x
        )
