"""The elementwise half of a time-aware LSTM, in one pass on the CPU and in torch's on a device.

With s = tanh(pre), i, f, z, o the gates and g the share of the short-term memory s that is left:
c' = f * (c - (1 - g) s) + i * z, h' = o * tanh(c') (DyGNN, SIGIR 2020, section 3.2).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dgbench.kernels_cuda._checks import FLOATS
from dgbench.kernels_cuda._dispatch import call
from dgbench.runtime.errors import InvalidInputError


def time_lstm_gates(c: Tensor, pre: Tensor, gates: Tensor, fade: Tensor) -> tuple[Tensor, Tensor]:
    """c' and h', each [n, H]; differentiable in all arguments.

    Args:
        c: floating [n, H], cells.
        pre: [n, H], before the tanh that makes the short-term memory.
        gates: [n, 4 H], before their activations: i, f, z, o.
        fade: [n], g in [0, 1].

    Raises:
        InvalidInputError: shapes, dtypes or devices that do not fit together.
    """
    rows, width = c.shape
    for name, x, shape in (
        ("c", c, (rows, width)),
        ("pre", pre, (rows, width)),
        ("gates", gates, (rows, 4 * width)),
        ("fade", fade, (rows,)),
    ):
        if tuple(x.shape) != shape or x.dtype != c.dtype or x.device != c.device:
            raise InvalidInputError(
                f"{name} is {x.dtype} {list(x.shape)} on {x.device}, expected {c.dtype} "
                f"{list(shape)} on {c.device}"
            )
    if c.dtype not in FLOATS:
        raise InvalidInputError(f"c is {c.dtype}, expected torch.float32 or torch.float64")
    if c.device.type != "cpu":
        return plain_gates(c, pre, gates, fade)
    both = _Gates.apply(c, pre, gates, fade)
    return both[0], both[1]


def plain_gates(c: Tensor, pre: Tensor, gates: Tensor, fade: Tensor) -> tuple[Tensor, Tensor]:
    """`time_lstm_gates` by torch, operation by operation."""
    width = c.shape[1]
    adjusted = c - torch.tanh(pre) * (1 - fade).unsqueeze(1)
    keep = torch.sigmoid(gates[:, : 2 * width])
    candidate = torch.tanh(gates[:, 2 * width : 3 * width])
    new = keep[:, width:] * adjusted + keep[:, :width] * candidate
    return new, torch.sigmoid(gates[:, 3 * width :]) * torch.tanh(new)


class _Gates(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, c: Tensor, pre: Tensor, gates: Tensor, fade: Tensor) -> Tensor:
        c, fade = c.contiguous(), fade.contiguous()
        out = c.new_empty(2, *c.shape)
        kept = c.new_empty(c.shape[0], 6 * c.shape[1])
        call("time_lstm", c.device, c, pre.contiguous(), gates.contiguous(), fade, out, kept)
        ctx.save_for_backward(c, fade, kept)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        c, fade, kept = ctx.saved_tensors
        d_pre, d_c = torch.empty_like(c), torch.empty_like(c)
        d_gates, d_fade = c.new_empty(c.shape[0], 4 * c.shape[1]), torch.empty_like(fade)
        call(
            "time_lstm_backward", c.device, c, fade, kept, grad.contiguous(), d_pre, d_gates,
            d_fade, d_c,
        )  # fmt: skip
        return d_c, d_pre, d_gates, d_fade
