"""Distance of a computation from the kinks of its rectifiers.

A gradient jumps where a rectifier's argument changes sign. An argument nearer to zero than rounding
errors reach may have one sign in float64 and the other in float32, or in sums of another order;
both gradients are right then, and no tolerance of rounding holds between them. A test that compares
gradients over drawn inputs leaves such inputs out:

    assume(away_from_kinks(reference, inputs))
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

NEAR: Final = 1e-6
"""Distance that rounding errors of float32 reach: those of dot products of some hundred terms."""

_RECTIFIERS: Final = {
    torch.ops.aten.relu.default,
    torch.ops.aten.relu_.default,
    torch.ops.aten.leaky_relu.default,
    torch.ops.aten.leaky_relu_.default,
}


class KinkDistance(TorchDispatchMode):
    """Watches the rectifiers that run inside its `with`.

    Attributes:
        nearest: least |argument| of all, relative to the root mean square of the arguments of the
            same call; inf where there was none. Exact zeros are left out: they come from zeros, in
            every precision and order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.nearest = math.inf

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func in _RECTIFIERS:
            size = args[0].detach().double().abs()
            size = size[size > 0]
            if size.numel():
                mean = float(size.square().mean().sqrt())
                self.nearest = min(self.nearest, float(size.min()) / mean)
        return func(*args, **(kwargs or {}))


def away_from_kinks(function: Any, inputs: Sequence[Tensor]) -> bool:
    """Return whether no rectifier in `function(*inputs)`, run in float64, has one NEAR its kink."""
    with torch.no_grad(), KinkDistance() as kinks:
        function(*(x.detach().double() for x in inputs))
    return kinks.nearest > NEAR
