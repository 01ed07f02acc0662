"""A workload that a time was predicted for, and what the families of them share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from torch import Tensor

DRAW = 1 / 500
"""Share of the stated sizes that results are compared at."""


@dataclass
class PredictedCase:
    """One workload at one size on one device.

    Attributes:
        run: one call. deviation: of what it gives, from float64 or from the CPU; 0 is equal.
        before: makes each call ready; it is not timed.
        per: a predicted time is one of so many, such as sweeps or draws.
        warm: left in the second-level cache between calls, as its prediction assumes.
        note: what is measured where that is not quite what was predicted.
    """

    run: Callable[[], object]
    deviation: Callable[[], float]
    before: Callable[[], object] | None = None
    per: float = 1.0
    warm: bool = False
    note: str = ""


Family = Callable[[float, str], Iterator[tuple[str, PredictedCase]]]
"""(share of the stated sizes, device) -> names of predictions and their workloads."""


def at(share: float, size: float, least: int = 1) -> int:
    """A share of a stated size."""
    return max(least, round(share * size))


def differing(found: Tensor, right: Tensor) -> float:
    """Share of elements that differ; 1 where shapes do."""
    if found.shape != right.shape:
        return 1.0
    return float((found.cpu() != right.cpu()).double().mean()) if right.numel() else 0.0


def against(run: Callable[[], Tensor], right: Callable[[], Tensor]) -> Callable[[], float]:
    """The deviation of floats from a reference in float64."""

    def deviation() -> float:
        found, wanted = run().cpu().double(), right().cpu().double()
        return float((found - wanted).norm() / wanted.norm())

    return deviation
