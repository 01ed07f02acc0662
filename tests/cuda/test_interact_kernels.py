"""Sums over partners and products of rows on the device, against plain torch in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from dgbench.kernels_cuda.interact import edge_dots, group_edges, partner_sums
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


def edges_of(case, seed: int = 0) -> tuple[Tensor, Tensor]:
    rows, partners, edges, _, hub = case
    random = np.random.default_rng([seed, *map(int, case[:4])])
    src = random.integers(0, rows, edges)
    src[random.random(edges) < hub] = rows // 2
    return torch.from_numpy(src), torch.from_numpy(random.integers(0, partners, edges))


def poison(native, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return torch.full(shape, float("nan"), dtype=dtype, device=native.device)


def close(found: Tensor, right: Tensor, dtype: torch.dtype) -> bool:
    error = (found.cpu().double() - right).norm() / right.norm().clamp(min=1e-30)
    return float(error) < (1e-6 if dtype == torch.float32 else 1e-13)


@pytest.mark.parametrize("case", CASES, ids=lambda c: "-".join(map(str, c)))
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("order", ["forward", "reverse"])
def test_sums_are_those_of_an_index_add(native, case, weighted, dtype, order, monkeypatch):
    if order == "reverse":
        monkeypatch.setenv("EMULATED_ORDER", "reverse")
    rows, partners, edges, width, _ = case
    src, dst = edges_of(case)
    groups = group_edges(src, rows)
    x = torch.randn(partners, width, dtype=dtype)
    weight = torch.randn(edges, dtype=dtype) if weighted else None
    terms = x[dst].double() * (1.0 if weight is None else weight.double()[:, None])
    right = torch.zeros(rows, width, dtype=torch.float64).index_add_(0, src, terms)
    there = [native.put(groups.offsets), native.put(groups.order), native.put(dst)]
    there += [None if weight is None else native.put(weight), native.put(x)]
    twice = []
    for _ in range(2):
        out = poison(native, (rows, width), dtype)
        room = poison(native, (piece_room(edges, x).numel(),), dtype)
        native.call("interact_sums", *there, out, False, room)
        assert close(out, right, dtype)
        twice.append(out)
    assert torch.equal(*twice)


@pytest.mark.parametrize("case", CASES, ids=lambda c: "-".join(map(str, c)))
def test_last_takes_the_last_edge(native, case):
    rows, partners, edges, width, _ = case
    src, dst = edges_of(case)
    groups = group_edges(src, rows)
    x = torch.randn(partners, width)
    right = torch.zeros(rows, width)
    for s, d in zip(src.tolist(), dst.tolist(), strict=True):
        right[s] = x[d]
    out = poison(native, (rows, width), torch.float32)
    room = poison(native, (piece_room(edges, x).numel(),), torch.float32)
    native.call(
        "interact_sums", native.put(groups.offsets), native.put(groups.order), native.put(dst),
        None, native.put(x), out, True, room,
    )  # fmt: skip
    assert torch.equal(out.cpu(), right)


def test_an_unaligned_table_is_read_by_single_numbers(native):
    case = (30, 20, 500, 8, 0.7)
    src, dst = edges_of(case)
    groups = group_edges(src, 30)
    flat = native.put(torch.randn(20 * 8 + 1))
    x = flat[1:].view(20, 8)
    right = torch.zeros(30, 8, dtype=torch.float64)
    right.index_add_(0, src, x.cpu()[dst].double())
    out = poison(native, (30, 8), torch.float32)
    room = poison(native, (piece_room(500, x).numel(),), torch.float32)
    native.call(
        "interact_sums", native.put(groups.offsets), native.put(groups.order), native.put(dst),
        None, x, out, False, room,
    )  # fmt: skip
    assert close(out, right, torch.float32)
    dots = poison(native, (500,), torch.float32)
    native.call("interact_dots", native.put(dst), native.put(dst), x, x, dots)
    assert close(dots, (x.cpu()[dst].double() ** 2).sum(1), torch.float32)


@pytest.mark.parametrize("case", CASES, ids=lambda c: "-".join(map(str, c)))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_products_of_rows(native, case, dtype):
    rows, partners, edges, width, _ = case
    src, dst = edges_of(case)
    left, right = torch.randn(rows, width, dtype=dtype), torch.randn(partners, width, dtype=dtype)
    out = poison(native, (edges,), dtype)
    native.call(
        "interact_dots", native.put(src), native.put(dst), native.put(left), native.put(right), out
    )
    true = (left[src].double() * right[dst].double()).sum(1)
    assert close(out, true, dtype)


@pytest.mark.parametrize("case", CASES, ids=lambda c: "-".join(map(str, c)))
def test_groups_are_those_of_the_cpu(native, case):
    src, _ = edges_of(case)
    right = group_edges(src, case[0])
    offsets, order = group_rows(native.put(src), case[0])
    assert torch.equal(offsets.cpu(), right.offsets)
    assert torch.equal(order.cpu(), right.order)


def test_sizes_that_contradict_each_other_are_refused(native):
    offsets, order = native.put([0, 1, 2]), native.put([0, 1])
    x, out = native.put(torch.ones(3, 4)), native.put(torch.ones(2, 4))
    given = [offsets, order, order, None, x, out, False, piece_room(2, out)]
    native.call("interact_sums", *given)
    for at, wrong, found in [
        (0, order, "offsets"),
        (2, offsets, "other"),
        (3, x[0].contiguous(), "weight"),
        (4, native.put(torch.ones(3, 5)), "wide"),
        (7, x[0].contiguous(), "partial"),
    ]:
        arguments = list(given)
        arguments[at] = wrong
        with pytest.raises(ValueError, match=found):
            native.call("interact_sums", *arguments)
    with pytest.raises(ValueError, match="wide"):
        native.call("interact_dots", order, order, x, native.put(torch.ones(3, 5)), x[0])
    with pytest.raises(ValueError, match="out has"):
        native.call("interact_dots", order, order, x, x, x[0].contiguous())


@pytest.mark.cuda
@pytest.mark.usefixtures("usable_device")
@pytest.mark.parametrize("case", [(2000, 3000, 60_000, 64, 0.4), (50, 40, 300, 10, 0.1)])
def test_public_functions_on_a_device(case):
    rows, partners, _, width, _ = case
    src, dst = edges_of(case, seed=1)
    left = torch.randn(rows, width, dtype=torch.float64)
    right = torch.randn(partners, width, dtype=torch.float64)
    for last in (False, True):
        true = partner_sums(src, dst, left, right, last=last)
        found = partner_sums(src.cuda(), dst.cuda(), left.float().cuda(), right.float().cuda(),
                             last=last)  # fmt: skip
        for one, other in zip(found, true, strict=True):
            assert close(one, other.double(), torch.float32)
    inputs = [left.float(), right.float()]
    grads = []
    for device, dtype in (("cpu", torch.float64), ("cuda", torch.float32)):
        mine = [x.to(device, dtype).requires_grad_() for x in inputs]
        edge_dots(src.to(device), dst.to(device), *mine).square().mean().backward()
        grads.append([x.grad for x in mine])
    for one, other in zip(grads[1], grads[0], strict=True):
        assert float((one.cpu().double() - other).norm() / other.norm()) < 1e-5
