"""Memory of a process tree, and what else the machine was doing."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import Any

import psutil

from dgbench.harness.probes.disturbance import throttle_count, waiting_seconds

REFRESH_S = 0.25
"""Seconds between refreshes of a tree's list of processes; their memory is read in between."""

CPU_S = 0.1
"""Seconds over which processor time becomes a percentage."""


class Tree:
    """Resident memory of a process and all below it, cheap enough for 50 readings a second.

    Pages that processes share are counted in each of them, so a tree of several processes is
    overstated by what they share.

    Attributes:
        peak_bytes: largest sum seen by `rss`. processes: most processes seen at once.
        last: the processes that the last reading was of.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.peak_bytes = 0
        self.processes = 1
        self.last = [pid]
        self._next = 0.0
        self._linux = os.path.exists("/proc/self/statm")

    def rss(self) -> int:
        """Bytes resident now; 0 when the process is gone."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + REFRESH_S
            self.last = self.pids()
            self.processes = max(self.processes, len(self.last))
        total = sum(self._one(pid) for pid in self.last)
        self.peak_bytes = max(self.peak_bytes, total)
        return total

    def pids(self) -> list[int]:
        """The process and its descendants that live now."""
        if not self._linux or not os.path.exists("/proc/self/task"):
            with contextlib.suppress(psutil.Error):
                below = psutil.Process(self.pid).children(recursive=True)
                return [self.pid, *(p.pid for p in below)]
            return [self.pid]
        found, waiting = [], [self.pid]
        while waiting:
            pid = waiting.pop()
            found.append(pid)
            with contextlib.suppress(OSError):
                for task in os.listdir(f"/proc/{pid}/task"):
                    with (
                        contextlib.suppress(OSError),
                        open(f"/proc/{pid}/task/{task}/children") as file,
                    ):
                        waiting += map(int, file.read().split())
        return found

    def _one(self, pid: int) -> int:
        if not self._linux:
            with contextlib.suppress(psutil.Error):
                return psutil.Process(pid).memory_info().rss
            return 0
        try:
            with open(f"/proc/{pid}/statm", "rb", buffering=0) as file:
                return int(file.read(256).split()[1]) * _PAGE
        except (OSError, IndexError):
            return 0


class TreeTime:
    """Processor time of a tree as percent of one core, over periods of `CPU_S`.

    On Linux each process has a clock of its own that anybody may read; its ticks are nanoseconds,
    where `/proc` counts hundredths of a second. What a process does before it is first seen and
    after it was last read is not in it, so that no late discovery looks like a peak.
    """

    def __init__(self, tree: Tree, now: float) -> None:
        """Begin at `now` (`time.monotonic`), when the root of the tree began."""
        self._tree, self._last = tree, now
        self._spent: dict[int, float] = {tree.pid: 0.0}

    def percent(self, now: float) -> float | None:
        """Percent of a core since the last answer; None while the period is not over."""
        passed = now - self._last
        if passed < CPU_S:
            return None
        spent = {}
        for pid in self._tree.last:
            if (seconds := cpu_seconds(pid)) is not None:
                spent[pid] = seconds
        if not spent:
            return None
        used = sum(spent[pid] - self._spent[pid] for pid in spent if pid in self._spent)
        self._last, self._spent = now, spent
        return max(0.0, 100 * used / passed)


def cpu_seconds(pid: int) -> float | None:
    """Processor seconds of all threads of a process; None where it is gone."""
    if _CLOCKS:
        try:
            return time.clock_gettime((~pid << 3) | 2)  # what clock_getcpuclockid(3) gives
        except OSError:
            return None
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.Error:
        return None
    return times.user + times.system


def _has_clocks() -> bool:
    """Return True if this system has a clock per process, as Linux does."""
    if sys.platform != "linux":
        return False
    try:
        return time.clock_gettime((~os.getpid() << 3) | 2) > 0
    except (OSError, OverflowError, AttributeError):
        return False


_CLOCKS = _has_clocks()


class MachineActivity:
    """Activity of the rest of the machine while a process ran.

    Use: make one before, call `probes` after.
    """

    def __init__(self) -> None:
        self._times = psutil.cpu_times()
        self._waited, self._throttled = waiting_seconds(), throttle_count()
        self._start = time.perf_counter()

    def probes(self, own_cpu_s: float) -> dict[str, Any]:
        """Disturbances by others (see `probes.disturbance`), and the load of the machine.

        `other_cpu_percent` is of one core and counts all processes but ours. What the system does
        not count is left out.
        """
        after = psutil.cpu_times()
        busy = _busy(after) - _busy(self._times)
        seconds = max(time.perf_counter() - self._start, 1e-9)
        found: dict[str, Any] = {
            # Kernel clock ticks are 10 ms, so short processes give coarse numbers.
            "other_cpu_percent": round(max(0.0, 100 * (busy - own_cpu_s) / seconds), 1)
        }
        if hasattr(after, "steal"):
            stolen = after.steal - self._times.steal
            found["stolen_cpu_percent"] = round(max(0.0, 100 * stolen / seconds), 1)
        if self._waited is not None and (waited := waiting_seconds()) is not None:
            found["cpu_waiting_percent"] = round(100 * (waited - self._waited) / seconds, 1)
        if self._throttled is not None and (throttled := throttle_count()) is not None:
            found["cpu_throttled"] = throttled - self._throttled
        if hasattr(os, "getloadavg"):
            found["load_average_1m"] = round(os.getloadavg()[0], 2)
        return found


def memory_kills() -> int:
    """Number of processes that Linux killed for lack of memory, here or in a control group."""
    with contextlib.suppress(OSError, ValueError), open("/proc/vmstat") as file:
        for line in file:
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def _busy(times: Any) -> float:
    idle = times.idle + getattr(times, "iowait", 0.0)
    # guest time is already part of user time
    return sum(times) - idle - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
