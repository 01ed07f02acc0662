"""Sums over partners and products of rows on the device, against plain torch in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dgbench.kernels_cuda.interact import group_edges
from dgbench.kernels_cuda.interact.device import group_rows, piece_room

CASES = [  # rows, partners, edges, width, share of the edges in row 0
    (1, 1, 0, 4, 0),
    (5, 3, 1, 1, 0),
    (40, 30, 64, 8, 0.0),
    (40, 30, 65, 7, 1.0),
    (300, 50, 2000, 12, 0.5),
    (3, 20, 700, 64, 0.2),
    (20, 9, 9000, 16, 0.9),
    (500, 500, 900, 33, 0.0),
    (9, 4, 300, 260, 0.6),
]
DTYPES = (torch.float32, torch.float64)


def edges_of(case, seed: int = 0) -> tuple[Tensor, Tensor]:
    rows, partners, edges, _, hub = case
    random = np.random.default_rng([seed, *map(int, case[:4])])
    src = random.integers(0, rows, edges)
    src[random.random(edges) < hub] = rows // 2
    return torch.from_numpy(src), torch.from_numpy(random.integers(0, partners, edges))


def close(found: Tensor, right: Tensor) -> bool:
    error = (found.cpu().double() - right).norm() / right.norm().clamp(min=1e-30)
    return float(error) < (1e-6 if found.dtype == torch.float32 else 1e-13)


def sums(native, case, x: Tensor, weight: Tensor | None = None, last: bool = False) -> Tensor:
    src, dst = edges_of(case)
    groups = group_edges(src, case[0])
    out = native.poisoned(case[0], x.shape[1]).to(x.dtype)
    room = native.poisoned(piece_room(dst.numel(), x).numel()).to(x.dtype)
    lists = map(native.put, (groups.offsets, groups.order, dst))
    weight = None if weight is None else native.put(weight)
    native.call("interact_sums", *lists, weight, native.put(x), out, last, room)
    return out


@pytest.mark.parametrize("case", CASES, ids=lambda c: "-".join(map(str, c)))
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.usefixtures("order")
def test_sums_and_products_are_those_of_torch(native, case, dtype):
    rows, partners, edges, width, _ = case
    src, dst = edges_of(case)
    x, y = torch.randn(partners, width, dtype=dtype), torch.randn(rows, width, dtype=dtype)
    for weight in (None, torch.randn(edges, dtype=dtype)):
        terms = x[dst].double() * (1.0 if weight is None else weight.double()[:, None])
        right = torch.zeros(rows, width, dtype=torch.float64).index_add_(0, src, terms)
        one, again = (sums(native, case, x, weight) for _ in range(2))
        assert close(one, right)
        assert torch.equal(one, again)
    right = torch.zeros(rows, width, dtype=dtype)
    for s, d in zip(src.tolist(), dst.tolist(), strict=True):
        right[s] = x[d]
    assert torch.equal(sums(native, case, x, last=True).cpu(), right)
    out = native.poisoned(edges).to(dtype)
    native.call("interact_dots", *map(native.put, (src, dst, y, x)), out)
    assert close(out, (y[src].double() * x[dst].double()).sum(1))
    groups, (offsets, order) = group_edges(src, rows), group_rows(native.put(src), rows)
    assert torch.equal(offsets.cpu(), groups.offsets)
    assert torch.equal(order.cpu(), groups.order)


def test_an_unaligned_table_is_read_by_single_numbers(native):
    case = (30, 20, 500, 8, 0.7)
    src, dst = edges_of(case)
    x = native.put(torch.randn(20 * 8 + 1))[1:].view(20, 8)
    right = torch.zeros(30, 8, dtype=torch.float64).index_add_(0, src, x.cpu()[dst].double())
    assert close(sums(native, case, x), right)
    dots = native.poisoned(500)
    native.call("interact_dots", native.put(dst), native.put(dst), x, x, dots)
    assert close(dots, (x.cpu()[dst].double() ** 2).sum(1))


def test_sizes_that_contradict_each_other_are_refused(native):
    offsets, order = native.put([0, 1, 2]), native.put([0, 1])
    x, out = native.put(torch.ones(3, 4)), native.put(torch.ones(2, 4))
    narrow, wide = x[0].contiguous(), native.put(torch.ones(3, 5))
    sum_of: list[Any] = [offsets, order, order, None, x, out, False, piece_room(2, out)]
    dots: list[Any] = [order, order, x, x, native.put(torch.ones(2))]
    for name, given, wrong in (
        ("interact_sums", sum_of, ((0, order, "offsets"), (2, offsets, "other"),
                                   (3, narrow, "weight"), (4, wide, None), (7, narrow, "partial"))),
        ("interact_dots", dots, ((3, wide, None), (4, narrow, "out"))),
    ):  # fmt: skip
        native.call(name, *given)
        for at, what, argument in wrong:
            with pytest.raises(ValueError, match=argument):
                native.call(name, *given[:at], what, *given[at + 1 :])
