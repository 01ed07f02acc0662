"""Products of sparse rows against dense float64 products, on the CPU and on a device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from csr_cases import dense, hub_csr, random_csr
from device_cases import csr_where, near, to_device
from device_fixtures import PLACES, Native, open_place
from kernel_checks import refuses
from torch import Tensor

from dgbench.kernels_cuda import _cpu
from dgbench.kernels_cuda.aggregate import (
    aggregate_parts,
    aggregate_parts_scatter,
    aggregate_union,
    degrees,
    op,
    prepared,
    spmm,
)
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.overlap import PartTopology, UnionTopology
from dgbench.systems.pipad.merged import PartitionAggregation
from dgbench.systems.pipad.partitions import SnapshotPartition
from dgbench.systems.pipad.snapshots import SnapshotAggregation

WIDTHS = [1, 2, 3, 5, 7, 8, 9, 16, 17, 33, 64, 100, 300]


def product(matrix, x, row_scale, col_scale, self_loop):
    """R (A + I) C X in float64, with loops nowhere and every step in sight."""
    x = x.double()
    if col_scale is not None:
        x = x * col_scale.double().unsqueeze(-1)
    y = matrix.double() @ x
    if self_loop:
        y = y + x[: len(y)]
    return y if row_scale is None else y * row_scale.double().unsqueeze(-1)


def parts_product(snapshots, x, row_scale, col_scale, self_loop):
    columns = []
    for s, matrix in enumerate(snapshots):
        r, c = (None if a is None else a[:, s] for a in (row_scale, col_scale))
        columns.append(product(matrix, x[:, s], r, c, self_loop))
    return torch.stack(columns, 1)


def random_parts(generator, n, snapshots, density, weighted, *, own=0.5, hub=None):
    """Parts with their snapshots as dense matrices; `own` is the share of entries of one alone."""
    over_mask = torch.rand(n, n, generator=generator) < density
    over_mask[hub if hub is not None else []] = True
    over = csr_where(over_mask)
    weights = torch.randn(snapshots, n, n, generator=generator)
    dense_snapshots, exclusive = [], []
    for s in range(snapshots):
        mask = torch.rand(n, n, generator=generator) < own * density
        mask[hub + 1 if hub is not None and own else []] = True
        mask &= ~over_mask
        exclusive.append(csr_where(mask, weights[s] if weighted else None))
        both = (mask | over_mask).double()
        dense_snapshots.append(both * weights[s].double() if weighted else both)
    if weighted:
        rows, columns = over_mask.nonzero(as_tuple=True)
        values = weights[:, rows, columns].T.contiguous()
        over = Csr(over.indptr, over.indices, n, values)
    return SimpleNamespace(over=over, exclusive=exclusive), dense_snapshots


CPU_KERNELS = ["avx512", "avx2", "portable"]


@pytest.fixture(params=CPU_KERNELS)
def registers(request):
    """All families of kernels; one that the machine does not have runs as the next narrower."""
    _cpu.aggregate_registers(request.param)
    yield request.param
    _cpu.aggregate_registers("")


@pytest.fixture(params=[*CPU_KERNELS, *PLACES])
def place(request, monkeypatch) -> Iterator[Native]:
    """Where products over parts work: by each family of the CPU's, or as on a device."""
    kind = request.param
    if kind in CPU_KERNELS:
        _cpu.aggregate_registers(kind)
        kind = "cpu"
    native = open_place(kind, request, monkeypatch)(op, prepared)
    if native.device == "cpu" and not native.own:
        for name in ("reads_bits", "cuts_rows"):
            for module in (op, prepared):
                monkeypatch.setattr(module, name, lambda device: True, raising=False)
    yield native
    _cpu.aggregate_registers("")


def moved(parts, place: Native):
    over, *exclusive = (to_device(csr, place.device) for csr in (parts.over, *parts.exclusive))
    return SimpleNamespace(over=over, exclusive=exclusive)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("width", WIDTHS)
def test_spmm_equals_dense_product(width, weighted, registers):
    g = torch.Generator().manual_seed(width)
    repeated = hub_csr(width, 70, 200)
    repeated = replace(repeated, values=repeated.values if weighted else None)
    x = torch.randn(70, width, generator=g)
    r, c = torch.rand(70, generator=g), torch.rand(70, generator=g)
    for csr in (random_csr(width, 70, 70, 0.12, weighted=weighted), repeated):
        for scales in [(None, None, False), (r, c, True), (r, None, False)]:
            expected = product(dense(csr), x, *scales)
            for _ in range(4):  # as given, rows by length, then a product that is made again
                near(spmm(csr, x, *scales), expected)


def check_parts(place: Native, parts, matrices, x, dy, r, c) -> None:
    """Compare both operators and their gradients with each snapshot, with scales and without."""
    there, leaf = moved(parts, place), place.put(x).detach().requires_grad_()
    for row_scale, col_scale, loop in [(None, None, False), (r, c, True)]:
        expected = parts_product(matrices, x, row_scale, col_scale, loop)
        turned = parts_product([m.T for m in matrices], dy, col_scale, row_scale, loop)
        scales = [None if s is None else place.put(s) for s in (row_scale, col_scale)]
        for operator in (aggregate_parts, aggregate_parts_scatter):
            y = operator(there, leaf, *scales, loop)
            near(y.detach(), expected)
            near(torch.autograd.grad(y, leaf, place.put(dy))[0], turned)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("snapshots", [1, 3, 17])
@pytest.mark.parametrize("width", [1, 2, 3, 6, 8, 33])
def test_parts_equal_each_snapshot(width, snapshots, weighted, place):
    g = torch.Generator().manual_seed(100 * width + snapshots)
    parts, matrices = random_parts(g, 40, snapshots, 0.15, weighted)
    x, dy = (torch.randn(40, snapshots, width, generator=g) for _ in range(2))
    r, c = (torch.rand(40, snapshots, generator=g) for _ in range(2))
    check_parts(place, parts, matrices, x, dy, r, c)


@pytest.mark.parametrize("place", PLACES, indirect=True)
@pytest.mark.parametrize(
    ("snapshots", "width", "own", "weighted"),  # without entries of one alone tiles are taken
    [(1, 2, 0.5, False), (4, 2, 0.0, True), (3, 4, 0.5, True), (2, 33, 0.0, False)],
)
def test_parts_with_rows_that_are_cut(place, snapshots, width, own, weighted):
    g = torch.Generator().manual_seed(width)
    parts, matrices = random_parts(g, 1100, snapshots, 0.008, weighted, own=own, hub=5)
    assert parts.over.nnz > prepared.FEW_ENTRIES
    x, dy = (torch.randn(1100, snapshots, width, generator=g) for _ in range(2))
    r, c = (torch.rand(1100, snapshots, generator=g) for _ in range(2))
    check_parts(place, parts, matrices, x, dy, r, c)


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
    csr = csr_where(mask, values if weighted else None)
    r, c = torch.rand(7, generator=g).double(), torch.rand(7, generator=g).double()
    x = torch.randn(7, 3, generator=g).double().requires_grad_()

    def run(x):
        return spmm(csr, x, r, c, True, symmetric=symmetric)

    assert torch.autograd.gradcheck(run, x)
    assert torch.autograd.gradgradcheck(run, x)


def test_gradient_of_a_rectangle_whose_values_change():
    csr = random_csr(6, 5, 9, 0.4, weighted=True)
    for _ in range(2):
        x = torch.randn(9, 4)[:, ::2].requires_grad_()  # strided features are copied
        spmm(csr, x).sum().backward()
        near(x.grad, dense(csr).T @ torch.ones(5, 2, dtype=torch.float64))
        csr.values.mul_(2.0)


def test_degrees():
    for weighted in (False, True):
        csr = random_csr(9, 20, 30, 0.2, weighted=weighted)
        near(degrees(csr), dense(csr).sum(1))
    empty = Csr(torch.zeros(1, dtype=torch.int64), torch.zeros(0, dtype=torch.int32), 0)
    assert degrees(empty).shape == (0,)
    assert spmm(empty, torch.ones(0, 3)).shape == (0, 3)
    columns = Csr(empty.indptr, empty.indices, 7)
    assert spmm(columns, torch.ones(7, 3)).shape == (0, 3)


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
        ("indices", indices.long()), ("values", torch.ones(3)), ("values", torch.ones(2, 2)),
    )  # fmt: skip
    wide = {**right, "num_cols": 4, "x": torch.ones(4, 2), "self_loop": False}
    refuses(multiply, wide, ("self_loop", True))


def test_mistakes_in_parts_are_named():
    parts, _ = random_parts(torch.Generator().manual_seed(1), 5, 2, 0.4, True)
    plain = [Csr(p.indptr, p.indices, p.num_cols) for p in parts.exclusive]
    small = csr_where(torch.ones(4, 4, dtype=torch.bool), torch.ones(4, 4))
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


# --- A device's, in every form that it has --------------------------------------------------------


# A tile has so many rows and entries together; lengths end rows at, before and behind borders of
# threads' shares, of warps and of tiles, and carry one row over several tiles.
TILE = 1792
COLUMNS = 70
LENGTHS: dict[str, list[int]] = {
    "one": [1],
    "no entries": [0] * 5,
    "cut rows": [3, 0, 128, 129, 1, 1025, 40, 2100],
    "every length": [*range(130), 0, 0, 1000, *range(129, 0, -1)],
    "empty rows over tiles": [0] * (2 * TILE + 5),
    "one entry each": [1] * TILE,
    "a hub over tiles": [3, 5 * TILE + 11, 0, 2],
    "hubs one after the other": [2 * TILE, 2 * TILE, 1, 0, 3 * TILE],
    "a row that ends with its tile": [TILE - 1, 4, TILE - 6, 0, 9],
    "its end is the next tile's first": [TILE, 0, TILE - 2, 1, 0, 30],
    "rows of a share": [6] * 700,
    "rows of a share and one": [7] * 700,
    "empty rows before a hub": [0] * (TILE - 1) + [TILE + 1] + [0] * TILE,
}
FORMS = {"the rule's": 0, "an owner": 1, "segments": 2, "tiles": 3}
PRODUCTS = [
    *[("tiles", width, case) for width in (1, 3, 4, 8, 11, 16) for case in LENGTHS],
    *[(form, width, case) for form in ("the rule's", "an owner", "segments", "gespmm")
      for width in (1, 2, 4, 20, 33, 64, 130, 132)
      for case in list(LENGTHS)[: 4 if form != "the rule's" else 3]],
]  # fmt: skip


@pytest.mark.parametrize(("form", "width", "case"), PRODUCTS, ids=lambda x: str(x))
def test_every_row_is_summed_once_and_alike_every_time(native, form, width, case):
    plain, lengths, g = form == "gespmm", LENGTHS[case], torch.Generator().manual_seed(width)
    indptr = torch.tensor([0, *lengths]).cumsum(0)
    nnz, count = int(indptr[-1]), len(lengths)
    indices = torch.randint(0, COLUMNS, (nnz,), generator=g).int()
    weights = torch.randn(nnz, generator=g) if width % 3 else None
    x = torch.randn(COLUMNS, width, generator=g)
    by_row = None if plain else torch.rand(count, generator=g) + 0.5
    by_col = torch.rand(COLUMNS, generator=g) + 0.5 if width % 2 and not plain else None
    loop = count <= COLUMNS and not plain
    expected = product(dense(Csr(indptr, indices, COLUMNS, weights)), x, by_row, by_col, loop)
    given = [None if t is None else native.put(t) for t in (indptr, indices, weights, x)]
    scales = [None if t is None else native.put(t) for t in (by_row, by_col)]
    table = native.put(torch.full((native.module.heavy_size(count, nnz),), -1), torch.int32)
    native.call("list_heavy", given[0], None, nnz, table)
    partials = native.poisoned(native.module.heavy_slots(count, nnz), width)
    results = []
    for _ in range(2):
        y = native.poisoned(count, width)
        if plain:
            native.call("spmm_gespmm", *given, y, None)
        else:
            cut = None if form == "an owner" else table
            lists = (*given[:3], cut, given[3], y, *scales, loop)
            native.call("spmm", *lists, partials=partials, form=FORMS[form])
        near(y, expected, 1e-5 if plain else 2e-6)
        results.append(y)
    if form != "gespmm":
        assert torch.equal(*results)


def test_an_odd_base_address_takes_scalar_loads(place):
    """Rows of x begin four bytes past a vector's boundary; the kernel must not load vectors."""
    csr, room = random_csr(3, 20, 20, 0.4), place.put(torch.randn(20 * 8 + 1))
    x = room[1:].view(20, 8)
    near(spmm(to_device(csr, place.device), x), dense(csr) @ x.double().cpu())


# --- the union of snapshots by its bits -----------------------------------------------------------

ROWS = 90


def united_snapshots(count: int, seed: int) -> tuple[list[Csr], Tensor]:
    """Snapshots and the same dense: they share entries, one has none, there are a hub and gaps."""
    random = np.random.default_rng(seed)
    present = random.random((count, ROWS, ROWS)) < 0.08
    present[:, 3] = random.random((count, ROWS)) < 0.9
    present[:, 10:14] = False
    present[-1] = False
    return [csr_where(one) for one in present], torch.from_numpy(present).double()


@pytest.mark.parametrize("few", [0, prepared.FEW_ENTRIES], ids=["cut", "whole"])
@pytest.mark.parametrize(("count", "features"), [(1, 3), (2, 1), (8, 2), (32, 1), (5, 12)])
def test_union_and_its_gradient(place, monkeypatch, count, features, few):
    """On the CPU by weights, on a device by the bits of the mask; rows may be cut there."""
    monkeypatch.setattr(prepared, "FEW_ENTRIES", few)
    group, dense = united_snapshots(count + 1, 7)
    hidden = 20 if count > 1 else ROWS  # the mask of one snapshot is not looked at
    group, dense, others = group[:count], dense[:count], torch.arange(ROWS) != hidden
    dense[:, :, hidden : hidden + 1] = 0
    row, col = torch.rand(2, ROWS, count) + 0.5
    x, grad = torch.randn(2, ROWS, count, features)
    expected = parts_product(dense, x, row, col, True)
    if not place.own:
        x[hidden : hidden + 1] = torch.nan  # read for nobody who does not hold it
    leaf = place.put(x).detach().requires_grad_()
    union = UnionTopology.build([to_device(csr, place.device) for csr in group])
    union = replace(union, mask=torch.where(union.csr.indices == hidden, 0, union.mask))
    y = aggregate_union(union, leaf, place.put(row), place.put(col), True)
    y.backward(place.put(grad))
    near(y.detach().cpu()[others], expected[others])
    near(leaf.grad, parts_product(dense.transpose(1, 2), grad, col, row, True))


def test_a_union_that_does_not_fit_is_named():
    union = UnionTopology.build(united_snapshots(3, 2)[0])
    x, values = torch.zeros(ROWS, 3, 1), replace(union.csr, values=torch.ones(union.csr.nnz, 2))
    refuses(
        aggregate_union, {"union": union, "x": x}, ("x", x[:, :2].contiguous()),
        ("union|union.mask", replace(union, mask=union.mask[1:])),
        ("union|union.mask", replace(union, mask=union.mask.long())),
        ("union|union.csr.values", replace(union, csr=values)),
    )  # fmt: skip


def test_nodes_of_a_frame_leave_room_for_rows_that_are_cut(place):
    rows, device = 1100, place.device  # a row of all columns is cut
    draw = torch.Generator().manual_seed(3)
    shared = torch.rand(rows, rows, generator=draw) < 0.06
    shared[5] = True
    dense = [shared | (torch.rand(rows, rows, generator=draw) < 0.002) for _ in range(3)]
    group = [to_device(csr_where(one), device) for one in dense]
    assert all(csr.nnz > prepared.FEW_ENTRIES for csr in group)
    scale = (torch.rand(3, rows, generator=draw) + 0.5).to(device)
    by = scale.t().contiguous()
    single = [(csr, scale[t], scale[t]) for t, csr in enumerate(group)]
    merged = [SnapshotPartition(range(3), PartTopology.build(group), by, by, 0)]
    x, grad = torch.randn(2, 3, rows, 2, generator=draw)
    for node, topology in ((SnapshotAggregation, single), (PartitionAggregation, merged)):
        leaf = x.to(device).detach().clone().requires_grad_()
        y = node.apply(leaf, topology)
        y.backward(grad.to(device))
        for t, one in enumerate(dense):
            whole = (one.double() + torch.eye(rows)) * scale[t].cpu() * scale[t, :, None].cpu()
            near(y[t].detach(), whole @ x[t].double())
            near(leaf.grad[t], whole.t() @ grad[t].double())
