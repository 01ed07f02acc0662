"""PiPAD's kernel over slices, its transposed form, and its clocks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from device_cases import close
from torch import Tensor

from dgbench.kernels_cuda.variants.balance import balance
from dgbench.kernels_cuda.variants.memory_model import thread_groups

ROWS, COLUMNS = 12, 100


def matrix(seed: int) -> np.ndarray:
    """Dense values of a weighted matrix with a full row, an empty one and rows of any length."""
    random = np.random.default_rng(seed)
    share = random.random((ROWS, 1)) * 0.6
    dense = np.where(random.random((ROWS, COLUMNS)) < share, random.normal(size=(ROWS, COLUMNS)), 0)
    dense[3] = random.normal(size=COLUMNS) + 3
    dense[7] = 0
    return dense.astype(np.float32)


def slices(native, dense: np.ndarray, cap: int, *, weighted: bool = True) -> list[Tensor | None]:
    """row_indices, slice_offsets, indices, values."""
    indices, values, rows, offsets = [], [], [], [0]
    for row in range(len(dense)):
        columns = np.nonzero(dense[row])[0]
        for begin in range(0, len(columns), cap):
            rows.append(row)
            offsets.append(offsets[-1] + len(columns[begin : begin + cap]))
        indices += list(columns)
        values += list(dense[row, columns])
    return [
        native.put(rows, torch.int32),
        native.put(offsets, torch.int64),
        native.put(indices, torch.int32),
        native.put(values, torch.float32) if weighted else None,
    ]


WIDTHS = [  # width, slices per warp, floats per lane at most
    *[(d, thread_groups(d), 1) for d in (1, 2, 3, 4, 6, 8, 12, 16, 24, 31, 32, 33)],
    *[(d, 1, 1) for d in (2, 64, 100)],
    *[(d, 1, 2) for d in (2, 34, 64, 66, 130)],
    *[(d, 1, 4) for d in (4, 32, 48, 100, 128, 132)],
]


@pytest.mark.parametrize(("width", "groups", "vector"), WIDTHS)
def test_all_widths_vectors_and_caps(native, width, groups, vector):
    """As an exclusive part: x and y are a snapshot's columns of wider matrices, in place."""
    block, random = slice(width, 2 * width), np.random.default_rng(width)
    for cap in (1, 8, 16, 32, 64):
        dense, weighted = matrix(width + cap), cap != 16
        arrays = slices(native, dense, cap, weighted=weighted)
        dense = (dense if weighted else dense != 0).astype(np.float64)
        for name, whole in (("aggregate_sliced", dense), ("scatter_sliced", dense.T)):
            x = random.normal(size=(whole.shape[1], 3 * width)).astype(np.float32)
            y = torch.ones(len(whole), 3 * width, device=native.device)
            clocks = (None,) if name == "aggregate_sliced" else ()
            given = (*arrays, native.put(x)[:, block], y[:, block], groups, vector)
            native.call(name, *given, *clocks)
            assert (y[:, :width] == 1).all()
            assert (y[:, 2 * width :] == 1).all()
            close(y[:, block], 1 + whole @ x[:, block])


@pytest.mark.parametrize("snapshots", [1, 3, 8])
@pytest.mark.parametrize(("width", "vector"), [(1, 1), (2, 1), (6, 2), (16, 4), (33, 1)])
def test_an_entry_has_a_weight_in_each_snapshot(native, width, vector, snapshots):
    """As an overlap part of weighted snapshots: column blocks of x and y are the snapshots'."""
    dense, random = matrix(width), np.random.default_rng(snapshots)
    *lists, _ = slices(native, dense, 8)
    weights = random.normal(size=(lists[2].numel(), snapshots)).astype(np.float32)
    values, d = native.put(weights).reshape(-1), snapshots * width
    groups = 1 if vector > 1 else thread_groups(d)
    x = random.normal(size=(COLUMNS, d)).astype(np.float32)
    back = random.normal(size=(ROWS, d)).astype(np.float32)
    y, dx = (torch.zeros(size, d, device=native.device) for size in (ROWS, COLUMNS))
    native.call("aggregate_sliced", *lists, values, native.put(x), y, groups, vector, None)
    native.call("scatter_sliced", *lists, values, native.put(back), dx, groups, vector)
    for i in range(snapshots):
        block, mine = slice(i * width, (i + 1) * width), np.zeros(dense.shape)
        mine[np.nonzero(dense)] = weights[:, i]
        close(y[:, block], mine @ x[:, block])
        close(dx[:, block], mine.T @ back[:, block])


@pytest.mark.parametrize("shift", [0, 1, 2])
@pytest.mark.parametrize("pitch", [128, 129, 130, 132])
def test_an_address_or_a_pitch_that_is_not_aligned_gets_fewer_floats(native, shift, pitch):
    """The emulated runtime aborts at a vector load from an address that is no multiple of it."""
    dense, width = matrix(shift), 128
    arrays = slices(native, dense, 32)
    x = np.random.default_rng(pitch).normal(size=(COLUMNS, pitch)).astype(np.float32)
    up = np.random.default_rng(1).normal(size=(ROWS, width)).astype(np.float32)

    def odd(values: Tensor) -> Tensor:
        room = torch.zeros(COLUMNS * pitch + 4, device=native.device)
        assert room.data_ptr() % 16 == 0
        room = room[shift : shift + COLUMNS * pitch]
        room.copy_(values.reshape(-1))
        return room.view(COLUMNS, pitch)

    for vector in (1, 2, 4):
        y, out = torch.zeros(ROWS, width, device=native.device), odd(torch.zeros(COLUMNS, pitch))
        given = (odd(native.put(x))[:, :width], y, 1, vector, None)
        native.call("aggregate_sliced", *arrays, *given)
        close(y, dense.astype(np.float64) @ x[:, :width])
        native.call("scatter_sliced", *arrays, native.put(up), out[:, :width], 1, vector)
        close(out[:, :width], dense.T.astype(np.float64) @ up)
        assert (out[:, width:] == 0).all()


@pytest.mark.parametrize(("width", "vector"), [(2, 1), (6, 1), (16, 1), (64, 2), (300, 4)])
def test_the_clocks_of_the_sliced_kernel(native, emulate, width, vector):
    emulate(processors=3)
    dense = matrix(5)
    arrays, groups = slices(native, dense, 8), thread_groups(width)
    x = np.random.default_rng(1).normal(size=(COLUMNS, width)).astype(np.float32)
    y = torch.zeros(ROWS, width, device=native.device)
    call = (*arrays, native.put(x), y, groups, vector)
    warps = native.module.sliced_warp_count(*call)
    tiles = 1 if groups > 1 else -(-width // (32 * vector))
    assert warps == -(-arrays[0].numel() // groups) * tiles
    clocks = native.put(torch.full((warps, 3), -1), torch.int64)
    native.call("aggregate_sliced", *call, clocks)
    close(y, dense.astype(np.float64) @ x)
    found = balance(clocks.cpu())
    assert found.warps == warps
    assert 0 < found.balanced <= found.actual
    if native.device == "cpu":
        assert found.multiprocessors == min(3, -(-(warps // tiles) // 8))
    with pytest.raises(ValueError, match="clocks"):
        native.call("aggregate_sliced", *call, clocks[1:])
