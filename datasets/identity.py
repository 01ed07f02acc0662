"""Telling a file that was changed from one that was not, without reading it again."""

from __future__ import annotations

import os
import time
from typing import Final

TICK_S: Final = 0.02
"""Seconds within which a file system may give two changes the same time."""

Identity = tuple[int, int, int, int]
"""Inode, size, time of the last write and time of the last change in nanoseconds.

A program can set the time of writing back, and copy a file over another one of the same size; it
cannot do so without a new inode or a new time of change.
"""


def identity(facts: os.stat_result) -> Identity:
    """The identity of a file from `os.stat`."""
    return facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns


def settle(known: Identity) -> None:
    """Wait until a further change would give a file another identity than `known`.

    To be called between taking an identity and reading the content it shall stand for.
    """
    if abs(time.time_ns() - known[3]) < TICK_S * 1e9:
        time.sleep(TICK_S)


def written_bytes(path: str) -> int:
    """Bytes of a private mapping of `path` that this process has changed in its memory.

    Whole pages; 0 where the system does not say (it is not Linux).
    """
    kib, inside = 0, False
    try:
        with open("/proc/self/smaps") as file:
            for line in file:
                head, _, rest = line.partition(" ")
                if not head.endswith(":"):
                    inside = rest.rstrip("\n").removesuffix(" (deleted)").endswith(path)
                elif inside and head in ("Anonymous:", "Swap:"):
                    kib += int(rest.split()[0])
    except OSError:
        return 0
    return 1024 * kib
