"""The device form of the graph difference, played through on the host, and on a device if any."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from device_cases import csr_of

from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.difference import encode


def run(native, old: Csr | None, rows: int, cols: int, gone, come, nnz: int):
    """The native call over poisoned outputs: (indptr, indices, found)."""
    indptr, indices = torch.full((rows + 1,), -7), torch.full((nnz + 64,), -7, dtype=torch.int32)
    indptr, room = native.put(indptr), native.put(indices)
    found = native.put(torch.full((3,), -1))
    scratch = [native.put(torch.full((p.shape[1],), -7, dtype=torch.int32)) for p in (gone, come)]
    none = torch.empty(0, dtype=torch.int32)
    native.call(
        "rebuild",
        None if old is None else native.put(old.indptr),
        native.put(none if old is None else old.indices),
        cols,
        native.put(gone),
        native.put(come),
        *scratch,
        indptr,
        room[:nnz],
        found,
    )
    assert bool((room[nnz:] == -7).all())  # nothing was written past the end
    return indptr.cpu(), room[:nnz].cpu(), found.tolist()


def check(native, first: np.ndarray, second: np.ndarray, index: str):
    old, new = csr_of(first), csr_of(second)
    sent = encode(old, new, index=index, fallback=False)
    shape = new.num_rows, new.num_cols
    found = run(native, old, *shape, sent.removed, sent.added, new.nnz)
    assert torch.equal(found[0], new.indptr)
    assert torch.equal(found[1], new.indices)
    assert found[2] == [-1, -1, -1]


@pytest.mark.parametrize("index", ["int64", "int32"])
@pytest.mark.parametrize("density", [0.0, 0.05, 0.5, 1.0])
def test_random_snapshots_over_several_tiles(native, index, density):
    random = np.random.default_rng(int(100 * density))
    first = random.random((90, 70)) < density
    for keep in (0.0, 0.5, 0.97, 1.0):
        fresh = random.random((90, 70)) < density
        second = np.where(random.random((90, 70)) < keep, first, fresh)
        check(native, first, second, index)
        first = second


@pytest.mark.parametrize("index", ["int64", "int32"])
def test_everything_comes_and_goes(native, index):
    nothing, everything = np.zeros((2, 3000), bool), np.ones((2, 3000), bool)
    even = everything.copy()
    even[:, ::2] = False
    # From two entries far apart to all: more insertions between them than a window holds.
    ends = nothing.copy()
    ends[:, [0, -1]] = True
    for one, other in [
        (nothing, everything),
        (everything, nothing),
        (nothing, nothing),
        (even, ~even),
        (ends, everything),
        (everything, ends),
        (np.zeros((0, 5), bool), np.zeros((0, 5), bool)),
    ]:
        check(native, one, other, index)
    first, second = np.zeros((9000, 4), bool), np.zeros((9000, 4), bool)  # rows without entries
    first[[0, 4095, 8999], 1] = True
    second[[1, 4096, 8999], 2] = True
    check(native, first, second, index)
    new = csr_of(np.random.default_rng(3).random((40, 60)) < 0.3)  # from no matrix
    sent = encode(None, new, index=index)
    indptr, indices, _ = run(native, None, 40, 60, sent.removed, sent.added, new.nnz)
    assert torch.equal(indptr, new.indptr)
    assert torch.equal(indices, new.indices)


def test_a_difference_of_another_matrix_stays_in_bounds_and_is_reported(native):
    old = csr_of(np.random.default_rng(4).random((30, 80)) < 0.5)
    random = np.random.default_rng(5)
    for _ in range(20):
        gone, come = (
            torch.from_numpy(random.integers(-1, [[31], [81]], (2, 40))).to(torch.int64)
            for _ in range(2)
        )
        _, _, found = run(native, old, 30, 80, gone, come, old.nnz)
        assert max(found) >= 0
    row = old.indices[: int(old.indptr[1])]
    absent = next(c for c in range(80) if c not in row.tolist())
    missing = torch.tensor([[0], [absent]])
    held = row[:1].long().reshape(1, 1)
    held = torch.cat([torch.zeros_like(held), held])
    nothing = torch.empty(2, 0, dtype=torch.int64)
    assert run(native, old, 30, 80, missing, nothing, old.nnz - 1)[2] == [0, -1, -1]
    assert run(native, old, 30, 80, nothing, held, old.nnz + 1)[2] == [-1, 0, -1]
