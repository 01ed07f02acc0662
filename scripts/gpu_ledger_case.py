"""A workload of the ledger, ready to run, and what the families of them share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gpu_measure import error_of
from torch import Tensor

DRAW = 1 / 500
"""Share of the stated sizes that results are compared at, and that `--small` times."""


@dataclass
class Case:
    """One workload at one size on one device.

    Attributes:
        run: one call. deviation: of what it gives, from float64 or from the CPU; 0 is equal.
        before: makes each call ready; it is not timed.
        per: the time is divided by this, such as sweeps or draws.
        warm: left in the second-level cache between calls, as its prediction assumes.
        ways: seconds of two ways in turns, whose ratio is what was predicted, in place of a time.
        note: what is measured where that is not quite what was predicted.
    """

    run: Callable[[], object]
    deviation: Callable[[], float]
    before: Callable[[], object] | None = None
    per: float = 1.0
    warm: bool = False
    ways: Callable[[], tuple[float, float]] | None = None
    note: str = ""


Family = Callable[[float, str], Iterator[tuple[str, Case]]]
"""(share of the stated sizes, device) -> rows and their workloads, made as they are asked for."""


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
    return lambda: error_of(run().cpu(), right().cpu())
