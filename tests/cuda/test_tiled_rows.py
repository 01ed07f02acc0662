"""Narrow products by equal tiles of rows and entries, against float64 and to the bit against turns.

A tile has 1792 rows and entries together, so these lengths end rows at, before and behind borders
of threads' shares, of warps and of tiles, and carry one row over several tiles.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from device_log import DeviceLog

from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.transpose import transpose

TILE = 1792
BY_TILES = 3
COLUMNS = 70
CASES = {
    "one": [1],
    "no entries": [0] * 5,
    "empty rows over tiles": [0] * (2 * TILE + 5),
    "one entry each": [1] * TILE,
    "a hub over tiles": [3, 5 * TILE + 11, 0, 2],
    "hubs one after the other": [2 * TILE, 2 * TILE, 1, 0, 3 * TILE],
    "a row that ends with its tile": [TILE - 1, 4, TILE - 6, 0, 9],
    "its end is the next tile's first": [TILE, 0, TILE - 2, 1, 0, 30],
    "rows of a share": [6] * 700,
    "rows of a share and one": [7] * 700,
    "every length": [*range(130), 0, 0, 1000, *range(129, 0, -1)],
    "empty rows before a hub": [0] * (TILE - 1) + [TILE + 1] + [0] * TILE,
}


def tiled(native, indptr: np.ndarray, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The table, and poisoned room for what tiles leave."""
    rows, entries = len(indptr) - 1, int(indptr[-1])
    table = native.put(np.full(native.module.heavy_size(rows, entries), -1), torch.int32)
    native.call("list_heavy", native.put(indptr), None, entries, table)
    return table, native.poisoned(native.module.heavy_slots(rows, entries), width)


def drawn(case: str, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.random.Generator]:
    indptr = np.concatenate([[0], np.cumsum(CASES[case])]).astype(np.int64)
    random = np.random.default_rng(seed)
    indices = random.integers(0, COLUMNS, indptr[-1]).astype(np.int32)
    rows = np.repeat(np.arange(len(indptr) - 1), CASES[case])
    return indptr, indices, rows, random


def close(found: torch.Tensor, expected: np.ndarray) -> None:
    found = found.double().cpu().numpy()
    assert np.isfinite(found).all()
    assert np.linalg.norm(found - expected) <= 2e-6 * max(np.linalg.norm(expected), 1e-30)


@pytest.mark.parametrize("case", CASES)
def test_tiles_begin_where_as_many_rows_and_entries_end(native, case):
    indptr, *_ = drawn(case, 1)
    rows, entries = len(indptr) - 1, int(indptr[-1])
    table, _ = tiled(native, indptr, 1)
    tiles = -(-(rows + entries) // TILE)
    ends = indptr[1:] + np.arange(rows)  # place of each row's end on the path
    expected = [int((ends < tile * TILE).sum()) for tile in range(tiles + 1)]
    assert table[-(tiles + 1) :].tolist() == expected


@pytest.mark.parametrize("width", [1, 2, 3, 4, 6, 8, 11, 12, 16])
@pytest.mark.parametrize("case", CASES)
def test_every_row_is_summed_once_and_alike_every_time(native, case, width):
    indptr, indices, rows, random = drawn(case, width)
    count = len(indptr) - 1
    table, partials = tiled(native, indptr, width)
    weights = random.normal(size=len(indices)).astype(np.float32) if width % 3 else None
    x = random.normal(size=(COLUMNS, width)).astype(np.float32)
    row_scale = random.random(count).astype(np.float32) + 0.5
    col_scale = random.random(COLUMNS).astype(np.float32) + 0.5 if width % 2 else None
    scaled = x.astype(np.float64) * (1.0 if col_scale is None else col_scale[:, None])
    loop = count <= COLUMNS
    expected = np.zeros((count, width))
    of_entries = np.ones(len(indices)) if weights is None else weights.astype(np.float64)
    np.add.at(expected, rows, of_entries[:, None] * scaled[indices])
    if loop:
        expected += scaled[:count]
    expected *= row_scale[:, None]
    found = []
    for _ in range(2):
        y = native.poisoned(count, width)
        native.call(
            "spmm", native.put(indptr), native.put(indices),
            None if weights is None else native.put(weights), table, native.put(x), y,
            native.put(row_scale), None if col_scale is None else native.put(col_scale), loop,
            partials=partials, form=BY_TILES,
        )  # fmt: skip
        close(y, expected)
        found.append(y)
    assert torch.equal(*found)


def test_the_transposed_product_goes_the_same_way(native):
    """A gradient is a product with the transposed matrix, whose rows are other ones."""
    indptr, indices, rows, random = drawn("every length", 3)
    weights = random.normal(size=len(indices)).astype(np.float32)
    back = transpose(Csr(*map(torch.from_numpy, (indptr, indices)), COLUMNS, torch.tensor(weights)))
    grad = random.normal(size=(len(indptr) - 1, 6)).astype(np.float32)
    expected = np.zeros((COLUMNS, 6))
    np.add.at(expected, indices, weights[:, None].astype(np.float64) * grad[rows])
    table, partials = tiled(native, back.indptr.numpy(), 6)
    y = native.poisoned(COLUMNS, 6)
    lists = [native.put(array) for array in (back.indptr, back.indices, back.values)]
    native.call(
        "spmm", *lists, table, native.put(grad), y, None, None, False, partials=partials,
        form=BY_TILES,
    )  # fmt: skip
    close(y, expected)


@pytest.mark.parametrize("features", [1, 2, 3, 4])
@pytest.mark.parametrize("case", ["a hub over tiles", "every length", "one entry each"])
def test_weights_of_each_snapshot(native, case, features):
    indptr, indices, rows, random = drawn(case, features)
    count, snapshots = len(indptr) - 1, 4
    table, partials = tiled(native, indptr, snapshots * features)
    weights = random.normal(size=(len(indices), snapshots)).astype(np.float32)
    x = random.normal(size=(COLUMNS, snapshots, features)).astype(np.float32)
    scale = random.random((COLUMNS, snapshots)).astype(np.float32)
    expected = np.zeros((count, snapshots, features))
    wide = (
        weights[..., None].astype(np.float64) * (x.astype(np.float64) * scale[..., None])[indices]
    )
    np.add.at(expected, rows, wide)
    y = native.poisoned(count, snapshots, features)
    native.call(
        "aggregate_parts", native.put(indptr), native.put(indices), native.put(weights), None, None,
        None, table, native.put(x), y, None, native.put(scale), False, partials=partials,
        form=BY_TILES,
    )  # fmt: skip
    close(y, expected)


def test_the_rule_takes_tiles_for_narrow_products_of_long_rows(native, log: DeviceLog):
    def blocks(lengths: list[int], width: int) -> int:
        indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        table, partials = tiled(native, indptr, width)
        log.clear()
        indices = native.put(np.zeros(indptr[-1], np.int32))
        x, y = native.put(np.ones((1, width), np.float32)), native.poisoned(len(lengths), width)
        native.call(
            "spmm", native.put(indptr), indices, None, table, x, y, None, None, False,
            partials=partials,
        )  # fmt: skip
        close(y, np.repeat(np.array(lengths, float)[:, None], width, 1))
        return log.calls("launch")[0].value

    tiles = -(-5 * 2000 // TILE)
    assert blocks([4] * 2000, 8) == tiles
    assert blocks([4] * 2000, 9) != tiles
    assert blocks([4] * 1999 + [3], 8) != tiles


def test_tiles_say_what_they_take(native):
    indptr, indices, *_ = drawn("every length", 1)
    table, partials = tiled(native, indptr, 17)
    arrays = [native.put(indptr), native.put(indices), None]
    y, x = native.poisoned(len(indptr) - 1, 17), native.poisoned(COLUMNS, 17)
    with pytest.raises(ValueError, match="too wide"):
        native.call("spmm", *arrays, table, x, y, None, None, False, partials=partials, form=3)
    with pytest.raises(ValueError, match="need order"):
        native.call("spmm", *arrays, None, x, y, None, None, False, form=3)
    with pytest.raises(ValueError, match="form"):
        native.call("spmm", *arrays, table, x, y, None, None, False, partials=partials, form=4)
