"""Products over the union of snapshots by its bits, against each snapshot by itself in float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from test_tiled_rows import BY_TILES, TILE, tiled

from dgbench.kernels_cuda.aggregate import aggregate_union, choice, op, prepared
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.overlap import UnionTopology
from dgbench.runtime.errors import InvalidInputError

ROWS = 90
ROW_OWNER, SEGMENTS = 1, 2


def drawn(count: int, seed: int) -> list[Csr]:
    """Snapshots that share some entries, with a hub, empty rows and one without any entry."""
    random = np.random.default_rng(seed)
    held = random.random((count, ROWS, ROWS)) < 0.08
    held[:, 3] = random.random((count, ROWS)) < 0.9
    held[:, 10:14] = False
    held[-1] = False
    found = []
    for one in held:
        indptr = np.concatenate([[0], one.sum(1).cumsum()]).astype(np.int64)
        columns = np.nonzero(one)[1].astype(np.int32)
        found.append(Csr(torch.from_numpy(indptr), torch.from_numpy(columns), ROWS))
    return found


def dense(csr: Csr) -> torch.Tensor:
    rows = torch.repeat_interleave(torch.arange(csr.num_rows), csr.indptr.diff())
    out = torch.zeros(csr.num_rows, csr.num_cols, dtype=torch.float64)
    out[rows, csr.indices.long()] = 1
    return out


def each(group: list[Csr], x: torch.Tensor, row: torch.Tensor, col: torch.Tensor) -> torch.Tensor:
    """y = R (A + I) C x of every snapshot, float64."""
    out = []
    for s, csr in enumerate(group):
        right = col[:, s, None].double() * x[:, s].double()
        out.append(row[:, s, None].double() * (dense(csr) @ right + right))
    return torch.stack(out, 1)


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    found = found.double().cpu()
    assert found.isfinite().all()
    assert (found - expected).norm() <= 2e-6 * expected.norm()


@pytest.mark.parametrize("form", [ROW_OWNER, SEGMENTS, BY_TILES])
@pytest.mark.parametrize(("count", "features"), [(2, 1), (3, 1), (4, 2), (8, 2), (32, 1), (5, 12)])
def test_each_snapshot_gets_its_own_entries(native, count, features, form):
    if form == BY_TILES and count * features > 16:
        pytest.skip("too wide for tiles")
    group = drawn(count, count)
    union = UnionTopology.build(group)
    assert union.csr.nnz + ROWS > (TILE if count > 8 else 0)
    indptr = union.csr.indptr.numpy()
    table, partials = tiled(native, indptr, count * features)
    x = torch.randn(ROWS, count, features)
    x[20] = torch.nan  # read for nobody who does not hold it
    held = [(csr.indices != 20) for csr in group]
    group = [without(csr, keep) for csr, keep in zip(group, held, strict=True)]
    keep = union.csr.indices != 20
    mask = torch.where(keep, union.mask, 0)
    row, col = torch.rand(ROWS, count) + 0.5, torch.rand(ROWS, count) + 0.5
    expected = each(group, torch.nan_to_num(x), row, col)
    expected[20] = torch.nan  # its own loop
    found = []
    for _ in range(2):
        y = native.poisoned(ROWS, count, features)
        native.call(
            "aggregate_parts", native.put(indptr), native.put(union.csr.indices), None, None, None,
            None, table, native.put(x), y, native.put(row), native.put(col), True,
            partials=partials, form=form, bits=native.put(mask),
        )  # fmt: skip
        assert y[20].isnan().all()
        others = torch.arange(ROWS) != 20
        close(y.cpu()[others], expected[others])
        found.append(y.cpu()[others])
    assert torch.equal(*found)


def without(csr: Csr, keep: torch.Tensor) -> Csr:
    rows = torch.repeat_interleave(torch.arange(csr.num_rows), csr.indptr.diff())[keep]
    indptr = torch.zeros_like(csr.indptr)
    indptr[1:] = torch.bincount(rows, minlength=csr.num_rows).cumsum(0)
    return Csr(indptr, csr.indices[keep], csr.num_cols)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_union_and_its_gradient_read_bits_where_a_device_does(native, monkeypatch, count):
    """The public operator: on the CPU by weights, and with the device's way of reading the mask."""
    group = drawn(count + 1, 7)[:count]
    row, col = torch.rand(ROWS, count) + 0.5, torch.rand(ROWS, count) + 0.5
    x, grad = torch.randn(ROWS, count, 3), torch.randn(ROWS, count, 3)
    place = "cuda" if native.device == "cuda" else "cpu"
    results = {}
    for bits in (False, True):
        where = place if bits else "cpu"
        if bits and place == "cpu":
            stand_in(native, monkeypatch)
        moved = [Csr(c.indptr.to(where), c.indices.to(where), ROWS) for c in group]
        leaf = x.clone().to(where).requires_grad_()
        union = UnionTopology.build(moved)
        y = aggregate_union(union, leaf, row.to(where), col.to(where), True)
        y.backward(grad.to(where))
        results[bits] = y.detach().cpu(), leaf.grad.cpu()
    expected = each(group, x, row, col)
    turned = [torch_transposed(csr) for csr in group]
    back = each(turned, grad, col, row)
    for y, dx in results.values():
        close(y, expected)
        close(dx, back)


def stand_in(native, monkeypatch) -> None:
    """Let products over tensors of the CPU go to the emulated kernels, which read bits."""

    def call(name: str, device: torch.device, *arguments, **named) -> None:
        native.call(name, *arguments, **named)

    monkeypatch.setattr(op, "call", call)
    monkeypatch.setattr(prepared, "reads_bits", lambda device: True)
    monkeypatch.setattr(op, "choose", lambda *_: choice.ProductVariant("", False, -1))
    monkeypatch.setattr(op, "model", lambda *_: choice.ProductVariant("", False, -1))


def torch_transposed(csr: Csr) -> Csr:
    indices = dense(csr).T
    indptr = torch.cat([torch.zeros(1), indices.sum(1).cumsum(0)]).long()
    return Csr(indptr, indices.nonzero()[:, 1].int(), csr.num_rows)


@pytest.mark.parametrize("change", ["length", "dtype", "values", "snapshots"])
def test_a_union_that_does_not_fit_is_named(change):
    union = UnionTopology.build(drawn(3, 2))
    x = torch.zeros(ROWS, 3, 1)
    if change == "length":
        union, named = replace(union, mask=union.mask[1:]), "union.mask"
    elif change == "dtype":
        union, named = replace(union, mask=union.mask.long()), "union.mask"
    elif change == "values":
        values = torch.ones(union.csr.nnz, 2)
        union, named = replace(union, csr=replace(union.csr, values=values)), "union.csr.values"
    else:
        x, named = torch.zeros(ROWS, 2, 1), "x holds 2 snapshots"
    with pytest.raises(InvalidInputError, match=named):
        aggregate_union(union, x)
