"""Printed numbers: what a ledger says, and whether a measured number is the printed one.

plain("34K")                      # 34000.0
same_printed(13_670_000, 13_000_000)  # True: papers cut as often as they round
as_printed(5.18, 5.2)             # True, half of the last digit off at most
"""

from __future__ import annotations

from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, Final

from dgbench.runtime.documents import load_yaml

_SUFFIXES: Final = {"K": 10**3, "M": 10**6, "B": 10**9}


@cache
def ledger(path: Path) -> dict[str, Any]:
    """Value of each claim of a ledger, by its id without the paper's prefix."""
    claims = load_yaml(path.read_bytes())
    return {one["id"].partition("-")[2]: one.get("value") for one in claims}


def expanded(path: Path, claim: str) -> dict[str, Any]:
    """The numbers of a claim with their suffixes multiplied out; empty where it is not in it."""
    return dict((ledger(path).get(claim) or {}).get("expanded", {}))


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


def plain(value: float | str) -> float:
    """A printed number with its suffix multiplied out: 34000 of `34K`."""
    return printed(value)[0]


def as_printed(found: float, value: float | str) -> bool:
    """Return True if a number, rounded to the digits of a printed value, equals that value.

    A whole float such as 5.0 has one decimal; pass "0.0" for a zero of a column with decimals.
    """
    number, half = printed(value)
    return abs(found - number) <= half * (1 + 1e-9)


def same_printed(found: float, value: float, *, digits: int = 2) -> bool:
    """Return True if rounding or truncating a number to the printed digits (at least `digits`)
    gives `value`.

    Papers cut as often as they round: 82,529 is printed as 82 K. Whole numbers with no zeros
    behind their digits must be equal.
    """
    if value == int(value):
        text = str(int(value))
        unit = 10.0 ** (len(text) - max(digits, len(text.rstrip("0"))))
    else:
        unit = 10.0 ** -len(str(value).partition(".")[2])
    return -unit <= 2 * (found - value) < 2 * unit
