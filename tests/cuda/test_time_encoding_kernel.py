"""Encodings of ages on a device are those of the CPU."""

from __future__ import annotations

import pytest
import torch

from dgbench.kernels_cuda.time_encoding import encode_ages


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sines", [False, True])
def test_a_device_encodes_as_the_cpu_does(native, dtype, sines) -> None:
    for span in (1.0, 1e8, 1e16, 1e30):
        draw = torch.Generator().manual_seed(5)
        ages = span * torch.rand(70, generator=draw, dtype=torch.float64)
        weight = (10.0 ** -torch.linspace(0, 9, 37)).to(dtype)
        bias = torch.randn(37, generator=draw).to(dtype)
        out = native.poisoned(70, 37).to(dtype)
        native.call("encode_ages", *map(native.put, (ages, weight, bias)), out, sines)
        bound = 1e-7 if dtype.itemsize == 4 else 1e-13
        if span < 1e18:
            right = encode_ages(ages, weight.unsqueeze(1), bias, sines=sines)
            assert torch.allclose(out.cpu(), right, rtol=0, atol=bound)
        else:
            assert bool((out.abs() <= 1.000001).all())
