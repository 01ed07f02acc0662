"""The disk that fails on request: compiling `shim.c`, and telling it what to do.

It works for every user, needs no mount and no rights, and counts every operation that changes
something below a folder, so that a kill, a full disk or an error can be put at each of them.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

MODES: Final = ("off", "count", "kill", "tear", "full", "read-only", "broken")
STATE: Final = "DGBENCH_FAULT_STATE"


class _State(ctypes.Structure):
    _fields_ = [(n, ctypes.c_long) for n in ("mode", "pid", "count", "at", "bytes", "hits")] + [
        ("prefix", ctypes.c_char * 1024)
    ]


def compile_shim(folder: Path) -> Path | None:
    """The library, or None where there is no C compiler (the cases that need it say so)."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None or os.uname().sysname != "Linux":
        return None
    library = folder / "failing_disk.so"
    source = Path(__file__).with_name("shim.c")
    done = subprocess.run(
        [compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"],
        capture_output=True,
        text=True,
    )
    return library if done.returncode == 0 else None


class Disk:
    """State of the preloaded fault library, shared by this process and all that load it.

    Modes: `count` only counts operations; `kill` ends the process with SIGKILL before operation
    `at`, `tear` in the middle of it where it writes; `full` has room for `bytes`; `read-only`;
    `broken` fails operation `at` with an input/output error.
    """

    def __init__(self, path: Path) -> None:
        with open(path, "r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 4096)
        self._state = _State.from_buffer(self._memory)

    @staticmethod
    def make(path: Path) -> None:
        """The empty file that `DGBENCH_FAULT_STATE` shall name."""
        path.write_bytes(bytes(4096))

    def arm(self, mode: str, below: Path, *, at: int = 0, room: int = 0, pid: int = 0) -> None:
        """From now on fail so for paths below a folder, in one process or (0) in all."""
        state = self._state
        state.mode = 0
        state.pid, state.at, state.bytes = pid, at, room
        state.count = state.hits = 0
        state.prefix = os.fsencode(below.resolve())
        state.mode = MODES.index(mode)

    def only(self, pid: int) -> None:
        """Mean one process alone from now on."""
        self._state.pid = pid

    def disarm(self) -> None:
        """A good disk again; the counts stay."""
        self._state.mode = 0

    @property
    def count(self) -> int:
        """Operations seen since `arm`."""
        return self._state.count

    @property
    def hits(self) -> int:
        """Operations that failed, or that a process died in, since `arm`."""
        return self._state.hits
