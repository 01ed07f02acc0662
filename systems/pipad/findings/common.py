"""Helpers of PiPAD's findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dgbench.lab.evidence import ids
from dgbench.systems.base import Finding

Rows = Sequence[Any]
NEEDS_CUDA = (
    "needs one CUDA device (nox -s reproduce -- pipad --device cuda), whose evidence is weak "
    "where the paper's datasets are twins"
)
MUCH = 2.0
"""Factor from which a share counts as far larger than another."""


def resting(rows: Rows, **fields: Any) -> Finding:
    """A finding that rests on these rows; nothing of it was compared with a reference."""
    return Finding(rows=ids(rows), **fields)


def percent(shares: Mapping[str, float]) -> str:
    """Named shares in words."""
    return ", ".join(f"{name} {100 * value:.0f} %" for name, value in shares.items())
