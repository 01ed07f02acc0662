"""Work that a hub makes long: cut into parts for many threads, with the results of the CPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from device_log import DeviceLog
from test_label_sweeps import random_graph
from torch import Tensor

from dgbench.kernels_cuda import build_info
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.label_propagation import sweep_salt
from dgbench.kernels_cuda.overlap import op as overlap
from dgbench.kernels_cuda.temporal_sample import hops as device_hops
from dgbench.kernels_cuda.temporal_sample import sample_hops
from dgbench.kernels_cuda.temporal_store import TemporalStore
from dgbench.kernels_cuda.temporal_store import device as device_store
from dgbench.kernels_cuda.temporal_store.device import MAX_FANOUT, DeviceStore

CPU = build_info.extension(torch.device("cpu"))
FIELDS = ("nodes", "times", "positions", "offsets", "neighbours", "eids", "edge_times")


def most_blocks(log: DeviceLog) -> int:
    return max(call.value for call in log.calls("launch"))


# --- draws without replacement --------------------------------------------------------------------


def hub_store(records: int) -> TemporalStore:
    """A vertex with so many records, one at each time from 0 on, and one with three."""
    store = TemporalStore(6)
    src = torch.cat([torch.full((records,), 1), torch.full((3,), 2)])
    t = torch.cat([torch.arange(records), torch.full((3,), records)]).double()
    store.insert(src, torch.arange(records + 3) % 6, t)
    return store


def assert_samples_equal(native, monkeypatch, store, nodes, times, fanouts, **how) -> int:
    if native.device == "cpu":
        monkeypatch.setattr(device_store, "extension", lambda device: native.module)
    there = DeviceStore(store, "cuda", device=native.device)
    how = {"policy": "uniform", "seed": 7, "draw": 3, **how}
    [found] = there.sample_hops(nodes, times, fanouts, **how)
    [right] = sample_hops(store, nodes, times, fanouts, **how)
    for one, other in zip(found, right, strict=True):
        for field in FIELDS:
            assert torch.equal(getattr(one, field).cpu(), getattr(other, field)), field
    there.close()
    return sum(hop.neighbours.numel() for hop in right)


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("fanout", [64, 65, 100, 300])
@pytest.mark.parametrize("order", ["forward", "reverse"])
def test_large_draws_equal_the_cpus(native, monkeypatch, fanout, replace, order):
    """From no candidate over as many as are drawn, and one more, to many times as many."""
    if native.device == "cpu" and order == "reverse":
        monkeypatch.setenv("EMULATED_ORDER", "reverse")
    sizes = [0, 1, fanout - 1, fanout, fanout + 1, fanout + 2, 2 * fanout, 9 * fanout]
    nodes = torch.tensor([1] * len(sizes) + [2, 5, 1])
    times = torch.tensor([*sizes, 1e6, 1e6, torch.inf], dtype=torch.float64)
    store = hub_store(9 * fanout)
    how = {"fanouts": [fanout], "replace": replace}
    assert assert_samples_equal(native, monkeypatch, store, nodes, times, **how) > 5 * fanout
    monkeypatch.setattr(device_hops, "MAX_UNCOUNTED", 10)  # the way with a call for each hop
    device_hops._lay_out.cache_clear()
    assert_samples_equal(native, monkeypatch, store, nodes[:4], times[4:8], **how)
    device_hops._lay_out.cache_clear()


@pytest.mark.parametrize("fanouts", [[70, 2], [2, 70]])
def test_hops_of_large_draws_equal_the_cpus(native, monkeypatch, fanouts):
    nodes, times = torch.tensor([1, 2, 1]), torch.tensor([100.0, 1e6, 71.0], dtype=torch.float64)
    assert_samples_equal(native, monkeypatch, hub_store(500), nodes, times, fanouts)


def test_the_largest_fanout_draws_with_many_threads(native, monkeypatch, log):
    records = MAX_FANOUT + 3
    nodes, times = torch.tensor([1]), torch.tensor([torch.inf], dtype=torch.float64)
    found = assert_samples_equal(
        native, monkeypatch, hub_store(records), nodes, times, [MAX_FANOUT]
    )
    assert found == MAX_FANOUT
    assert len(log.calls("launch")) == 5  # windows, the draw by itself, two for offsets, copies


def test_tables_of_large_draws_are_bounded():
    for fanout in (65, 1000, MAX_FANOUT):
        tables = device_hops.draw_words(10**6, fanout) - 10**6 * fanout
        assert 0 < tables < 2 * device_hops._TABLE_WORDS
    assert device_hops.draw_words(10, 64) == 640


# --- labels that are full -------------------------------------------------------------------------


def test_contested_places_are_sorted_by_many_blocks(native, log):
    """Every vertex wants the hub's label with the same gain: ties go by vertex."""
    csr = random_graph(np.random.default_rng(0), 3000, 0, True)
    labels = torch.arange(3000, dtype=torch.int32)
    loads, right = torch.ones(3000, dtype=torch.int64), labels.clone()
    CPU.label_sweep(
        csr.indptr, csr.indices, None, None, right, loads.clone(), None, 40, sweep_salt(5, 0), 1,
        3000, 1,
    )  # fmt: skip
    integers = {"dtype": torch.int32}
    scratch = [
        torch.zeros(3000, **integers), torch.zeros(3000, **integers), torch.zeros(3000).long(),
        torch.zeros(6000, **integers), torch.zeros(3000).long(), torch.zeros(3).long(),
    ]  # fmt: skip
    native.call(
        "label_sweep", csr.indptr, csr.indices, None, None, labels, loads, None, 40,
        sweep_salt(5, 0), 1, 3000, *scratch,
    )  # fmt: skip
    assert torch.equal(labels, right)
    assert min(call.value for call in log.calls("launch")) > 1


# --- rows of several snapshots --------------------------------------------------------------------


def snapshots(case: str) -> list[Csr]:
    """Three weighted snapshots with a hub in row 1, in whose row they differ as `case` says."""
    random = np.random.default_rng(3)
    columns = 9000
    alike = np.sort(random.choice(columns, 6000, replace=False))
    found = []
    for i in range(3):
        hub = {
            "alike": alike,
            "apart": np.arange(i, columns, 3),
            "some": alike[random.random(6000) < 0.8],
            "one empty": alike if i else alike[:0],
            "shifted": np.concatenate([alike[:900], [columns + i], alike[900:]]),
        }[case]
        hub = np.unique(hub)
        rows = [random.choice(columns, 5, replace=False), hub, [], [i, 7], alike[: 1030 + i]]
        rows = [np.sort(np.asarray(row, dtype=np.int32)) for row in rows]
        indptr = np.cumsum([0, *map(len, rows)])
        values = random.normal(size=indptr[-1]).astype(np.float32)
        ids = torch.from_numpy(np.concatenate(rows).astype(np.int32))
        found.append(Csr(torch.from_numpy(indptr), ids, columns + 3, torch.from_numpy(values)))
    return found


def parts_of(csrs: list[Csr], granularity: str) -> list[Tensor | None]:
    parts = overlap.split_unchecked(csrs, granularity)
    return [
        None if array is None else array.cpu()
        for part in (parts.over, *parts.exclusive)
        for array in (part.indptr, part.indices, part.values)
    ]


@pytest.mark.parametrize("granularity", ["edge", "slice"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("case", ["alike", "apart", "some", "one empty", "shifted"])
def test_parts_of_long_rows_equal_the_cpus(native, monkeypatch, case, granularity, weighted):
    csrs = [
        Csr(c.indptr, c.indices, c.num_cols, c.values if weighted else None)
        for c in snapshots(case)
    ]
    right = parts_of(csrs, granularity)
    if native.device == "cpu":
        monkeypatch.setattr(overlap, "extension", lambda device: native.module)
        monkeypatch.setattr(overlap, "stream_of", lambda device: (0,))
    found = parts_of([c if native.device == "cpu" else moved(c) for c in csrs], granularity)
    for one, other in zip(found, right, strict=True):
        assert (one is None and other is None) or torch.equal(one, other)


def moved(csr: Csr) -> Csr:
    values = None if csr.values is None else csr.values.cuda()
    return Csr(csr.indptr.cuda(), csr.indices.cuda(), csr.num_cols, values)


def test_long_rows_are_cut_into_tiles_for_many_blocks(native, monkeypatch, log):
    monkeypatch.setattr(overlap, "extension", lambda device: native.module)
    monkeypatch.setattr(overlap, "stream_of", lambda device: (0,))
    overlap.split_unchecked(snapshots("some"))
    assert most_blocks(log) > 1
    log.clear()
    few = [Csr(c.indptr[3:5] - c.indptr[3], c.indices[-2:], 9003) for c in snapshots("some")]
    few = [Csr(c.indptr, torch.tensor([0, 7], dtype=torch.int32), 9003) for c in few]
    overlap.split_unchecked(few)
    assert most_blocks(log) == 1


# --- the product in the manner of GE-SpMM ---------------------------------------------------------


@pytest.mark.parametrize("features", [1, 40, 64, 130])
@pytest.mark.parametrize("lengths", [[512], [513], [0, 2000, 1, 0, 700, 1024, 3], [5000, 5000]])
def test_hubs_of_the_gespmm_baseline(native, features, lengths):
    random = np.random.default_rng(features)
    indptr = np.cumsum([0, *lengths])
    ids = random.integers(0, 50, indptr[-1]).astype(np.int32)
    values = random.normal(size=indptr[-1]).astype(np.float32)
    x = random.normal(size=(50, features)).astype(np.float32)
    rows = np.repeat(np.arange(len(lengths)), lengths)
    right = np.zeros((len(lengths), features))
    np.add.at(right, rows, values[:, None].astype(np.float64) * x[ids])
    tiles = -(-features // (32 if features < 64 else 64))
    warps = native.module.gespmm_warp_count(len(lengths), features, len(ids))
    parts = -(-len(ids) // 512) if len(ids) > 512 else 0
    assert warps == tiles * (len(lengths) + parts)
    for clocks in (None, native.put(torch.zeros(warps, 3, dtype=torch.int64))):
        y = native.poisoned(len(lengths), features)
        native.call("spmm_gespmm", *map(native.put, (indptr, ids, values, x)), y, clocks)
        found = y.double().cpu().numpy()
        assert np.linalg.norm(found - right) <= 1e-5 * max(1, np.linalg.norm(right))
    busy = clocks.cpu()
    busy = busy[busy[:, 1] > busy[:, 0]]
    assert len(busy) >= tiles * len(lengths)
    longest = max(lengths)
    assert len(busy) - tiles * len(lengths) >= tiles * (longest // 512 if longest > 512 else 0)
