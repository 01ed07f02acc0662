"""Cosines of ages times frequencies, formed and reduced so that they are right in any unit of time.

float32 holds no angle of 1e8 seconds: two neighbouring numbers lie more than a turn apart, and what
a product plus a bias rounds to depends on whether a library fuses the two. Here the product is kept
exactly, whole turns are taken off it, and only the rest is rounded.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dgbench.kernels_cuda._checks import FLOATS, check_vector
from dgbench.kernels_cuda._dispatch import call
from dgbench.kernels_cuda.build_info import extension
from dgbench.kernels_cuda.workspace import scratch
from dgbench.runtime.errors import InvalidInputError, UnsupportedError


def encode_ages(ages: Tensor, weight: Tensor, bias: Tensor, *, sines: bool = False) -> Tensor:
    """cos(weight age + bias), or the sine, of every age and frequency.

    Right to 1e-7 in float32 and 1e-13 in float64 for angles up to 1e18 rad, 30 years of nanoseconds
    at a frequency of one, whatever the compiler fuses.

    Args:
        ages: float64[n], without gradient.
        weight: float32 or float64 [T, 1], radians per unit of time. bias: [T], its dtype.
        sines: sines instead of cosines.

    Returns:
        [n, T] of the dtype of `weight`; differentiable once in `weight` and `bias`.

    Raises:
        InvalidInputError: a shape or dtype that does not fit.
        UnsupportedError: no compiled operator for that device.
    """
    if not isinstance(weight, Tensor) or weight.dtype not in FLOATS:
        what = weight.dtype if isinstance(weight, Tensor) else type(weight).__name__
        raise InvalidInputError(f"weight is {what}, expected torch.float32 or torch.float64")
    check_vector(bias, "bias", weight.dtype, device=weight.device)
    check_vector(ages, "ages", torch.float64, device=weight.device)
    if tuple(weight.shape) != (bias.numel(), 1):
        raise InvalidInputError(
            f"weight has shape {list(weight.shape)}, expected [{bias.numel()}, 1] as bias has "
            f"{bias.numel()} elements"
        )
    return _EncodeAges.apply(ages.detach(), weight, bias, sines)


def serves_ages(device: torch.device) -> bool:
    """Return True if `encode_ages` is compiled for a device."""
    try:
        return hasattr(extension(device), "encode_ages")
    except UnsupportedError:
        return False


class _EncodeAges(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, ages: Tensor, weight: Tensor, bias: Tensor, sines: bool) -> Tensor:
        ctx.save_for_backward(ages, weight, bias)
        ctx.sines = sines
        return _encoded(ages, weight, bias, sines)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        ages, weight, bias = ctx.saved_tensors
        slope = _encoded(ages, weight, bias, not ctx.sines).mul_(grad)
        if not ctx.sines:
            slope.neg_()
        to_weight = (ages.to(slope.dtype).unsqueeze(0) @ slope).t()
        return None, to_weight, slope.sum(0), None


def _encoded(ages: Tensor, weight: Tensor, bias: Tensor, sines: bool) -> Tensor:
    weight, bias = weight.detach().flatten(), bias.detach().contiguous()
    out = scratch.empty((ages.numel(), weight.numel()), weight)
    call("encode_ages", weight.device, ages.contiguous(), weight, bias, out, sines)
    return out
