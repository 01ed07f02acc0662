"""Fixtures of the emulated and of a device's functions; systems that travel over an arena."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

# Whole systems are tested on the tiny snapshots of their own tests, operators on the CPU's cases.
for folder in ("systems", "kernels"):
    sys.path.append(str(Path(__file__).resolve().parents[1] / folder))

from device_fixtures import *  # noqa: E402, F403

from dgbench.runtime.precision import plain_products  # noqa: E402


@pytest.fixture(params=["host", pytest.param("cuda", marks=pytest.mark.cuda)])
def where(request) -> str:
    """`host` or `cuda`, whose products are then in full single precision, as the reference's."""
    if request.param == "cuda":
        request.getfixturevalue("usable_device")
        plain_products()
    return request.param


@pytest.fixture
def place(where: str) -> str:
    """Link that inputs travel over: to an arena in memory, or to a device."""
    return "arena" if where == "host" else where
