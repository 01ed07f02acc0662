"""Cases of which the suite asks a share, and `nox -s campaigns` the others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def mostly_nightly(cases: Iterable[Any], every: int) -> list[Any]:
    """Params of which each that is no `every`-th one is marked nightly."""
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)),
                     marks=[pytest.mark.nightly] * (number % every > 0))
        for number, case in enumerate(cases)
    ]  # fmt: skip
