"""Snapshots on a device, taken apart, united, sliced and put together again as on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from device_cases import csr_of, to_device
from torch import Tensor

from dgbench.kernels_cuda import build_info
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.overlap import op as overlap
from dgbench.kernels_cuda.slices import slice_unchecked

CPU = build_info.extension(torch.device("cpu"))
GROUPS = [(1, 1, 1, 1.0), (1, 0, 5, 0.0), (3, 40, 70, 0.1), (8, 25, 30, 0.2), (32, 9, 40, 0.3),
          (4, 20, 9, 0.0), (3, 300, 80, 0.2)]  # fmt: skip
"""Number of snapshots, rows, columns, share of entries."""


def group_of(shape: tuple[int, int, int, float]) -> list[Csr]:
    """Weighted snapshots that share half of their entries, with a hub and empty rows."""
    count, rows, columns, share = shape
    random, group = np.random.default_rng(rows), []
    common = random.random((rows, columns)) < share
    for _ in range(count):
        present = common | (random.random((rows, columns)) < share * random.random((rows, 1)))
        if rows > 4:
            present[rows // 2] = random.random(columns) < 0.9
            present[[0, rows - 1]] = False
        csr = csr_of(present)
        values = torch.from_numpy(random.normal(size=csr.nnz).astype(np.float32))
        group.append(Csr(csr.indptr, csr.indices, columns, values))
    return group


def both(native, name: str, *arguments: Any) -> None:
    """Call the host's and the device's function; `arguments` end up written alike by both."""

    def moved(x: Any) -> Any:
        if isinstance(x, list):
            return [moved(one) for one in x]
        return native.put(x.clone()) if isinstance(x, Tensor) else x

    there = [moved(x) for x in arguments]
    getattr(CPU, name)(*arguments)
    native.call(name, *there)
    for host, device in zip(arguments, there, strict=True):
        pairs = [(host, device)] if not isinstance(host, list) else zip(host, device, strict=True)
        for one, other in pairs:
            assert not isinstance(one, Tensor) or torch.equal(one, other.cpu()), name


@pytest.mark.parametrize("shape", GROUPS, ids=str)
def test_parts_unions_and_slices_equal_the_hosts(native, shape):
    count, rows, columns, _ = shape
    group = group_of(shape)
    names = ("indptr", "indices", "values")
    indptr, indices, values = ([getattr(csr, name) for csr in group] for name in names)

    def offsets() -> Tensor:
        return torch.zeros(rows + 1, dtype=torch.int64)

    for cap in (1, 32):
        first, counts = offsets(), torch.zeros(rows, dtype=torch.int64)
        both(native, "count_slices", indptr[0], cap, counts)
        first[1:] = counts.cumsum(0)
        slices = int(first[-1])
        row, at = torch.zeros(slices, dtype=torch.int32), torch.zeros(slices + 1).long()
        both(native, "fill_slices", indptr[0], first, cap, row, at)
    for cap in (0, 4):
        over, counts = offsets(), torch.zeros(rows, dtype=torch.int64)
        both(native, "count_shared", indptr, indices, cap, counts)
        over[1:] = counts.cumsum(0)
        shared = int(over[-1])
        rest = [torch.zeros(i.numel() - shared, dtype=torch.int32) for i in indices]
        weights = [torch.zeros(r.numel()) for r in rest]
        common = torch.zeros(shared, dtype=torch.int32), torch.zeros(shared, count)
        both(native, "split", indptr, indices, values, cap, over, *common, rest, weights)
    united, counts = offsets(), torch.zeros(rows, dtype=torch.int64)
    both(native, "count_union", indptr, indices, counts)
    united[1:] = counts.cumsum(0)
    size = int(united[-1])
    ids, mask = (torch.zeros(size, dtype=torch.int32) for _ in range(2))
    both(native, "unite", indptr, indices, values, united, ids, mask, torch.zeros(size, count))
    both(native, "check_csr", indptr[0], indices[0], columns, torch.full((3,), -1).long())


def test_a_matrix_that_is_none_and_a_build_are_told(native):
    found = native.put([-1, -1, -1], torch.int64)
    wrong = native.put([0, 2], torch.int64), native.put([1, 1], torch.int32)
    native.call("check_csr", *wrong, 1, found)
    assert found.tolist() == [-1, 0, 0]
    assert native.module.probe() == ""
    assert native.module.build_info()["architectures"]


# --- rows that a hub makes long -------------------------------------------------------------------


def hub_snapshots(case: str, weighted: bool) -> list[Csr]:
    """Three snapshots with a hub in row 1, in whose row they differ as `case` says."""
    random, columns, found = np.random.default_rng(3), 9000, []
    alike = np.sort(random.choice(columns, 6000, replace=False))
    for i in range(3):
        hub = {
            "alike": alike,
            "apart": np.arange(i, columns, 3),
            "some": alike[random.random(6000) < 0.8],
            "one empty": alike if i else alike[:0],
            "shifted": np.unique([*alike, columns + i]),
        }[case]
        rows = [random.choice(columns, 5, replace=False), hub, [], [i, 7], alike[: 1030 + i]]
        ids = torch.from_numpy(np.concatenate([np.sort(row) for row in rows]).astype(np.int32))
        indptr = torch.from_numpy(np.cumsum([0, *map(len, rows)]))
        values = torch.from_numpy(random.normal(size=ids.numel()).astype(np.float32))
        found.append(Csr(indptr, ids, columns + 3, values if weighted else None))
    return found


@pytest.fixture
def served(native, monkeypatch) -> str:
    """The device that parts are made on."""
    if native.device == "cpu":
        monkeypatch.setattr(overlap, "extension", lambda device: native.module)
        monkeypatch.setattr(overlap, "stream_of", lambda device: (0,))
    return native.device


def parts_of(csrs: list[Csr], granularity: str, device: str = "cpu") -> list[Tensor | None]:
    parts = overlap.split_unchecked([to_device(csr, device) for csr in csrs], granularity)
    arrays = [getattr(p, n) for p in (parts.over, *parts.exclusive)
              for n in ("indptr", "indices", "values")]  # fmt: skip
    return [None if array is None else array.cpu() for array in arrays]


@pytest.mark.parametrize(("granularity", "weighted"), [("edge", True), ("slice", False)])
@pytest.mark.parametrize("case", ["alike", "apart", "some", "one empty", "shifted"])
def test_parts_of_long_rows_equal_the_cpus(native, request, case, granularity, weighted):
    csrs = hub_snapshots(case, weighted)
    right = parts_of(csrs, granularity)
    found = parts_of(csrs, granularity, request.getfixturevalue("served"))
    for one, other in zip(found, right, strict=True):
        assert (one is None and other is None) or torch.equal(one, other)


def test_long_rows_are_cut_into_tiles_for_many_blocks(served, log):
    for csrs, many in ((hub_snapshots("some", False), True), (group_of((3, 2, 9, 0.3)), False)):
        log.clear()
        overlap.split_unchecked(csrs)
        assert (max(call.value for call in log.calls("launch")) > 1) == many


# --- topology that has arrived --------------------------------------------------------------------


@pytest.mark.parametrize("shape", GROUPS, ids=str)
def test_arrived_pieces_are_put_together(native, shape):
    """Offsets of rows from slices, and exclusive parts as one list."""
    count, rows, _, _ = shape
    group = group_of(shape)
    for cap in (1, 8, 32, 64):
        cut = [slice_unchecked(csr, cap) for csr in group]
        out = native.put(torch.full((count, rows + 1), -1), torch.int64)
        rows_of = [native.put(s.row_indices) for s in cut]
        at = [native.put(s.slice_offsets.int()) for s in cut]
        native.call("unpack_offsets", rows_of, at, out)
        for found, csr in zip(out.cpu(), group, strict=True):
            assert torch.equal(found, csr.indptr)
    for weighted in (False, True):
        check_merged(native, group, rows, weighted)


def check_merged(native, group: list[Csr], rows: int, weighted: bool) -> None:
    total, count = sum(csr.nnz for csr in group), len(group)

    def merged(move: Any, call: Any) -> list[Tensor | None]:
        out = [move(torch.full((rows + 1,), -1)), move(torch.full((total,), -1).int())]
        out.append(move(torch.full((total,), float("nan"))) if weighted else None)
        lists = [[move(getattr(c, n)) for c in group] for n in ("indptr", "indices", "values")]
        call(*lists[:2], lists[2] if weighted else [], *out)
        return [None if x is None else x.cpu() for x in out]

    host = merged(lambda t: t, lambda *a: CPU.merge_exclusive(*a, 1))
    device = merged(native.put, lambda *a: native.call("merge_exclusive", *a))
    assert torch.equal(host[0], device[0])
    # Rows hold the same entries; the device leaves them snapshot by snapshot.
    mask = (1 << (count - 1).bit_length()) - 1
    for begin, end in zip(host[0][:-1], host[0][1:], strict=True):
        entries = device[1][begin:end]
        order = torch.argsort(entries.long() & 0xFFFFFFFF, stable=True)
        assert torch.equal(host[1][begin:end], entries[order])
        assert not weighted or torch.equal(host[2][begin:end], device[2][begin:end][order])
        assert ((entries & mask).diff() >= 0).all()


def test_sizes_that_contradict_each_other_are_refused(native):
    indptr, indices = native.put([0, 1], torch.int64), native.put([0], torch.int32)
    with pytest.raises(ValueError, match="out_entries"):
        native.call("merge_exclusive", [indptr], [indices], [], indptr, indices[:0], None)
    with pytest.raises(ValueError, match="slice_offsets"):
        native.call("unpack_offsets", [indices], [indices], indptr.view(1, 2))
    with pytest.raises(ValueError):
        native.call("unpack_offsets", [], [], indptr.view(1, 2))
