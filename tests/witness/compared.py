"""Results of a tested trainer beside those of a witness, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

EXACT = 1e-12
"""Largest deviation of a float64 result, relative to the largest entry and to one."""


def disagreements(
    own: Mapping[str, Any], expected: Mapping[str, Any], allowed: float = EXACT
) -> dict[str, float]:
    """Names whose values differ by more than rounding, with the deviation; 1 where it is no number.

    Values are tensors or floats, compared up to rounding, a float within a range of two, or
    anything else, compared exactly.
    """
    found = dict.fromkeys(own.keys() ^ expected.keys(), 1.0)
    for name in own.keys() & expected.keys():
        a, b = own[name], expected[name]
        if isinstance(b, tuple) and isinstance(a, float):
            least, largest = b
            b = min(max(a, least), largest)
        if not isinstance(b, (float, Tensor)):
            if a != b:
                found[name] = 1.0
            continue
        gap = deviation(torch.as_tensor(a).double(), torch.as_tensor(b).double())
        if not gap <= allowed:
            found[name] = gap
    return found


def deviation(own: Tensor, expected: Tensor) -> float:
    """Largest difference of two tensors over the largest entry, at least 1; 1 for other shapes."""
    if own.shape != expected.shape:
        return 1.0
    both = own.isfinite() & expected.isfinite()
    alike = (own == expected) | (own.isnan() & expected.isnan()) | both
    if not bool(alike.all()):
        return 1.0
    if not bool(both.any()):
        return 0.0
    size = max(1.0, float(expected[both].abs().max()))
    return float((own - expected)[both].abs().max()) / size
