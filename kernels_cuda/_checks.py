"""Checks of arguments that several operators share, made before anything is launched."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from dgbench.runtime.errors import InvalidInputError

FLOATS = (torch.float32, torch.float64)


def check_features(x: Tensor, name: str, dims: int, rows: int, device: torch.device) -> None:
    """Check that `x` is a float tensor with `dims` dimensions, `rows` rows and a known device.

    Raises:
        InvalidInputError: with the argument's name, what was found and what is allowed.
    """
    if not isinstance(x, Tensor):
        raise InvalidInputError(f"{name} is a {type(x).__name__}, expected a torch.Tensor")
    if x.dtype not in FLOATS:
        raise InvalidInputError(
            f"{name} is {x.dtype}, expected torch.float32 (or torch.float64 to check gradients)",
            hint=f"pass `{name}.float()`",
        )
    if x.dim() != dims:
        raise InvalidInputError(f"{name} has shape {tuple(x.shape)}, expected {dims} dimensions")
    if x.shape[0] != rows:
        raise InvalidInputError(
            f"{name} has {x.shape[0]} rows, expected {rows}, the columns of the matrix"
        )
    if x.device != device:
        raise InvalidInputError(f"{name} lies on {x.device}, the matrix on {device}")


def check_scale(
    scale: Tensor | None, name: str, shape: Sequence[int], like: Tensor
) -> Tensor | None:
    """Check one scaling and return it contiguous, or None.

    Raises:
        InvalidInputError: another shape, dtype or device than needed, or a scale that wants a
            gradient: scales are data, the operators have no derivative to them.
    """
    if scale is None:
        return None
    if tuple(scale.shape) != tuple(shape):
        raise InvalidInputError(
            f"{name} has shape {tuple(scale.shape)}, expected {tuple(shape)}",
        )
    if scale.dtype != like.dtype or scale.device != like.device:
        raise InvalidInputError(
            f"{name} is {scale.dtype} on {scale.device}, expected {like.dtype} on "
            f"{like.device} as x"
        )
    if scale.requires_grad:
        raise InvalidInputError(
            f"{name} requires a gradient, the operator has none to it",
            hint=f"pass `{name}.detach()`, or multiply outside the operator",
        )
    return scale.contiguous()


def check_vector(
    array: Tensor,
    name: str,
    dtype: torch.dtype,
    length: int | None = None,
    *,
    device: torch.device | None = None,
) -> None:
    """Check that `array` is a one-dimensional tensor of `dtype` on `device`, the CPU if None.

    Raises:
        InvalidInputError: with the argument's name, what was found and what is allowed.
    """
    if not isinstance(array, Tensor):
        raise InvalidInputError(
            f"{name} is a {type(array).__name__}, expected a torch.Tensor",
            hint=f"pass `torch.as_tensor({name})`",
        )
    if array.dtype != dtype or array.dim() != 1:
        raise InvalidInputError(
            f"{name} is {array.dtype} with {array.dim()} dimensions, expected {dtype} with 1"
        )
    if array.device != (torch.device("cpu") if device is None else device):
        expected = "the CPU" if device is None else str(device)
        raise InvalidInputError(f"{name} lies on {array.device}, expected {expected}")
    if length is not None and array.numel() != length:
        raise InvalidInputError(f"{name} has {array.numel()} elements, expected {length}")


def check_ids(ids: Tensor, name: str, limit: int) -> None:
    """Check 0 <= ids < limit.

    Raises:
        InvalidInputError: with the range found and the range allowed.
    """
    if ids.numel() == 0:
        return
    low, high = torch.stack(torch.aminmax(ids)).tolist()  # one reading of a device
    if low < 0 or high >= limit:
        raise InvalidInputError(
            f"{name} must satisfy 0 <= x < {limit}, got values in [{low}, {high}]"
        )
