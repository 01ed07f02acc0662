"""What the checks share: how strong rows are as evidence, and findings from them."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from dgbench.systems.base import Finding
from dgbench.systems.base.evidence import from_ratio, ids, strength, uses_twin
from dgbench.systems.base.paper import Evidence

__all__ = ["as_printed", "finding", "from_ratio", "missing", "printed", "some", "strength"]

NEEDS_CUDA = "needs CUDA devices: nox -s reproduce -- esdg --device cuda"


_SUFFIXES = {"K": 10**3, "M": 10**6, "B": 10**9}


def printed(value: float | str) -> tuple[float, float]:
    """A printed number and half of its last digit: 5.2 -> (5.2, 0.05), "653 M" -> (653e6, 5e5).

    Raises:
        ValueError: no number with an optional K, M, B or %.
    """
    text = str(value).strip().removesuffix("%").strip()
    factor = _SUFFIXES.get(text[-1:].upper(), 1)
    digits = Decimal(text[:-1].strip() if factor > 1 else text)
    half = Decimal(5).scaleb(int(digits.as_tuple().exponent) - 1)
    return float(digits * factor), float(half * factor)


def as_printed(found: float, value: float | str) -> bool:
    """Whether a number, rounded to the digits of a printed one, is the printed one.

    A whole float such as 5.0 has one decimal; pass "0.0" for a zero of a column with decimals.
    """
    number, half = printed(value)
    return abs(found - number) <= half * (1 + 1e-9)


def some(number: int, word: str, many: str = "") -> str:
    """A number and what it counts: `1 graph`, `4 graphs`; `many` where an s is not enough."""
    return f"{number} {word if number == 1 else many or word + 's'}"


def missing(reason: str) -> Finding:
    """Nothing was measured, and why."""
    return Finding(reason=reason)


def finding(
    rows: Sequence[Any],
    *,
    evidence: Evidence,
    measured: Any,
    holds: bool | None = None,
    direction: bool | None = None,
    target: float | None = None,
    undecided: bool = False,
    reason: str = "",
) -> Finding:
    """A finding that rests on these rows."""
    deviations = [abs(d) for row in rows for d in row.deviation.values()]
    return Finding(
        measured=measured,
        holds=holds,
        direction=direction,
        target=target,
        evidence=evidence,
        twin=uses_twin(rows),
        rows=ids(rows),
        reason=reason,
        deviation=max(deviations, default=None),
        undecided=undecided,
    )
