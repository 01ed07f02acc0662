"""spmm and aggregate_parts against dense float64 products."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from csr_cases import dense, hub_csr
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_checks import close, on_threads, refuses, same_bits

from dgbench.kernels_cuda import _cpu
from dgbench.kernels_cuda.aggregate import aggregate_parts, aggregate_parts_scatter, degrees, spmm
from dgbench.kernels_cuda.csr import Csr

WIDTHS = [*range(1, 10), 12, 16, 17, 31, 33, 48, 64, 100, 128, 300]


def csr_of(mask, values=None):
    """The matrix with an entry where `mask` is set, and the values there."""
    rows, columns = mask.nonzero(as_tuple=True)
    indptr = torch.zeros(mask.shape[0] + 1, dtype=torch.int64)
    indptr[1:] = mask.sum(1).cumsum(0)
    kept = None if values is None else values[rows, columns].float().contiguous()
    return Csr(indptr, columns.int(), mask.shape[1], kept)


def product(matrix, x, row_scale, col_scale, self_loop):
    """R (A + I) C X in float64, with loops nowhere and every step in sight."""
    x = x.double()
    if col_scale is not None:
        x = x * col_scale.double().unsqueeze(-1)
    y = matrix.double() @ x
    if self_loop:
        y = y + x
    return y if row_scale is None else y * row_scale.double().unsqueeze(-1)


def parts_product(snapshots, x, row_scale, col_scale, self_loop):
    columns = []
    for s, matrix in enumerate(snapshots):
        r, c = (None if a is None else a[:, s] for a in (row_scale, col_scale))
        columns.append(product(matrix, x[:, s], r, c, self_loop))
    return torch.stack(columns, 1)


def near(ours, expected, tolerance=2e-6):
    close([ours], [expected], tolerance)


def random_csr(generator, rows, columns, density, weighted):
    mask = torch.rand(rows, columns, generator=generator) < density
    values = torch.randn(rows, columns, generator=generator) if weighted else None
    return csr_of(mask, values)


def random_parts(generator, n, snapshots, density, weighted):
    """Parts with their snapshots as dense matrices."""
    over_mask = torch.rand(n, n, generator=generator) < density
    over = csr_of(over_mask)
    weights = torch.randn(snapshots, n, n, generator=generator)
    dense_snapshots, exclusive = [], []
    for s in range(snapshots):
        mask = (torch.rand(n, n, generator=generator) < density / 2) & ~over_mask
        exclusive.append(csr_of(mask, weights[s] if weighted else None))
        both = (mask | over_mask).double()
        dense_snapshots.append(both * weights[s].double() if weighted else both)
    if weighted:
        rows, columns = over_mask.nonzero(as_tuple=True)
        values = weights[:, rows, columns].T.contiguous()
        over = Csr(over.indptr, over.indices, n, values)
    return SimpleNamespace(over=over, exclusive=exclusive), dense_snapshots


@pytest.fixture(params=["avx512", "avx2", "portable"])
def registers(request):
    """All families of kernels; one that the machine does not have runs as the next narrower."""
    _cpu.aggregate_registers(request.param)
    yield request.param
    _cpu.aggregate_registers("")


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("width", WIDTHS)
def test_spmm_equals_dense_product(width, weighted, registers):
    g = torch.Generator().manual_seed(width)
    csr = random_csr(g, 70, 70, 0.12, weighted)
    x = torch.randn(70, width, generator=g)
    r, c = torch.rand(70, generator=g), torch.rand(70, generator=g)
    for row_scale, col_scale, loop in [(None, None, False), (r, c, True), (r, None, False)]:
        expected = product(dense(csr), x, row_scale, col_scale, loop)
        for _ in range(4):  # as given, rows by length, then a product that is made again
            near(spmm(csr, x, row_scale, col_scale, loop), expected)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("snapshots", [1, 3, 8, 17])
@pytest.mark.parametrize("width", [1, 2, 3, 6, 7, 8, 20, 33])
def test_parts_equal_each_snapshot(width, snapshots, weighted, registers):
    g = torch.Generator().manual_seed(100 * width + snapshots)
    parts, matrices = random_parts(g, 40, snapshots, 0.15, weighted)
    x = torch.randn(40, snapshots, width, generator=g, requires_grad=True)
    dy = torch.randn(40, snapshots, width, generator=g)
    r, c = torch.rand(40, snapshots, generator=g), torch.rand(40, snapshots, generator=g)
    for row_scale, col_scale, loop in [(None, None, False), (r, c, True)]:
        expected = parts_product(matrices, x, row_scale, col_scale, loop)
        turned = parts_product([m.T for m in matrices], dy, col_scale, row_scale, loop)
        for operator in (aggregate_parts, aggregate_parts_scatter):
            y = operator(parts, x, row_scale, col_scale, loop)
            near(y, expected)
            near(torch.autograd.grad(y, x, dy)[0], turned)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(0, 12), columns=st.integers(1, 12),
    edges=st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=60),
    width=st.integers(1, 40), weighted=st.booleans(),
)  # fmt: skip
def test_spmm_on_any_edge_list(rows, columns, edges, width, weighted):
    """Duplicates add up; rows may be empty; the matrix need not be square."""
    kept = sorted((r, c) for r, c in edges if r < rows and c < columns)
    indptr = torch.zeros(rows + 1, dtype=torch.int64)
    for r, _ in kept:
        indptr[r + 1 :] += 1
    indices = torch.tensor([c for _, c in kept], dtype=torch.int32)
    values = torch.arange(1.0, len(kept) + 1) if weighted else None
    csr = Csr(indptr, indices, columns, values)
    x = torch.linspace(-1, 1, columns * width).view(columns, width)
    first = spmm(csr, x)
    near(first, product(dense(csr), x, None, None, False))
    assert torch.equal(spmm(csr, x), first)  # the second product takes its rows by length


@pytest.mark.parametrize("width", [1, 2, 6, 16, 40, 130])
@pytest.mark.parametrize("snapshots", [1, 3])
def test_rows_longer_than_a_piece(width, snapshots):
    """A hub and its plain neighbours; the hub's row is cut into pieces."""
    n = 45_000
    hub = torch.arange(n, dtype=torch.int32)
    few = torch.tensor([0, 7, n - 1], dtype=torch.int32)
    over = Csr(torch.tensor([0, 0, n, n + 3]), torch.cat([hub, few]), n)
    own = Csr(torch.tensor([0, 2, n + 2, n + 2]), torch.cat([few[1:], hub]), n)
    parts = SimpleNamespace(over=over, exclusive=[own] * snapshots)
    x = torch.randn(n, snapshots, width, generator=torch.Generator().manual_seed(1))
    scale = torch.tensor([[0.5], [2.0], [-1.0]]).repeat(1, snapshots)
    total = x.double().sum(0)
    picked = x.double()[few.long()]
    expected = torch.stack([picked[1:].sum(0), 2 * total, picked.sum(0)])
    expected *= scale.double().unsqueeze(-1)
    for _ in range(2):  # as given, then by length
        near(aggregate_parts(parts, x, scale), expected, 2e-5)
    expected = torch.stack([torch.zeros_like(total[0]), total[0], picked[:, 0].sum(0)])
    for _ in range(2):  # as given, then by length
        y = spmm(over, x[:, 0], scale[:, 0])
        near(y, expected * scale[:, :1].double(), 2e-5)


@pytest.mark.parametrize("width", [1, 2, 6, 150])
def test_bits_do_not_depend_on_threads(width):
    csr = hub_csr(5, 3000, 60_000, most=40)
    x = torch.randn(3000, width, generator=torch.Generator().manual_seed(5))
    same_bits(on_threads(lambda: [spmm(csr, x, self_loop=True)], (1, 2, 5)))


def test_nan_stays_in_its_neighbours():
    """Lanes beyond a row's end, and snapshots beside it, never see its NaN."""
    g = torch.Generator().manual_seed(2)
    parts, matrices = random_parts(g, 30, 3, 0.2, False)
    for width in (1, 3, 5, 6, 7, 20):
        x = torch.randn(30, 3, width, generator=g)
        x[4, 1, width - 1] = float("nan")
        y = aggregate_parts(parts, x)
        expected = torch.zeros(30, 3, width, dtype=torch.bool)
        expected[:, 1, width - 1] = matrices[1][:, 4] != 0
        assert torch.equal(y.isnan(), expected)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("symmetric", [False, True])
def test_spmm_gradcheck(weighted, symmetric):
    g = torch.Generator().manual_seed(3)
    mask = torch.rand(7, 7, generator=g) < 0.3
    values = torch.randn(7, 7, generator=g)
    mask[2] = False
    if symmetric:
        mask, values = mask & mask.T, values + values.T
    csr = csr_of(mask, values if weighted else None)
    r, c = torch.rand(7, generator=g).double(), torch.rand(7, generator=g).double()
    x = torch.randn(7, 3, generator=g).double().requires_grad_()

    def run(x):
        return spmm(csr, x, r, c, True, symmetric=symmetric)

    assert torch.autograd.gradcheck(run, x)
    assert torch.autograd.gradgradcheck(run, x)


def test_gradient_of_a_rectangle():
    csr = random_csr(torch.Generator().manual_seed(6), 5, 9, 0.4, True)
    x = torch.randn(9, 4)[:, ::2].requires_grad_()  # strided features are copied
    spmm(csr, x).sum().backward()
    near(x.grad, dense(csr).T @ torch.ones(5, 2, dtype=torch.float64))


def test_degrees():
    g = torch.Generator().manual_seed(9)
    for weighted in (False, True):
        csr = random_csr(g, 20, 30, 0.2, weighted)
        near(degrees(csr), dense(csr).sum(1))
    empty = Csr(torch.zeros(1, dtype=torch.int64), torch.zeros(0, dtype=torch.int32), 0)
    assert degrees(empty).shape == (0,)


def test_the_transpose_of_changed_values_is_made_again():
    csr = random_csr(torch.Generator().manual_seed(1), 10, 10, 0.4, True)
    for _ in range(2):
        x = torch.randn(10, 2, requires_grad=True)
        spmm(csr, x).sum().backward()
        near(x.grad, dense(csr).T @ torch.ones(10, 2, dtype=torch.float64))
        csr.values.mul_(2.0)


def test_mistakes_are_named():
    def multiply(indptr, indices, num_cols, values, x, **more):
        return spmm(Csr(indptr, indices, num_cols, values), x, **more)

    indices = torch.tensor([0, 2], dtype=torch.int32)
    right = {"indptr": torch.tensor([0, 1, 1, 2]), "indices": indices, "num_cols": 3}
    right |= {"values": None, "x": torch.ones(3, 2), "row_scale": None, "col_scale": None}
    refuses(
        multiply, right,
        *(("x", x) for x in (torch.ones(4, 2), torch.ones(3), torch.ones(3, 2).long())),
        ("x", torch.ones(3, 2).bfloat16()), ("row_scale", torch.ones(2)),
        ("col_scale", torch.ones(3).double()), ("row_scale", torch.ones(3, requires_grad=True)),
        ("indices", indices.long()), *(("indices|column", indices + i) for i in (-1, 1)),
        ("indptr", torch.tensor([0, 2, 1, 2])), ("indptr", torch.tensor([0, 1, 2, 3])),
        ("values", torch.ones(3)), ("values", torch.ones(2, 2)),
    )  # fmt: skip
    wide = {**right, "num_cols": 4, "x": torch.ones(4, 2), "self_loop": False}
    refuses(multiply, wide, ("self_loop", True))


def test_mistakes_in_parts_are_named():
    parts, _ = random_parts(torch.Generator().manual_seed(1), 5, 2, 0.4, True)
    plain = [Csr(p.indptr, p.indices, p.num_cols) for p in parts.exclusive]
    small = csr_of(torch.ones(4, 4, dtype=torch.bool), torch.ones(4, 4))
    flat = Csr(parts.over.indptr, parts.over.indices, 5, parts.over.values[:, 0].contiguous())
    refuses(
        lambda over, exclusive, **more: aggregate_parts(
            SimpleNamespace(over=over, exclusive=exclusive), **more
        ),
        {"over": parts.over, "exclusive": parts.exclusive, "x": torch.ones(5, 2, 3)},
        ("exclusive", []), ("exclusive", plain), ("exclusive|4 x 4", [small, small]),
        ("over|value", flat), ("x", torch.ones(5, 3, 3)), ("row_scale", torch.ones(5)),
    )  # fmt: skip


def test_a_hub_of_alike_neighbours_keeps_its_digits():
    """Added up one after the other, alike numbers are rounded alike: 1e-3 off from 10^5 on."""
    neighbours = 10**5
    indptr = torch.tensor([0, neighbours, *[neighbours] * neighbours])
    hub = Csr(indptr, torch.arange(1, neighbours + 1, dtype=torch.int32), neighbours + 1)
    found = spmm(hub, torch.full((neighbours + 1, 8), 0.1))[0]
    assert (found.double() / (neighbours * float(torch.tensor(0.1))) - 1).abs().max() < 5e-5
