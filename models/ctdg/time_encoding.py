"""Time as a vector (TGAT, Xu et al. 2020, section 3.1)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dgbench.kernels_cuda.time_encoding import encode_ages, serves_ages


class TimeEncoding(nn.Module):
    """phi(dt) = cos(w dt + b), w and b trained; w begins as powers from 1 to 1e-9.

    Ages are in the stream's unit of time. In seconds these frequencies tell differences of one
    second to decades apart; in another unit the network learns others.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim
        self.weight = nn.Parameter((10.0 ** -torch.linspace(0, 9, dim)).unsqueeze(1))
        self.bias = nn.Parameter(torch.zeros(dim))

    def forward(self, age: Tensor) -> Tensor:
        """float64[...] -> [..., dim], of the dtype of the parameters."""
        return cosines(age, self.weight, self.bias)

    def now(self, rows: int) -> Tensor:
        """phi(0), [rows, dim] without memory of its own."""
        return torch.cos(self.bias).expand(rows, self.dim)


def cosines(age: Tensor, weight: Tensor, bias: Tensor, *, sines: bool = False) -> Tensor:
    """cos(weight age + bias), or the sine; the angle is formed and reduced in float64 or better.

    Args:
        age: float64[...], without gradient.
        weight, bias: [T, 1] and [T].

    Returns:
        [..., T] of the dtype of `weight`.
    """
    if serves_ages(weight.device):
        rows = encode_ages(age.flatten(), weight, bias, sines=sines)
        return rows.view(*age.shape, bias.numel())
    angle = torch.addcmul(bias.double(), age.unsqueeze(-1), weight.double().t())
    return (angle.sin() if sines else angle.cos()).to(weight.dtype)


def elapsed(later: Tensor, earlier: Tensor) -> Tensor:
    """later - earlier of float64 times that broadcast, without gradient.

    Times are float64 in every precision of a model, so what measures its rounding
    (`systems.base.conditioning`) must leave them alone: it does not disturb `out` arguments.
    """
    shape = torch.broadcast_shapes(later.shape, earlier.shape)
    return torch.sub(later, earlier, out=later.new_empty(shape))
