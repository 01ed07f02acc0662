"""Disturbances of a process: foreign load, stolen time, throttling, waiting for a core.

Each has a limit. What the rest of the machine does is measured against fixed ones. How often a
process is preempted and how long tasks wait for a core depends on what it does itself, so that both
are held against earlier processes of the same cell.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from dgbench.lab.probes import probe

MAX_FOREIGN: Final = 25.0
"""Percent of a core that others may take. In the kept runs on quiet machines with two cores 98 % of
processes saw less than 18."""
MAX_STOLEN: Final = 5.0
"""Percent of a core that the hypervisor may give to others."""
SWITCHES: Final = (4.0, 200.0)
"""Times as many involuntary context switches a second as earlier processes of the cell had, and so
many more, are too many."""
MORE_WAITING: Final = 25.0
"""Percent of the time, beyond that of earlier processes, in which tasks may wait for a core."""
EARLIER: Final = 2
"""Earlier processes of a cell that a comparison needs."""

_HOT: Final = ("hardware slowdown", "software thermal slowdown", "hardware thermal slowdown")
_FOREIGN, _STOLEN = probe("other_cpu_percent"), probe("stolen_cpu_percent")
_THROTTLED, _GPU_THROTTLED = probe("cpu_throttled"), probe("gpu_throttle")
_SWITCHES, _WAITING = probe("context_switches_involuntary"), probe("cpu_waiting_percent")


def disturbance(row: Any, earlier: Sequence[Any] = ()) -> str:
    """Disturbances of a process beyond the limits, in a few words, or "".

    Args:
        row: with its probes. earlier: rows of earlier processes of the same cell.
    """
    found = []
    if (foreign := _FOREIGN.read(row) or 0.0) > MAX_FOREIGN:
        found.append(f"other processes took {foreign:.0f} % of a core")
    if (stolen := _STOLEN.read(row) or 0.0) > MAX_STOLEN:
        found.append(f"{stolen:.0f} % of a core were stolen")
    if (count := _THROTTLED.read(row) or 0.0) > 0:
        found.append(f"the CPU was throttled {count:.0f} times")
    if hot := [word for word in _GPU_THROTTLED.words(row) or () if word in _HOT]:
        found.append(f"the GPU was throttled: {', '.join(hot)}")
    before = [one for one in earlier if one.ok and one.seconds > 0]
    if len(before) >= EARLIER and row.seconds > 0:
        usual = median((_SWITCHES.read(one) or 0.0) / one.seconds for one in before)
        switches = (_SWITCHES.read(row) or 0.0) / row.seconds
        if switches > SWITCHES[0] * usual + SWITCHES[1]:
            found.append(f"{switches:.0f} involuntary context switches a second, not {usual:.0f}")
        usual = median(_WAITING.read(one) or 0.0 for one in before)
        waiting = _WAITING.read(row) or 0.0
        if waiting > usual + MORE_WAITING:
            found.append(f"tasks waited for a core {waiting:.0f} % of the time, not {usual:.0f} %")
    return ", ".join(found)


def waiting_seconds(path: str = "/proc/pressure/cpu") -> float | None:
    """Seconds since the start in which some task waited for a core; None where nobody counts."""
    with contextlib.suppress(OSError, ValueError, IndexError), open(path) as file:
        return int(file.readline().rpartition("total=")[2]) / 1e6
    return None


def throttle_count(root: str = "/sys/devices/system/cpu") -> int | None:
    """Number of times that cores were throttled for heat; None where nobody counts."""
    counts = []
    for file in Path(root).glob("cpu[0-9]*/thermal_throttle/core_throttle_count"):
        with contextlib.suppress(OSError, ValueError):
            counts.append(int(file.read_text()))
    return sum(counts) if counts else None
