"""Sliced CSR, Algorithm 1 of PiPAD over it, and the balance of its work, against plain loops.

Lane by lane the host plays the functors that the device kernel calls
(variants/slice_coalescing.hpp).
"""

from __future__ import annotations

import pytest
import torch
from csr_cases import csr_of, dense, random_csr, snapshot_groups
from device_cases import near, to_device
from device_fixtures import ONE_PLACE, Native
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from kernel_checks import close, refuses
from torch import Tensor

from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.overlap import PartTopology
from dgbench.kernels_cuda.slices import SlicedCsr, csr_words, op, slice_count, slice_csr
from dgbench.kernels_cuda.variants import (
    aggregate_parts_sliced,
    scatter_parts_sliced,
    scatter_sliced,
    slice_parts,
    spmm_gespmm,
    spmm_sliced,
    warp_clocks,
)
from dgbench.kernels_cuda.variants import op as products
from dgbench.kernels_cuda.variants.balance import Balance, balance
from dgbench.kernels_cuda.variants.memory_model import thread_groups
from dgbench.kernels_cuda.variants.work_items import ItemTimes, time_items
from dgbench.runtime.errors import InvalidInputError, UnsupportedError


def cut(csr: Csr, cap: int) -> tuple[list[int], list[int]]:
    rows, offsets = [], []
    for row in range(csr.num_rows):
        for begin in range(int(csr.indptr[row]), int(csr.indptr[row + 1]), cap):
            rows.append(row)
            offsets.append(begin)
    return rows, [*offsets, csr.nnz]


def features(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def place(anywhere, monkeypatch) -> Native:
    native = anywhere(op, products, aggregate_sliced=lambda *given: (*given, None))
    if not native.own:
        monkeypatch.setattr(products, "launches", lambda device: True)
    return native


@settings(max_examples=40, deadline=None, suppress_health_check=ONE_PLACE)
@given(
    seed=st.integers(0, 999), rows=st.integers(0, 12) | st.just(300), cols=st.integers(1, 150),
    density=st.sampled_from([0.0, 0.02, 0.3, 1.0]),
    cap=st.sampled_from([1, 2, 7, 8, 16, 32, 64, 1000]), weighted=st.booleans(),
)  # fmt: skip
def test_slices_equal_the_loop_and_share_columns(place, seed, rows, cols, density, cap, weighted):
    csr = random_csr(seed, rows, cols, density, weighted=weighted)
    sliced = slice_csr(to_device(csr, place.device), cap)
    assert (sliced.row_indices.tolist(), sliced.slice_offsets.tolist()) == cut(csr, cap)
    assert (sliced.row_indices.dtype, sliced.slice_offsets.dtype) == (torch.int32, torch.int64)
    if not place.own:
        return
    assert sliced.num_slices == slice_count(csr, cap)
    assert sliced.words() == 2 * csr.nnz + 2 * sliced.num_slices + 1
    assert csr_words(csr, with_values=False) == csr.nnz + rows + 1
    assert sliced.indices is csr.indices
    assert sliced.values is csr.values


def test_wrong_matrices_and_caps_are_named():
    indptr, indices = torch.tensor([0, 2, 3]), torch.tensor([0, 1, 1], dtype=torch.int32)
    refuses(
        lambda indptr, indices, values, cap: slice_csr(Csr(indptr, indices, 2, values), cap),
        {"indptr": indptr, "indices": indices, "values": None, "cap": 32},
        ("cap", 0), ("indices|column", indices + 1), ("indices|column", indices - 1),
        ("indptr", torch.tensor([0, 5, 3])), ("indptr", torch.tensor([0, 1, 2])),
        ("indices", indices.long()), ("indices", torch.arange(6, dtype=torch.int32)[::2]),
        ("values", torch.ones(1)), ("indptr", indptr[:0]),
    )  # fmt: skip


@settings(max_examples=50, deadline=None, suppress_health_check=ONE_PLACE)
@given(
    seed=st.integers(0, 999), density=st.sampled_from([0.0, 0.05, 0.4, 1.0]),
    d=st.sampled_from([1, 2, 3, 4, 6, 8, 9, 12, 16, 24, 31, 32, 33, 48, 64, 66, 100, 128, 132]),
    cap=st.sampled_from([1, 8, 16, 32, 64]), weighted=st.booleans(), coalesce=st.booleans(),
    vector=st.sampled_from([False, True, 2, 4]), lanes=st.booleans(),
)  # fmt: skip
def test_products_equal_dense_ones(place, seed, density, d, cap, weighted, coalesce, vector, lanes):
    """x and the sums are columns of wider matrices, in place, as an exclusive part's are."""
    assume(vector < 2 or (d % vector == 0 and thread_groups(d, coalesce) == 1))
    csr = random_csr(seed, 7, 90, density, weighted=weighted)
    sliced, matrix = slice_csr(to_device(csr, place.device), cap), dense(csr)
    block = slice(d, 2 * d)
    for product, a in ((spmm_sliced, matrix), (scatter_sliced, matrix.T)):
        x, out = features(seed, a.shape[1], 3 * d), place.put(torch.ones(len(a), 3 * d))
        product(
            sliced, place.put(x)[:, block], out=out[:, block], coalesce=coalesce, vector=vector,
            lanes=lanes and place.own,
        )  # fmt: skip
        expected = torch.ones(len(a), 3 * d, dtype=torch.float64)
        expected[:, block] += a @ x[:, block].double()
        close([out.cpu()], [expected], 2e-6)


@settings(max_examples=50, deadline=None, suppress_health_check=ONE_PLACE)
@given(
    group=snapshot_groups(), width=st.sampled_from([1, 2, 6, 16, 33]), cap=st.sampled_from([8, 32]),
)  # fmt: skip
def test_a_partition_equals_its_snapshots_one_by_one(place, group, width, cap):
    """An entry of the overlap has a weight in each snapshot."""
    made = PartTopology.build(group)
    over, *exclusive = (to_device(csr, place.device) for csr in (made.over, *made.exclusive))
    parts = PartTopology(over, exclusive)
    count, rows, columns = len(group), group[0].num_rows, group[0].num_cols
    x, back = features(1, columns, count, width), features(2, rows, count, width)
    begin, matrices = features(3, rows, count, width), [dense(csr) for csr in group]
    there, out = place.put(x), place.put(begin.clone())
    found = [
        aggregate_parts_sliced(parts, there, cap=cap),
        aggregate_parts_sliced(slice_parts(parts, cap), there),
        aggregate_parts_sliced(parts, there, out=out, cap=cap),
        scatter_parts_sliced(slice_parts(parts, cap), place.put(back)),
    ]
    expected = torch.stack([m @ x[:, i].double() for i, m in enumerate(matrices)], 1)
    turned = torch.stack([m.T @ back[:, i].double() for i, m in enumerate(matrices)], 1)
    right = [expected, expected, begin + expected, turned]
    close([one.cpu() for one in found], right, 2e-6)


def test_wrong_features_and_lanes_are_named():
    csr, x = csr_of([[0, 2], [1]], 3), torch.zeros(3, 4)
    refuses(
        lambda **given: spmm_sliced(slice_csr(csr), **given), {"x": x}, ("x", x[:2]),
        ("x", x.double()), ("x|stride", torch.zeros(4, 3).T), ("out", torch.zeros(2, 5)),
        ("vector", 3),
    )  # fmt: skip
    wide, sliced = features(1, 3, 64), slice_csr(csr)
    for columns in (33, 8):  # not a multiple of the lane's floats; several slices in a warp
        with pytest.raises(InvalidInputError):
            spmm_sliced(sliced, wide[:, :columns], vector=2)
    weighted = slice_csr(Csr(csr.indptr, csr.indices, 3, torch.ones(3, 2)))
    parts = PartTopology.build([csr])
    for call in (
        lambda: spmm_sliced(weighted, torch.zeros(3, 3)), lambda: slice_parts(parts, 0),
        lambda: aggregate_parts_sliced(parts, x[:, None], out=torch.zeros(2, 1, 3)),
        lambda: scatter_sliced(sliced, x), lambda: spmm_gespmm(csr, x),
        lambda: warp_clocks(sliced, x),
    ):  # fmt: skip
        with pytest.raises((InvalidInputError, UnsupportedError)):
            call()


# --- Balance -------------------------------------------------------------------------------------


TURNS = st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(0, 3))


@given(st.lists(TURNS, min_size=1, max_size=40))
def test_balance_against_a_count_of_every_moment(warps):
    clocks = [(begin + 10**6 * where, begin + length, where) for begin, length, where in warps]
    clocks = [(begin, end + 10**6 * where, where) for begin, end, where in clocks]
    result = balance(torch.tensor(clocks))  # clocks of processors are apart
    spans, places = [], 0
    for where in {w[2] for w in warps}:
        own = [(b, b + n) for b, n, w in warps if w == where]
        spans.append(max(e for _, e in own) - min(b for b, _ in own))
        places += max(1, *(sum(b <= t < e for b, e in own) for t in range(101)))
    balanced = sum(n for _, n, _ in warps) / places
    assert (result.actual, result.places) == (max(spans), places)
    assert result.balanced == pytest.approx(balanced)
    assert result.gap == pytest.approx(1 - balanced / max(spans) if max(spans) else 0)
    assert balance(torch.zeros(0, 3, dtype=torch.int64)) == Balance(0.0, 0.0, 0, 0, 0)
    for clocks in (torch.zeros(3, 2, dtype=torch.int64), torch.tensor([[0, 1, 0], [4, 3, 0]])):
        with pytest.raises(InvalidInputError):
            balance(clocks)


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 99), rows=st.integers(1, 30), density=st.sampled_from([0.0, 0.1, 0.9]),
    d=st.integers(1, 9), cap=st.sampled_from([1, 3, 32]),
)  # fmt: skip
def test_work_items_add_up_to_the_product(seed, rows, density, d, cap) -> None:
    csr = random_csr(seed, rows, 70, density)
    x, sliced = features(seed, 70, d), slice_csr(csr, cap)
    for matrix, items in ((csr, rows), (sliced, sliced.num_slices)):
        times = time_items(matrix, x, repeats=2)
        close([times.y], [dense(csr) @ x.double()], 2e-6)
        assert times.seconds.shape == times.entries.shape == (items,)
        assert int(times.entries.sum()) == csr.nnz
        assert bool(((times.seconds >= 0) & times.seconds.isfinite()).all())


@settings(deadline=None, max_examples=25)
@given(seconds=st.lists(st.integers(0, 50).map(float), max_size=40), workers=st.integers(1, 9))
def test_items_go_to_whoever_is_free_first(seconds, workers) -> None:
    entries = torch.tensor([i % 3 for i in range(len(seconds))], dtype=torch.int64)
    times = ItemTimes(torch.tensor(seconds, dtype=torch.float64), entries, torch.empty(0))
    busy = [0.0] * workers
    for taken in seconds:  # items without entries take time and are no work
        busy[busy.index(min(busy))] += taken
    assert times.actual(workers) == max(busy)
    work = sum(taken for taken, count in zip(seconds, entries.tolist(), strict=True) if count)
    assert times.balanced(workers) == pytest.approx(work / workers)


def test_wrong_work_items_are_named() -> None:
    csr, x = random_csr(1, 4, 6, 0.5), torch.ones(6, 2)
    far, sliced = Csr(csr.indptr, csr.indices + 6, 6), slice_csr(csr, 2)
    wild = SlicedCsr(sliced.row_indices - 9, sliced.slice_offsets, sliced.indices, None, 2, 4, 6)
    for matrix in (far, wild):  # ids out of range never reach the loop
        with pytest.raises(ValueError):
            time_items(matrix, x)
    with pytest.raises(ValueError, match="workers"):
        time_items(csr, x).actual(0)
    refuses(
        lambda **given: time_items(csr, **given), {"x": x, "repeats": 1}, ("repeats", 0),
        ("x", torch.ones(5, 2)), ("x", x.double()),
    )  # fmt: skip


@pytest.mark.parametrize("shift", [0, 1, 2])
@pytest.mark.parametrize("pitch", [128, 129, 130, 132])
def test_an_address_or_a_pitch_that_is_not_aligned_gets_fewer_floats(place, shift, pitch):
    """The emulated runtime aborts at a vector load from an address that is no multiple of it."""
    csr, width, rows, columns = random_csr(shift, 12, 100, 0.3, weighted=True), 128, 12, 100
    sliced, matrix = slice_csr(to_device(csr, place.device)), dense(csr)
    x, up = features(pitch, columns, pitch), features(1, rows, width)

    def odd(values: Tensor) -> Tensor:
        room = torch.zeros(columns * pitch + 4, device=place.device)
        assert room.data_ptr() % 16 == 0
        room = room[shift : shift + columns * pitch].view(columns, pitch)
        return room.copy_(values)

    for vector in (1, 2, 4):
        y = spmm_sliced(sliced, odd(place.put(x))[:, :width], vector=vector)
        near(y, matrix @ x[:, :width].double())
        out = odd(torch.zeros(columns, pitch))
        scatter_sliced(sliced, place.put(up), out=out[:, :width], vector=vector)
        near(out[:, :width], matrix.T @ up.double())
        assert (out[:, width:] == 0).all()


@pytest.mark.parametrize(("width", "vector"), [(2, 1), (6, 1), (16, 1), (64, 2), (300, 4)])
def test_the_clocks_of_the_sliced_kernel(native, emulate, width, vector):
    emulate(processors=3)
    csr, groups = random_csr(5, 12, 100, 0.3, weighted=True), thread_groups(width)
    sliced, x = slice_csr(csr, 8), features(1, 100, width)
    lists = sliced.row_indices, sliced.slice_offsets, sliced.indices, sliced.values
    arrays, y = [native.put(one) for one in lists], torch.zeros(12, width, device=native.device)
    call = (*arrays, native.put(x), y, groups, vector)
    warps = native.module.sliced_warp_count(*call)
    tiles = 1 if groups > 1 else -(-width // (32 * vector))
    assert warps == -(-arrays[0].numel() // groups) * tiles
    clocks = native.put(torch.full((warps, 3), -1), torch.int64)
    native.call("aggregate_sliced", *call, clocks)
    near(y, dense(csr) @ x.double())
    found = balance(clocks.cpu())
    assert found.warps == warps
    assert 0 < found.balanced <= found.actual
    if native.device == "cpu":
        assert found.multiprocessors == min(3, -(-(warps // tiles) // 8))
    with pytest.raises(ValueError, match="clocks"):
        native.call("aggregate_sliced", *call, clocks[1:])
