"""Float32 where a result could hang on order or rounding: the lines of docs/trust.md, "Float32 at
large arguments", that no test of an operator holds."""

from __future__ import annotations

import pytest
import torch

from dgbench.datasets.transforms.normalise import factors
from dgbench.kernels_cuda import edge_sampling, weighted
from dgbench.kernels_cuda.csr import Csr
from dgbench.models.dtdg.mpnn_lstm import FrameNorm
from dgbench.runtime.errors import InvalidInputError

U = 2.0**-24  # a rounding of float32


@pytest.mark.parametrize("norm", ["sym", "mean"])
def test_factors_of_a_degree_are_rounded_once(norm) -> None:
    degrees = torch.tensor([1.0, 3.0, 1e3, 16777217.0, 1e9], dtype=torch.float64)
    loops = torch.arange(5, dtype=torch.int32)
    csr = Csr(torch.arange(6), (loops + 1) % 5, 5, degrees.float() - 1)
    scale, _ = factors(csr, norm)
    exact = (csr.values.double() + 1) ** (-0.5 if norm == "sym" else -1.0)
    assert ((scale.double() - exact) / exact).abs().max() <= U


def test_the_norm_of_nearly_constant_columns_keeps_its_digits() -> None:
    rows, draws = 200_000, torch.Generator().manual_seed(1)
    x = 1 + 1e-3 * torch.randn(1, rows, 3, generator=draws)
    x.requires_grad_(True)
    ahead = torch.randn(1, rows, 3, generator=draws)
    norm = FrameNorm(3)
    out = norm(x)
    (grad,) = torch.autograd.grad(out, x, ahead)
    y = x.detach().double().requires_grad_(True)
    exact = (y - y.mean(1)) / (y.var(1, correction=0) + 1e-5).sqrt()
    (wanted,) = torch.autograd.grad(exact, y, ahead.double())
    torch.testing.assert_close(out.double(), exact, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(
        grad.double(), wanted, rtol=1e-6, atol=1e-6 * float(wanted.abs().max())
    )


@pytest.mark.parametrize("weight", [2.0**-61, 2.0**61])
def test_keys_beyond_their_range_are_refused(weight) -> None:
    src = torch.tensor([0, 1, 2])
    table = edge_sampling.EdgeTable.build(src, src.flip(0), src.double(), 3)
    weights = torch.tensor([1.0, weight, 1.0], dtype=torch.float64)
    with pytest.raises(InvalidInputError, match="weights"):
        edge_sampling.sample_nodewise(table, src, [1], weights=weights, method="keys")


def test_keys_draw_at_both_ends_of_their_range() -> None:
    weights = torch.tensor([2.0**60, 2.0**-60, 2.0**60], dtype=torch.float64)
    drawn = weighted.draw_many(weights, 2, 50, method="keys", seed=1)
    assert set(drawn.flatten().tolist()) == {0, 2}
