"""PiPAD's kernel over slices, its transposed form, and both kernels with clocks.

Each test runs over the kernels played through on the host, and on a device where one is.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
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


def close(found: Tensor, expected: np.ndarray) -> None:
    found = found.double().cpu().numpy()
    assert np.isfinite(found).all()
    assert np.linalg.norm(found - expected) <= 2e-6 * max(np.linalg.norm(expected), 1e-3)


WIDTHS = [  # width, slices per warp, floats per lane at most
    *[(d, thread_groups(d), 1) for d in (1, 2, 3, 4, 6, 8, 12, 16, 24, 31, 32, 33)],
    *[(d, 1, 1) for d in (2, 6, 64, 100)],
    *[(d, 1, 2) for d in (2, 6, 34, 48, 64, 66, 130)],
    *[(d, 1, 4) for d in (4, 16, 32, 48, 64, 100, 128, 132)],
]


@pytest.mark.parametrize("cap", [1, 8, 16, 32, 64])
@pytest.mark.parametrize(("width", "groups", "vector"), WIDTHS)
def test_all_widths_vectors_and_caps(native, width, groups, vector, cap):
    """As an exclusive part: x and y are a snapshot's columns of wider matrices, in place."""
    dense = matrix(width + cap)
    weighted = cap != 16
    arrays = slices(native, dense, cap, weighted=weighted)
    dense = (dense if weighted else dense != 0).astype(np.float64)
    random = np.random.default_rng(width)
    block = slice(width, 2 * width)
    x = random.normal(size=(COLUMNS, 3 * width)).astype(np.float32)
    y = torch.ones(ROWS, 3 * width, device=native.device)
    clock = [None]
    native.call(
        "aggregate_sliced", *arrays, native.put(x)[:, block], y[:, block], groups, vector, *clock
    )
    assert (y[:, :width] == 1).all()
    assert (y[:, 2 * width :] == 1).all()
    close(y[:, block], 1 + dense @ x[:, block])

    x = random.normal(size=(ROWS, 3 * width)).astype(np.float32)
    y = torch.ones(COLUMNS, 3 * width, device=native.device)
    native.call("scatter_sliced", *arrays, native.put(x)[:, block], y[:, block], groups, vector)
    assert (y[:, :width] == 1).all()
    assert (y[:, 2 * width :] == 1).all()
    close(y[:, block], 1 + dense.T @ x[:, block])


@pytest.mark.parametrize("snapshots", [1, 2, 3, 8])
@pytest.mark.parametrize(("width", "vector"), [(1, 1), (2, 1), (6, 2), (16, 4), (33, 1)])
def test_an_entry_has_a_weight_in_each_snapshot(native, width, vector, snapshots):
    """As an overlap part of weighted snapshots: column blocks of x and y are the snapshots'."""
    dense, random = matrix(width), np.random.default_rng(snapshots)
    *lists, _ = slices(native, dense, 8)
    entries = lists[2].numel()
    weights = random.normal(size=(entries, snapshots)).astype(np.float32)
    rows, columns = np.nonzero(dense)
    values = native.put(weights).reshape(-1)
    d = snapshots * width
    groups = 1 if vector > 1 else thread_groups(d)
    x = random.normal(size=(COLUMNS, d)).astype(np.float32)
    y = torch.zeros(ROWS, d, device=native.device)
    native.call("aggregate_sliced", *lists, values, native.put(x), y, groups, vector, None)
    back = random.normal(size=(ROWS, d)).astype(np.float32)
    dx = torch.zeros(COLUMNS, d, device=native.device)
    native.call("scatter_sliced", *lists, values, native.put(back), dx, groups, vector)
    for i in range(snapshots):
        block = slice(i * width, (i + 1) * width)
        mine = np.zeros(dense.shape)
        mine[rows, columns] = weights[:, i]
        close(y[:, block], mine @ x[:, block])
        close(dx[:, block], mine.T @ back[:, block])


@pytest.mark.parametrize("shift", [0, 1, 2, 3])
@pytest.mark.parametrize("pitch", [128, 129, 130, 132])
@pytest.mark.parametrize("vector", [1, 2, 4])
def test_an_address_or_a_pitch_that_is_not_aligned_gets_fewer_floats(native, shift, pitch, vector):
    """The emulated runtime aborts at a vector load from an address that is no multiple of it."""
    dense, width = matrix(shift), 128
    arrays = slices(native, dense, 32)
    x = np.random.default_rng(pitch).normal(size=(COLUMNS, pitch)).astype(np.float32)
    room = torch.zeros(COLUMNS * pitch + 4, device=native.device)
    assert room.data_ptr() % 16 == 0
    room[shift : shift + COLUMNS * pitch] = native.put(x).view(-1)
    odd = room[shift : shift + COLUMNS * pitch].view(COLUMNS, pitch)[:, :width]
    y = torch.zeros(ROWS, width, device=native.device)
    native.call("aggregate_sliced", *arrays, odd, y, 1, vector, None)
    close(y, dense.astype(np.float64) @ x[:, :width])
    out = torch.zeros(COLUMNS * pitch + 4, device=native.device)
    out = out[shift : shift + COLUMNS * pitch].view(COLUMNS, pitch)
    x = np.random.default_rng(1).normal(size=(ROWS, width)).astype(np.float32)
    native.call("scatter_sliced", *arrays, native.put(x), out[:, :width], 1, vector)
    close(out[:, :width], dense.T.astype(np.float64) @ x)
    assert (out[:, width:] == 0).all()


@pytest.mark.parametrize(("width", "vector"), [(2, 1), (6, 1), (16, 1), (64, 2), (300, 4)])
def test_the_clocks_of_the_sliced_kernel(native, width, vector, monkeypatch):
    if native.device == "cpu":
        monkeypatch.setenv("EMULATED_PROCESSORS", "3")
    dense = matrix(5)
    arrays = slices(native, dense, 8)
    groups = thread_groups(width)
    x = np.random.default_rng(1).normal(size=(COLUMNS, width)).astype(np.float32)
    y = torch.zeros(ROWS, width, device=native.device)
    call = (*arrays, native.put(x), y, groups, vector)
    warps = native.module.sliced_warp_count(*call)
    tiles = 1 if groups > 1 else -(-width // (32 * vector))
    assert warps == -(-arrays[0].numel() // groups) * tiles
    clocks = native.put(torch.full((warps, 3), -1), torch.int64)
    native.call("aggregate_sliced", *call, clocks)
    close(y, dense.astype(np.float64) @ x)
    clocks = clocks.cpu()
    assert (clocks[:, 1] > clocks[:, 0]).all()
    assert (clocks[:, 2] >= 0).all()
    found = balance(clocks)
    assert found.warps == warps
    assert 0 < found.balanced <= found.actual
    if native.device == "cpu":
        assert found.multiprocessors == min(3, -(-(warps // tiles) // 8))
    with pytest.raises(ValueError, match="clocks has length"):
        native.call("aggregate_sliced", *call, clocks[1:].to(native.device))


@pytest.mark.parametrize("width", [2, 40, 64, 130])
def test_the_clocks_of_a_warp_per_row(native, width):
    dense = matrix(6)
    columns = [np.nonzero(row)[0] for row in dense]
    indptr = native.put(np.cumsum([0, *map(len, columns)]), torch.int64)
    indices = native.put(np.concatenate(columns), torch.int32)
    values = native.put(dense[dense != 0])
    x = np.random.default_rng(1).normal(size=(COLUMNS, width)).astype(np.float32)
    y = native.poisoned(ROWS, width)
    warps = native.module.gespmm_warp_count(ROWS, width, indices.numel())
    assert warps == ROWS * (-(-width // 32) if width < 64 else -(-width // 64))
    clocks = native.put(torch.full((warps, 3), -1), torch.int64)
    native.call("spmm_gespmm", indptr, indices, values, native.put(x), y, clocks)
    close(y, dense.astype(np.float64) @ x)
    spent = (clocks[:, 1] - clocks[:, 0]).cpu()
    assert (spent > 0).all()
    assert (clocks[:, 2].cpu() >= 0).all()
