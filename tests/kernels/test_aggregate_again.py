"""Products of spmm that are made again, beside products of copies that nothing is known of."""

from __future__ import annotations

import gc
from dataclasses import replace

import pytest
import torch
from kernel_checks import refuses

from dgbench.kernels_cuda.aggregate import again, choice, spmm
from dgbench.kernels_cuda.csr import Csr
from dgbench.runtime.errors import InvalidInputError

pytestmark = pytest.mark.machines_arithmetic


@pytest.fixture(autouse=True)
def empty():
    again.repeats.clear()


def matrix(columns: int = 40, seed: int = 1) -> Csr:
    draw = torch.Generator().manual_seed(seed)
    row = torch.randint(0, 40, (300,), generator=draw).sort().values
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), row.bincount(minlength=40).cumsum(0)])
    indices = torch.randint(0, columns, (300,), generator=draw).int()
    return Csr(indptr, indices, columns, torch.rand(300, generator=draw))


def features(columns: int = 40, width: int = 8, seed: int = 2) -> torch.Tensor:
    return torch.randn(columns, width, generator=torch.Generator().manual_seed(seed))


def anew(csr: Csr, x: torch.Tensor, **more) -> torch.Tensor:
    """The product of copies."""
    values = None if csr.values is None else csr.values.clone()
    return spmm(Csr(csr.indptr.clone(), csr.indices.clone(), csr.num_cols, values), x, **more)


def known(csr: Csr, x: torch.Tensor, **more):
    """Make a product until it is remembered: rows are sorted at the second one."""
    for _ in range(3):
        spmm(csr, x, **more)
    (repeat,) = again.repeats.values()
    return repeat


@pytest.mark.parametrize("width", [1, 2, 7, 31, 32, 128])
@pytest.mark.parametrize("self_loop", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_repeat_is_the_product(width, self_loop, weighted) -> None:
    csr = matrix() if weighted else replace(matrix(), values=None)
    repeat = known(csr, features(width=width), self_loop=self_loop)
    x, scale = features(width=width, seed=3), torch.linspace(-1, 1, 40)
    for rows, columns in ((None, None), (scale, None), (None, scale), (scale, 2 * scale)):
        result = repeat(csr, x, rows, columns)
        expected = anew(csr, x, row_scale=rows, col_scale=columns, self_loop=self_loop)
        assert torch.allclose(result, expected, atol=1e-5)
        assert torch.equal(spmm(csr, x, rows, columns, self_loop), result)


@pytest.mark.parametrize("width", [8, 40])
@pytest.mark.parametrize("array", ["indptr", "indices", "values"])
def test_arrays_that_were_written_to_are_looked_at_anew(width, array) -> None:
    csr, x = matrix(), features(width=width)
    known(csr, x)
    if array == "indptr":
        csr.indptr[1:-1] = csr.indptr[1:-1].clone().clamp(max=int(csr.indptr[20]))
    elif array == "indices":
        csr.indices.copy_(39 - csr.indices)
    else:
        csr.values.mul_(2)
    assert torch.allclose(spmm(csr, x), anew(csr, x), atol=1e-5)


def test_other_arrays_beside_the_same_indices_are_another_matrix() -> None:
    csr, x = matrix(50), features(50)
    known(csr, x)
    for change in (
        {"indptr": csr.indptr.clone().clamp(max=200).index_fill_(0, torch.tensor([40]), 300)},
        {"values": 3 * csr.values},
        {"values": None},
    ):
        changed = replace(csr, **change)
        assert torch.allclose(spmm(changed, x), anew(changed, x), atol=1e-5)
    with pytest.raises(InvalidInputError, match="column"):
        spmm(replace(csr, num_cols=49), features(49))
    with pytest.raises(InvalidInputError, match="symmetric"):
        spmm(csr, x, symmetric=True)


def test_features_and_scales_of_other_kinds_go_the_long_way() -> None:
    csr, x = matrix(), features()
    known(csr, x)
    expected = spmm(csr, x)
    assert torch.equal(spmm(csr, x.t().contiguous().t()), expected)  # strided
    assert spmm(csr, x.double()).dtype == torch.float64
    leaf = x.clone().requires_grad_()
    spmm(csr, leaf).sum().backward()
    assert leaf.grad is not None
    with torch.no_grad():
        assert torch.equal(spmm(csr, leaf), expected)
    apart, right = torch.full((80,), 2.0)[::2], torch.full((40,), 2.0)
    assert torch.allclose(spmm(csr, x, apart), 2 * expected, atol=1e-5)
    wrong = right[:-1], right.view(40, 1), right.double(), right.clone().requires_grad_()
    refuses(
        lambda **given: spmm(csr, **given), {"x": x},
        *((name, scale) for name in ("row_scale", "col_scale") for scale in wrong),
        *(("x", other) for other in (x.half(), features(41), features(39))),
    )  # fmt: skip


def test_threads_and_another_choice_of_registers_are_heard_of() -> None:
    csr, x = matrix(), features()
    repeat = known(csr, x)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(threads + 1)
        assert repeat(csr, x, None, None) is None
    finally:
        torch.set_num_threads(threads)
    assert repeat(csr, x, None, None) is not None
    choice.forget()
    assert repeat(csr, x, None, None) is None
    assert torch.allclose(spmm(csr, x), anew(csr, x), atol=1e-5)


@pytest.mark.parametrize("width", [8, 40])  # rows by length, which are copies, and the arrays' own
def test_repeats_are_forgotten_with_their_indices(width) -> None:
    csr, x = matrix(), features(width=width)
    known(csr, x)
    other = matrix(seed=5)
    del csr
    gc.collect()
    assert not again.repeats
    assert torch.allclose(spmm(other, x), anew(other, x), atol=1e-5)
