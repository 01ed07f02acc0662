"""Products of sparse rows in every form that a device has, against float64 and alike every time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from device_cases import close, csr_of, random_lists, rows_of, to_device
from torch import Tensor

from dgbench.kernels_cuda.aggregate import aggregate_union, choice, op, prepared
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.overlap import PartTopology, UnionTopology
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.pipad.merged import PartitionAggregation
from dgbench.systems.pipad.partitions import SnapshotPartition
from dgbench.systems.pipad.snapshots import SnapshotAggregation

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
    *[("tiles", width, case) for width in (1, 2, 3, 4, 6, 8, 11, 12, 16) for case in LENGTHS],
    *[
        (form, width, case)
        for form in ("the rule's", "an owner", "segments", "gespmm")
        for width in (1, 2, 3, 4, 8, 20, 31, 33, 64, 130, 132)
        for case in list(LENGTHS)[: 4 if form != "the rule's" else 3]
    ],
]


def prepare(native, over: np.ndarray, ex: np.ndarray | None, width: int) -> tuple[Tensor, Tensor]:
    """The table of rows that are cut and of tiles, and poisoned room for their sums."""
    rows, entries = len(over) - 1, int(over[-1]) + (0 if ex is None else int(ex[-1]))
    table = native.put(np.full(native.module.heavy_size(rows, entries), -1), torch.int32)
    there = None if ex is None else native.put(ex)
    native.call("list_heavy", native.put(over), there, entries, table)
    return table, native.poisoned(native.module.heavy_slots(rows, entries), width)


def put_all(native, *arrays: Any) -> list[Tensor | None]:
    return [None if a is None else native.put(a) for a in arrays]


@pytest.mark.parametrize("case", LENGTHS)
def test_tiles_begin_where_as_many_rows_and_entries_end(native, case):
    indptr, _ = random_lists(1, LENGTHS[case], COLUMNS)
    rows = len(indptr) - 1
    table, _ = prepare(native, indptr, None, 1)
    tiles = -(-(rows + int(indptr[-1])) // TILE)
    ends = indptr[1:] + np.arange(rows)  # place of each row's end on the path
    expected = [int((ends < tile * TILE).sum()) for tile in range(tiles + 1)]
    assert table[-(tiles + 1) :].tolist() == expected


def test_the_table_covers_every_long_row_once(native):
    lengths = LENGTHS["cut rows"]
    over, _ = random_lists(1, lengths, COLUMNS)
    ex, _ = random_lists(2, (126, *lengths[1:]), COLUMNS)
    table = prepare(native, over, ex, 1)[0].cpu().numpy()
    entries, counts = int(over[-1] + ex[-1]), np.diff(over) + np.diff(ex)
    segments, split, slots = table[:3]
    listed = table[4 : 4 + 4 * segments].reshape(-1, 4)
    for row, count in enumerate(counts):
        mine = sorted(tuple(s) for s in listed[listed[:, 0] == row])
        begins = range(0, count, 1024) if count > 128 else ()
        assert [(s[1], s[2]) for s in mine] == [(b, min(b + 1024, count)) for b in begins]
        at = [s[3] for s in mine]
        assert at in ([], [-1]) if len(at) < 2 else at == [*range(at[0], at[0] + len(at))]
    at = 4 + 4 * (entries // 1024 + entries // 129)
    rows = table[at : at + 3 * split].reshape(-1, 3)
    assert sorted(rows[:, 0]) == list(np.nonzero(counts > 1024)[0])
    assert slots == rows[:, 2].sum() <= native.module.heavy_slots(len(lengths), entries)


@pytest.mark.parametrize(("form", "width", "case"), PRODUCTS, ids=lambda x: str(x))
def test_every_row_is_summed_once_and_alike_every_time(native, form, width, case):
    indptr, indices = random_lists(width, LENGTHS[case], COLUMNS)
    random, count = np.random.default_rng(width), len(indptr) - 1
    weights = random.normal(size=len(indices)).astype(np.float32) if width % 3 else None
    x = random.normal(size=(COLUMNS, width)).astype(np.float32)
    plain = form == "gespmm"
    by_row = None if plain else random.random(count).astype(np.float32) + 0.5
    by_col = random.random(COLUMNS).astype(np.float32) + 0.5 if width % 2 and not plain else None
    loop = count <= COLUMNS and not plain
    scaled = x.astype(np.float64) * (1.0 if by_col is None else by_col[:, None])
    expected = np.zeros((count, width))
    terms = scaled[indices] * (1.0 if weights is None else weights.astype(np.float64)[:, None])
    np.add.at(expected, rows_of(indptr), terms)
    if loop:
        expected += scaled[:count]
    if by_row is not None:
        expected *= by_row[:, None]
    lists = put_all(native, indptr, indices, weights)
    table, partials = prepare(native, indptr, None, width)
    results = []
    for _ in range(2):
        y = native.poisoned(count, width)
        if plain:
            native.call("spmm_gespmm", *lists, native.put(x), y, None)
        else:
            cut = None if form == "an owner" else table
            given = (*lists, cut, *put_all(native, x), y, *put_all(native, by_row, by_col))
            native.call("spmm", *given, loop, partials=partials, form=FORMS[form])
        close(y, expected, 1e-5 if plain else 2e-6)
        results.append(y)
    if form != "gespmm":
        assert torch.equal(*results)


def test_an_odd_base_address_takes_scalar_loads(native):
    """Rows of x begin four bytes past a vector's boundary; the kernel must not load vectors."""
    indptr, indices = random_lists(3, [7] * 20, 20)
    x = np.random.default_rng(1).normal(size=(20, 8)).astype(np.float32)
    room = native.put(np.concatenate([[0], x.ravel()]), torch.float32)
    y = native.poisoned(20 * 8 + 1)[1:].view(20, 8)
    lists = put_all(native, indptr, indices)
    native.call("spmm", *lists, None, None, room[1:].view(20, 8), y, None, None, False)
    expected = np.zeros((20, 8))
    np.add.at(expected, rows_of(indptr), x.astype(np.float64)[indices])
    close(y, expected)


@pytest.mark.parametrize("features", [1, 40, 64, 130])
@pytest.mark.parametrize("lengths", [[512], [513], [0, 2000, 1, 0, 700, 1024, 3], [5000, 5000]])
def test_warps_of_the_gespmm_baseline_and_their_clocks(native, features, lengths):
    indptr, ids = random_lists(features, lengths, COLUMNS)
    x = np.random.default_rng(features).normal(size=(COLUMNS, features)).astype(np.float32)
    tiles = -(-features // (32 if features < 64 else 64))
    warps = native.module.gespmm_warp_count(len(lengths), features, len(ids))
    assert warps == tiles * (len(lengths) + (-(-len(ids) // 512) if len(ids) > 512 else 0))
    clocks = native.put(torch.zeros(warps, 3, dtype=torch.int64))
    y = native.poisoned(len(lengths), features)
    native.call("spmm_gespmm", *put_all(native, indptr, ids, None, x), y, clocks)
    expected = np.zeros((len(lengths), features))
    np.add.at(expected, rows_of(indptr), x.astype(np.float64)[ids])
    close(y, expected, 1e-5)
    busy = int((clocks[:, 1] > clocks[:, 0]).sum()) - tiles * len(lengths)
    assert busy >= tiles * (max(lengths) // 512 if max(lengths) > 512 else 0)


PARTS = [  # rows or lengths, hub, columns, S, F, weighted, row scale, column scale, loop
    (1, 1, 1, 1, 1, False, False, False, True),
    (40, 3, 40, 1, 2, True, True, True, True),
    (37, 9, 37, 8, 2, False, True, True, True),
    (37, 9, 37, 4, 3, True, False, True, False),
    (30, 20, 50, 3, 1, True, True, False, False),
    (30, 4, 30, 4, 16, False, True, True, True),
    (9, 9, 9, 8, 33, True, True, True, True),
    (5, 5, 5, 2, 129, False, False, False, True),
    (3, 1500, 1500, 2, 2, True, True, True, False),
    (2, 1100, 1100, 3, 4, False, False, False, False),
    (0, 0, 4, 2, 2, False, False, False, False),
    *[("cut rows", 0, 60, 4, f, f % 2 == 0, False, True, True) for f in (1, 2, 8, 33)],
    *[("every length", 0, COLUMNS, 4, f, True, False, True, False) for f in (1, 3, 4)],
    ("a hub over tiles", 0, COLUMNS, 4, 2, True, False, True, False),
]


@pytest.mark.parametrize("case", PARTS, ids=lambda c: "-".join(map(str, c)))
def test_parts_and_their_scatter(native, case):
    """Entries of all snapshots and of single ones, merged; with and without cut rows."""
    shape, hub, columns, count, features, weighted, row_scaled, col_scaled, loop = case
    random, bits = np.random.default_rng([count, features]), (count - 1).bit_length()
    if isinstance(shape, str):
        lengths = LENGTHS[shape]
    else:
        lengths = random.integers(0, 9, shape)
        lengths[:1], lengths[2:3] = hub, 0
    rows = len(lengths)
    over, shared = random_lists(4, lengths, columns)
    ex, entries = None, np.zeros(0, np.int32)
    if count > 1 and shape not in ("every length", "a hub over tiles"):
        ex, entries = random_lists(5, np.roll(lengths, 1), columns << bits)
        entries[(entries & ((1 << bits) - 1)) >= count] &= ~((1 << bits) - 1)
    draw = random.random if weighted else np.ones
    over_values = draw((len(shared), count)).astype(np.float32)
    ex_values = draw(len(entries)).astype(np.float32)
    full = np.zeros((count, rows, columns))
    for s in range(count):
        np.add.at(full[s], (rows_of(over), shared), over_values[:, s])
    if ex is not None:
        where = (entries & ((1 << bits) - 1), rows_of(ex), entries >> bits)
        np.add.at(full, where, ex_values)
    full = full + (np.eye(rows, columns) if loop else 0)
    r = random.random((rows, count)).astype(np.float32) + 0.5 if row_scaled else None
    c = random.random((columns, count)).astype(np.float32) + 0.5 if col_scaled else None
    full *= 1 if r is None else r.T[:, :, None].astype(np.float64)
    full *= 1 if c is None else c.T[:, None, :].astype(np.float64)
    lists = put_all(native, over, shared, over_values if weighted else None)
    alone = (None,) * 3 if ex is None else (ex, entries, ex_values if weighted else None)
    lists += put_all(native, *alone)
    scales = put_all(native, r, c)
    x = random.normal(size=(columns, count, features)).astype(np.float32)
    up = random.normal(size=(rows, count, features)).astype(np.float32)
    table, partials = prepare(native, over, ex, count * features)
    narrow = ex is None and weighted and count * features <= 16
    for cut, how in ((None, {}), (table, {}), *(((table, {"form": 3}),) if narrow else ())):
        y = native.poisoned(rows, count, features)
        native.call("aggregate_parts", *lists, cut, native.put(x), y, *scales, loop,
                    partials=partials, **how)  # fmt: skip
        close(y, np.einsum("srk,ksf->rsf", full, x.astype(np.float64)))
    for cut in (None, table):
        back = native.poisoned(columns, count, features)
        native.call("aggregate_parts_scatter", *lists, cut, native.put(up), back, *scales, loop)
        close(back, np.einsum("srk,rsf->ksf", full, up.astype(np.float64)))


def test_the_rule_takes_tiles_for_narrow_products_of_long_rows(native, log):
    def blocks(lengths: list[int], width: int) -> int:
        indptr, _ = random_lists(0, lengths, 1)
        table, partials = prepare(native, indptr, None, width)
        log.clear()
        lists = put_all(native, indptr, np.zeros(indptr[-1], np.int32), None)
        x, y = native.put(np.ones((1, width), np.float32)), native.poisoned(len(lengths), width)
        native.call("spmm", *lists, table, x, y, None, None, False, partials=partials)
        close(y, np.repeat(np.array(lengths, float)[:, None], width, 1))
        return log.calls("launch")[0].value

    tiles = -(-5 * 2000 // TILE)
    assert blocks([4] * 2000, 8) == tiles
    assert blocks([4] * 2000, 9) != tiles
    assert blocks([4] * 1999 + [3], 8) != tiles


def test_what_does_not_fit_is_refused(native):
    indptr, indices = random_lists(1, LENGTHS["cut rows"], COLUMNS)
    table, partials = prepare(native, indptr, None, 17)
    lists = put_all(native, indptr, indices, None)
    y, x = native.poisoned(len(indptr) - 1, 17), native.poisoned(COLUMNS, 17)
    for order, how, name in (
        (table, {"partials": partials, "form": 3}, "wide"),
        (None, {"form": 3}, "order"),
        (table, {"partials": partials, "form": 4}, "form"),
        (table, {}, "partials"),
    ):
        with pytest.raises(ValueError, match=name):
            native.call("spmm", *lists, order, x, y, None, None, False, **how)


# --- the union of snapshots by its bits -----------------------------------------------------------

ROWS = 90


def united_snapshots(count: int, seed: int) -> tuple[list[Csr], Tensor]:
    """Snapshots and the same dense: they share entries, one has none, there are a hub and gaps."""
    random = np.random.default_rng(seed)
    present = random.random((count, ROWS, ROWS)) < 0.08
    present[:, 3] = random.random((count, ROWS)) < 0.9
    present[:, 10:14] = False
    present[-1] = False
    return [csr_of(one) for one in present], torch.from_numpy(present).double()


def each(dense: Tensor, x: Tensor, row: Tensor, col: Tensor) -> Tensor:
    """y = R (A + I) C x of every snapshot, float64."""
    right = (col.unsqueeze(-1).double() * x.double()).transpose(0, 1)
    return row.unsqueeze(-1).double() * (dense @ right + right).transpose(0, 1)


@pytest.mark.parametrize("form", [1, 2, 3])
@pytest.mark.parametrize(("count", "features"), [(2, 1), (3, 1), (8, 2), (32, 1), (5, 12)])
def test_each_snapshot_of_a_union_gets_its_own_entries(native, count, features, form):
    if form == 3 and count * features > 16:
        pytest.skip("too wide for tiles")
    group, dense = united_snapshots(count, count)
    union = UnionTopology.build(group)
    indptr = union.csr.indptr.numpy()
    table, partials = prepare(native, indptr, None, count * features)
    x = torch.randn(ROWS, count, features, generator=torch.Generator().manual_seed(count))
    x[20] = torch.nan  # read for nobody who does not hold it
    dense[:, :, 20] = 0
    mask = torch.where(union.csr.indices == 20, 0, union.mask)
    row, col = torch.rand(2, ROWS, count) + 0.5
    expected = each(dense, torch.nan_to_num(x), row, col)
    others, results = torch.arange(ROWS) != 20, []
    for _ in range(2):
        y = native.poisoned(ROWS, count, features)
        native.call(
            "aggregate_parts", native.put(indptr), native.put(union.csr.indices), None, None, None,
            None, table, native.put(x), y, native.put(row), native.put(col), True,
            partials=partials, form=form, bits=native.put(mask),
        )  # fmt: skip
        assert y[20].isnan().all()  # its own loop
        close(y.cpu()[others], expected[others])
        results.append(y.cpu()[others])
    assert torch.equal(*results)


def serve(native, monkeypatch, **rules: Any) -> str:
    """Let products over tensors of the CPU go to the emulated kernels; return the device."""
    if native.device == "cpu":

        def call(name: str, device: torch.device, *arguments: Any, **named: Any) -> None:
            native.call(name, *arguments, **named)

        rules["call"] = call
        for module in (op, prepared):
            for name, made in rules.items():
                if hasattr(module, name):
                    monkeypatch.setattr(module, name, made)
    return native.device


@pytest.mark.parametrize("count", [1, 2, 5])
def test_union_and_its_gradient_read_bits_where_a_device_does(native, monkeypatch, count):
    """The public operator: on the CPU by weights, and with the device's way of reading the mask."""
    group, dense = united_snapshots(count + 1, 7)
    group, dense = group[:count], dense[:count]
    row, col = torch.rand(2, ROWS, count) + 0.5
    x, grad = torch.randn(2, ROWS, count, 3)
    plain = choice.ProductVariant("", False, -1)
    for bits in (False, True):
        where = "cpu"
        if bits:
            where = serve(native, monkeypatch, reads_bits=lambda device: True,
                          choose=lambda *_: plain, model=lambda *_: plain)  # fmt: skip
        leaf = x.clone().to(where).requires_grad_()
        union = UnionTopology.build([to_device(csr, where) for csr in group])
        y = aggregate_union(union, leaf, row.to(where), col.to(where), True)
        y.backward(grad.to(where))
        close(y.detach(), each(dense, x, row, col))
        close(leaf.grad, each(dense.transpose(1, 2), grad, col, row))


def test_a_union_that_does_not_fit_is_named():
    union = UnionTopology.build(united_snapshots(3, 2)[0])
    x = torch.zeros(ROWS, 3, 1)
    values = replace(union.csr, values=torch.ones(union.csr.nnz, 2))
    for wrong, given, name in (
        (replace(union, mask=union.mask[1:]), x, "union.mask"),
        (replace(union, mask=union.mask.long()), x, "union.mask"),
        (replace(union, csr=values), x, "union.csr.values"),
        (union, x[:, :2], "x"),
    ):
        with pytest.raises(InvalidInputError, match=name):
            aggregate_union(wrong, given.contiguous())


def test_nodes_of_a_frame_leave_room_for_rows_that_are_cut(native, monkeypatch):
    rows = 1100  # a row of all columns is cut
    device = serve(native, monkeypatch, cuts_rows=lambda device: True,
                   extension=lambda device: native.module)  # fmt: skip
    draw = torch.Generator().manual_seed(3)
    shared = torch.rand(rows, rows, generator=draw) < 0.06
    shared[5] = True
    dense = [shared | (torch.rand(rows, rows, generator=draw) < 0.002) for _ in range(3)]
    group = [to_device(csr_of(one), device) for one in dense]
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
            close(y[t].detach(), whole @ x[t].double())
            close(leaf.grad[t], whole.t() @ grad[t].double())
