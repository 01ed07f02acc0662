"""Run a command on one core, beside a load, or without a network (Linux).

    python scripts/run_under.py [--core N] [--load N] [--no-network] -- COMMAND...

Ends with the command's exit code.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
SIOCSIFFLAGS, IFF_UP = 0x8914, 1


@contextmanager
def load(processes: int) -> Iterator[None]:
    """Processes that compute without end."""
    busy = [sys.executable, "-c", "while True: pass"]
    running = [subprocess.Popen(busy) for _ in range(processes)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def leave_network() -> None:
    """Move this process to a network of its own, which has a loopback device and no other.

    Raises:
        OSError: this system does not let a process do so.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    flags = CLONE_NEWNET if os.geteuid() == 0 else CLONE_NEWUSER | CLONE_NEWNET
    if libc.unshare(flags):
        number = ctypes.get_errno()
        raise OSError(number, f"unshare: {os.strerror(number)}")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP))


def main(arguments: Sequence[str]) -> int:
    """Run the command under what was asked for; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--core", type=int, help="number of the only core to run on")
    parser.add_argument("--load", type=int, default=0, help="processes that compute beside it")
    parser.add_argument("--no-network", action="store_true", help="but the loopback device")
    parser.add_argument("command", nargs="+")
    given = parser.parse_args(arguments)
    if given.core is not None:
        os.sched_setaffinity(0, {given.core})
    if given.no_network:
        leave_network()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command decides
    with load(given.load):
        return subprocess.call(
            given.command, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
