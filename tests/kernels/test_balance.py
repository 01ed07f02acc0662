"""Balance of a kernel's load from clocks, and the transposed product from slices."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import torch
from csr_cases import csr_of, random_csr, snapshot_groups
from hypothesis import given
from hypothesis import strategies as st

from dgbench.kernels_cuda.overlap import PartTopology
from dgbench.kernels_cuda.slices import slice_csr
from dgbench.kernels_cuda.variants import (
    aggregate_parts_sliced,
    scatter_parts_sliced,
    scatter_sliced,
    slice_parts,
    spmm_gespmm,
    spmm_sliced,
    warp_clocks,
)
from dgbench.kernels_cuda.variants import op as variants
from dgbench.kernels_cuda.variants.balance import Balance, balance
from dgbench.runtime.errors import InvalidInputError, UnsupportedError
from dgbench.systems.pipad.wire import pack, unpack


def clocks(*warps: tuple[int, int, int]) -> torch.Tensor:
    return torch.tensor(warps, dtype=torch.int64).view(-1, 3)


def test_even_work_on_even_places_is_balanced():
    found = balance(clocks((0, 10, 0), (10, 20, 0), (0, 20, 0), (500, 510, 1), (510, 520, 1)))
    assert found == Balance(20.0, 20.0, 5, 3, 2)
    assert found.gap == 0


def test_one_long_warp_shows():
    found = balance(clocks(*[(0, 10, 0)] * 9, (0, 110, 0)))
    assert (found.actual, found.balanced, found.places) == (110, 20, 10)
    assert found.gap == pytest.approx(1 - 20 / 110)


def test_clocks_of_processors_are_not_mixed():
    shifted = balance(clocks((0, 10, 0), (1_000_000, 1_000_010, 7)))
    assert (shifted.actual, shifted.places, shifted.multiprocessors) == (10, 2, 2)


@given(
    st.lists(
        st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(0, 3)),
        min_size=1,
        max_size=40,
    )
)
def test_against_a_count_of_every_moment(warps):
    made = clocks(*[(begin, begin + length, where) for begin, length, where in warps])
    found = balance(made)
    spans, places = [], 0
    for where in {w[2] for w in warps}:
        own = [(b, b + n) for b, n, w in warps if w == where]
        spans.append(max(e for _, e in own) - min(b for b, _ in own))
        places += max(1, *(sum(b <= t < e for b, e in own) for t in range(101)))
    assert found.actual == max(spans)
    assert found.places == places
    assert found.balanced == pytest.approx(sum(n for _, n, _ in warps) / places)
    assert found.balanced <= found.actual + 1e-9
    assert 0 <= found.gap <= 1


def test_nothing_and_nonsense():
    assert balance(clocks()) == Balance(0.0, 0.0, 0, 0, 0)
    assert balance(clocks()).gap == 0
    with pytest.raises(InvalidInputError, match=r"expected \(warps, 3\)"):
        balance(torch.zeros(3, 2, dtype=torch.int64))
    with pytest.raises(InvalidInputError, match="warp 1 ends at 3, before 4"):
        balance(clocks((0, 1, 0), (4, 3, 0)))
    with pytest.raises(UnsupportedError, match="times a CUDA kernel"):
        warp_clocks(slice_csr(csr_of([[0]], 1)), torch.zeros(1, 2))


@given(
    seed=st.integers(0, 999),
    density=st.sampled_from([0.0, 0.1, 1.0]),
    d=st.sampled_from([1, 2, 6, 16, 31, 33, 64, 132]),
    cap=st.sampled_from([1, 8, 64]),
    weighted=st.booleans(),
    coalesce=st.booleans(),
    vector=st.booleans(),
)
def test_scatter_is_the_transposed_product(seed, density, d, cap, weighted, coalesce, vector):
    csr = random_csr(seed, 9, 70, density, weighted=weighted)
    x = torch.randn(9, d, generator=torch.Generator().manual_seed(seed))
    y = scatter_sliced(slice_csr(csr, cap), x, coalesce=coalesce, vector=vector)
    rows = torch.repeat_interleave(torch.arange(9), csr.indptr.diff())
    weights = torch.ones(csr.nnz) if csr.values is None else csr.values
    expected = torch.zeros(70, d, dtype=torch.float64)
    expected.index_add_(0, csr.indices.long(), x[rows].double() * weights[:, None].double())
    np.testing.assert_allclose(y.numpy(), expected.numpy(), rtol=1e-5, atol=1e-4)


@given(group=snapshot_groups(), width=st.sampled_from([1, 2, 16]), cap=st.sampled_from([8, 32]))
def test_parts_sliced_once_and_scattered(group, width, cap):
    parts = PartTopology.build(group)
    sliced = slice_parts(parts, cap)
    random = torch.Generator().manual_seed(1)
    x = torch.randn(parts.over.num_cols, len(group), width, generator=random)
    assert torch.equal(aggregate_parts_sliced(sliced, x), aggregate_parts_sliced(parts, x, cap=cap))
    grad = torch.randn(parts.over.num_rows, len(group), width, generator=random)
    # <A x, g> = <x, A^T g>
    left = (aggregate_parts_sliced(sliced, x).double() * grad.double()).sum()
    right = (x.double() * scatter_parts_sliced(sliced, grad).double()).sum()
    np.testing.assert_allclose(left.item(), right.item(), rtol=1e-4, atol=1e-3)


def test_the_floats_of_a_lane_can_be_said():
    csr = random_csr(3, 9, 70, 0.2)
    sliced, x = slice_csr(csr), torch.randn(70, 64)
    expected = spmm_sliced(sliced, x, vector=False)
    for vector in (1, 2, 4):
        np.testing.assert_allclose(
            spmm_sliced(sliced, x, vector=vector).numpy(), expected.numpy(), rtol=1e-5, atol=1e-5
        )
    with pytest.raises(InvalidInputError, match="vector is 3, allowed are"):
        spmm_sliced(sliced, x, vector=3)
    with pytest.raises(InvalidInputError, match="must divide the width"):
        spmm_sliced(sliced, x[:, :33], vector=2)
    with pytest.raises(InvalidInputError, match="4 slices per warp"):
        spmm_sliced(sliced, x[:, :8], vector=2)
    spmm_sliced(sliced, x[:, :8], vector=2, coalesce=False)


def test_refusals_of_the_parts_and_of_the_transpose():
    csr = csr_of([[0, 2], [1]], 3)
    with pytest.raises(InvalidInputError, match="cap is 0"):
        slice_parts(PartTopology.build([csr]), 0)
    with pytest.raises(InvalidInputError, match="x has 3 rows, expected 2"):
        scatter_sliced(slice_csr(csr), torch.zeros(3, 4))
    with pytest.raises(UnsupportedError, match="CUDA kernel"):
        spmm_gespmm(csr, torch.zeros(3, 4), csr)


def test_slices_that_came_over_the_link_are_taken_as_they_are(monkeypatch):
    draw = np.random.default_rng(2)
    plain = []
    for _ in range(3):
        rows = [sorted(set(draw.integers(0, 50, draw.integers(0, 40)).tolist())) for _ in range(50)]
        plain.append(csr_of(rows, 50))
    parts = PartTopology.build(plain)
    x = torch.randn(50, 3, 2, generator=torch.Generator().manual_seed(1))
    expected = aggregate_parts_sliced(parts, x, cap=8)
    wire = pack(parts, cap=8)
    arrived = unpack(wire.layout, wire.tensors)

    def refuse(*_):
        raise AssertionError("cut again")

    monkeypatch.setattr(variants, "slice_unchecked", refuse)
    for _ in range(2):
        assert torch.equal(aggregate_parts_sliced(arrived, x, cap=8), expected)
        assert torch.equal(aggregate_parts_sliced(parts, x, cap=8), expected)  # remembered, too
    with pytest.raises(AssertionError, match="cut again"):
        aggregate_parts_sliced(arrived, x, cap=16)
    columns = weakref.ref(arrived.over.indices)
    del arrived
    gc.collect()
    assert columns() is None
