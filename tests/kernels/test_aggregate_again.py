"""Products of spmm that are made again, beside products of copies that nothing is known of."""

from __future__ import annotations

import gc
from dataclasses import replace

import pytest
import torch

from dgbench.kernels_cuda.aggregate import again, spmm
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


@pytest.mark.parametrize("width", [8, 40])  # rows by length, which are copies, and the arrays' own
def test_repeats_are_forgotten_with_their_indices(width) -> None:
    csr, x = matrix(), features(width=width)
    known(csr, x)
    other = matrix(seed=5)
    del csr
    gc.collect()
    assert not again.repeats
    assert torch.allclose(spmm(other, x), anew(other, x), atol=1e-5)
