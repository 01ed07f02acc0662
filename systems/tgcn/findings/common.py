"""Helpers of findings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

from dgbench.lab.compare import Ratio

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


def beyond(ratio: Ratio, bar: float) -> int:
    """1 or -1 where it is decided on which side of a bar a ratio lies, else 0."""
    return ratio.beyond(bar)


def decided(sides: Iterable[int]) -> Fields:
    """Fields of a statement on several comparisons: it holds where all are for it, does not where
    one is against it, and is undecided elsewhere.

    Args:
        sides: 1 of a comparison for the statement, -1 against it, 0 inside the noise.
    """
    every = list(sides)
    return {"holds": min(every) > 0, "undecided": 0 in every and -1 not in every}


def shown(ratio: Ratio) -> Fields:
    """Fields that show a ratio: value, interval and processes."""
    return {
        "measured": ratio.value,
        "low": ratio.low,
        "high": ratio.high,
        "processes": ratio.processes,
    }
