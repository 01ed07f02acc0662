"""Shared resources of a run's processes: a mark to find them by, and their temporary files.

Every process of a run has the run's mark in its environment and the run's own folder as TMPDIR.
So what a cell leaves behind can be found whoever was killed: by the fork server after each cell, by
the runner when the server died, and by the next part of the run when both did.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
import time
import zlib
from pathlib import Path
from typing import Final

MARK: Final = "DGBENCH_MARK"
"""Environment variable with the mark."""

GONE_S: Final = 0.5
"""Seconds that killed processes have to be gone."""


def mark_of(run: str, path: Path) -> str:
    """The mark of a run: its id and its folder, for a copy of a run is another run."""
    return f"{run}-{zlib.crc32(os.fsencode(path.resolve())):08x}"


class Scratch:
    """The processes and temporary files of one mark.

    Attributes:
        folder: for temporary files; short, because sockets are put there.
    """

    def __init__(self, mark: str) -> None:
        self.mark = mark
        self.folder = Path(tempfile.gettempdir()) / f"dgbench-{mark}"

    def make(self) -> dict[str, str]:
        """Make the folder, empty; returns what the environment of the processes needs."""
        self.sweep()
        try:
            self.folder.mkdir(mode=0o700)
        except FileExistsError:  # somebody else's
            self.folder = Path(tempfile.mkdtemp(prefix="dgbench-"))
        common = tempfile.gettempdir()
        return {
            MARK: self.mark,
            "TMPDIR": str(self.folder),
            # what is shared by all processes of a user is no leftover: a spare cache of datasets,
            "DGBENCH_COMMON_TMP": common,
            # and what torch has compiled
            "TORCHINDUCTOR_CACHE_DIR": os.environ.get("TORCHINDUCTOR_CACHE_DIR")
            or os.path.join(common, f"torchinductor_{_user()}"),
        }

    def sweep(self) -> list[int]:
        """End every process of the mark but this one, and remove the folder; who was ended."""
        ended = end_marked(self.mark)
        shutil.rmtree(self.folder, ignore_errors=True)
        return ended


def empty() -> None:
    """In a process of a run: remove all that lies in the run's folder for temporary files."""
    if MARK not in os.environ:
        return
    with contextlib.suppress(OSError), os.scandir(os.environ["TMPDIR"]) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path, ignore_errors=True)
                else:
                    os.unlink(entry.path)


def leave() -> None:
    """In the last process of a run: end all others of the run and remove its folder."""
    if MARK in os.environ:
        end_marked(os.environ[MARK])
        shutil.rmtree(os.environ["TMPDIR"], ignore_errors=True)


def end_marked(mark: str) -> list[int]:
    """Kill every process of a mark except this one, and wait until they are gone."""
    ended: set[int] = set()
    end = time.monotonic() + GONE_S
    while found := marked(mark):
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        ended.update(found)
        if time.monotonic() > end:
            break
        time.sleep(0.002)
    return sorted(ended)


def marked(mark: str) -> list[int]:
    """Living processes of a mark, this one left out."""
    wanted = f"{MARK}={mark}".encode()
    me = os.getpid()
    if not os.path.exists("/proc/self/environ"):
        return _marked_elsewhere(mark, me)
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != me:
            with contextlib.suppress(OSError):
                with open(f"/proc/{entry}/environ", "rb", buffering=0) as file:
                    if wanted not in file.readall().split(b"\0"):
                        continue
                with open(f"/proc/{entry}/stat") as file:
                    if file.read().rpartition(")")[2].split()[0] not in "ZX":
                        found.append(int(entry))
    return found


def _marked_elsewhere(mark: str, me: int) -> list[int]:
    import psutil

    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid != me and process.environ().get(MARK) == mark:
                found.append(process.pid)
    return found


def _user() -> str:
    import getpass

    with contextlib.suppress(Exception):
        return getpass.getuser()
    return str(os.getuid())
