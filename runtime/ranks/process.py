"""Operating system settings of a rank's process."""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing as mp
import os
import signal
import socket
import sys
import threading
from multiprocessing.connection import wait
from typing import Final

PR_SET_PDEATHSIG: Final = 1
M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3


def die_with_launcher() -> None:
    """Have this process killed when the one that launched it ends, however that ends.

    On Linux the kernel kills it when its parent ends: the launcher, or the server that forks for
    the launcher and ends with it. Elsewhere a thread waits for the launcher's end, which does not
    help against code that never lets go of the interpreter.
    """
    launcher = mp.parent_process()
    sure = _let_go_of_server() and sys.platform == "linux"
    if sure:
        try:
            sure = ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL) == 0
        except (OSError, AttributeError):
            sure = False
    if launcher is None:
        return
    if not launcher.is_alive():  # it ended before the kernel was asked
        os._exit(1)
    if not sure:
        threading.Thread(target=_outlive, args=(launcher.sentinel,), daemon=True).start()


def _let_go_of_server() -> bool:
    """Give up this process's share in its fork server, which else would live as long as it does.

    The server ends when nobody holds the other end of a pipe, and it hands that end to all its
    children, so that they could ask it for children of their own.
    """
    server = sys.modules.get("multiprocessing.forkserver")
    if server is None:
        return True
    state = getattr(server, "_forkserver", None)
    if state is None or not hasattr(state, "_forkserver_alive_fd"):
        return False
    descriptor, state._forkserver_alive_fd = state._forkserver_alive_fd, None
    if descriptor is not None:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    state._forkserver_address, state._forkserver_pid = None, None
    return True


def _outlive(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


def keep_freed_memory() -> None:
    """Have glibc keep freed memory for the next tensor instead of giving it back.

    An epoch takes and frees the same tensors again and again; by default the larger ones are mapped
    anew each time, and the kernel clears every page of them, a tenth of an epoch's processor time.
    Above 32 MB, the most that glibc takes as a threshold, nothing changes. Elsewhere: nothing.
    """
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_THRESHOLD, 32 * 2**20)
        libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def drop_freed_memory() -> None:
    """Have glibc give all memory that nobody holds back to the system. Elsewhere: nothing.

    A forked process inherits what its launcher had freed, and would take it for its own tensors
    without a page more being seen by `private_bytes`.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


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


def may_fork(threads: int) -> bool:
    """Return True if a fork of this process can compute with `threads` threads.

    With any number where this process has one thread itself. With one thread also where it has
    used OpenMP: the pool's threads are lost in a fork, but a single thread never asks for them
    (torch's data loaders rest on the same). Not where Python threads run, which may hold locks.
    """
    if sys.platform != "linux":
        return False
    with contextlib.suppress(OSError):
        if len(os.listdir("/proc/self/task")) == 1:
            return True
    return threads == 1 and threading.active_count() == 1


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
