"""Two hosts on one machine: network namespaces joined by links, which programs enter by themselves.

A namespace lives as long as a small process that holds it, and ends with the tests. Links are pairs
of virtual Ethernet devices whose bandwidth is limited. Each of the hosts has two: `rows` and
`control`, so that what travels for a training's control is measured apart.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import psutil

CLONE_NEWNET: Final = 0x40000000
LINKS: Final = {"rows": "10.77.0", "control": "10.78.0"}
"""Networks of the links by name; hosts are .1 and .2 there."""

BYTES_PER_S: Final = 50_000_000
BURST: Final = 65_536
"""Limits of a link: bytes per second, and bytes that may pass at once."""

HOLDER: Final = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
print(0 if libc.unshare({flag}) == 0 else ctypes.get_errno(), flush=True)
sys.stdin.read()
"""


def enter(namespace: str) -> None:
    """Have this process, of one thread, in the network namespace of a file below /proc."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(namespace, os.O_RDONLY)
    if libc.setns(descriptor, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")
    os.close(descriptor)


class Unsupported(Exception):
    """There can be no such hosts here; says why."""


@dataclass
class Host:
    """A host, 1 or 2, whose namespace a process keeps, its holder."""

    number: int
    holder: subprocess.Popen[str]
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def namespace(self) -> str:
        return f"/proc/{self.holder.pid}/ns/net"

    def address(self, link: str = "rows") -> str:
        return f"{LINKS[link]}.{self.number}"

    def run(self, *words: str) -> str:
        """Output of a program of this machine there."""
        command = ["nsenter", f"--net={self.namespace}", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def sent(self, link: str) -> int:
        """Bytes that have left over a link, as the kernel says."""
        found = json.loads(self.run("ip", "-s", "-j", "link", "show", link))
        return found[0]["stats64"]["tx"]["bytes"]

    def start(self, python: list[str], *words: str, hangs: int = -1) -> subprocess.Popen[str]:
        """Start `dgbench` with these words there, by what stands for the interpreter."""
        command = [*python, __file__, self.namespace, str(hangs), *words]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        self.started.append(process)
        return process

    def processes(self) -> list[psutil.Process]:
        """All processes there but the one that keeps the namespace."""
        wanted, found = os.stat(self.namespace).st_ino, []
        assert wanted != os.stat("/proc/self/ns/net").st_ino, "this machine is no host of a test"
        for process in psutil.process_iter():
            with contextlib.suppress(OSError, psutil.Error):
                there = os.stat(f"/proc/{process.pid}/ns/net").st_ino == wanted
                if there and process.pid != self.holder.pid:
                    found.append(process)
        return found

    def lose(self) -> None:
        """Kill all that runs there at once, as when a machine fails."""
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                process.kill()

    def close(self) -> None:
        self.lose()
        for process in self.started:
            process.kill()
            process.communicate()
        self.holder.communicate()


@contextlib.contextmanager
def two_hosts() -> Iterator[tuple[Host, Host]]:
    """Two hosts whose links have limits. Raises Unsupported where there can be none."""
    missing = [name for name in ("ip", "tc", "nsenter") if shutil.which(name) is None]
    if missing or sys.platform != "linux":
        raise Unsupported(f"no {', '.join(missing)} here to join network namespaces")
    hosts: list[Host] = []
    try:
        try:
            _join(hosts)
        except (OSError, ValueError, subprocess.CalledProcessError) as error:
            said = " ".join((getattr(error, "stderr", "") or str(error)).split())
            raise Unsupported(f"network namespaces are not permitted here: {said}") from error
        yield hosts[0], hosts[1]
    finally:
        for host in hosts:
            host.close()


def _join(hosts: list[Host]) -> None:
    """Start two hosts and join them by links; `hosts` are those to close."""
    for number in (1, 2):
        holder = subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", HOLDER.format(flag=CLONE_NEWNET)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        if reason := int(holder.stdout.readline()):
            holder.communicate()  # it is where this process is, and no host
            raise OSError(reason, os.strerror(reason))
        hosts.append(Host(number, holder))
    one, two = hosts
    for link in LINKS:
        peer = ["peer", "name", link, "netns", str(two.holder.pid)]
        one.run("ip", "link", "add", link, "type", "veth", *peer)
        for host in hosts:
            host.run("ip", "address", "add", f"{host.address(link)}/24", "dev", link)
            host.run("ip", "link", "set", link, "up")
            limit = ["rate", f"{BYTES_PER_S}bps", "burst", f"{BURST}b", "latency", "400ms"]
            host.run("tc", "qdisc", "add", "dev", link, "root", "tbf", *limit)
    for host in hosts:
        host.run("ip", "link", "set", "lo", "up")


def hang_after(epochs: int) -> None:
    """Stand still after so many epochs, before another one is kept."""
    from dgbench.systems.base.adam import AdamTrainer

    keep, done = AdamTrainer.training_state, []

    def hang(self: AdamTrainer) -> dict[str, Any]:
        done.append(1)
        while len(done) > epochs:
            time.sleep(1)
        return keep(self)

    AdamTrainer.training_state = hang


if __name__ == "__main__":  # FILE NAMESPACE HANGS WORD...: `dgbench WORD...` there
    enter(sys.argv[1])
    if (_epochs := int(sys.argv[2])) >= 0:
        hang_after(_epochs)
    from dgbench.harness.cli import main

    main(sys.argv[3:])
