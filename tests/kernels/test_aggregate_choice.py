"""Choice of how products over one snapshot are done, and products that are made again."""

from __future__ import annotations

import gc
import json
from dataclasses import replace

import pytest
import torch
from csr_cases import dense, hub_csr, random_csr

from dgbench.kernels_cuda.aggregate import again, choice, spmm
from dgbench.kernels_cuda.aggregate.choice import ProductVariant
from dgbench.kernels_cuda.csr import Csr
from dgbench.runtime.errors import InvalidInputError

pytestmark = pytest.mark.machines_arithmetic


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    """An empty cache folder, and no choice that outlives a test."""
    monkeypatch.setenv("DGBENCH_CACHE", str(tmp_path))
    monkeypatch.delenv(choice.SWITCH, raising=False)
    choice.forget()
    again.repeats.clear()
    yield tmp_path
    monkeypatch.undo()
    choice.forget()


def keep(table):
    path, owner = choice.kept_at(torch.get_num_threads())
    assert choice.write(path, owner, table)
    choice.forget()
    return path


def times(fastest, slow=2.0):
    """Seconds of a product: the nearer to the fastest variant, the fewer."""

    def seconds(variant, width):
        wanted = fastest(width)
        return slow - sum(0.3 for a, b in zip(variant, wanted, strict=True) if a == b)

    return seconds


def test_the_fastest_variant_of_every_width_is_found():
    fastest = {w: ProductVariant("avx2", w % 3 == 0, 32 if w > 16 else -1) for w in choice.WIDTHS}
    assert choice.measure(times(fastest.__getitem__), lambda: 0.0) == fastest


def test_a_kept_table_is_read_and_used_for_the_widths_below():
    mine = ProductVariant("avx2", False, 8)
    keep({6: mine, 32: ProductVariant("portable", True, 32)})
    assert choice.choose(1, 6) == choice.choose(1, 5) == mine
    assert choice.choose(1, 7) == ProductVariant("portable", True, 32)
    assert choice.choose(1, 33) == choice.model(1, 33)
    assert choice.choose(8, 6) == choice.model(8, 6)


@pytest.mark.parametrize(
    "spoil",
    [
        "", "[]", "{", {"cpu": "another"}, {"build": "another"}, {"threads": 4096},
        {"widths": {"2": ["avx1024", True, 8]}}, {"widths": {"2": ["avx2", True, 1 << 40]}},
        {"widths": {"2": ["avx2", True]}}, {"widths": {"two": ["avx2", True, 8]}},
    ],
)  # fmt: skip
def test_what_does_not_belong_here_is_passed_over(spoil):
    path = keep({2: ProductVariant("avx2", False, -1)})
    kept = json.loads(path.read_text())
    path.write_text(spoil if isinstance(spoil, str) else json.dumps(kept | spoil))
    choice.forget()
    assert choice.choose(1, 2) == choice.model(1, 2)


def test_who_chooses(monkeypatch):
    found = {2: ProductVariant("portable", False, -1)}
    monkeypatch.setattr(choice, "_measure_here", lambda threads: found)
    assert choice.choose(1, 2) == choice.model(1, 2)  # nothing is measured unasked
    monkeypatch.setenv(choice.SWITCH, "measured")
    choice.forget()
    assert choice.choose(1, 2) == found[2]
    found = {2: ProductVariant("avx2", True, -1)}
    monkeypatch.delenv(choice.SWITCH)
    choice.forget()
    assert choice.choose(1, 2) == ProductVariant("portable", False, -1)  # kept
    monkeypatch.setenv(choice.SWITCH, "model")
    choice.forget()
    assert choice.choose(1, 2) == choice.model(1, 2)
    monkeypatch.setenv(choice.SWITCH, "fastest")
    choice.forget()
    with pytest.raises(InvalidInputError, match=choice.SWITCH):
        choice.choose(1, 2)


@pytest.mark.parametrize("width", [1, 2, 3, 6, 12, 31, 33, 64, 80, 128, 150])
def test_every_variant_is_the_product(width):
    """Empty rows, a hub, duplicates; and the same bits for all orders and distances."""
    csr = hub_csr(width, 257, 40_000)
    x = torch.rand(257, width, generator=torch.Generator().manual_seed(width))
    expected = dense(csr) @ x.double()
    for registers in choice.REGISTERS:
        bits = []
        for ordered, ahead in [(False, -1), (True, -1), (False, 8), (True, 32)]:
            keep({width: ProductVariant(registers, ordered, ahead)})
            bits += [spmm(csr, x) for _ in range(2)]  # rows are put in order at the second product
        assert all(torch.equal(one, bits[0]) for one in bits)
        torch.testing.assert_close(bits[0].double(), expected, rtol=2e-5, atol=1e-5)


# --- Products that are made again -----------------------------------------------------------------


def matrix(columns: int = 40, seed: int = 1) -> Csr:
    return random_csr(seed, 40, columns, 0.19, weighted=True)


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
        {"indptr": csr.indptr.clone().clamp(max=200).index_fill_(0, torch.tensor([40]), csr.nnz)},
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
