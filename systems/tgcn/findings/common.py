"""Helpers of findings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

Rows = Sequence[Any]
Fields = dict[str, Any]

NEEDS_CUDA: Final = "needs CUDA devices: nox -s reproduce -- tgcn --device cuda"
DID_NOT_RUN: Final = "the experiment '{}' did not run"


def multiple(value: float, digits: str = ".2f") -> str:
    """A factor in words: 1.25x."""
    return f"{value:{digits}}x"


def geometric_mean(values: Iterable[float]) -> float:
    """The geometric mean."""
    every = list(values)
    return math.exp(sum(map(math.log, every)) / len(every))
