"""Choice of how recurrences multiply on CUDA: in float32, or split for tensor cores.

    float32   the default
    3xtf32    on tensor cores: each float32 in two parts of 11 significant bits, three products of
              parts, about as exact as float32. Of a width of 64 at most, on an architecture of 8.0
              or above; elsewhere float32. Infinite states become NaN.

Both give the same bits every time, and differ from each other by rounding. `DGBENCH_SCAN` says
which is taken where a call does not; a backward pass does as its forward pass did. The CPU knows
its own way alone.
"""

from __future__ import annotations

import os
from typing import Final

from torch import Tensor

from dgbench.kernels_cuda.build_info import extension
from dgbench.runtime.errors import InvalidInputError

SWITCH: Final = "DGBENCH_SCAN"
FLOAT32: Final = "float32"
SPLIT: Final = "3xtf32"
PRODUCTS: Final = (FLOAT32, SPLIT)
"""Names, in the order of the numbers that the compiled operators take."""


def number_of(products: str | None) -> int:
    """Number of a way to multiply; None for what the environment says.

    Raises:
        InvalidInputError: it is none of `PRODUCTS`.
    """
    name = products if products is not None else os.environ.get(SWITCH, "") or FLOAT32
    if name not in PRODUCTS:
        raise InvalidInputError(
            f"{'products' if products is not None else SWITCH} is '{name}', allowed are "
            f"{', '.join(PRODUCTS)}"
        )
    return PRODUCTS.index(name)


def splits(x: Tensor, w_hid: Tensor) -> bool:
    """Say whether `3xtf32` is not float32 for x [T, N, F] and w_hid [H, G * H] where they lie."""
    if x.device.type != "cuda":
        return False
    hidden, columns = w_hid.shape
    gates = columns // max(hidden, 1)
    return bool(extension(x.device).scan_splits(x.shape[2], hidden, gates))
