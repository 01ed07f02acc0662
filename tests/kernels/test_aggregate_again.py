"""Products of spmm that are made again, beside products of copies that nothing is known of."""

from __future__ import annotations

import gc
from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dgbench.kernels_cuda.aggregate import again, choice, spmm
from dgbench.kernels_cuda.csr import Csr
from dgbench.runtime.errors import InvalidInputError

pytestmark = pytest.mark.machines_arithmetic


@pytest.fixture(autouse=True)
def empty():
    again.repeats.clear()


def matrix(rows: int = 40, columns: int = 40, entries: int = 300, seed: int = 1) -> Csr:
    draw = torch.Generator().manual_seed(seed)
    row = torch.randint(0, rows, (entries,), generator=draw).sort().values
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), row.bincount(minlength=rows).cumsum(0)])
    indices = torch.randint(0, columns, (entries,), generator=draw).int()
    return Csr(indptr, indices, columns, torch.rand(entries, generator=draw))


def features(columns: int = 40, width: int = 8, seed: int = 2) -> torch.Tensor:
    return torch.randn(columns, width, generator=torch.Generator().manual_seed(seed))


def anew(csr: Csr, x: torch.Tensor, **more) -> torch.Tensor:
    """The product of copies."""
    values = None if csr.values is None else csr.values.clone()
    return spmm(Csr(csr.indptr.clone(), csr.indices.clone(), csr.num_cols, values), x, **more)


def known(csr: Csr, x: torch.Tensor, **more) -> None:
    """Make a product until it is remembered: rows are sorted at the second one."""
    for _ in range(3):
        spmm(csr, x, **more)
    assert len(again.repeats) == 1


@pytest.mark.parametrize("width", [1, 2, 7, 12, 31, 32, 128])
@pytest.mark.parametrize("self_loop", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_repeat_is_the_product(width, self_loop, weighted) -> None:
    csr = matrix() if weighted else replace(matrix(), values=None)
    known(csr, features(width=width), self_loop=self_loop)
    x = features(width=width, seed=3)
    (repeat,) = again.repeats.values()
    found = repeat(csr, x, None, None)
    assert found is not None
    assert torch.allclose(found, anew(csr, x, self_loop=self_loop), atol=1e-5)
    assert torch.equal(spmm(csr, x, self_loop=self_loop), found)


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


@pytest.mark.parametrize("change", ["indptr", "values", "no values", "fewer columns"])
def test_other_arrays_beside_the_same_indices_are_another_matrix(change) -> None:
    csr, x = matrix(columns=50), features(50)
    known(csr, x)
    changed = {
        "indptr": replace(csr, indptr=csr.indptr.clone()),
        "values": replace(csr, values=3 * csr.values),
        "no values": replace(csr, values=None),
        "fewer columns": replace(csr, num_cols=49),
    }[change]
    if change == "fewer columns":
        with pytest.raises(InvalidInputError, match="column < 49"):
            spmm(changed, features(49))
        with pytest.raises(InvalidInputError):
            spmm(changed, x)
    else:
        assert torch.allclose(spmm(changed, x), anew(changed, x), atol=1e-5)


def test_features_of_other_kinds_go_the_long_way() -> None:
    csr, x = matrix(), features()
    known(csr, x)
    expected = spmm(csr, x)
    assert torch.equal(spmm(csr, x.t().contiguous().t()), expected)  # strided
    assert spmm(csr, x.double()).dtype == torch.float64
    assert torch.allclose(spmm(csr, x.double()), expected.double(), atol=1e-5)
    wanted = x.clone().requires_grad_()
    spmm(csr, wanted).sum().backward()
    assert wanted.grad is not None
    with torch.no_grad():
        assert torch.equal(spmm(csr, wanted), expected)
    with pytest.raises(InvalidInputError, match="float16"):
        spmm(csr, x.half())
    for wrong in (features(41), features(39)):
        with pytest.raises(InvalidInputError, match="rows"):
            spmm(csr, wrong)


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("columns", [False, True])
def test_scales_may_be_others_each_time(rows, columns) -> None:
    csr, x = matrix(columns=50), features(50)
    known(csr, x)
    (repeat,) = again.repeats.values()
    for seed in range(3):
        draw = torch.Generator().manual_seed(seed)
        row_scale = torch.rand(40, generator=draw) if rows else None
        col_scale = torch.rand(50, generator=draw) if columns else None
        found = repeat(csr, x, row_scale, col_scale)
        assert found is not None
        expected = anew(csr, x, row_scale=row_scale, col_scale=col_scale)
        assert torch.allclose(found, expected, atol=1e-5)
        assert torch.equal(spmm(csr, x, row_scale, col_scale), found)


@pytest.mark.parametrize("name", ["row_scale", "col_scale"])
def test_wrong_scales_are_refused_as_the_first_time(name) -> None:
    csr, x = matrix(), features()
    known(csr, x)
    right = torch.full((40,), 2.0)
    for wrong in (right[:-1], right.view(40, 1), right.double(), right.clone().requires_grad_()):
        with pytest.raises(InvalidInputError, match=name):
            spmm(csr, x, **{name: wrong})
    apart = torch.full((80,), 2.0)[::2]
    assert torch.allclose(spmm(csr, x, **{name: apart}), 2 * spmm(csr, x), atol=1e-5)


def test_symmetry_goes_the_long_way() -> None:
    csr, x = matrix(columns=50), features(50)
    known(csr, x)
    with pytest.raises(InvalidInputError, match="symmetric"):
        spmm(csr, x, symmetric=True)


def test_threads_and_another_choice_of_registers_are_heard_of() -> None:
    csr, x = matrix(), features()
    known(csr, x)
    (repeat,) = again.repeats.values()
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


def test_a_mode_that_watches_operators_sees_repeats() -> None:
    class Watch(TorchDispatchMode):
        seen = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.seen += "dgbench" in str(func)
            return func(*args, **(kwargs or {}))

    csr, x = matrix(), features()
    known(csr, x)
    with Watch() as watch:
        spmm(csr, x)
    assert watch.seen == 1


@pytest.mark.parametrize("width", [8, 40])  # rows by length, which are copies, and the arrays' own
def test_repeats_are_forgotten_with_their_indices(width) -> None:
    csr, x = matrix(), features(width=width)
    known(csr, x)
    other = matrix(seed=5)
    del csr
    gc.collect()
    assert not again.repeats
    assert torch.allclose(spmm(other, x), anew(other, x), atol=1e-5)
