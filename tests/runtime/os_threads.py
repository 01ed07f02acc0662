"""Threads of this process as the operating system lists them."""

from __future__ import annotations

from pathlib import Path

TASKS = Path("/proc/self/task")


def copy_threads() -> int:
    """Threads of this process that copy for a link; 0 where the system does not tell."""
    names = []
    for task in TASKS.glob("*/comm"):
        try:
            names.append(task.read_text().strip())
        except OSError:
            continue  # it ended meanwhile
    return names.count("dgbench-copy")
