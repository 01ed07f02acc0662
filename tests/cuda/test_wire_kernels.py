"""Putting arrived topology together on the device, against the host's way."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from dgbench.kernels_cuda import build_info
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.slices import slice_unchecked

CPU = build_info.extension(torch.device("cpu"))


def random_csr(random: np.random.Generator, rows: int, columns: int, share: float) -> Csr:
    present = random.random((rows, columns)) < share * random.random((rows, 1)) * 2
    if rows > 4:
        present[rows // 2] = True
        present[[0, rows - 1]] = False
    indptr = torch.from_numpy(np.concatenate([[0], np.cumsum(present.sum(1))])).long()
    values = torch.from_numpy(random.normal(size=int(present.sum())).astype(np.float32))
    return Csr(indptr, torch.from_numpy(np.nonzero(present)[1]).int(), columns, values)


SHAPES = [(1, 1, 1, 1.0), (1, 0, 5, 0.0), (3, 40, 70, 0.1), (8, 25, 30, 0.2), (32, 9, 40, 0.3),
          (4, 20, 9, 0.0)]  # fmt: skip


@pytest.mark.parametrize(("count", "rows", "columns", "share"), SHAPES)
@pytest.mark.parametrize("cap", [1, 8, 32, 64])
def test_offsets_of_rows_from_slices(native, count, rows, columns, share, cap):
    random = np.random.default_rng(rows)
    csrs = [random_csr(random, rows, columns, share) for _ in range(count + 1)]
    cut = [slice_unchecked(csr, cap) for csr in csrs]
    out = native.put(torch.full((count + 1, rows + 1), -1), torch.int64)
    rows_of = [native.put(s.row_indices) for s in cut]
    native.call("unpack_offsets", rows_of, [native.put(s.slice_offsets.int()) for s in cut], out)
    for found, csr in zip(out.cpu(), csrs, strict=True):
        assert torch.equal(found, csr.indptr)


@pytest.mark.parametrize(("count", "rows", "columns", "share"), SHAPES)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_exclusive_parts_as_one_list(native, count, rows, columns, share, weighted):
    random = np.random.default_rng(rows + 1)
    csrs = [random_csr(random, rows, columns, share) for _ in range(count)]
    total = sum(csr.nnz for csr in csrs)

    def merged(move, call) -> tuple[Tensor, Tensor, Tensor | None]:
        out = [move(torch.full((rows + 1,), -1)), move(torch.full((total,), -1).int())]
        weights = move(torch.full((total,), float("nan"))) if weighted else None
        call(
            [move(csr.indptr) for csr in csrs],
            [move(csr.indices) for csr in csrs],
            [move(csr.values) for csr in csrs] if weighted else [],
            *out,
            weights,
        )
        return out[0].cpu(), out[1].cpu(), None if weights is None else weights.cpu()

    host = merged(lambda t: t, lambda *a: CPU.merge_exclusive(*a, 1))
    device = merged(native.put, lambda *a: native.call("merge_exclusive", *a))
    assert torch.equal(host[0], device[0])
    # Rows hold the same entries; the device leaves them snapshot by snapshot.
    mask = (1 << (count - 1).bit_length()) - 1
    for begin, end in zip(host[0][:-1], host[0][1:], strict=True):
        order = torch.argsort(device[1][begin:end].long() & 0xFFFFFFFF, stable=True)
        assert torch.equal(host[1][begin:end], device[1][begin:end][order])
        if weighted:
            assert torch.equal(host[2][begin:end], device[2][begin:end][order])
        snapshots = device[1][begin:end] & mask
        assert (snapshots.diff() >= 0).all()


def test_sizes_that_contradict_each_other_are_refused(native):
    indptr, indices = native.put([0, 1], torch.int64), native.put([0], torch.int32)
    with pytest.raises(ValueError, match="out_entries has length"):
        native.call("merge_exclusive", [indptr], [indices], [], indptr, indices[:0], None)
    with pytest.raises(ValueError, match="slice_offsets"):
        native.call("unpack_offsets", [indices], [indices], indptr.view(1, 2))
    with pytest.raises(ValueError, match="pieces"):
        native.call("unpack_offsets", [], [], indptr.view(1, 2))
