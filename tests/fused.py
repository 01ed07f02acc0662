"""Multiply-add of torch fused or not, as DGBENCH_FUSED=1 or 0 asks.

Whether a library rounds a product before it is added to something depends on the make of the CPU
and on how the library was built. A result that hangs on it is wrong somewhere: with either setting
every float32 product of torch in the process of the tests is computed in the one way or in the
other, so that such a result fails a test on any machine. Compiled operators and processes that are
started by a command stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

PLAIN = (Tensor, torch.nn.Parameter)
FEW_TERMS = 8
"""Sums of more products than this are left to torch where products are rounded: their order is not
said either."""


class MultiplyAdd(TorchDispatchMode):
    """Float32 products and sums of torch on the CPU in one rounding, or in one for each."""

    def __init__(self, *, fused: bool) -> None:
        super().__init__()
        self._fused = fused

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        given = dict(kwargs or {})
        name = func._schema.name.removeprefix("aten::")
        plain = name.rstrip("_")
        tensors = [one for one in args if isinstance(one, Tensor)]
        # `add` multiplies where it is given a factor.
        if (
            plain not in UNFUSED
            or not all(type(one) in PLAIN and one.device.type == "cpu" for one in tensors)
            or any(one.dtype != torch.float32 for one in tensors)
            or (plain in ("add", "sub") and given.get("alpha", 1) == 1)
        ):
            return func(*args, **given)
        out = given.pop("out", args[0] if name.endswith("_") else None)
        if self._fused:
            wide = [one.double() if isinstance(one, Tensor) else one for one in args]
            result = getattr(torch.ops.aten, plain)(*wide, **given).float()
        else:
            result = UNFUSED[plain](*args, **given)
        return result if out is None else out.resize_(result.shape).copy_(result)


def _product(a: Tensor, b: Tensor) -> Tensor:
    """a @ b with every product rounded before it is added to the others."""
    terms = a.shape[-1]
    if not 0 < terms <= FEW_TERMS or {a.layout, b.layout} != {torch.strided}:
        return a @ b
    total = a[..., :, :1] * b[..., :1, :]
    for k in range(1, terms):
        total = total + a[..., :, k : k + 1] * b[..., k : k + 1, :]
    return total


def _added(start: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    product = _product(a, b)
    product = product if alpha == 1 else product * alpha
    return product if beta == 0 else (start if beta == 1 else start * beta) + product


UNFUSED: dict[str, Callable[..., Tensor]] = {
    "mm": _product,
    "bmm": _product,
    "addmm": _added,
    "baddbmm": _added,
    "addcmul": lambda start, a, b, *, value=1: start + (a * b) * value,
    "addcdiv": lambda start, a, b, *, value=1: start + (a / b) * value,
    "add": lambda a, b, *, alpha=1: a + b * alpha,
    "sub": lambda a, b, *, alpha=1: a - b * alpha,
}
