"""A paper whose import asks the CUDA driver something, where the environment names a driver."""

from __future__ import annotations

import ctypes
import os

from fake_papers import lookup as _lookup

if driver := os.environ.get("DGBENCH_TEST_DRIVER"):
    ctypes.CDLL(driver).cuInit(0)


def lookup(name):
    return _lookup(name)
