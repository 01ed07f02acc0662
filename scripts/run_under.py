"""Run a command on one core, beside a load, without a network or as an ordinary user (Linux).

    python scripts/run_under.py [--core N] [--load N] [--no-network] [--user] -- COMMAND...

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
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
SIOCSIFFLAGS, IFF_UP = 0x8914, 1
PR_CAPBSET_DROP, CAPABILITIES = 24, 64


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


@contextmanager
def read_only_home() -> Iterator[None]:
    """A home that only the privileged can write to."""
    with tempfile.TemporaryDirectory(prefix="home-") as home:
        os.chmod(home, 0o555)
        before = os.environ.get("HOME")
        os.environ["HOME"] = home
        try:
            yield
        finally:
            os.environ.pop("HOME")
            os.environ |= {} if before is None else {"HOME": before}
            os.chmod(home, 0o755)


def leave_privileges() -> None:
    """Let what this process executes next have no privileges, also where it is root.

    Root without capabilities is an ordinary user who owns root's files: interpreters below root's
    home can still be run, which another user could not.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in range(CAPABILITIES):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)  # an error: the kernel knows no such one


def main(arguments: Sequence[str]) -> int:
    """Run the command under what was asked for; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--core", type=int, help="number of the only core to run on")
    parser.add_argument("--load", type=int, default=0, help="processes that compute beside it")
    parser.add_argument("--no-network", action="store_true", help="but the loopback device")
    parser.add_argument("--user", action="store_true", help="no privileges, a read-only home")
    parser.add_argument("command", nargs="+")
    given = parser.parse_args(arguments)
    if given.core is not None:
        os.sched_setaffinity(0, {given.core})
    if given.no_network:
        leave_network()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command decides

    def begin() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if given.user:
            leave_privileges()

    with load(given.load), read_only_home() if given.user else nullcontext():
        return subprocess.call(given.command, preexec_fn=begin)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
