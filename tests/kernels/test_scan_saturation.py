"""Gates far outside of their range: they saturate and never become NaN."""

from __future__ import annotations

import pytest
import torch

from dgbench.kernels_cuda.scan import gru_scan, lstm_scan

HIDDEN = 16


def gates(values: torch.Tensor, count: int) -> tuple[torch.Tensor, ...]:
    """x [1, N, 1] and weights that hand each value to every gate."""
    w_in = torch.ones(1, count * HIDDEN)
    w_hid = torch.zeros(HIDDEN, count * HIDDEN)
    return values.view(1, -1, 1), w_in, w_hid, torch.zeros(count * HIDDEN)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_no_gate_is_nan_where_its_exponential_overflows(sign):
    """Around 88.4 e^x leaves float32; the grid is finer than the rounding of its exponent."""
    values = sign * torch.cat([torch.linspace(80, 95, 3001), torch.tensor([1e3, 1e10, 3e38])])
    x, *weights = gates(values, 3)
    found = gru_scan(x, *weights, all_steps=True)[0][0]
    expected = (1 - torch.sigmoid(values)) * torch.tanh(values)
    torch.testing.assert_close(found, expected[:, None].expand_as(found), rtol=1e-6, atol=1e-7)
    x, *weights = gates(values, 4)
    found = lstm_scan(x, *weights, all_steps=True)[0][0]
    gate = torch.sigmoid(values)
    expected = gate * torch.tanh(gate * torch.tanh(values))
    torch.testing.assert_close(found, expected[:, None].expand_as(found), rtol=1e-6, atol=1e-7)
