"""Rows that a device cuts into segments, against float64 and against the uncut form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from dgbench.kernels_cuda.aggregate import op, prepared
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.overlap import PartTopology
from dgbench.systems.pipad.merged import PartitionAggregation
from dgbench.systems.pipad.partitions import SnapshotPartition
from dgbench.systems.pipad.snapshots import SnapshotAggregation

LENGTHS = (3, 0, 128, 129, 1, 1025, 40, 2100)
COLUMNS = 60
ROWS = 1100  # a row of all columns is cut
OWNER_ALONE, SEGMENTS = 1, 2


def heavy(native, over: np.ndarray, ex: np.ndarray | None) -> torch.Tensor:
    entries = int(over[-1]) + (0 if ex is None else int(ex[-1]))
    table = native.put(np.full(native.module.heavy_size(len(over) - 1, entries), -1), torch.int32)
    there = None if ex is None else native.put(ex)
    native.call("list_heavy", native.put(over), there, entries, table)
    return table


def room(native, entries: int, width: int) -> dict[str, Any]:
    slots = native.module.heavy_slots(len(LENGTHS), entries)
    return {"partials": native.poisoned(slots, width)}


def a_list(seed: int, lengths: tuple[int, ...], high: int) -> tuple[np.ndarray, np.ndarray]:
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    entries = np.random.default_rng(seed).integers(0, high, indptr[-1])
    return indptr, entries.astype(np.int32)


def close(found: torch.Tensor, expected: np.ndarray) -> None:
    found = found.double().cpu().numpy()
    assert np.isfinite(found).all()
    assert np.linalg.norm(found - expected) <= 2e-6 * np.linalg.norm(expected)


def test_the_table_covers_every_long_row_once(native):
    over, _ = a_list(1, LENGTHS, COLUMNS)
    ex, _ = a_list(2, (126, *LENGTHS[1:]), 4 * COLUMNS)
    table = heavy(native, over, ex).cpu().numpy()
    entries = int(over[-1] + ex[-1])
    counts = np.diff(over) + np.diff(ex)
    segments, split, slots = table[:3]
    found = table[4 : 4 + 4 * segments].reshape(-1, 4)
    for row, count in enumerate(counts):
        mine = sorted(tuple(s) for s in found[found[:, 0] == row])
        if count <= 128:
            assert mine == []
            continue
        edges = [(begin, min(begin + 1024, count)) for begin in range(0, count, 1024)]
        assert [(s[1], s[2]) for s in mine] == edges
        at = [s[3] for s in mine]
        assert at == [-1] if len(at) == 1 else at == list(range(at[0], at[0] + len(at)))
    long = np.nonzero(counts > 1024)[0]
    at = 4 + 4 * (entries // 1024 + entries // 129)
    rows = table[at : at + 3 * split].reshape(-1, 3)
    assert sorted(rows[:, 0]) == list(long)
    assert slots == rows[:, 2].sum() <= native.module.heavy_slots(len(LENGTHS), entries)


@pytest.mark.parametrize("features", [1, 2, 3, 4, 8, 20, 64, 132])
def test_spmm_with_segments(native, features):
    indptr, indices = a_list(3, LENGTHS, COLUMNS)
    random = np.random.default_rng(features)
    weights = random.normal(size=len(indices)).astype(np.float32)
    x = random.normal(size=(COLUMNS, features)).astype(np.float32)
    scale = random.random(len(LENGTHS)).astype(np.float32) + 0.5
    rows = np.repeat(np.arange(len(LENGTHS)), LENGTHS)
    expected = np.zeros((len(LENGTHS), features))
    np.add.at(expected, rows, weights[:, None].astype(np.float64) * x[indices])
    expected = (expected + x[: len(LENGTHS)]) * scale[:, None]
    arrays = [native.put(indptr), native.put(indices), native.put(weights)]
    table = heavy(native, indptr, None)
    found = []
    for _ in range(2):
        y = native.poisoned(len(LENGTHS), features)
        native.call(
            "spmm", *arrays, table, native.put(x), y, native.put(scale), None, True,
            **room(native, len(indices), features),
        )  # fmt: skip
        close(y, expected)
        found.append(y)
    assert torch.equal(*found)
    y = native.poisoned(len(LENGTHS), features)
    native.call(
        "spmm", *arrays, None, native.put(x), y, native.put(scale), None, True, form=OWNER_ALONE
    )
    close(y, expected)


@pytest.mark.parametrize("features", [1, 2, 8, 33])
@pytest.mark.parametrize("weighted", [False, True])
def test_parts_with_segments_and_their_scatter(native, features, weighted):
    count, bits = 4, 2
    over, columns = a_list(4, LENGTHS, COLUMNS)
    ex, entries = a_list(5, (126, *LENGTHS[3:], 128, 7), COLUMNS << bits)
    random = np.random.default_rng(features)
    over_values = random.random((len(columns), count)).astype(np.float32)
    ex_values = random.random(len(entries)).astype(np.float32)
    if not weighted:
        over_values[:], ex_values[:] = 1, 1
    full = np.zeros((count, len(LENGTHS), COLUMNS))
    rows = np.repeat(np.arange(len(LENGTHS)), np.diff(over))
    for s in range(count):
        np.add.at(full[s], (rows, columns), over_values[:, s])
    rows = np.repeat(np.arange(len(LENGTHS)), np.diff(ex))
    np.add.at(full, (entries & 3, rows, entries >> bits), ex_values)
    scale = random.random((COLUMNS, count)) + 0.5
    full = (full + np.eye(len(LENGTHS), COLUMNS)) * scale.T[:, None, :]
    lists = [
        native.put(over), native.put(columns), native.put(over_values) if weighted else None,
        native.put(ex), native.put(entries), native.put(ex_values) if weighted else None,
        heavy(native, over, ex),
    ]  # fmt: skip
    scales = (None, native.put(scale, torch.float32))

    x = random.normal(size=(COLUMNS, count, features)).astype(np.float32)
    y = native.poisoned(len(LENGTHS), count, features)
    partials = room(native, len(columns) + len(entries), count * features)
    native.call("aggregate_parts", *lists, native.put(x), y, *scales, True, **partials)
    close(y, np.einsum("srk,ksf->rsf", full, x.astype(np.float64)))

    x = random.normal(size=(len(LENGTHS), count, features)).astype(np.float32)
    back = native.poisoned(COLUMNS, count, features)
    native.call("aggregate_parts_scatter", *lists, native.put(x), back, *scales, True)
    close(back, np.einsum("srk,rsf->ksf", full, x.astype(np.float64)))


def test_partial_sums_need_room(native):
    indptr, indices = a_list(3, LENGTHS, COLUMNS)
    x, y = native.poisoned(COLUMNS, 2), native.poisoned(len(LENGTHS), 2)
    arrays = [native.put(indptr), native.put(indices), None, heavy(native, indptr, None)]
    with pytest.raises(ValueError, match="partials"):
        native.call("spmm", *arrays, x, y, None, None, False)


@pytest.fixture
def on_device(native, monkeypatch) -> str:
    """Where products run: a device, or the CPU with emulated kernels that cut rows as one does."""
    if native.device == "cpu":

        def call(name: str, device: torch.device, *arguments: Any, **named: Any) -> None:
            native.call(name, *arguments, **named)

        for module in (op, prepared):
            monkeypatch.setattr(module, "call", call)
            monkeypatch.setattr(module, "cuts_rows", lambda device: True)
            monkeypatch.setattr(module, "extension", lambda device: native.module)
    return native.device


def test_nodes_of_a_frame_leave_room_for_rows_that_are_cut(on_device):
    draw = torch.Generator().manual_seed(3)
    shared = torch.rand(ROWS, ROWS, generator=draw) < 0.06
    shared[5] = True
    held = [shared | (torch.rand(ROWS, ROWS, generator=draw) < 0.002) for _ in range(3)]
    group = [
        Csr(
            torch.cat([torch.zeros(1), one.sum(1).cumsum(0)]).long().to(on_device),
            one.nonzero()[:, 1].int().to(on_device),
            ROWS,
        )
        for one in held
    ]
    assert all(csr.nnz > prepared.FEW_ENTRIES for csr in group)
    scale = (torch.rand(3, ROWS, generator=draw) + 0.5).to(on_device)
    by = scale.t().contiguous()
    single = [(csr, scale[t], scale[t]) for t, csr in enumerate(group)]
    merged = [SnapshotPartition(range(3), PartTopology.build(group), by, by, 0)]
    x, grad = torch.randn(2, 3, ROWS, 2, generator=draw)
    for node, topology in ((SnapshotAggregation, single), (PartitionAggregation, merged)):
        leaf = x.to(on_device).detach().clone().requires_grad_()
        y = node.apply(leaf, topology)
        y.backward(grad.to(on_device))
        for t, one in enumerate(held):
            whole = (one.double() + torch.eye(ROWS)) * scale[t].cpu() * scale[t, :, None].cpu()
            close(y[t].detach(), (whole @ x[t].double()).numpy())
            close(leaf.grad[t], (whole.t() @ grad[t].double()).numpy())
