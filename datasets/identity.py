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
    try:
        with open("/proc/self/smaps", "rb") as file:
            mappings = file.read()
    except OSError:
        return 0
    kib = 0
    for part in mappings.split(os.fsencode(path))[1:]:
        first, *facts = part.split(b"\n")
        if first not in (b"", b" (deleted)"):
            continue
        for fact in facts:
            name, _, value = fact.partition(b" ")
            if not name.endswith(b":"):  # the next mapping
                break
            if name in (b"Anonymous:", b"Swap:"):
                kib += int(value.split()[0])
    return 1024 * kib
