"""The elementwise half of the time-aware LSTM against torch's, and its gradients."""

from __future__ import annotations

import pytest
import torch

from dgbench.kernels_cuda.scan import plain_gates, time_lstm_gates
from dgbench.runtime.errors import InvalidInputError


def arguments(rows: int, width: int, dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(rows + width)
    c, pre = (torch.randn(rows, width, generator=draw, dtype=torch.float64) for _ in range(2))
    gates = 2 * torch.randn(rows, 4 * width, generator=draw, dtype=torch.float64)
    fade = torch.rand(rows, generator=draw, dtype=torch.float64)
    return [x.to(dtype) for x in (c, pre, gates, fade)]


@pytest.mark.parametrize("rows", [0, 1, 300])
@pytest.mark.parametrize("width", [1, 5, 16, 64, 70])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_same_as_operation_by_operation(rows, width, dtype):
    given = [x.requires_grad_() for x in arguments(rows, width, dtype)]
    weight = torch.linspace(-1, 1, 2 * rows * width, dtype=dtype).view(2, rows, width)
    found, want = [], []
    for call, into in ((time_lstm_gates, found), (plain_gates, want)):
        out = torch.stack(call(*given))
        into += [out, *torch.autograd.grad((out * weight).sum(), given)]
    for a, b in zip(found, want, strict=True):
        torch.testing.assert_close(a, b)


def test_gradients():
    given = [x.requires_grad_() for x in arguments(3, 5)]
    assert torch.autograd.gradcheck(time_lstm_gates, given)
    given[0].requires_grad_(False)
    assert torch.autograd.gradcheck(lambda *rest: time_lstm_gates(given[0], *rest), given[1:])


def test_the_same_for_any_number_of_threads():
    given, threads = arguments(500, 64, torch.float32), torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        want = time_lstm_gates(*given)
        torch.set_num_threads(3)
        found = time_lstm_gates(*given)
    finally:
        torch.set_num_threads(threads)
    for a, b in zip(found, want, strict=True):
        assert torch.equal(a, b)


def test_shapes_that_do_not_fit():
    c, pre, gates, fade = arguments(3, 5)
    with pytest.raises(InvalidInputError, match="gates is"):
        time_lstm_gates(c, pre, gates[:, :5], fade)
    with pytest.raises(InvalidInputError, match="fade is"):
        time_lstm_gates(c, pre, gates, fade.float())
