"""What the checks share: how strong rows are as evidence, and findings from ratios."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dgbench.lab.evidence import from_ratio, ids, missing_finding, strength, uses_twin
from dgbench.systems.base import Claim, Finding

__all__ = [
    "counted",
    "from_ratio",
    "ids",
    "missing_finding",
    "needs_cuda",
    "strength",
    "uses_twin",
]

NEEDS_CUDA = "needs one CUDA device: nox -s reproduce -- pipad --device cuda"


def counted(
    rows: Sequence[Any],
    *,
    holds: bool | None,
    measured: Any,
    reason: str = "",
    target: float | None = None,
    direction: bool | None = None,
) -> Finding:
    """A finding from exact counters."""
    return Finding(
        measured=measured,
        holds=holds,
        direction=direction,
        target=target,
        evidence="counted",
        twin=uses_twin(rows),
        rows=ids(rows),
        reason=reason,
    )


def needs_cuda(claim: Claim, rows: Sequence[Any]) -> Finding:
    """For claims that only a GPU can answer."""
    return Finding(reason=NEEDS_CUDA)
