"""What the checks share."""

from __future__ import annotations

from decimal import Decimal

from dgbench.lab.evidence import finding, from_ratio, missing, some, strength

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
