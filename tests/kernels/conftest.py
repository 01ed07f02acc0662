"""Operators work on the CPU, over the emulator and on a device, in the tests that say so."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "cuda"))

from device_fixtures import *  # noqa: F403
