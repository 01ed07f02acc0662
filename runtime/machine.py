"""Facts of the machine at hand that need no measuring: its processor, and its cache folder."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def cache_root() -> Path:
    """The cache folder: `DGBENCH_CACHE`, else `dgbench` in the user's cache folder."""
    named = os.environ.get("DGBENCH_CACHE")
    if named:
        return Path(named).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "dgbench"


def cpu_name() -> str:
    """The processor's name as the system gives it, `unknown` where it gives none."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.processor() or platform.machine() or "unknown"
