"""Readings of a soak between cells."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from dgbench.harness.runner.client import ForkServer
from dgbench.harness.runner.listener import Listener

SLOW_S = 8.0
"""A group with a cell that took longer is not drawn again: a soak needs many cells."""
MARK = "DGBENCH_SOAK"
"""Environment variable by which processes of this soak are known, wherever they went."""

SERIES = {
    "memory of the runner, without rows": ("MiB", 12.0),
    "memory of the fork server": ("MiB", 12.0),
    "descriptors": ("", 4.0),
    "threads": ("", 4.0),
    "temporary files": ("", 4.0),
    "processes left behind": ("", 1.0),
}
"""Name -> (unit, growth an hour that is allowed)."""
ROWS = "memory of its rows"
"""Memory that a run keeps until its end, MiB; subtracted from the runner's and listed beside it."""


class SoakWatch(Listener):
    """Takes readings between cells, and ends the run when its time is over.

    Attributes:
        readings: one dictionary each, by the names of `SERIES`, `ROWS`, `seconds` and `cells`.
        slow: (paper, experiment, group) with cells that took too long.
        beside: by the names of `TIMES`, those of the same cells in the old run and in the new, s.
    """

    def __init__(self, server: ForkServer, folder: Path, mark: str, *, every: float, end: float):
        self.server, self.folder, self.mark = server, folder, mark
        self.every, self.end = every, end
        self.begin = self.due = self.last = time.monotonic()
        self.readings: list[dict[str, float]] = []
        self.slow: set[tuple[str, str, str]] = set()
        self.rows = self.bad = self.kept = 0
        self.beside: dict[str, list[tuple[float, float]]] = {}

    def on_row(self, row: Any) -> None:
        now = time.monotonic()
        self.keep(row)
        if row.seconds and row.seconds > SLOW_S:
            self.slow.add((row.paper, row.experiment, row.group.partition(" lap ")[0]))
        if now >= self.due:
            self.read(now)
            self.due = now + self.every
        if now >= self.end:
            raise KeyboardInterrupt  # what Ctrl-C does: the row is kept, the run is partial

    def keep(self, row: Any) -> None:
        """Count a row that a store of this process keeps."""
        self.rows += 1
        self.bad += row.status in ("oom", "time", "crash", "check")
        self.kept += _deep_size(msgspec.structs.asdict(row), set())

    def read(self, now: float) -> None:
        """One reading of everything."""
        pids = (os.getpid(), self.server.pid)
        memory = [_resident(pid) for pid in pids]
        left = [pid for pid in _marked(self.mark) if pid != self.server.pid]
        reading = {
            "seconds": now - self.begin,
            "cells": float(self.rows),
            "memory of the runner, without rows": (memory[0] - self.kept) / 2**20,
            ROWS: self.kept / 2**20,
            "memory of the fork server": memory[1] / 2**20,
            "descriptors": float(sum(_entries(f"/proc/{pid}/fd") for pid in pids)),
            "threads": float(sum(_entries(f"/proc/{pid}/task") for pid in pids)),
            "temporary files": float(_files(self.folder)),
            "processes left behind": float(len(left)),
        }
        self.readings.append(reading)


def _deep_size(value: Any, seen: set[int]) -> int:
    """Bytes of plain values and of all in them, each object once."""
    if id(value) in seen:
        return 0
    seen.add(id(value))
    parts: Iterable[Any] = ()
    if isinstance(value, dict):
        parts = (*value, *value.values())
    elif isinstance(value, list | tuple):
        parts = value
    return sys.getsizeof(value) + sum(_deep_size(part, seen) for part in parts)


def _resident(pid: int) -> int:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _entries(folder: str) -> int:
    with contextlib.suppress(OSError):
        return len(os.listdir(folder))
    return 0


def _files(folder: Path) -> int:
    """Number of files in the temporary folder, and of unfinished ones in the run's folders."""
    left = sum(1 for _ in (folder / "tmp").rglob("*"))
    runs = (p for name in ("runs", "new") for p in (folder / name).rglob("*") if p.is_file())
    passing = (".result", ".part", ".probe", ".tmp")
    return left + sum(path.name.endswith(passing) for path in runs)


def _marked(mark: str) -> list[int]:
    """Processes of this soak beside the runner itself, whose environment is older than the mark."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                if wanted in Path("/proc", name, "environ").read_bytes().split(b"\0"):
                    found.append(int(name))
    return found
