"""Sums over partners, products of rows and groups of edges, against plain torch and loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from device_cases import near
from device_fixtures import Native
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_checks import refuses
from torch import Tensor

from dgbench.kernels_cuda.interact import edge_dots, group_edges, local_rows, op, partner_sums
from dgbench.kernels_cuda.interact.device import group_rows, piece_room
from dgbench.systems.base.interaction_layout import t_batches


def pairs(edges: int, left: int, right: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return (
        torch.randint(0, left, (edges,), generator=draw),
        torch.randint(0, right, (edges,), generator=draw),
    )


def rows(count: int, width: int, seed: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(count, width, dtype=torch.float64, generator=draw).to(dtype)


@pytest.fixture
def place(anywhere) -> Native:
    def with_room(*given: Any) -> tuple[Any, ...]:
        return (*given, piece_room(given[2].numel(), given[4]))

    return anywhere(op, interact_sums=with_room)


@pytest.mark.parametrize("width", [1, 5, 64, 70])
def test_products_of_rows_and_their_gradients(width):
    src, dst = pairs(12, 5, 4, 3)
    a, b = rows(5, width, 1).requires_grad_(), rows(4, width, 2).requires_grad_()
    torch.testing.assert_close(edge_dots(src, dst, a, b), (a[src] * b[dst]).sum(1))
    assert torch.autograd.gradcheck(lambda x, y: edge_dots(src, dst, x, y), (a, b))
    edge_dots(src, dst, a.detach(), b).square().sum().backward()
    assert b.grad is not None
    groups = {"by_src": group_edges(src, 5), "by_dst": group_edges(dst, 4)}
    assert torch.autograd.gradcheck(lambda x, y: edge_dots(src, dst, x, y, **groups), (a, b))


@settings(deadline=None, max_examples=25)
@given(edges=st.integers(0, 30), nodes=st.integers(1, 12), seed=st.integers(0, 99))
def test_rows_of_vertices_by_what_they_are(edges, nodes, seed):
    src, dst = pairs(edges, nodes, nodes, seed)
    neg, _ = pairs(edges, nodes, nodes, seed + 1)
    scratch = torch.full((nodes,), -1, dtype=torch.int32)
    found = local_rows(src, dst, neg, scratch)
    assert bool((scratch == -1).all())
    for local, ids in ((found.src, src), (found.dst, dst), (found.neg, neg)):
        assert torch.equal(found.ids[local], ids)
    every = torch.cat([src, dst, neg])
    assert found.ids.sort().values.tolist() == sorted(set(every.tolist()))
    sources, ends = set(src.tolist()), set(src.tolist()) | set(dst.tolist())
    assert set(found.ids[: found.sources].tolist()) == sources
    assert set(found.ids[: found.ends].tolist()) == ends
    assert set(found.ids[found.targets :].tolist()) == set(dst.tolist()) | set(neg.tolist())


@settings(deadline=None, max_examples=30)
@given(
    edges=st.integers(0, 40), nodes=st.integers(1, 10), seed=st.integers(0, 99), ties=st.booleans()
)  # fmt: skip
def test_t_batches_keep_the_order_of_events_and_those_of_one_time_together(
    edges, nodes, seed, ties
):
    """And none is later than it must be."""
    src, dst = pairs(edges, nodes, nodes, seed)
    neg, other = pairs(edges, nodes, nodes, seed + 1)
    t = other.sort().values.double() if ties else torch.arange(edges).double()
    batch = t_batches(src, dst, neg, nodes, t)
    earliest = torch.zeros_like(batch)
    for late in range(edges):
        same = t == t[late]
        reads = {int(src[late]), int(dst[late]), int(neg[late])}
        for early in (e for e in range(late) if not same[e]):
            if {int(src[early]), int(dst[early])} & reads:
                earliest[same] = earliest[same].clamp(min=int(batch[early]) + 1)
            if int(neg[early]) in {int(src[late]), int(dst[late])}:
                earliest[same] = earliest[same].clamp(min=int(batch[early]))
    assert torch.equal(batch, earliest)
    assert ties or torch.equal(batch, t_batches(src, dst, neg, nodes))


def test_what_is_refused():
    x, ids = torch.zeros(3, 4), torch.tensor([0, 1])
    right = {"src": ids, "dst": ids, "left": x, "right": x}
    refuses(
        edge_dots, right, ("dst", ids[:1]), ("dst", torch.tensor([0, 3])),
        ("right", x[:, :2]), ("right", x.double()), ("left", x.double()),
    )  # fmt: skip
    refuses(group_edges, {"rows": ids, "num_rows": 3}, ("rows", ids.int()))
    scratch = torch.full((3,), -1, dtype=torch.int32)
    ends = {"src": ids, "dst": ids, "neg": None}
    refuses(local_rows, {**ends, "scratch": scratch}, ("dst|long", ids[:1]))
    refuses(
        t_batches, {**ends, "num_nodes": 3, "t": ids.double()}, ("dst|lie", ids + 8),
        ("src", ids[:, None]), ("dst", ids[:1]), ("neg", ids.int()), ("t", ids.float()),
    )  # fmt: skip


def test_partners_that_are_alike_keep_their_digits():
    """Added up one after the other, a million equal numbers lose two digits."""
    edges, value = 10**6, torch.full((1, 3), 0.1)
    one = torch.zeros(edges, dtype=torch.int64)
    found = partner_sums(one, one, value, value).sum_s
    assert (found.double() / (edges * value.double()) - 1).abs().max() < 1e-5


CASES = [  # rows, partners, edges, width, share of the edges in row 0
    (1, 1, 0, 4, 0), (5, 3, 1, 1, 0), (40, 30, 64, 8, 0.0), (40, 30, 65, 7, 1.0),
    (300, 50, 2000, 12, 0.5), (3, 20, 700, 64, 0.2), (20, 9, 9000, 16, 0.9),
    (500, 500, 900, 33, 0.0), (9, 4, 300, 260, 0.6),
]  # fmt: skip
DTYPES = (torch.float32, torch.float64)


def edges_of(case, seed: int = 0) -> tuple[Tensor, Tensor]:
    rows, partners, edges, _, hub = case
    random = np.random.default_rng([seed, *map(int, case[:4])])
    src = random.integers(0, rows, edges)
    src[random.random(edges) < hub] = rows // 2
    return torch.from_numpy(src), torch.from_numpy(random.integers(0, partners, edges))


@pytest.mark.parametrize("case", CASES, ids=lambda c: "-".join(map(str, c)))
@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_and_products_are_those_of_torch(place, case, dtype):
    count, partners, edges, width, _ = case
    bound = 1e-6 if dtype == torch.float32 else 1e-13
    src, dst = edges_of(case)
    y, x = rows(count, width, 1, dtype), rows(partners, width, 2, dtype)
    there, weight = [place.put(t) for t in (src, dst, y, x)], rows(edges, 1, 3, dtype)[:, 0]

    def summed(terms: Tensor, by: Tensor = src, size: int = count) -> Tensor:
        return torch.zeros(size, width, dtype=torch.float64).index_add_(0, by, terms.double())

    one, again, last = (partner_sums(*there, last=end) for end in (False, False, True))
    for side, mine, other, size, z in (("s", src, dst, count, x), ("g", dst, src, partners, y)):
        sums, counts = getattr(one, f"sum_{side}"), mine.bincount(minlength=size)
        alike = 15 * bound if side == "g" else bound  # up to 256 of one row are added in turn
        near(sums, summed(z[other], mine, size), alike)
        assert torch.equal(sums, getattr(again, f"sum_{side}"))
        assert getattr(one, f"count_{side}").tolist() == counts.tolist()
        right = torch.zeros(size, width, dtype=dtype)
        for row, partner in zip(mine.tolist(), other.tolist(), strict=True):
            right[row] = z[partner]
        assert torch.equal(getattr(last, f"sum_{side}").cpu(), right)
        assert getattr(last, f"count_{side}").tolist() == counts.clamp(max=1).tolist()
    ends = [t.detach().requires_grad_() for t in there[2:]]
    dots = edge_dots(*there[:2], *ends)
    near(dots.detach(), (y[src].double() * x[dst].double()).sum(1), bound)
    to_left, _ = torch.autograd.grad(dots, ends, place.put(weight))
    near(to_left, summed(weight.double()[:, None] * x[dst]), bound)
    groups, (offsets, order) = group_edges(src, count), group_rows(place.put(src), count)
    assert torch.equal(offsets.cpu(), groups.offsets)
    assert torch.equal(order.cpu(), groups.order)
