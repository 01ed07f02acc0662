"""What a rank's process needs of the operating system."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import sys
import threading
import time
from typing import Final

PR_SET_PDEATHSIG: Final = 1
PARENT_CHECK_S: Final = 0.5


def die_with_parent(parent: int) -> None:
    """Have this process killed when the process `parent`, which started it, ends.

    The kernel does it on Linux. Elsewhere a thread looks twice a second, which does not help
    against code that never lets go of the interpreter.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    else:
        threading.Thread(target=_look_after, args=(parent,), daemon=True).start()
    if os.getppid() != parent:  # it ended before the kernel was asked
        os._exit(1)


def _look_after(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(PARENT_CHECK_S)
    os._exit(1)


def private_bytes(pid: int) -> int:
    """Resident memory of a process that is its own: not files, not shared memory.

    Pages that a forked process has inherited and not yet written to are included. 0 when the
    process is gone.
    """
    if sys.platform == "linux":
        with (
            contextlib.suppress(OSError, IndexError, ValueError),
            open(f"/proc/{pid}/statm", "rb", buffering=0) as file,
        ):
            resident, shared = file.read(256).split()[1:3]
            return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
        return 0
    import psutil

    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).memory_info().rss
    return 0


def below(pid: int) -> list[int]:
    """The processes that `pid` has started, and those that they have started."""
    if not os.path.exists(f"/proc/{os.getpid()}/task/{os.getpid()}/children"):
        import psutil

        with contextlib.suppress(psutil.Error):
            return [child.pid for child in psutil.Process(pid).children(recursive=True)]
        return []
    found, waiting = [], [pid]
    while waiting:
        parent = waiting.pop()
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{parent}/task"):
                with (
                    contextlib.suppress(OSError),
                    open(f"/proc/{parent}/task/{task}/children") as file,
                ):
                    waiting += map(int, file.read().split())
        if parent != pid:
            found.append(parent)
    return found


def kill_below(pid: int) -> None:
    """Kill what the process `pid` has started, and what that has started."""
    for child in below(pid):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(child, signal.SIGKILL)


def single_threaded() -> bool:
    """Whether this process has one thread, so that a fork of it is sound; False if unknown."""
    with contextlib.suppress(OSError):
        return len(os.listdir("/proc/self/task")) == 1
    return False


def loopback() -> str:
    """Name of the network interface of 127.0.0.1, or "" where there is none."""
    names = [name for _, name in socket.if_nameindex()] if hasattr(socket, "if_nameindex") else []
    return next((name for name in ("lo", "lo0") if name in names), "")


def signal_name(number: int) -> str:
    """`SIGKILL` for 9; `signal 77` for what has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
