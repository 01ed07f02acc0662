"""Work items add up to the product, and are handed out as a plain simulation says."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.slices import SlicedCsr, slice_csr
from dgbench.kernels_cuda.variants.work_items import ItemTimes, time_items
from dgbench.runtime.errors import InvalidInputError


def dense_and_csr(rows: int, cols: int, share: float, seed: int) -> tuple[torch.Tensor, Csr]:
    draw = torch.Generator().manual_seed(seed)
    dense = (torch.rand(rows, cols, generator=draw) < share).float()
    indptr = torch.zeros(rows + 1, dtype=torch.int64)
    indptr[1:] = dense.sum(1).long().cumsum(0)
    return dense, Csr(indptr, dense.nonzero()[:, 1].to(torch.int32), cols)


@settings(deadline=None, max_examples=40)
@given(
    rows=st.integers(1, 30),
    cols=st.integers(1, 70),
    share=st.sampled_from([0.0, 0.1, 0.9]),
    d=st.integers(1, 9),
    cap=st.sampled_from([1, 3, 32]),
    seed=st.integers(0, 99),
)
def test_items_give_the_product(rows, cols, share, d, cap, seed) -> None:
    dense, csr = dense_and_csr(rows, cols, share, seed)
    x = torch.randn(cols, d, generator=torch.Generator().manual_seed(seed))
    sliced = slice_csr(csr, cap)
    for matrix, items in ((csr, rows), (sliced, sliced.num_slices)):
        found = time_items(matrix, x, repeats=2)
        assert torch.allclose(found.y, dense @ x, atol=1e-4)
        assert found.seconds.shape == found.entries.shape == (items,)
        assert int(found.entries.sum()) == csr.nnz
        assert bool((found.seconds >= 0).all())
        assert bool(found.seconds.isfinite().all())


def made(seconds: list[float], entries: list[int] | None = None) -> ItemTimes:
    count = torch.ones(len(seconds), dtype=torch.int64)
    if entries is not None:
        count = torch.tensor(entries)
    return ItemTimes(torch.tensor(seconds, dtype=torch.float64), count, torch.empty(0))


def simulated(seconds: list[float], workers: int) -> float:
    busy = [0.0] * workers
    for taken in seconds:
        busy[busy.index(min(busy))] += taken
    return max(busy)


@settings(deadline=None, max_examples=60)
@given(
    seconds=st.lists(st.integers(0, 50).map(float), max_size=40),
    workers=st.integers(1, 9),
)
def test_items_go_to_whoever_is_free_first(seconds, workers) -> None:
    times = made(seconds)
    assert times.actual(workers) == simulated(seconds, workers)
    assert times.balanced(workers) == pytest.approx(sum(seconds) / workers)
    assert times.balanced(workers) <= times.actual(workers) + 1e-9


def test_empty_items_take_time_and_are_no_work() -> None:
    times = made([2.0, 1.0, 1.0, 4.0], entries=[5, 0, 0, 7])
    assert times.balanced(2) == 3.0
    assert times.actual(2) == 6.0


def test_one_long_item_holds_everybody_up() -> None:
    times = made([1.0, 1.0, 30.0, 1.0, 1.0])
    assert times.actual(4) == 30.0
    assert times.balanced(4) == 8.5


def test_malformed_arguments_are_named() -> None:
    _, csr = dense_and_csr(4, 6, 0.5, 1)
    x = torch.ones(6, 2)
    with pytest.raises(ValueError, match="workers is 0"):
        time_items(csr, x).actual(0)
    with pytest.raises(InvalidInputError, match="repeats is 0"):
        time_items(csr, x, repeats=0)
    with pytest.raises(InvalidInputError, match="x has 5 rows, expected 6"):
        time_items(csr, torch.ones(5, 2))
    with pytest.raises(InvalidInputError, match="float32"):
        time_items(csr, x.double())


def test_ids_out_of_range_never_reach_the_loop() -> None:
    _, csr = dense_and_csr(4, 6, 0.5, 1)
    x = torch.ones(6, 2)
    far = Csr(csr.indptr, csr.indices + 6, 6)
    with pytest.raises(ValueError, match="indices"):
        time_items(far, x)
    cut = slice_csr(csr, 2)
    wild = SlicedCsr(cut.row_indices - 9, cut.slice_offsets, cut.indices, None, 2, 4, 6)
    with pytest.raises(ValueError, match="targets"):
        time_items(wild, x)
