"""Choice of how products over one snapshot are done: measured, kept, read, forced."""

from __future__ import annotations

import json

import pytest
import torch
from csr_cases import dense, hub_csr

from dgbench.kernels_cuda.aggregate import choice, spmm
from dgbench.kernels_cuda.aggregate.choice import ProductVariant
from dgbench.runtime.errors import InvalidInputError


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    """An empty cache folder, and no choice that outlives a test."""
    monkeypatch.setenv("DGBENCH_CACHE", str(tmp_path))
    monkeypatch.delenv(choice.SWITCH, raising=False)
    choice.forget()
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
